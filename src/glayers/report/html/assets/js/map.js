// Probabilities before and after -> the calibration map of the top class or of one class.

FIGURES.map = { follows: ["method", "event"], specs: mapsShown };

function mapsShown() {
  const method = byId("method").value;
  const known = data.events.filter(({ key }) => data.maps[method][key]);
  const top = data.events[0];
  const other = known.includes(eventShown()) && eventShown() !== top ? eventShown() : known.find((event) => event !== top);
  return [top, other].filter(Boolean).map((event) => mapSpec(method, event));
}

function mapSpec(method, event) {
  const map = data.maps[method][event.key];
  const change = map.after.map((value, i) => value - map.before[i]);
  const sizes = change.map(Math.abs);
  const widest = sizes.indexOf(Math.max(...sizes));
  return {
    title: `${method}, ${event.label}`,
    summary: `Largest change: ${percent(map.before[widest])} becomes ${percent(map.after[widest])}.`,
    x: { range: [0, 1], label: "probability before" },
    y: { range: [0, 1], label: "probability after" },
    height: square,
    marks: [stretch(0, 0, 1, 1, "ideal"), ...map.before.flatMap((x, i) => mapBin(map, x, i))],
    points: map.before.map((x, i) => ({
      x,
      y: map.after[i],
      text: `${percent(x)} becomes ${percent(map.after[i])}, middle 80 % of rows ${percent(map.low[i])} to ${percent(map.high[i])}; ${rows(map.count[i])}`,
    })),
    table: {
      headings: ["before", "after, median", "10 %", "90 %", "rows"],
      lines: map.before.map((x, i) => [
        ...[x, map.after[i], map.low[i], map.high[i]].map(percent), Math.round(map.count[i]).toLocaleString("en"),
      ]),
    },
  };
}

// Bins side by side are joined; across an empty bin nothing is known.
const mapBin = (map, x, i) => [
  stretch(x, map.low[i], x, map.high[i], "stem"),
  ...(i && x - map.before[i - 1] < 0.1 ? [stretch(map.before[i - 1], map.after[i - 1], x, map.after[i], "said")] : []),
  dot(x, map.after[i], "now", 3.5),
];
