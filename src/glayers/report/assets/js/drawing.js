// A spec and an empty picture -> SVG: axes, and marks drawn from columns. Nothing here knows what is drawn.

const MARGIN = 0.04; // of an axis, beyond the marks
const LINE = 30; // pixels of one line of names

function element(name, attributes = {}, text = "") {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text) made.textContent = text;
  return made;
}

// The entries that a mark draws: the place of each, and the values of its columns, or a number for all.
function entriesOf({ columns }, { values, only }) {
  const lists = values.map((value) => (typeof value === "string" ? columns[value] : [value]));
  const longest = only ? columns[only[0]] : lists.reduce((one, other) => (other.length > one.length ? other : one));
  return longest
    .map((_, place) => ({ place, values: lists.map((list) => (list.length === 1 ? list[0] : list[place])) }))
    .filter(({ place, values }) => (!only || longest[place] === only[1]) && !values.includes(null));
}

// The ends of an axis; where a spec leaves one open, it lies a little beyond the marks of all specs.
function ends(specs, axis) {
  const { low, high } = specs[0][axis];
  const first = axis === "x" ? 0 : 1;
  const along = ({ kind }, values) => (kind === "boxes" || kind === "segments" ? [values[first], values[first + 2]] : [values[first]]);
  const reached = specs.flatMap((spec) => spec.marks.flatMap((mark) => entriesOf(spec, mark).flatMap(({ values }) => along(mark, values))));
  const [least, most] = [Math.min(...reached), Math.max(...reached)];
  const margin = MARGIN * (most - least) || MARGIN;
  return [low ?? least - margin, high ?? most + margin];
}

const scale = ([low, high], [from, to]) => (value) => from + ((value - low) / (high - low || 1)) * (to - from);

// Round numbers, about so many, that cover a range.
function ticks([low, high], wanted) {
  const rough = (high - low) / wanted;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((times) => times * power).find((size) => size >= rough * 0.9);
  const first = Math.ceil(low / step - 1e-9);
  const number = Math.floor(high / step + 1e-9) - first + 1;
  return Array.from({ length: number }, (_, place) => Number(((first + place) * step).toPrecision(12)));
}

function tickText(value, unit) {
  const number = Number((unit === "number" ? value : 100 * value).toPrecision(6));
  return `${number}${unit === "percent" ? "%" : ""}`.replace("-", "\u2212");
}

// Grid lines, numbers or names, and labels.
function drawAxes(svg, at, { x, y }) {
  const text = (of, words) => words && svg.append(element("text", { "text-anchor": "middle", ...of }, words));
  for (const value of ticks(at.range.x, at.right - at.left < 300 ? 4 : 5)) {
    svg.append(element("line", { class: "grid", x1: at.x(value), x2: at.x(value), y1: at.top, y2: at.bottom }));
    text({ x: at.x(value), y: at.bottom + 16 }, tickText(value, x.unit));
  }
  for (const value of y.names.length ? [] : ticks(at.range.y, 5)) {
    svg.append(element("line", { class: "grid", x1: at.left, x2: at.right, y1: at.y(value), y2: at.y(value) }));
    text({ x: at.left - 6, y: at.y(value) + 4, "text-anchor": "end" }, tickText(value, y.unit));
  }
  const room = Math.floor((at.left - 20) / 7.2);
  y.names.forEach((name, place) => {
    const shown = name.length > room ? `${name.slice(0, room - 1)}\u2026` : name;
    text({ x: at.left - 8, y: at.y(place) + 4, "text-anchor": "end" }, shown);
  });
  text({ x: Math.min((at.left + at.right) / 2, at.width - 3.4 * x.label.length), y: at.bottom + 34 }, x.label);
  const level = (at.top + at.bottom) / 2;
  text({ x: 12, y: level, transform: `rotate(-90 12 ${level})` }, y.label);
}

// Each kind of mark: the values of its entries, its look and the frame -> elements.
const DRAW = {
  line: (entries, look, at) => [element("polyline", { class: look, points: entries.map(([x, y]) => `${at.x(x).toFixed(1)},${at.y(y).toFixed(1)}`).join(" ") })],
  boxes: (entries, look, at) => entries.map(([x1, y1, x2, y2]) => element("rect", {
    class: `${look} area`, x: at.x(x1), y: at.y(y2), width: Math.max(1, at.x(x2) - at.x(x1)), height: Math.max(0.5, at.y(y1) - at.y(y2)),
  })),
  segments: (entries, look, at) => entries.map(([x1, y1, x2, y2]) =>
    element("line", { class: look, x1: at.x(x1), y1: at.y(y1), x2: at.x(x2), y2: at.y(y2) })),
  dots: (entries, look, at) => entries.map(([x, y, radius = 4.5]) => look === "before"
    ? element("rect", { class: look, x: at.x(x) - radius, y: at.y(y) - radius, width: 2 * radius, height: 2 * radius })
    : element("circle", { class: look, cx: at.x(x), cy: at.y(y), r: radius })),
};

// `beside` are the specs of all panels of the figure, which share their ends. A dot says the numbers of its line in `table`.
function drawSpec(svg, spec, beside, table) {
  const width = Math.max(240, svg.parentNode.clientWidth);
  const names = spec.y.names.length;
  const left = names ? Math.min(170, 0.34 * width) : 60;
  const right = width - 20;
  const height = names ? LINE * Math.max(2, names) : Math.min(360, spec.height * (right - left));
  const range = { x: ends(beside, "x"), y: ends(beside, "y") };
  const at = { width, left, right, top: 10, bottom: 10 + height, range };
  at.x = scale(range.x, [left, right]);
  at.y = scale(range.y, names ? [at.top, at.bottom] : [at.bottom, at.top]);
  svg.setAttribute("viewBox", `0 0 ${width} ${height + 50}`);
  svg.replaceChildren();
  drawAxes(svg, at, spec);
  for (const mark of spec.marks) {
    const entries = entriesOf(spec, mark);
    const made = DRAW[mark.kind](entries.map(({ values }) => values), mark.look, at);
    if (mark.kind === "dots") made.forEach((dot, n) => dot.append(element("title", {}, lineOf(table, entries[n].place))));
    svg.append(...made);
  }
}

function lineOf(table, place) {
  const [first, ...cells] = table.tBodies[0].rows[place].cells;
  return [first.textContent, ...cells.map((cell) => `${cell.dataset.label} ${cell.textContent}`)].join(", ");
}
