// The data in the page -> what figures are drawn from, and numbers -> the words people read.

const data = JSON.parse(document.getElementById("report-data").textContent);
const byId = (id) => document.getElementById(id);

const SHARES = new Set(["ks", "ece", "smooth_ece", "accuracy", "confidence"]);

// A no-break space: the sign must not begin the next line.
const percent = (share, digits = 1) => `${(100 * share).toFixed(digits)}\u00a0%`;
const rows = (count) => `${Math.round(count).toLocaleString("en")} ${Math.round(count) === 1 ? "row" : "rows"}`;
const chance = (p) => (p >= 1e-4 ? `p = ${Number(p.toPrecision(2))}` : "p < 0.0001");

// A share so small that two digits would hide it keeps two that count.
function finePercent(share) {
  const digits = share === 0 ? 2 : Math.max(2, 1 - Math.floor(Math.log10(Math.abs(100 * share))));
  return percent(share, Math.min(digits, 6));
}

const points = (share) => finePercent(Math.abs(share)).replace("%", "points");

function metricText(metric, value) {
  const sign = value > 0 ? "+" : "";
  return sign + (SHARES.has(metric) ? finePercent(value).replace("%", "points") : value.toPrecision(3));
}

const eventNamed = (key) => data.events.find((event) => event.key === key);
