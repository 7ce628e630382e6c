// KS curves of one event -> the cumulative curves, their gap, and their slopes.

const CUMULATIVE = { curves: "both curves", gap: "their gap and its bound" };
const DENSITY = { fractile: "fraction of rows, lowest first", score: "predicted probability" };

FIGURES.cumulative = {
  follows: ["method", "event"],
  menus: () => ({ "cumulative-view": asChoices(CUMULATIVE) }),
  specs: () => sharedY(methodsShown().map((method) => cumulativeSpec(method, eventShown(), byId("cumulative-view").value))),
};
FIGURES.density = {
  follows: ["method", "event"],
  menus: () => ({ "density-view": asChoices(DENSITY) }),
  specs: () => sharedY(methodsShown().map((method) => densitySpec(method, eventShown(), byId("density-view").value))),
};

// Panels side by side are compared, so they have one scale.
function sharedY(specs) {
  const ranges = specs.map((spec) => spec.y.range);
  const range = [Math.min(...ranges.map(([low]) => low)), Math.max(...ranges.map(([, high]) => high))];
  return specs.map((spec) => ({ ...spec, y: { ...spec.y, range } }));
}

const ksSummary = ({ test }) =>
  test.too_few_groups
    ? `KS ${percent(test.value)}: too few groups to tell whether this is sampling error.`
    : `KS ${percent(test.value)}, ${pText(test.p_value)}; a calibrated model stays below ${percent(test.bound)} in ${levelText} of samples.`;

function cumulativeSpec(method, event, view) {
  const { ks } = data.curves[method][event.key];
  const gaps = ks.cumulative_score.map((value, i) => value - ks.cumulative_hits[i]);
  const shared = {
    title: `${method}, ${event.label}`,
    summary: ksSummary(ks),
    table: {
      headings: ["fraction of rows", "predicted, cumulative", "observed, cumulative", "gap"],
      lines: ks.fractile.map((x, i) => [x, ks.cumulative_score[i], ks.cumulative_hits[i], gaps[i]].map(percent)),
    },
  };
  const text = (i) =>
    `lowest ${percent(ks.fractile[i])} of rows: predicted ${percent(ks.cumulative_score[i])}, ` +
    `observed ${percent(ks.cumulative_hits[i])}, gap ${percent(gaps[i])}`;
  return { ...shared, ...(view === "gap" ? gapView(ks, gaps, text) : curvesView(ks, text)) };
}

function curvesView(ks, text) {
  const [predicted, observed] = [ks.cumulative_score, ks.cumulative_hits];
  const at = ks.fractile[ks.where];
  const [low, high] = [predicted.map((value) => Math.max(0, value - ks.test.bound)), predicted.map((value) => value + ks.test.bound)];
  return {
    x: { range: [0, 1], label: "fraction of rows, lowest first" },
    y: { range: [0, Math.max(high.at(-1), observed.at(-1), 1e-6)], label: "cumulative probability" },
    marks: [
      band(ks.fractile, low, high),
      line(ks.fractile, predicted, "said"),
      line(ks.fractile, observed, "true"),
      stretch(at, predicted[ks.where], at, observed[ks.where], "gap"),
    ],
    points: ks.fractile.map((x, i) => ({ x, y: observed[i], text: text(i) })),
  };
}

function gapView(ks, gaps, text) {
  const reach = 1.08 * Math.max(ks.test.bound, ks.test.value, 1e-6);
  return {
    x: { range: [0, 1], label: "fraction of rows, lowest first" },
    y: { range: [-reach, reach], label: "predicted minus observed" },
    marks: [box(0, -ks.test.bound, 1, ks.test.bound, "band"), stretch(0, 0, 1, 0, "ideal"), line(ks.fractile, gaps, "said")],
    points: ks.fractile.map((x, i) => ({ x, y: gaps[i], text: text(i) })),
  };
}

function densitySpec(method, event, view) {
  const { ks } = data.curves[method][event.key];
  const xs = ks[view];
  const far = Math.max(...ks.score, ...ks.hit_rate);
  const gap = ks.score.map((value, i) => Math.abs(value - ks.hit_rate[i]));
  const widest = gap.indexOf(Math.max(...gap));
  const where = view === "score" ? "where " : `at ${percent(xs[widest])} of the rows: `;
  return {
    title: `${method}, ${event.label}`,
    summary: `Largest difference ${where}predicted ${percent(ks.score[widest])}, observed about ${percent(ks.hit_rate[widest])}.`,
    x: { range: [Math.min(xs[0], 0), view === "score" ? far : 1], label: DENSITY[view] },
    y: { range: [0, far], label: "probability" },
    marks: [line(xs, ks.score, "said"), line(xs, ks.hit_rate, "true")],
    points: xs.map((x, i) => ({
      x,
      y: ks.hit_rate[i],
      text: `at ${percent(ks.fractile[i])} of the rows: predicted ${percent(ks.score[i])}, observed about ${percent(ks.hit_rate[i])}`,
    })),
    table: {
      headings: ["fraction of rows", "predicted", "observed, smoothed"],
      lines: ks.fractile.map((x, i) => [x, ks.score[i], ks.hit_rate[i]].map(percent)),
    },
  };
}
