// A picture, a slider and a line of text -> one panel: pointing, touching and arrow keys read the same points.
//
// A spec says what to show: title, summary (the text alternative, and what stands below until a point is read), ranges
// and labels of x and y, marks to draw, points { x, y, text } to read, and a table of the numbers.

// A figure registers itself in FIGURES by the id of its element: `specs` returns one spec per panel as the menus stand,
// `follows` names the shared menus it depends on, and `menus` returns the choices of its own menus by their ids.

const FIGURES = {};
const RATIO = 0.8;
const HIGHEST = 420;
const square = (width) => Math.min(width, HIGHEST) - 20; // the plot, not the picture with its labels
const EMPTY = { x: { range: [0, 1], label: "" }, y: { range: [0, 1] }, marks: [], points: [] };

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
    this.spec = EMPTY;
    this.svg.addEventListener("pointermove", (event) => this.point(event));
    this.svg.addEventListener("pointerdown", (event) => this.point(event));
    this.svg.addEventListener("pointerleave", () => [this, ...this.others].forEach((panel) => panel.rest()));
    this.slider.addEventListener("input", () => this.read(Number(this.slider.value)));
    this.slider.addEventListener("focus", () => this.read(Number(this.slider.value)));
    this.slider.addEventListener("blur", () => this.rest());
  }

  show(spec) {
    this.spec = { ...EMPTY, ...spec };
    this.title.textContent = this.spec.title;
    this.slider.max = Math.max(0, this.spec.points.length - 1);
    this.slider.value = Math.floor(this.spec.points.length / 2);
    this.slider.setAttribute("aria-label", `Read values: ${this.figure}, ${this.spec.title}`);
    this.draw();
    this.rest();
  }

  draw() {
    const room = Math.max(240, this.svg.parentNode.clientWidth);
    const width = this.spec.height === square ? Math.min(room, HIGHEST) : room;
    this.svg.classList.toggle("square", this.spec.height === square);
    const height = this.spec.height?.(width) ?? Math.round(Math.min(RATIO * width, HIGHEST));
    this.at = (this.spec.frame ?? frame)(width, height, this.spec.x.range, this.spec.y.range);
    this.svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    this.svg.setAttribute("aria-label", `${this.figure}, ${this.spec.title}. ${this.spec.summary}`);
    this.svg.replaceChildren();
    if (!this.spec.bare) axes(this.svg, this.at, this.spec);
    for (const mark of this.spec.marks) mark(this.svg, this.at);
    this.cursor = element("circle", { class: "cursor", r: 8, visibility: "hidden" });
    this.svg.append(this.cursor);
  }

  // The nearest point, by x alone unless the figure says otherwise.
  point(event) {
    const seen = this.svg.getBoundingClientRect();
    const unit = this.at.width / seen.width;
    const [px, py] = [(event.clientX - seen.left) * unit, (event.clientY - seen.top) * unit];
    const [wx, wy] = this.spec.nearest ?? [1, 0];
    const far = ({ x, y }) => wx * (this.at.x(x) - px) ** 2 + wy * (this.at.y(y) - py) ** 2;
    const best = nearestOf(this.spec.points, far);
    this.read(best);
    // The panels beside it read the same place.
    const here = this.spec.points[best];
    for (const other of here ? this.others : []) {
      other.read(nearestOf(other.spec.points, ({ x, y }) => wx * (x - here.x) ** 2 + wy * (y - here.y) ** 2));
    }
  }

  read(place) {
    const point = this.spec.points[place];
    if (!point) return;
    this.slider.value = place;
    this.slider.setAttribute("aria-valuetext", point.text);
    this.cursor.setAttribute("cx", this.at.x(point.x));
    this.cursor.setAttribute("cy", this.at.y(point.y));
    this.cursor.setAttribute("visibility", "visible");
    // The slider tells its own value to a screen reader; twice would be once too often.
    this.output.setAttribute("aria-live", document.activeElement === this.slider ? "off" : "polite");
    this.output.textContent = point.text;
    this.tip.textContent = point.text;
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
const DRAWN_AS = { true: ".true, .dot", sure: ".sure, circle:is(.was, .now):not(.open)" };
function fitLegend(figure) {
  for (const entry of figure.querySelectorAll(".legend li")) {
    const { mark } = entry.dataset;
    entry.hidden = !figure.querySelector(`.panels svg :is(${DRAWN_AS[mark] ?? `.${mark}`})`);
  }
}
