// The headline and the tiles -> a picture of 1200 x 630 pixels to share, drawn in the page and saved as a PNG file.

const MARKS = { good: "\u2713 ", fair: "! ", bad: "\u2717 " };

// Words in lines of at most so many letters; a number stays with its sign.
function lines(words, most) {
  const found = [""];
  for (const word of words.trim().split(/[ \n]+/)) {
    const longer = `${found.at(-1)} ${word}`.trim();
    if (longer.length <= most) found[found.length - 1] = longer;
    else found.push(word);
  }
  return found;
}

function drawCard() {
  const colours = getComputedStyle(document.body);
  const svg = element("svg", { width: 1200, height: 630, "font-family": "Arial, 'Liberation Sans', sans-serif", fill: colours.color });
  svg.append(element("rect", { width: 1200, height: 630, fill: colours.backgroundColor }));
  let top = 60;
  const write = (words, left, size, width, weight = 400) => {
    for (const line of lines(words, width / ((weight > 400 ? 0.54 : 0.48) * size))) {
      svg.append(element("text", { x: left, y: top, "font-size": size, "font-weight": weight }, line));
      top += 1.3 * size;
    }
  };
  const [title, headline, sentence] = [".toolbar p", "#headline", ".sentence"].map((part) => document.querySelector(part).textContent);
  write(title, 40, 20, 1120);
  top += 35;
  write(headline, 40, 40, 1120, 700);
  write(sentence, 40, 22, 1120);
  const tiles = document.querySelectorAll(".answers li");
  const width = 1120 / tiles.length;
  const bottom = top;
  tiles.forEach((tile, place) => {
    const left = 40 + place * width;
    const [question, answer, detail] = [...tile.children].map((part) => part.textContent);
    svg.append(element("rect", { x: left, y: bottom, width: width - 14, height: 5, fill: getComputedStyle(tile).borderTopColor }));
    top = bottom + 36;
    write(question, left, 17, width - 14);
    top += 8;
    write(`${MARKS[tile.className] ?? ""}${answer}`, left, 24, width - 14, 700);
    write(detail, left, 15, width - 14);
  });
  return svg;
}

function saveCard() {
  const picture = new Image();
  picture.addEventListener("load", () => {
    const canvas = document.createElement("canvas");
    [canvas.width, canvas.height] = [1200, 630];
    canvas.getContext("2d").drawImage(picture, 0, 0);
    const link = document.createElement("a");
    link.download = "calibration.png";
    link.href = canvas.toDataURL("image/png");
    link.click();
  });
  picture.src = `data:image/svg+xml,${encodeURIComponent(new XMLSerializer().serializeToString(drawCard()))}`;
}
