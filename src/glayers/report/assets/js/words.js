// The data in the page, and numbers -> the words people read.

const data = JSON.parse(document.getElementById("report-data").textContent);
const byId = (id) => document.getElementById(id);

// The minus of print, as long as the plus.
const withMinus = (text) => text.replace("-", "\u2212");

// Two decimals, or two significant digits of a smaller fraction. The no-break space keeps the sign on the same line.
function percent(fraction) {
  const digits = fraction === 0 ? 2 : Math.max(2, 1 - Math.floor(Math.log10(Math.abs(100 * fraction))));
  return `${withMinus((100 * fraction).toFixed(Math.min(digits, 6)))}\u00a0%`;
}

// What rounds to zero has no sign.
function points(fraction) {
  const text = (100 * fraction).toFixed(1);
  return Number(text) === 0 ? text.replace("-", "") : `${fraction > 0 ? "+" : ""}${withMinus(text)}`;
}

const count = (number) => Math.round(number).toLocaleString("en");

// A number of a column by its unit; a name where the unit is an axis.
function written(value, unit, view) {
  if (value === null) return "\u2013";
  if (unit === "x" || unit === "y") return view[unit].names[value];
  const words = { percent, points, rows: count, number: (n) => withMinus(n.toFixed(1)) };
  return words[unit] ? words[unit](value) : String(value);
}

const headingOf = (name) => data.headings[name] ?? [name, "text"];

// What is said of one point: its numbers with their headings.
function sentence({ view, columns }, place) {
  return view.table.map((name) => {
    const [heading, unit] = headingOf(name);
    const text = written(columns[name][place], unit, view);
    if (unit === "rows") return `${text} ${text === "1" ? "row" : "rows"}`;
    return heading === name && unit === "text" ? text : `${heading} ${text}`;
  }).join(", ");
}
