// The data in the page -> its figures, the panel about acting on probabilities, and three buttons.

const data = JSON.parse(document.getElementById("report-data").textContent);
const byId = (id) => document.getElementById(id);

function drawAll() {
  for (const [name, specs] of Object.entries(data)) {
    const [pictures, tables] = ["svg", "table"].map((tag) => byId(name).querySelectorAll(tag));
    specs.forEach((spec, place) => drawSpec(pictures[place], spec, specs, tables[place]));
  }
}

// Bars of the errors made, with a line at those promised, as shares of the most that any threshold shows.
function act() {
  const { promised, actual, said } = data.errors[0].columns; // 50 thresholds before, then 50 after
  const threshold = Number(byId("threshold-slider").value);
  const most = Math.max(...promised, ...actual);
  byId("threshold").textContent = `${threshold}\u00a0%`;
  document.querySelectorAll(".act").forEach((bar, which) => {
    const place = threshold - 50 + 50 * which;
    bar.querySelector(".fill").style.width = `${(100 * actual[place]) / most}%`;
    bar.querySelector(".promise").style.left = `${(99 * promised[place]) / most}%`;
    bar.querySelector("p").textContent = said[place];
  });
}

const dark = matchMedia("(prefers-color-scheme: dark)").matches;
function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
  byId("theme").textContent = theme === "dark" ? "Light" : "Dark";
}

setTheme(dark ? "dark" : "light");
byId("theme").addEventListener("click", () => setTheme(byId("theme").textContent.toLowerCase()));
byId("card").addEventListener("click", saveCard);
byId("copy").addEventListener("click", () => {
  navigator.clipboard.writeText(byId("summary").innerText).then(() => { byId("copy").textContent = "Copied"; });
});
byId("threshold-slider").addEventListener("input", act);
act();
drawAll();
let width = document.body.clientWidth;
new ResizeObserver(() => {
  if (document.body.clientWidth !== width) drawAll();
  width = document.body.clientWidth;
}).observe(document.body);
