// Choices of the reader -> figures: every menu redraws the figures that follow it, a new width redraws all. The choices
// stand in the page's address, so that a link shows the same page.

const MENUS = ["method", "event"];

function fillSelect(id, choices, chosen) {
  const groups = new Map();
  for (const { key, label, group } of choices) {
    if (group && !groups.has(group)) {
      groups.set(group, byId(id).appendChild(Object.assign(document.createElement("optgroup"), { label: group })));
    }
    (groups.get(group) ?? byId(id)).append(new Option(label, key));
  }
  byId(id).value = chosen;
}

const methodsShown = () => [...new Set([data.uncalibrated, byId("method").value])];

const panels = new Map();

// The specs of a figure as the menus stand: by method, and by event if it is about events.
function specsShown(id) {
  const choose = (tree, menu) => (Array.isArray(tree) ? tree : tree[byId(menu).value]);
  return MENUS.reduce(choose, data.figures[id]).map(specAt);
}

function redraw(id) {
  const figure = byId(id);
  const specs = specsShown(id);
  if (!panels.has(id)) {
    const made = specs.map(() => new Panel(figure.querySelector(".panels")));
    made.forEach((panel) => { panel.others = made.filter((other) => other !== panel); });
    panels.set(id, made);
  }
  specs.forEach((spec, place) => panels.get(id)[place].show(spec, specs));
  fillLegend(figure, specs);
  fillTables(figure, specs, panels.get(id));
}

// The address holds every menu that the reader changed.
function remember() {
  const state = new URLSearchParams();
  for (const select of document.querySelectorAll("select")) {
    if (select.options.length && select.value !== select.dataset.first) state.set(select.id, select.value);
  }
  if (document.documentElement.dataset.theme) state.set("theme", document.documentElement.dataset.theme);
  history.replaceState(null, "", `#${state}`);
}

function recall() {
  if (!location.hash.includes("=")) return;
  for (const [id, value] of new URLSearchParams(location.hash.slice(1))) {
    if (id === "theme") setTheme(value === "dark" ? "dark" : "light");
    const select = byId(id);
    if (select?.tagName !== "SELECT" || ![...select.options].some((option) => option.value === value)) continue;
    select.value = value;
    select.dispatchEvent(new Event("change"));
  }
}

const isDark = () => (document.documentElement.dataset.theme ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";

function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
  byId("theme").textContent = isDark() ? "Light" : "Dark";
}

function start() {
  fillSelect("event", data.events, data.events[0].key);
  fillSelect("method", data.methods.map((name) => ({ key: name, label: name })), data.chosen);
  byId("method-label").hidden = methodsShown().length === 1;
  const redrawAll = () => Object.keys(data.figures).forEach(redraw);
  redrawAll();
  for (const menu of MENUS) byId(menu).addEventListener("change", redrawAll);
  for (const table of document.querySelectorAll("table.sortable:not(#class-table)")) makeSortable(table);
  if (byId("class-table")) {
    fillClasses();
    byId("class-search").addEventListener("input", fillClasses);
    byId("method").addEventListener("change", fillClasses);
  }
  if (byId("changes")) byId("method").addEventListener("change", fillChanges);
  for (const select of document.querySelectorAll("select")) {
    select.dataset.first = select.value;
    select.addEventListener("change", remember);
  }
  byId("theme").textContent = isDark() ? "Light" : "Dark";
  byId("theme").addEventListener("click", () => {
    setTheme(isDark() ? "light" : "dark");
    remember();
  });
  // A figure in a closed part of the page has no width until it is opened.
  for (const details of document.querySelectorAll("details.more")) {
    details.addEventListener("toggle", () => {
      for (const figure of details.querySelectorAll("figure")) panels.get(figure.id)?.forEach((panel) => panel.draw());
    });
  }
  for (const form of document.forms) form.addEventListener("submit", (event) => event.preventDefault());
  recall();
  let width = document.body.clientWidth;
  new ResizeObserver(() => {
    if (document.body.clientWidth === width) return;
    width = document.body.clientWidth;
    for (const drawn of panels.values()) drawn.forEach((panel) => panel.draw());
  }).observe(document.body);
}

start();
