// Gaps by predicted class -> the classes that are furthest off, before and after, and a table of all classes.

const MOST_CLASSES = 15;
const ORDERS = { after: "worst after calibration", before: "worst before calibration", rows: "most test rows" };

// How far a gap is from zero for certain: the near end of its interval.
const certainGap = ({ low, high }, c) => (low[c] === null ? 0 : Math.max(low[c], -high[c], 0));
const isSure = ({ p_value: p }, c) => p[c] !== null && p[c] <= 1 - data.level;

FIGURES["class-gaps"] = {
  follows: ["method"],
  menus: () => ({ "class-order": asChoices(calibrated.length ? ORDERS : { before: "worst", rows: ORDERS.rows }) }),
  specs: () => [classSpec(methodsShown(), byId("class-order").value)],
};

function classOrder(shown, order) {
  const { methods, rows: counts } = data.classes;
  const of = methods[order === "after" ? shown.at(-1) : shown[0]];
  const worth = (c) => (order === "rows" ? counts[c] : certainGap(of, c) + 1e-6 * Math.abs(of.gap[c] ?? 0));
  return counts.map((_, c) => c).sort((a, b) => worth(b) - worth(a) || a - b);
}

function classSpec(shown, order) {
  const { names, methods, rows: counts } = data.classes;
  const places = classOrder(shown, order).filter((c) => shown.some((name) => methods[name].gap[c] !== null)).slice(0, MOST_CLASSES);
  const marks = shown.flatMap((name, step) => places.flatMap((c, y) => classMarks(methods[name], c, y, step, shown.length)));
  const ends = places.flatMap((c) => shown.flatMap((name) => [methods[name].low[c] ?? 0, methods[name].high[c] ?? 0]));
  const [low, high] = [Math.min(-0.01, ...ends), Math.max(0.01, ...ends)];
  const margin = 0.04 * (high - low);
  const sentence = (name) => {
    const off = names.map((_, c) => c).filter((c) => isSure(methods[name], c));
    const worst = off.sort((a, b) => Math.abs(methods[name].gap[b]) - Math.abs(methods[name].gap[a])).slice(0, 3);
    const listed = worst.map((c) => `${names[c]} ${signedPoints(methods[name].gap[c])}`).join(", ");
    return `${name}: ${off.length || "no"} ${off.length === 1 ? "class is" : "classes are"} significantly off${off.length ? ` (${listed}${off.length > 3 ? ", \u2026" : ""})` : ""}.`;
  };
  return {
    title: places.length < names.length ? `${places.length} of ${names.length.toLocaleString("en")} classes` : `All ${names.length} classes`,
    summary: shown.map(sentence).join(" "),
    height: () => 66 + 30 * places.length,
    frame: (width, height, x, y) => frame(width, height, x, y, Math.min(170, 0.34 * width)),
    nearest: [0.05, 1],
    x: {
      range: [low - margin, high + margin],
      label: "\u2190 underconfident, points, overconfident \u2192",
      text: () => (value) => Number((100 * value).toPrecision(3)).toString(),
    },
    y: { range: [places.length - 0.5, -0.5], hidden: true },
    marks: [
      ...places.slice(1).map((_, y) => stretch(low - margin, y + 0.5, high + margin, y + 0.5, "grid")),
      stretch(0, -0.5, 0, places.length - 0.5, "ideal"), ...marks, ...places.map((c, y) => (svg, at) => axisName(svg, at, names[c], y)),
    ],
    points: places.flatMap((c, y) => shown.filter((name) => methods[name].gap[c] !== null).map((name) => ({
      x: methods[name].gap[c], y: y + classOffset(shown.indexOf(name), shown.length), text: classText(name, c),
    }))),
    table: classTable(shown, places),
  };
}

const classOffset = (step, of) => (of > 1 ? (step ? 0.16 : -0.16) : 0);

function classMarks(of, c, y, step, steps) {
  if (of.gap[c] === null) return [];
  const kind = steps > 1 && step ? "now" : "was";
  const at = y + classOffset(step, steps);
  return [stretch(of.low[c], at, of.high[c], at, `${kind} whisker`), dot(of.gap[c], at, `${kind} ${isSure(of, c) ? "" : "open"}`, 4.5)];
}

function classText(name, c) {
  const of = data.classes.methods[name];
  return (
    `${data.classes.names[c]}, ${name}: ${rows(of.rows[c])} predicted as it, mean confidence ${percent(of.confidence[c])}, ` +
    `accuracy ${percent(of.accuracy[c])}, gap ${signedPoints(of.gap[c])}, ${isSure(of, c) ? "significant" : "not significant"}`
  );
}

function classTable(shown, places) {
  const { names, methods, rows: counts, calibration } = data.classes;
  const whole = (n) => (n === null ? "0" : Math.round(n).toLocaleString("en"));
  const known = (value, text) => (value === null ? "\u2013" : text(value));
  const gapOf = (name, c) => `${known(methods[name].gap[c], (gap) => signedNumber(100 * gap, 1))}${isSure(methods[name], c) ? "*" : ""}`;
  const columns = [
    ["gap in points", gapOf],
    ["predicted rows", (name, c) => whole(methods[name].rows[c])],
    ["confidence", (name, c) => known(methods[name].confidence[c], percent)],
    ["accuracy", (name, c) => known(methods[name].accuracy[c], percent)],
    ["class KS", (name, c) => percent(methods[name].ks[c])],
  ].flatMap(([heading, of]) => shown.map((name) => [`${heading}, ${name === uncalibrated ? "before" : name}`, (c) => of(name, c)]));
  const counted = [["test rows", (c) => whole(counts[c])], ...(calibration ? [["calibration rows", (c) => whole(calibration[c])]] : [])];
  const all = [["class", (c) => names[c]], ...columns.slice(0, shown.length), ...counted, ...columns.slice(shown.length)];
  return { headings: all.map(([heading]) => heading), lines: places.map((c) => all.map(([, of]) => of(c))) };
}

// All classes, worst first; the search leaves those whose name contains the words.
function fillClasses() {
  const table = byId("class-table");
  const asked = byId("class-search").value.trim().toLowerCase();
  const places = classOrder(methodsShown(), byId("class-order").value);
  const found = places.filter((c) => data.classes.names[c].toLowerCase().includes(asked));
  const { headings, lines } = classTable(methodsShown(), found);
  fillHead(table.tHead, headings);
  fillBody(table.tBodies[0], headings, lines);
  makeSortable(table);
  byId("class-count").textContent = `${found.length.toLocaleString("en")} of ${places.length.toLocaleString("en")} classes. A gap is mean confidence minus accuracy where the class is predicted. * significant at the ${Number((100 * (1 - data.level)).toPrecision(3))}\u00a0% level, corrected for the number of classes. \u2013 the class is never predicted.`;
}
