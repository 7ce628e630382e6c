// Numbers -> SVG: scales, axes and a few marks. Nothing here knows what is drawn.

const SVG = "http://www.w3.org/2000/svg";
const LETTER = 6.6; // pixels of an average letter of a label

function element(name, attributes = {}, text = "") {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text) made.textContent = text;
  return made;
}

const scale = ([low, high], [from, to]) => (value) => from + ((value - low) / (high - low || 1)) * (to - from);

// Round numbers, about so many, that cover a range.
function ticks([low, high], wanted) {
  const rough = (high - low) / wanted;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((times) => times * power).find((size) => size >= rough * 0.999);
  const first = Math.ceil(low / step - 1e-9);
  const count = Math.floor(high / step + 1e-9) - first + 1;
  return Array.from({ length: count }, (_, place) => (first + place) * step);
}

// As many digits as tell neighbouring ticks apart, as percentages.
function percentTick(values) {
  const step = values.length > 1 ? 100 * (values[1] - values[0]) : 1;
  const digits = Math.max(0, -Math.floor(Math.log10(step) + 1e-9));
  return (value) => `${(100 * value).toFixed(digits)}%`;
}

// A name beside an axis, cut where there is no room.
function axisName(svg, at, name, y, letter = 7.5) {
  const room = Math.floor(at.left / letter);
  const short = name.length > room ? `${name.slice(0, room - 1)}…` : name;
  svg.append(element("text", { x: at.left - 8, y: at.y(y) + 4, "text-anchor": "end" }, short));
}

// The frame of a plot: pixels of its edges, and scales from data to them.
function frame(width, height, x, y, left = 60) {
  const box = { left, right: width - 20, top: 10, bottom: height - 40 };
  return { ...box, width, height, x: scale(x, [box.left, box.right]), y: scale(y, [box.bottom, box.top]) };
}

function axes(svg, at, spec) {
  const xs = ticks(spec.x.range, at.width < 330 ? 4 : 5);
  const xText = (spec.x.text ?? percentTick)(xs);
  for (const value of xs) {
    svg.append(element("line", { class: "grid", x1: at.x(value), x2: at.x(value), y1: at.top, y2: at.bottom }));
    svg.append(element("text", { x: at.x(value), y: at.bottom + 16, "text-anchor": "middle" }, withMinus(xText(value))));
  }
  // Below the middle of the plot, unless the words would be cut at an edge.
  const half = (LETTER * spec.x.label.length) / 2;
  const middle = Math.max(half, Math.min((at.left + at.right) / 2, at.width - half));
  svg.append(element("text", { x: middle, y: at.height - 6, "text-anchor": "middle" }, spec.x.label));
  if (spec.y.hidden) return;
  const level = (at.top + at.bottom) / 2;
  svg.append(element("text", { x: 12, y: level, "text-anchor": "middle", transform: `rotate(-90 12 ${level})` }, spec.y.label ?? ""));
  const ys = ticks(spec.y.range, 5);
  const yText = (spec.y.text ?? percentTick)(ys);
  for (const value of ys) {
    svg.append(element("line", { class: "grid", x1: at.left, x2: at.right, y1: at.y(value), y2: at.y(value) }));
    svg.append(element("text", { x: at.left - 6, y: at.y(value) + 4, "text-anchor": "end" }, withMinus(yText(value))));
  }
}

const pathOf = (xs, ys, at) => xs.map((x, i) => `${i ? "L" : "M"}${at.x(x).toFixed(1)} ${at.y(ys[i]).toFixed(1)}`).join("");

const line = (xs, ys, kind) => (svg, at) => svg.append(element("path", { class: kind, d: pathOf(xs, ys, at) }));

const band = (xs, low, high, kind = "band") => (svg, at) => {
  const back = pathOf([...xs].reverse(), [...high].reverse(), at).replace("M", "L");
  svg.append(element("path", { class: kind, d: `${pathOf(xs, low, at)}${back}Z` }));
};

const stretch = (x1, y1, x2, y2, kind) => (svg, at) =>
  svg.append(element("line", { class: kind, x1: at.x(x1), y1: at.y(y1), x2: at.x(x2), y2: at.y(y2) }));

const box = (x1, y1, x2, y2, kind) => (svg, at) =>
  svg.append(element("rect", {
    class: kind, x: at.x(x1), y: at.y(y2),
    width: Math.max(1, at.x(x2) - at.x(x1)), height: Math.max(0.5, at.y(y1) - at.y(y2)),
  }));

const words = (x, y, text, anchor = "start", shift = [0, 0]) => (svg, at) =>
  svg.append(element("text", { x: at.x(x) + shift[0], y: at.y(y) + shift[1], "text-anchor": anchor }, text));

const dot = (x, y, kind, radius = 4.5) => (svg, at) =>
  svg.append(element("circle", { class: kind, cx: at.x(x), cy: at.y(y), r: radius }));
