// Paired differences -> one line per method: the difference from another, and its interval.

FIGURES.forest = {
  menus: () => ({
    metric: Object.entries(data.metrics).map(([key, { label }]) => ({ key, label })),
    against: named(data.methods),
  }),
  specs: () => [forestSpec(byId("metric").value, byId("against").value)],
};

// Of accuracy, more is better: its axis is turned, so that better is always on the left.
const betterLeft = (metric, [low, high]) => (data.metrics[metric].better === "higher" ? [high, low] : [low, high]);

function forestSpec(metric, against) {
  const found = data.differences.filter((one) => one.metric === metric && one.against === against);
  const ends = found.flatMap((one) => [one.low, one.high, 0]);
  const margin = 0.06 * (Math.max(...ends) - Math.min(...ends) || 1);
  const significant = found.filter((one) => one.significant).length;
  return {
    title: `${data.metrics[metric].label}, method minus ${against}`,
    summary: `${significant} of ${found.length} differences are significant.`,
    height: () => 62 + 34 * found.length,
    frame: (width, height, x, y) => frame(width, height, x, y, Math.min(150, 0.38 * width)),
    nearest: [0, 1],
    x: {
      range: betterLeft(metric, [Math.min(...ends) - margin, Math.max(...ends) + margin]),
      label: `\u2190 better${isPercent(metric) ? ", difference in percentage points, " : ", difference, "}worse \u2192`,
      text: () => (value) => Number(((isPercent(metric) ? 100 : 1) * value).toPrecision(2)).toString(),
    },
    y: { range: [found.length - 0.5, -0.5], hidden: true },
    marks: [stretch(0, -0.5, 0, found.length - 0.5, "ideal"), ...found.flatMap(forestLine)],
    points: found.map((one, place) => ({ x: one.difference, y: place, text: forestText(one) })),
    table: {
      headings: ["method", "difference", "from", "to", "p-value", "significant"],
      lines: found.map((one) => [
        one.method, metricText(metric, one.difference), metricText(metric, one.low), metricText(metric, one.high),
        pText(one.p_value), one.significant ? "yes" : "no",
      ]),
    },
  };
}

const forestLine = (one, place) => [
  stretch(one.low, place, one.high, place, "said"),
  dot(one.difference, place, one.significant ? "mark sure" : "mark open", 5),
  (svg, at) => axisName(svg, at, one.method, place),
];

function forestText(one) {
  const by = `${metricText(one.metric, one.difference)}, ${levelText} interval ${metricText(one.metric, one.low)} to ${metricText(one.metric, one.high)}`;
  return `${one.method}: ${by}, ${pText(one.p_value)}${one.significant ? ", significant" : ", not significant"}`;
}
