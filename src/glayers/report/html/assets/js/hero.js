// The reliability of the top class before and after calibration -> the picture of the first screen.

FIGURES.hero = { follows: ["method"], specs: () => [heroSpec(methodsShown())] };

// Without the bins of so few rows that a calibrated model could show almost any frequency there.
const WIDEST_BAND = 0.5;
function tellingBins(bins) {
  const telling = bins.count.map((_, i) => bins.band_high[i] - bins.band_low[i] <= WIDEST_BAND);
  if (!telling.includes(true)) return bins;
  return Object.fromEntries(Object.entries(bins).map(([name, values]) => [name, Array.isArray(values) ? values.filter((_, i) => telling[i]) : values]));
}

function heroSpec(shown) {
  const key = data.events[0].key;
  const all = shown.map((name) => tellingBins(data.curves[name][key].reliability.equal_width));
  const kinds = shown.length > 1 ? ["was", "now"] : ["was"];
  const most = Math.max(...all.flatMap((bins) => bins.count));
  const size = (count) => 3 + 8 * Math.sqrt(count / most);
  const last = all.at(-1);
  const dots = all.flatMap((bins, which) => bins.confidence.map((x, i) => dot(x, bins.accuracy[i], kinds[which], size(bins.count[i]))));
  const gap = (name) => {
    const { predicted, observed } = data.curves[name][key];
    return `${name}: says ${percent(predicted)}, right ${percent(observed)}`;
  };
  return {
    title: shown.join(" and "),
    summary: `${shown.map(gap).join("; ")}.`,
    x: { range: [0, 1], label: "what the model says" },
    y: { range: [0, 1], label: "how often it is right" },
    height: square,
    nearest: [1, 1],
    marks: [
      stretch(0, 0, 1, 1, "ideal"),
      words(0.03, 0.95, "underconfident"), words(0.97, 0.04, "overconfident", "end"),
      ...last.count.map((_, i) => box(last.low[i], last.band_low[i], Math.max(last.high[i], last.low[i] + 0.004), last.band_high[i], "band")),
      ...dots,
    ],
    points: all.flatMap((bins, which) => bins.confidence.map((x, i) => ({ x, y: bins.accuracy[i], text: `${shown[which]}: ${binText(bins, i)}` }))),
    table: {
      headings: ["method", "from", "to", "rows", "says", "right"],
      lines: all.flatMap((bins, which) => bins.confidence.map((x, i) => [
        shown[which], percent(bins.low[i]), percent(bins.high[i]), Math.round(bins.count[i]).toLocaleString("en"), percent(x), percent(bins.accuracy[i]),
      ])),
    },
  };
}
