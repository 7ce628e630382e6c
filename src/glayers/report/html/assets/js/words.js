// The data in the page -> what figures are drawn from, and numbers -> the words people read.

const data = JSON.parse(document.getElementById("report-data").textContent);
const byId = (id) => document.getElementById(id);

const isPercent = (metric) => data.metrics[metric].percent;
const levelText = `${Number((100 * data.level).toPrecision(3))}\u00a0%`;
const rows = (count) => `${Math.round(count).toLocaleString("en")} ${Math.round(count) === 1 ? "row" : "rows"}`;
const pText = (p) => (p >= 1e-4 ? `p = ${Number(p.toPrecision(2))}` : "p < 0.0001");

// The minus of print, as long as the plus.
const withMinus = (text) => text.replace("-", "\u2212");

// Two decimals, or two significant digits of a smaller fraction. The no-break space keeps the sign on the same line.
function percent(fraction) {
  const digits = fraction === 0 ? 2 : Math.max(2, 1 - Math.floor(Math.log10(Math.abs(100 * fraction))));
  return `${withMinus((100 * fraction).toFixed(Math.min(digits, 6)))}\u00a0%`;
}

const points = (fraction) => `${(100 * Math.abs(fraction)).toFixed(1)}\u00a0points`;
// What rounds to zero has no sign.
const signedNumber = (value, digits) => {
  const text = value.toFixed(digits);
  return Number(text) === 0 ? text.replace("-", "") : `${value > 0 ? "+" : ""}${withMinus(text)}`;
};
const signedPoints = (fraction) => `${signedNumber(100 * fraction, 1)}\u00a0points`;

// A difference, in the digits of the metric.
function metricText(metric, value) {
  const { percent: inPercent, digits } = data.metrics[metric];
  return `${signedNumber((inPercent ? 100 : 1) * value, digits)}${inPercent ? "\u00a0points" : ""}`;
}

const eventNamed = (key) => data.events.find((event) => event.key === key);
