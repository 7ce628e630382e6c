// Choices of the reader -> figures: every select redraws what depends on it, a new width redraws all.

const uncalibrated = data.methods[0];
const calibrated = data.methods.slice(1);

function fillSelect(id, choices, chosen) {
  const select = byId(id);
  const value = choices.some(({ key }) => key === select.value) ? select.value : chosen;
  const groups = new Map();
  select.replaceChildren();
  for (const { key, label, group } of choices) {
    if (group && !groups.has(group)) {
      groups.set(group, select.appendChild(Object.assign(document.createElement("optgroup"), { label: group })));
    }
    (groups.get(group) ?? select).append(new Option(label, key));
  }
  select.value = value ?? choices[0].key;
}

const asChoices = (words) => Object.entries(words).map(([key, label]) => ({ key, label }));
const named = (names) => names.map((name) => ({ key: name, label: name }));

const methodsShown = () => (calibrated.length ? [uncalibrated, byId("method").value] : [uncalibrated]);
const eventShown = () => eventNamed(byId("event").value);

function mapsShown() {
  const method = byId("method").value;
  const known = data.events.filter(({ key }) => data.maps[method][key]);
  const top = data.events[0];
  const other = known.includes(eventShown()) && eventShown() !== top ? eventShown() : known.find((event) => event !== top);
  return [top, other].map((event) => mapSpec(method, event));
}

// Each figure, and the specs of its panels as the selects now stand.
const FIGURES = {
  reliability: () => methodsShown().map((method) => reliabilitySpec(method, eventShown(), byId("kind").value)),
  cumulative: () => methodsShown().map((method) => cumulativeSpec(method, eventShown(), byId("cumulative-view").value)),
  density: () => methodsShown().map((method) => densitySpec(method, eventShown(), byId("density-view").value)),
  forest: () => [forestSpec(byId("metric").value, byId("against").value)],
  map: mapsShown,
  matrix: () => methodsShown().map(matrixSpec),
};

const panels = new Map();

function redraw(id) {
  const figure = byId(id);
  if (!figure) return;
  const specs = FIGURES[id]();
  if (!panels.has(id)) panels.set(id, specs.map(() => new Panel(figure.querySelector(".panels"))));
  specs.forEach((spec, place) => panels.get(id)[place].show(spec));
  fillTables(figure, specs);
}

// An event knows some kinds of diagram; the top class knows all.
function offerKinds() {
  const known = Object.keys(data.curves[uncalibrated][eventShown().key].reliability);
  fillSelect("kind", known.map((key) => ({ key, label: KINDS[key] })));
}

function onChange(ids, figures) {
  for (const id of ids) byId(id)?.addEventListener("change", () => figures.forEach(redraw));
}

function start() {
  fillSelect("event", data.events);
  fillSelect("cumulative-view", asChoices(CUMULATIVE));
  fillSelect("density-view", asChoices(DENSITY));
  offerKinds();
  if (calibrated.length) {
    fillSelect("method", named(calibrated), data.chosen);
    const metrics = [...new Set(data.differences.map(({ metric }) => metric))];
    fillSelect("metric", metrics.map((key) => ({ key, label: data.metrics[key].label })));
    fillSelect("against", named(data.methods));
  } else {
    byId("method-label").hidden = true;
  }
  byId("event").addEventListener("change", offerKinds);
  onChange(["method", "event"], ["reliability", "cumulative", "density", "map", "matrix"]);
  onChange(["kind"], ["reliability"]);
  onChange(["cumulative-view"], ["cumulative"]);
  onChange(["density-view"], ["density"]);
  onChange(["metric", "against"], ["forest"]);
  for (const form of document.forms) form.addEventListener("submit", (event) => event.preventDefault());
  Object.keys(FIGURES).forEach(redraw);
  let width = document.body.clientWidth;
  new ResizeObserver(() => {
    if (document.body.clientWidth === width) return;
    width = document.body.clientWidth;
    for (const drawn of panels.values()) drawn.forEach((panel) => panel.draw());
  }).observe(document.body);
}

start();
