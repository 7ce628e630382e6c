// A picture, a slider and a line of text -> one panel: pointing, touching and arrow keys read the same points.

const TALLEST = 360; // pixels of a plot without its labels
const LINE = 30; // pixels of one line of names
const TOP = 10;
const RIGHT = 20;
const BELOW = 40; // pixels for the numbers and the label of the x axis

// A spec of the page's data: its parts in the place of their numbers.
function specAt(place) {
  const [viewPlace, table, strip, title, summary] = data.specs[place];
  const parts = { view: data.views[viewPlace], columns: data.tables[table], title: data.texts[title], summary: data.texts[summary] };
  return { ...parts, strip: strip === null ? null : specAt(strip) };
}

const sameAxis = (one, other) => JSON.stringify(one) === JSON.stringify(other);

// Pixels of the plot's edges, and scales from data to them; `specs` are drawn beside each other and share their ends.
function frameOf(specs, top, width, height, left, below) {
  const { x, y } = specs[0].view;
  const box = { left, right: width - RIGHT, top, bottom: top + height, width, below };
  const range = { x: ends(specs, "x"), y: ends(specs, "y") };
  return { ...box, range, x: scale(range.x, [box.left, box.right], x.log), y: scale(range.y, [box.bottom, box.top], y.log) };
}

// The frames of a spec and of its strip, and the size of the picture.
function layoutOf(specs, room) {
  const { view, strip } = specs[0];
  const listed = view.y.names.length > 0 && !view.x.names.length;
  const left = view.y.names.length ? Math.min(listed ? 170 : 120, 0.34 * room) : 60;
  const square = view.height === 1 && !view.y.names.length;
  const width = square ? Math.min(room, TALLEST + left + RIGHT) : room;
  const wanted = view.height * (width - left - RIGHT);
  const height = listed ? LINE * Math.max(2, view.y.names.length) : view.x.names.length ? wanted : Math.min(wanted, TALLEST);
  const longest = Math.max(...view.x.names.map((name) => name.length), 0);
  const slanted = longest > 3 ? Math.min(longest, Math.floor(left / LETTER)) : 0;
  const shared = strip && sameAxis(view.x, strip.view.x);
  const below = shared ? 0 : slanted ? 0.85 * LETTER * slanted + 34 : BELOW;
  const frames = [{ ...frameOf(specs, TOP, width, height, left, below), slanted }];
  let bottom = TOP + height + below;
  if (strip) {
    const high = Math.max(16, strip.view.height * height);
    frames.push(frameOf(specs.map((spec) => spec.strip), bottom + 12, width, high, left, BELOW));
    bottom += 12 + high + BELOW;
  }
  return { frames, width, height: bottom, square };
}

class Panel {
  constructor(host) {
    const root = document.createElement("div");
    root.className = "panel";
    this.title = document.createElement("h4");
    this.svg = element("svg", { role: "img" });
    this.slider = Object.assign(document.createElement("input"), { type: "range", min: 0, step: 1 });
    this.output = document.createElement("output");
    this.output.setAttribute("aria-live", "polite");
    this.tip = Object.assign(document.createElement("div"), { className: "tip", hidden: true });
    this.tip.setAttribute("aria-hidden", "true");
    const picture = Object.assign(document.createElement("div"), { className: "picture" });
    picture.append(this.svg, this.tip);
    const reader = Object.assign(document.createElement("label"), { className: "reader", textContent: "Read values" });
    reader.append(this.slider);
    root.append(this.title, picture, reader, this.output);
    host.append(root);
    this.others = [];
    this.figure = host.closest("figure").querySelector("h3").textContent;
    this.points = [];
    this.svg.addEventListener("pointermove", (event) => this.point(event));
    this.svg.addEventListener("pointerdown", (event) => this.point(event));
    this.svg.addEventListener("pointerleave", () => [this, ...this.others].forEach((panel) => panel.rest()));
    this.slider.addEventListener("input", () => this.read(Number(this.slider.value)));
    this.slider.addEventListener("focus", () => this.read(Number(this.slider.value)));
    this.slider.addEventListener("blur", () => this.rest());
  }

  // `beside` are the specs of all panels of the figure.
  show(spec, beside) {
    this.spec = spec;
    this.beside = beside.filter((other) => sameAxis(other.view, spec.view));
    const [x, y] = spec.view.point.map((name) => spec.columns[name]);
    this.points = x.map((value, place) => ({ x: value, y: y[place] }));
    this.title.textContent = spec.title;
    this.slider.max = Math.max(0, this.points.length - 1);
    this.slider.value = Math.floor(this.points.length / 2);
    this.slider.setAttribute("aria-label", `Read values: ${this.figure}, ${spec.title}`);
    this.draw();
    this.rest();
  }

  draw() {
    const layout = layoutOf(this.beside, Math.max(240, this.svg.parentNode.clientWidth));
    this.at = { ...layout.frames[0], height: layout.height };
    this.svg.classList.toggle("square", layout.square);
    this.svg.setAttribute("viewBox", `0 0 ${layout.width} ${layout.height}`);
    this.svg.setAttribute("aria-label", `${this.figure}, ${this.spec.title}. ${this.spec.summary}`);
    this.svg.replaceChildren();
    [this.spec, this.spec.strip].filter(Boolean).forEach((spec, place) => drawSpec(this.svg, layout.frames[place], spec));
    this.cursor = element("circle", { class: "cursor", r: 8, visibility: "hidden" });
    this.svg.append(this.cursor);
  }

  // The nearest point, by the distances that count in the view.
  point(event) {
    const seen = this.svg.getBoundingClientRect();
    const unit = this.at.width / seen.width;
    const [px, py] = [(event.clientX - seen.left) * unit, (event.clientY - seen.top) * unit];
    const [wx, wy] = this.spec.view.nearest;
    const far = ({ x, y }) => wx * (this.at.x(x) - px) ** 2 + wy * (this.at.y(y) - py) ** 2;
    const best = nearestOf(this.points, far);
    this.read(best);
    // The panels beside it read the same place.
    const here = this.points[best];
    for (const other of here ? this.others : []) {
      other.read(nearestOf(other.points, ({ x, y }) => wx * (x - here.x) ** 2 + wy * (y - here.y) ** 2));
    }
  }

  read(place) {
    const point = this.points[place];
    if (!point) return;
    const text = sentence(this.spec, place);
    this.slider.value = place;
    this.slider.setAttribute("aria-valuetext", text);
    this.cursor.setAttribute("cx", this.at.x(point.x));
    this.cursor.setAttribute("cy", this.at.y(point.y));
    this.cursor.setAttribute("visibility", "visible");
    // The slider tells its own value to a screen reader; twice would be once too often.
    this.output.setAttribute("aria-live", document.activeElement === this.slider ? "off" : "polite");
    this.output.textContent = text;
    this.tip.textContent = text;
    this.tip.hidden = false;
    const [x, y] = [this.at.x(point.x) / this.at.width, this.at.y(point.y) / this.at.height];
    const seen = this.svg.getBoundingClientRect();
    this.tip.style.left = `${Math.min(Math.max(0, x * seen.width - 90), Math.max(0, seen.width - 190))}px`;
    this.tip.style.top = `${y * seen.height + (y < 0.6 ? 14 : -14)}px`;
    this.tip.classList.toggle("above", y >= 0.6);
  }

  rest() {
    if (document.activeElement === this.slider) return;
    this.cursor.setAttribute("visibility", "hidden");
    this.tip.hidden = true;
    this.output.textContent = this.spec.summary;
    this.slider.setAttribute("aria-valuetext", this.spec.summary);
  }
}

function nearestOf(points, far) {
  let best = 0;
  points.forEach((point, place) => {
    if (far(point) < far(points[best])) best = place;
  });
  return best;
}

// The legend names what is drawn, and nothing else.
function fillLegend(figure, specs) {
  const named = new Map();
  for (const spec of specs.flatMap((one) => [one, one.strip]).filter(Boolean)) {
    for (const mark of spec.view.marks) {
      if (mark.label && !named.has(mark.label) && entriesOf(spec, mark).length) named.set(mark.label, mark);
    }
  }
  figure.querySelector(".legend").replaceChildren(...[...named.values()].map(({ kind, look, label }) => {
    const entry = Object.assign(document.createElement("li"), { textContent: label });
    const swatch = Object.assign(document.createElement("span"), { className: `swatch ${kind} ${look}` });
    swatch.setAttribute("aria-hidden", "true");
    entry.prepend(swatch);
    return entry;
  }));
}
