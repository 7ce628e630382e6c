// KS curves of one event -> the cumulative curves, their gap, and their slopes.

const CUMULATIVE = { curves: "both curves", gap: "their gap and its bound" };
const DENSITY = { fractile: "share of rows, unsure to sure", score: "probability given" };

const ksSummary = (ks) =>
  `KS ${finePercent(ks.ks)}, ${chance(ks.p_value)}; a calibrated model stays below ${finePercent(ks.bound)} in ${percent(data.level, 0)} of samples.`;

function cumulativeSpec(method, event, view) {
  const { ks } = data.curves[method][event.key];
  const gaps = ks.cumulative_score.map((value, i) => value - ks.cumulative_hits[i]);
  const shared = {
    title: `${method}, ${event.label}`,
    summary: ksSummary(ks),
    table: {
      headings: ["share of rows", "claimed so far", "happened so far", "gap"],
      lines: ks.fractile.map((x, i) => [x, ks.cumulative_score[i], ks.cumulative_hits[i], gaps[i]].map(finePercent)),
    },
  };
  const text = (i) =>
    `lowest ${percent(ks.fractile[i])} of rows: claimed ${finePercent(ks.cumulative_score[i])}, ` +
    `happened ${finePercent(ks.cumulative_hits[i])}, gap ${finePercent(gaps[i])}`;
  return { ...shared, ...(view === "gap" ? gapView(ks, gaps, text) : curvesView(ks, text)) };
}

function curvesView(ks, text) {
  const [claimed, happened] = [ks.cumulative_score, ks.cumulative_hits];
  const at = ks.fractile[ks.where];
  const [low, high] = [claimed.map((value) => Math.max(0, value - ks.bound)), claimed.map((value) => value + ks.bound)];
  return {
    x: { range: [0, 1], label: "share of rows, unsure to sure" },
    y: { range: [0, Math.max(high.at(-1), happened.at(-1), 1e-6)] },
    marks: [
      band(ks.fractile, low, high),
      line(ks.fractile, claimed, "said"),
      line(ks.fractile, happened, "true"),
      stretch(at, claimed[ks.where], at, happened[ks.where], "gap"),
    ],
    points: ks.fractile.map((x, i) => ({ x, y: happened[i], text: text(i) })),
  };
}

function gapView(ks, gaps, text) {
  const reach = 1.08 * Math.max(ks.bound, ks.ks, 1e-6);
  return {
    x: { range: [0, 1], label: "share of rows, unsure to sure" },
    y: { range: [-reach, reach] },
    marks: [box(0, -ks.bound, 1, ks.bound, "band"), stretch(0, 0, 1, 0, "ideal"), line(ks.fractile, gaps, "said")],
    points: ks.fractile.map((x, i) => ({ x, y: gaps[i], text: text(i) })),
  };
}

function densitySpec(method, event, view) {
  const { ks } = data.curves[method][event.key];
  const xs = ks[view];
  const far = Math.max(...ks.score, ...ks.hit_rate);
  const gap = ks.score.map((value, i) => Math.abs(value - ks.hit_rate[i]));
  const widest = gap.indexOf(Math.max(...gap));
  const where = view === "score" ? "" : `at ${percent(xs[widest])} of the rows, `;
  return {
    title: `${method}, ${event.label}`,
    summary: `Furthest apart ${where}where it says ${percent(ks.score[widest])} and truly about ${percent(ks.hit_rate[widest])} happen.`,
    x: { range: [Math.min(xs[0], 0), view === "score" ? far : 1], label: DENSITY[view] },
    y: { range: [0, far] },
    marks: [line(xs, ks.score, "said"), line(xs, ks.hit_rate, "true")],
    points: xs.map((x, i) => ({
      x,
      y: ks.hit_rate[i],
      text: `lowest ${percent(ks.fractile[i])} of rows end here: says ${finePercent(ks.score[i])}, truly about ${finePercent(ks.hit_rate[i])}`,
    })),
    table: {
      headings: ["share of rows", "probability given", "happened, smoothed"],
      lines: ks.fractile.map((x, i) => [x, ks.score[i], ks.hit_rate[i]].map(finePercent)),
    },
  };
}
