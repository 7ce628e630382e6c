// Gaps of every two classes -> a heat map of over- and under-prediction by predicted class.

FIGURES.matrix = { follows: ["method"], specs: () => methodsShown().map(matrixSpec) };

// Names stand beside the matrix, and aslant below it, where they take less room.
const BELOW = 0.85;
const [ABOVE, UNDER] = [34, 18]; // pixels for the scale and for the title of the axis
const matrixRoom = (width) => Math.min(120, 0.3 * width);

function matrixSpec(method) {
  const { names, methods, of } = data.matrix;
  const { gap, deviation, predicted } = methods[method];
  const cells = names.flatMap((_, i) => names.map((_, j) => ({ i, j, gap: gap[i][j], noise: deviation[i][j] })))
    .filter((cell) => cell.gap !== null);
  const strongest = Math.max(...Object.values(methods).flatMap((other) => other.gap.flat()).map((value) => Math.abs(value ?? 0)));
  const widest = cells.reduce((best, cell) => (Math.abs(cell.gap) > Math.abs(best.gap) ? cell : best), cells[0]);
  const text = ({ i, j, gap: by, noise }) =>
    `${names[i]} is predicted (${rows(predicted[i])}), the probability of ${names[j]} is ${points(by)} too ${by > 0 ? "high" : "low"}` +
    (noise > 0 ? `, ${(Math.abs(by) / noise).toFixed(1)} standard deviations` : "");
  const shown = names.length < of ? `${names.length} of ${of.toLocaleString("en")} classes, those predicted most often. ` : "";
  return {
    title: method,
    summary: `${shown}Largest: where ${text(widest)}.`,
    bare: true,
    nearest: [1, 1],
    height: (width) => width - (1 - BELOW) * matrixRoom(width) + ABOVE + UNDER,
    frame: (width, height, x, y) => matrixFrame(width, height, x, y),
    x: { range: [-0.5, names.length - 0.5] },
    y: { range: [names.length - 0.5, -0.5] },
    marks: [
      ...cells.map((cell) => matrixCell(cell, strongest)),
      (svg, at) => matrixNames(svg, at, names),
      (svg, at) => matrixScale(svg, at, strongest),
    ],
    points: cells.map((cell) => ({ x: cell.j, y: cell.i, text: `Where ${text(cell)}` })),
    table: {
      headings: ["predicted", ...names],
      lines: names.map((name, i) => [name, ...gap[i].map((value) => (value === null ? "never" : percent(value)))]),
    },
  };
}

function matrixFrame(width, height, x, y) {
  const room = matrixRoom(width);
  const at = { left: room, right: width - 4, top: ABOVE, bottom: height - BELOW * room - UNDER, width, height };
  return { ...at, x: scale(x, [at.left, at.right]), y: scale(y, [at.bottom, at.top]) };
}

const CHANCE = 2; // standard deviations: a smaller gap is left blank

const matrixCell = ({ i, j, gap, noise }, strongest) => (svg, at) => {
  const size = at.x(1) - at.x(0);
  const certain = Math.abs(gap) > CHANCE * noise;
  svg.append(element("rect", {
    class: certain ? (gap > 0 ? "over" : "under") : "blank", "fill-opacity": certain ? Math.abs(gap / strongest || 0).toFixed(3) : 1,
    x: at.x(j) - size / 2, y: at.y(i) - size / 2, width: Math.max(1, size - 1), height: Math.max(1, size - 1),
  }));
};

// The scale of the colours, above the matrix: from the strongest under-prediction to the strongest over-prediction.
function matrixScale(svg, at, strongest) {
  const steps = [-1, -0.75, -0.5, -0.25, 0, 0.25, 0.5, 0.75, 1];
  const width = (at.right - at.left) / steps.length;
  steps.forEach((step, place) => {
    const kind = step ? (step > 0 ? "over" : "under") : "blank";
    svg.append(element("rect", { class: kind, "fill-opacity": Math.abs(step) || 1, x: at.left + place * width, y: 2, width: width - 1, height: 10 }));
    if (place % 2) return;
    const text = signedNumber(100 * step * strongest, strongest < 0.1 ? 1 : 0);
    svg.append(element("text", { x: at.left + (place + 0.5) * width, y: 25, "text-anchor": "middle" }, text));
  });
  svg.append(element("text", { x: at.left - 6, y: 12, "text-anchor": "end" }, "points"));
}

// Every name where there is room, else every second, third...
function matrixNames(svg, at, names) {
  const half = (at.top + at.bottom) / 2;
  svg.append(element("text", { x: 11, y: half, "text-anchor": "middle", transform: `rotate(-90 11 ${half})` }, "predicted class"));
  svg.append(element("text", { x: (at.left + at.right) / 2, y: at.height - 5, "text-anchor": "middle" }, "label"));
  const every = Math.ceil(13 / (at.x(1) - at.x(0)));
  const room = Math.floor((at.left - 18) / 6.8);
  names.forEach((name, place) => {
    if (place % every) return;
    const short = name.length > room ? `${name.slice(0, room - 1)}…` : name;
    svg.append(element("text", { x: at.left - 4, y: at.y(place) + 4, "text-anchor": "end" }, short));
    const [x, y] = [at.x(place) + 4, at.bottom + 6];
    svg.append(element("text", { x, y, "text-anchor": "end", transform: `rotate(-55 ${x} ${y})` }, short));
  });
}
