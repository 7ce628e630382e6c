// A spec -> SVG: its marks, drawn from its columns, and its axes. Nothing here knows what is drawn.

const SVG = "http://www.w3.org/2000/svg";
const LETTER = 6.6; // pixels of an average letter of a label
const MARGIN = 0.04; // of an axis, beyond the marks

function element(name, attributes = {}, text = "") {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text) made.textContent = text;
  return made;
}

// The entries that a mark draws: for each, the values of its columns, or a number or text for all.
function entriesOf({ columns }, { values, only = [] }) {
  const lists = values.map((value) => (typeof value === "string" ? columns[value] ?? [value] : [value]));
  const chosen = only.length ? columns[only[0]] : lists.find((list) => list.length !== 1) ?? lists[0];
  return chosen
    .map((_, place) => place)
    .filter((place) => !only.length || only.slice(1).includes(chosen[place]))
    .map((place) => lists.map((list) => (list.length === 1 ? list[0] : list[place])));
}

// Of the values of each kind of mark, those along x and those along y.
const ALONG = { line: [[0], [1]], boxes: [[0, 2], [1, 3]], segments: [[0, 2], [1, 3]], dots: [[0], [1]], cells: [[], []], words: [[], []] };

// The ends of an axis; where a spec leaves one open, it lies a little beyond the marks of all specs.
function ends(specs, axis) {
  const { low, high, turned, log, names } = specs[0].view[axis];
  const along = ({ kind }) => ALONG[kind][axis === "x" ? 0 : 1];
  const reached = specs.flatMap((spec) => spec.view.marks.flatMap((mark) =>
    entriesOf(spec, mark).flatMap((entry) => along(mark).map((which) => entry[which])))).filter((value) => value !== null);
  const [least, most] = [Math.min(...reached), Math.max(...reached)];
  const margin = log ? 0 : MARGIN * (most - least) || MARGIN;
  const range = [low ?? least - margin, high ?? (log ? 3 * most : most + margin)];
  return turned !== (axis === "y" && names.length > 0) ? range.reverse() : range;
}

const scale = ([low, high], [from, to], log) => {
  const of = log ? Math.log10 : (value) => value;
  return (value) => from + ((of(value) - of(low)) / (of(high) - of(low) || 1)) * (to - from);
};

// Round numbers, about so many, that cover a range; on a logarithmic axis powers of ten.
function ticks(range, wanted, log) {
  const [low, high] = [Math.min(...range), Math.max(...range)];
  if (log) return [1, 10, 100, 1e3, 1e4, 1e5, 1e6, 1e7].filter((tick) => tick >= low && tick <= high);
  const rough = (high - low) / wanted;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((times) => times * power).find((size) => size >= rough * 0.9);
  const first = Math.ceil(low / step - 1e-9);
  const number = Math.floor(high / step + 1e-9) - first + 1;
  return Array.from({ length: number }, (_, place) => Number(((first + place) * step).toPrecision(12)));
}

function tickText(value, unit) {
  if (unit === "rows") return value >= 1e6 ? `${value / 1e6}M` : value >= 1e3 ? `${value / 1e3}k` : String(value);
  const number = Number((unit === "number" ? value : 100 * value).toPrecision(6));
  return withMinus(`${number}${unit === "percent" ? "%" : ""}`);
}

const cut = (name, room) => (name.length > room ? `${name.slice(0, Math.max(1, room - 1))}\u2026` : name);

function drawNames(svg, at, axis, names) {
  const along = at[axis];
  const every = Math.ceil(13 / Math.abs(along(1) - along(0)));
  names.forEach((name, place) => {
    if (place % every) return;
    if (axis === "y") svg.append(element("text", { x: at.left - 8, y: along(place) + 4, "text-anchor": "end" }, cut(name, Math.floor((at.left - 26) / 7.2))));
    else if (!at.slanted) svg.append(element("text", { x: along(place), y: at.bottom + 16, "text-anchor": "middle" }, name));
    else {
      const [x, y] = [along(place) + 4, at.bottom + 8];
      svg.append(element("text", { x, y, "text-anchor": "end", transform: `rotate(-55 ${x} ${y})` }, cut(name, at.slanted)));
    }
  });
}

// Grid lines, numbers or names, and labels; along x only where nothing below has the same axis.
function drawAxes(svg, at, { x, y }) {
  const text = (of, words) => words && svg.append(element("text", { "text-anchor": "middle", ...of }, words));
  const xs = x.names.length ? [] : ticks(at.range.x, at.right - at.left < 270 ? 4 : 5, x.log);
  const ys = y.names.length ? [] : ticks(at.range.y, Math.min(5, (at.bottom - at.top) / 22), y.log);
  for (const value of xs) {
    svg.append(element("line", { class: "grid", x1: at.x(value), x2: at.x(value), y1: at.top, y2: at.bottom }));
    if (at.below) text({ x: at.x(value), y: at.bottom + 16 }, tickText(value, x.unit));
  }
  for (const value of ys) {
    svg.append(element("line", { class: "grid", x1: at.left, x2: at.right, y1: at.y(value), y2: at.y(value) }));
    text({ x: at.left - 6, y: at.y(value) + 4, "text-anchor": "end" }, tickText(value, y.unit));
  }
  drawNames(svg, at, "x", x.names);
  drawNames(svg, at, "y", y.names);
  // Below the middle of the plot, unless the words would be cut at an edge.
  const half = (LETTER * x.label.length) / 2;
  if (at.below) text({ x: Math.max(half, Math.min((at.left + at.right) / 2, at.width - half)), y: at.bottom + at.below - 6 }, x.label);
  const level = (at.top + at.bottom) / 2;
  text({ x: 12, y: level, transform: `rotate(-90 12 ${level})` }, y.label);
}

// A path through points, within the frame; where one is missing it begins anew.
function pathOf(points, at) {
  let pen = "M";
  const inside = (y) => Math.min(at.bottom, Math.max(at.top, at.y(y)));
  return points.map(([x, y]) => {
    const step = y === null || x === null ? "" : `${pen}${at.x(x).toFixed(1)} ${inside(y).toFixed(1)}`;
    pen = step ? "L" : "M";
    return step;
  }).join("");
}

// Each kind of mark: its entries, its look and the frame -> elements.
const DRAW = {
  line: (entries, look, at) => [element("path", { class: look, d: pathOf(entries, at) })],
  boxes: (entries, look, at) => entries.map(([x1, y1, x2, y2]) => element("rect", {
    class: `${look} area`, x: at.x(x1), y: at.y(y2), width: Math.max(1, at.x(x2) - at.x(x1)), height: Math.max(0.5, at.y(y1) - at.y(y2)),
  })),
  segments: (entries, look, at) => entries.map(([x1, y1, x2, y2]) =>
    element("line", { class: look, x1: at.x(x1), y1: at.y(y1), x2: at.x(x2), y2: at.y(y2) })),
  dots: (entries, look, at) => entries.map(([x, y, radius = 4.5]) => element("circle", { class: look, cx: at.x(x), cy: at.y(y), r: radius })),
  cells: (entries, look, at) => entries.map(([column, row, strength]) => {
    const [x, y] = [at.x(column - 0.5), Math.min(at.y(row - 0.5), at.y(row + 0.5))];
    const size = { width: Math.max(1, at.x(column + 0.5) - x - 1), height: Math.max(1, Math.abs(at.y(row + 0.5) - at.y(row - 0.5)) - 1) };
    const kind = strength ? (strength > 0 ? "over" : "under") : "blank";
    return element("rect", { class: kind, "fill-opacity": Math.abs(strength) || 1, x, y, ...size });
  }),
  words: (entries, look, at) => entries.map(([x, y, text, side]) => element("text", { class: look, x: at.x(x), y: at.y(y) + 4, "text-anchor": side }, text)),
};

function drawSpec(svg, at, spec) {
  drawAxes(svg, at, spec.view);
  for (const mark of spec.view.marks) svg.append(...DRAW[mark.kind](entriesOf(spec, mark), mark.look, at));
}
