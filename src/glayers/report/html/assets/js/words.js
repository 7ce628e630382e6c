// The data in the page -> what figures are drawn from, and numbers -> the words people read.

const data = JSON.parse(document.getElementById("report-data").textContent);
const byId = (id) => document.getElementById(id);

const isPercent = (metric) => data.metrics[metric].percent;
const levelText = `${Number((100 * data.level).toPrecision(3))}\u00a0%`;
const rows = (count) => `${Math.round(count).toLocaleString("en")} ${Math.round(count) === 1 ? "row" : "rows"}`;
const pText = (p) => (p >= 1e-4 ? `p = ${Number(p.toPrecision(2))}` : "p < 0.0001");

// Two decimals, or two significant digits of a smaller fraction. The no-break space keeps the sign on the same line.
function percent(fraction) {
  const digits = fraction === 0 ? 2 : Math.max(2, 1 - Math.floor(Math.log10(Math.abs(100 * fraction))));
  return `${(100 * fraction).toFixed(Math.min(digits, 6))}\u00a0%`;
}

const points = (fraction) => `${(100 * Math.abs(fraction)).toFixed(1)}\u00a0points`;
const signedPoints = (fraction) => `${fraction < 0 ? "\u2212" : "+"}${points(fraction)}`;

// A difference, in the digits of the metric; what rounds to zero has no sign.
function metricText(metric, value) {
  const { percent: inPercent, digits } = data.metrics[metric];
  const number = ((inPercent ? 100 : 1) * value).toFixed(digits);
  const sign = Number(number) > 0 ? "+" : "";
  return `${sign}${Number(number) === 0 ? number.replace("-", "") : number}${inPercent ? "\u00a0points" : ""}`;
}

const eventNamed = (key) => data.events.find((event) => event.key === key);
