// Choices of the reader -> figures: every menu redraws the figures that follow it, a new width redraws all.

const uncalibrated = data.methods[0];
const calibrated = data.methods.slice(1);

function fillSelect(id, choices, chosen) {
  const select = byId(id);
  const keys = JSON.stringify(choices);
  if (select.dataset.keys === keys) return; // the same choices: leave the menu, which may be open, alone
  select.dataset.keys = keys;
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

const panels = new Map();

function redraw(id) {
  const figure = byId(id);
  const { menus, specs } = FIGURES[id];
  for (const [menu, choices] of Object.entries(menus?.() ?? {})) fillSelect(menu, choices);
  const shown = specs();
  if (!panels.has(id)) panels.set(id, shown.map(() => new Panel(figure.querySelector(".panels"))));
  shown.forEach((spec, place) => panels.get(id)[place].show(spec));
  fillTables(figure, shown);
}

function start() {
  fillSelect("event", data.events);
  if (calibrated.length) fillSelect("method", named(calibrated), data.chosen);
  else byId("method-label").hidden = true;
  for (const id of Object.keys(FIGURES).filter(byId)) {
    redraw(id);
    const { follows, menus } = FIGURES[id];
    for (const menu of [...(follows ?? []), ...Object.keys(menus?.() ?? {})]) {
      byId(menu).addEventListener("change", () => redraw(id));
    }
  }
  for (const form of document.forms) form.addEventListener("submit", (event) => event.preventDefault());
  let width = document.body.clientWidth;
  new ResizeObserver(() => {
    if (document.body.clientWidth === width) return;
    width = document.body.clientWidth;
    for (const drawn of panels.values()) drawn.forEach((panel) => panel.draw());
  }).observe(document.body);
}

start();
