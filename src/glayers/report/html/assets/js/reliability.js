// Bins or curves of one event -> a reliability diagram.

const KINDS = {
  equal_width: "bins of equal width",
  equal_mass: "bins with equal numbers of rows",
  smooth: "a smooth curve",
  corp: "isotonic regression (CORP)",
};

// The top class has all kinds of diagram, other events have some.
FIGURES.reliability = {
  follows: ["method", "event"],
  menus: () => {
    const known = Object.keys(data.curves[uncalibrated][eventShown().key].reliability);
    return { kind: known.map((key) => ({ key, label: KINDS[key] })) };
  },
  specs: () => methodsShown().map((method) => reliabilitySpec(method, eventShown(), byId("kind").value)),
};

function reliabilitySpec(method, event, kind) {
  const curve = data.curves[method][event.key];
  const shape = curve.reliability[kind];
  const drawn = shape.confidence ? binnedReliability(shape) : curvedReliability(shape);
  return {
    title: `${method}, ${event.label}`,
    summary: `Mean prediction ${percent(curve.predicted)}, observed ${percent(curve.observed)}; ${drawn.outside}.`,
    x: { range: [0, 1], label: "predicted probability" },
    y: { range: [0, 1], label: "observed frequency" },
    height: square,
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
    outside: `${far.length} of ${places.length} bins ${far.length === 1 ? "lies" : "lie"} outside the band`,
    marks: [
      ...places.map((i) => box(edges(i)[0], 0, edges(i)[1], (0.18 * bins.count[i]) / most, "count")),
      ...places.map((i) => box(edges(i)[0], bins.band_low[i], edges(i)[1], bins.band_high[i], "band")),
      ...places.map((i) => stretch(bins.confidence[i], bins.confidence[i], bins.confidence[i], bins.accuracy[i], "stem")),
      ...places.map((i) => dot(bins.confidence[i], bins.accuracy[i], "dot")),
    ],
    points: places.map((i) => ({ x: bins.confidence[i], y: bins.accuracy[i], text: binText(bins, i) })),
    table: {
      headings: ["from", "to", "rows", "predicted", "observed", "band from", "band to"],
      lines: places.map((i) => [
        percent(bins.low[i]), percent(bins.high[i]), Math.round(bins.count[i]).toLocaleString("en"),
        percent(bins.confidence[i]), percent(bins.accuracy[i]), percent(bins.band_low[i]), percent(bins.band_high[i]),
      ]),
    },
  };
}

function binText(bins, i) {
  return (
    `${percent(bins.low[i])} to ${percent(bins.high[i])}, ${rows(bins.count[i])}: predicted ${percent(bins.confidence[i])}, ` +
    `observed ${percent(bins.accuracy[i])}; a calibrated model: ${percent(bins.band_low[i])} to ${percent(bins.band_high[i])}`
  );
}

function curvedReliability(curve) {
  const places = curve.x.map((_, i) => i);
  const far = places.filter((i) => curve.accuracy[i] < curve.low[i] || curve.accuracy[i] > curve.high[i]);
  const most = curve.density ? Math.max(...curve.density) : 0;
  const counts = curve.density
    ? [band(curve.x, curve.x.map(() => 0), curve.density.map((value) => (0.18 * value) / most), "count")]
    : [];
  return {
    outside: `${percent(far.length / places.length)} of the curve lies outside the band`,
    marks: [...counts, band(curve.x, curve.low, curve.high), line(curve.x, curve.accuracy, "true")],
    points: places.map((i) => ({
      x: curve.x[i],
      y: curve.accuracy[i],
      text:
        `predicted ${percent(curve.x[i])}, observed ${percent(curve.accuracy[i])}; ` +
        `a calibrated model: ${percent(curve.low[i])} to ${percent(curve.high[i])}`,
    })),
    table: {
      headings: ["predicted", "observed", "band from", "band to"],
      lines: places.map((i) => [curve.x[i], curve.accuracy[i], curve.low[i], curve.high[i]].map(percent)),
    },
  };
}
