// Bins or curves of one event -> a reliability diagram.

const KINDS = {
  equal_width: "bins of equal width",
  equal_mass: "bins of equal size",
  smooth: "a smooth curve",
  corp: "a curve that never falls (CORP)",
};

function reliabilitySpec(method, event, kind) {
  const curve = data.curves[method][event.key];
  const shape = curve.reliability[kind];
  const drawn = shape.confidence ? binnedReliability(shape) : curvedReliability(shape);
  return {
    title: `${method}, ${event.label}`,
    summary: `Says ${percent(curve.says)} on average, happened ${percent(curve.happened)}; ${drawn.outside}.`,
    x: { range: [0, 1], label: "probability it was given" },
    y: { range: [0, 1] },
    ...drawn,
    marks: [stretch(0, 0, 1, 1, "ideal"), ...drawn.marks],
  };
}

function binnedReliability(bins) {
  const most = Math.max(...bins.count);
  const places = bins.count.map((_, i) => i);
  const far = places.filter((i) => bins.accuracy[i] < bins.band_low[i] || bins.accuracy[i] > bins.band_high[i]);
  const edges = (i) => [bins.low[i], Math.max(bins.high[i], bins.low[i] + 0.004)];
  return {
    outside: `${far.length} of ${places.length} bins lie outside the band`,
    marks: [
      ...places.map((i) => box(edges(i)[0], 0, edges(i)[1], (0.18 * bins.count[i]) / most, "count")),
      ...places.map((i) => box(edges(i)[0], bins.band_low[i], edges(i)[1], bins.band_high[i], "band")),
      ...places.map((i) => stretch(bins.confidence[i], bins.confidence[i], bins.confidence[i], bins.accuracy[i], "stem")),
      ...places.map((i) => dot(bins.confidence[i], bins.accuracy[i], "dot")),
    ],
    points: places.map((i) => ({ x: bins.confidence[i], y: bins.accuracy[i], text: binText(bins, i) })),
    table: {
      headings: ["from", "to", "rows", "mean probability", "happened", "band from", "band to"],
      lines: places.map((i) => [
        finePercent(bins.low[i]), finePercent(bins.high[i]), Math.round(bins.count[i]).toLocaleString("en"),
        finePercent(bins.confidence[i]), finePercent(bins.accuracy[i]), finePercent(bins.band_low[i]), finePercent(bins.band_high[i]),
      ]),
    },
  };
}

function binText(bins, i) {
  return (
    `${percent(bins.low[i])} to ${percent(bins.high[i])}, ${rows(bins.count[i])}: says ${percent(bins.confidence[i])}, ` +
    `happened ${percent(bins.accuracy[i])}; a calibrated model ${percent(bins.band_low[i])} to ${percent(bins.band_high[i])}`
  );
}

function curvedReliability(curve) {
  const places = curve.x.map((_, i) => i);
  const far = places.filter((i) => curve.accuracy[i] < curve.low[i] || curve.accuracy[i] > curve.high[i]);
  const most = curve.density ? Math.max(...curve.density) : 0;
  const counts = curve.density
    ? [band(curve.x, curve.x.map(() => 0), curve.density.map((value) => (0.18 * value) / most))]
    : [];
  return {
    outside: `${percent(far.length / places.length, 0)} of the curve lies outside the band`,
    marks: [...counts, band(curve.x, curve.low, curve.high), line(curve.x, curve.accuracy, "true")],
    points: places.map((i) => ({
      x: curve.x[i],
      y: curve.accuracy[i],
      text:
        `says ${percent(curve.x[i])}, happened ${percent(curve.accuracy[i])}; ` +
        `a calibrated model ${percent(curve.low[i])} to ${percent(curve.high[i])}`,
    })),
    table: {
      headings: ["probability", "happened", "band from", "band to"],
      lines: places.map((i) => [curve.x[i], curve.accuracy[i], curve.low[i], curve.high[i]].map(finePercent)),
    },
  };
}
