// Tables: numbers behind a figure, downloads, sorting by a click on a heading, and the table of all classes.

// The numbers of the panels as tables, made when somebody opens them.
function fillTables(figure, specs, drawn) {
  const details = figure.querySelector("details.numbers");
  const fill = () => {
    if (!details.open) return;
    details.querySelector(".tables").replaceChildren(...specs.map(tableOf));
    const name = (place) => `${figure.id}${specs.length > 1 ? `-${place + 1}` : ""}`;
    const buttons = specs.flatMap((spec, place) => [
      download(`${name(place)}.svg`, "image/svg+xml", () => standalone(drawn[place].svg)),
      download(`${name(place)}.csv`, "text/csv", () => csvOf(numbersOf(spec))),
    ]);
    details.querySelector(".downloads").replaceChildren(...buttons);
  };
  details.ontoggle = fill;
  fill();
}

// The columns of a spec that have a heading, as text.
function numbersOf({ view, columns }) {
  const lines = columns[view.point[0]].map((_, place) =>
    view.table.map((name) => written(columns[name][place], headingOf(name)[1], view)));
  return { headings: view.table.map((name) => headingOf(name)[0]), lines };
}

function download(name, type, make) {
  const button = Object.assign(document.createElement("button"), { type: "button", textContent: name });
  button.setAttribute("aria-label", `Download ${name}`);
  button.addEventListener("click", () => {
    const address = URL.createObjectURL(new Blob([make()], { type }));
    Object.assign(document.createElement("a"), { href: address, download: name }).click();
    setTimeout(() => URL.revokeObjectURL(address), 1000);
  });
  return button;
}

// A cell that a spreadsheet would take for a formula is quoted as text.
const csvCell = (cell) => {
  const text = String(cell).replaceAll("\u00a0", " ").replaceAll("\u2212", "-");
  const safe = /^[=@\t\r]|^[+-](?![\d.])/.test(text) ? `'${text}` : text;
  return /[",\n\r]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
};
const csvOf = ({ headings, lines }) => `${[headings, ...lines].map((cells) => cells.map(csvCell).join(",")).join("\n")}\n`;

// A picture that needs no style sheet: what the page's style makes of each mark is written onto it.
const STYLED = ["fill", "fill-opacity", "stroke", "stroke-width", "stroke-opacity", "stroke-dasharray", "paint-order", "font-size", "font-family"];
function standalone(svg) {
  const copy = svg.cloneNode(true);
  copy.querySelector(".cursor")?.remove();
  const marks = [...svg.querySelectorAll("*")].filter((mark) => !mark.classList.contains("cursor"));
  [...copy.querySelectorAll("*")].forEach((mark, place) => {
    const style = getComputedStyle(marks[place]);
    for (const name of STYLED) mark.setAttribute(name, style.getPropertyValue(name));
  });
  const [, , width, height] = svg.getAttribute("viewBox").split(" ");
  copy.prepend(element("rect", { width, height, fill: getComputedStyle(document.body).backgroundColor }));
  for (const [key, value] of Object.entries({ xmlns: SVG, width, height })) copy.setAttribute(key, value);
  return new XMLSerializer().serializeToString(copy);
}

function tableOf(spec) {
  const { title } = spec;
  const { headings, lines } = numbersOf(spec);
  const host = document.createElement("div");
  host.className = "scroll";
  host.tabIndex = 0;
  host.setAttribute("role", "region");
  host.setAttribute("aria-label", title);
  const table = host.appendChild(document.createElement("table"));
  table.createCaption().append(Object.assign(document.createElement("span"), { textContent: title }));
  fillHead(table.createTHead(), headings);
  fillBody(table.createTBody(), headings, lines);
  return host;
}

function fillHead(head, headings) {
  const row = document.createElement("tr");
  for (const heading of headings) {
    row.append(Object.assign(document.createElement("th"), { scope: "col", textContent: heading }));
  }
  head.replaceChildren(row);
}

function fillBody(body, headings, lines) {
  body.replaceChildren(...lines.map((cells) => {
    const row = document.createElement("tr");
    cells.forEach((cell, place) => {
      const made = Object.assign(document.createElement(place ? "td" : "th"), { textContent: cell });
      if (place) made.dataset.label = headings[place];
      else made.scope = "row";
      row.append(made);
    });
    return row;
  }));
}

// The number that a cell begins with; a cell without one comes last.
function sortKey(cell) {
  const text = (cell.querySelector(".value") ?? cell).textContent.replaceAll("\u2212", "-").replaceAll(",", "").trim();
  const number = Number.parseFloat(text.replace(/^p\s[=<\u2264]\s/, ""));
  return Number.isNaN(number) ? text.toLowerCase() || "\uffff" : number;
}

const compareKeys = (a, b) => (typeof a === typeof b ? (a > b) - (a < b) : typeof a === "number" ? -1 : 1);

function makeSortable(table) {
  [...table.tHead.rows[0].cells].forEach((heading, place) => {
    const button = Object.assign(document.createElement("button"), { type: "button", className: "sort" });
    button.setAttribute("aria-label", `Sort by ${heading.textContent}`);
    heading.append(button);
    button.addEventListener("click", () => {
      const rising = heading.getAttribute("aria-sort") !== "ascending";
      for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
      heading.setAttribute("aria-sort", rising ? "ascending" : "descending");
      const body = table.tBodies[0];
      const keyed = [...body.rows].map((row) => [sortKey(row.cells[place]), row]);
      keyed.sort(([a], [b]) => (rising ? 1 : -1) * compareKeys(a, b));
      body.append(...keyed.map(([, row]) => row));
    });
  });
}

// The numbers before and after, for the method of the menu.
function fillChanges() {
  const method = byId("method").value;
  const table = byId("changes");
  table.tHead.querySelector("bdi").textContent = method;
  data.changes[method].forEach(([after, word, tone], place) => {
    const [, , value, meaning] = table.tBodies[0].rows[place].cells;
    value.textContent = after;
    meaning.firstElementChild.textContent = word;
    meaning.firstElementChild.className = `word ${tone}`;
  });
}

// All classes, worst first; the search leaves those whose name contains the words.
const CLASS_COLUMNS = [
  ["gap in points", (of, c) => `${written(of.gap[c], "points")}${of.significant[c] ? "*" : ""}`],
  ["predicted rows", (of, c) => count(of.rows[c] ?? 0)],
  ["confidence", (of, c) => written(of.confidence[c], "percent")],
  ["accuracy", (of, c) => written(of.accuracy[c], "percent")],
  ["class KS", (of, c) => written(of.ks[c], "percent")],
];
function fillClasses() {
  const { names, methods, rows, calibration, level } = data.classes;
  const table = byId("class-table");
  const asked = byId("class-search").value.trim().toLowerCase();
  const shown = methodsShown();
  const { order } = methods[shown.at(-1)];
  const found = order.filter((c) => names[c].toLowerCase().includes(asked));
  const columns = CLASS_COLUMNS.flatMap(([heading, of]) =>
    shown.map((name) => [`${heading}, ${name === data.uncalibrated ? "before" : name}`, (c) => of(methods[name], c)]));
  const counted = [["test rows", (c) => count(rows[c])], ...(calibration ? [["calibration rows", (c) => count(calibration[c])]] : [])];
  const all = [["class", (c) => names[c]], ...columns.slice(0, shown.length), ...counted, ...columns.slice(shown.length)];
  const headings = all.map(([heading]) => heading);
  fillHead(table.tHead, headings);
  fillBody(table.tBodies[0], headings, found.map((c) => all.map(([, of]) => of(c))));
  makeSortable(table);
  byId("class-count").textContent = `${count(found.length)} of ${count(order.length)} classes. A gap is mean confidence minus accuracy where the class is predicted. * significant at the ${Number((100 * (1 - level)).toPrecision(3))}\u00a0% level, corrected for the number of classes. \u2013 the class is never predicted.`;
}
