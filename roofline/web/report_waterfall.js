// From the model's ideal to the measured time, term by term: of a phase, a layer or a module; each step; each layer.

const GOOD = "#009E73", BEYOND = "#D55E00", LESS = "#0072B2";
const roleOf = (path) => path.replace(/(^|\.)\d+(?=\.|$)/g, "$1*");
const PART = { phase: "the whole phase", layer: "layer", module: "module" };

// The parts of a phase that can be chosen, by "scope:name"; a module stands for its copies in all layers.
function partsHere() {
  const found = new Map();
  for (const row of parts ?? []) {
    if (row.phase !== phaseOf().name || row.scope === "phase") continue;
    const name = row.scope === "module" ? roleOf(row.name) : row.name;
    const key = `${row.scope}:${name}`;
    if (!found.has(key)) found.set(key, { key, scope: row.scope, name, rows: [] });
    found.get(key).rows.push(row);
  }
  return found;
}
function termsOf(part) {
  return data.terms.map(([term, words]) => ({ term, words, ns: part.rows.reduce((sum, row) => sum + (row[term] ?? 0), 0) }));
}
function wantedTerms() {
  const phase = phaseOf();
  const part = partsHere().get(state.part);
  if (part) {
    const copies = part.rows.length > 1 ? `, all ${part.rows.length} of it together` : "";
    return { title: `${part.name}${copies}, in ${phase.name}: from its ideal to the time of its kernels and of what was idle before each`, end: "kernels and idle before", terms: termsOf(part) };
  }
  return phase.waterfall && { title: `${phase.name}: from the model's ideal to the wall time`, end: "bare wall time", terms: phase.waterfall };
}
const fall = { rows: [], chart: null, table: null };
function drawWaterfall() {
  const wanted = wantedTerms();
  for (const id of ["waterfall-choice", "waterfall-chart", "waterfall-table"]) at(id).hidden = !wanted;
  drawSteps();
  if (!wanted) {
    at("waterfall-note").textContent = whyMissing(`No waterfall of ${phaseOf().name}`, /waterfall|wall time/i);
    fall.rows = [];
    return;
  }
  drawPartChoice();
  const total = wanted.terms.reduce((sum, t) => sum + t.ns, 0);
  let reached = 0;
  const rows = wanted.terms.filter((t) => t.ns !== 0 || t.term === "ideal_ns").map((t, i) => {
    const row = { order: i, words: t.words, from: reached, to: reached + t.ns, ns: t.ns, first: t.term === "ideal_ns" };
    reached += t.ns;
    return row;
  });
  rows.push({ order: rows.length, words: wanted.end, from: 0, to: total, ns: total, last: true });
  fall.rows = rows;
  at("waterfall-note").textContent = `${wanted.title}${each()}. Each term changes one assumption; together they are the measured time exactly.`;
  at("waterfall-chart").setAttribute("aria-label", `${wanted.title}: ${rows.map((r) => `${r.words} ${signed(r)}`).join(", ")}`);
  fall.chart ??= chart(at("waterfall-chart"), waterfallOptions, { height: () => 62 + (isNarrow() ? 46 : 34) * fall.rows.length });
  fall.chart.draw();
  foldedTable("waterfall-table", "The terms as a table", rows, { caption: `${wanted.title}${each()}`, first: 30, sort: { column: 0, down: false }, columns: [
    { head: "term", value: (r) => r.order, text: (r) => r.words },
    { head: `time${each()}`, value: (r) => r.ns, text: signed, number: true },
    { head: "share", value: (r) => r.ns, text: (r) => percent(total ? (100 * r.ns) / total : null), number: true },
    { head: "up to", value: (r) => r.to, text: (r) => time(per(r.to)), number: true },
  ] });
}
const signed = (r) => (r.first || r.last ? time(per(r.ns)) : `${r.ns < 0 ? "−" : "+"}${time(Math.abs(per(r.ns)))}`);
function drawPartChoice() {
  const total = (part) => part.rows.reduce((sum, row) => sum + row.total_ns, 0);
  // What the estimate alone has was not recorded by itself: it has no time, which is not the same as none.
  const found = [...partsHere().values()].filter(total);
  if (!found.length) { fill(at("waterfall-choice")); return; }
  const select = element("select", { id: "part", onchange: (event) => { change({ part: event.target.value }); at("part").focus(); } },
    element("option", { value: "" }, PART.phase),
    ...["layer", "module"].map((scope) => element("optgroup", { label: `one ${PART[scope]}` },
      ...found.filter((p) => p.scope === scope).sort((a, b) => (scope === "module" ? total(b) - total(a) : 0)).map((p) =>
        element("option", { value: p.key, selected: p.key === state.part }, `${p.name}: ${time(per(total(p)))}`)))));
  fill(at("waterfall-choice"), element("label", { for: "part" }, "Time of "), select);
}
function waterfallOptions() {
  const rows = fall.rows;
  const [scale, unit] = scaleOf(per(Math.max(...rows.map((r) => Math.max(r.from, r.to)), 1)));
  const narrow = isNarrow();
  const tint = (r) => (r.first ? GOOD : r.last ? css("--soft") : r.ns < 0 ? LESS : BEYOND);
  const stripes = { symbol: "rect", dashArrayX: [1, 0], dashArrayY: [3, 4], rotation: Math.PI / 4, color: "rgba(255,255,255,0.55)" };
  return {
    grid: { left: narrow ? 8 : 266, right: narrow ? 16 : 92, top: narrow ? 22 : 6, bottom: 46 },
    xAxis: { type: "value", min: 0, ...axisLook(`${unit}${each()}`), nameGap: 27 },
    yAxis: { type: "category", inverse: true, data: rows.map((r) => r.words), axisTick: { show: false },
      axisLine: { lineStyle: { color: css("--line") } },
      axisLabel: { show: !narrow, interval: 0, color: css("--ink"), fontSize: 13, width: 250, overflow: "truncate",
        formatter: (words, i) => (rows[i].last ? `{end|${words}}` : words), rich: { end: { fontWeight: "bold", fontSize: 13, color: css("--ink") } } } },
    tooltip: tooltip((p) => tip(rows[p.dataIndex].words, [["time", signed(rows[p.dataIndex]) + each()], ["up to", time(per(rows[p.dataIndex].to))]])),
    series: [
      { type: "bar", stack: "w", silent: true, itemStyle: { color: "transparent" }, tooltip: { show: false }, barWidth: narrow ? 14 : 19,
        data: rows.map((r) => per(Math.min(r.from, r.to)) / scale) },
      { type: "bar", stack: "w", barMinHeight: 2, barWidth: narrow ? 14 : 19,
        data: rows.map((r) => ({ value: per(Math.abs(r.to - r.from)) / scale,
          itemStyle: { color: tint(r), borderRadius: 2, decal: r.ns < 0 ? stripes : null } })),
        label: { show: true, position: narrow ? "insideLeft" : "right", color: css("--ink"), fontSize: 13, textBorderColor: "transparent", textBorderWidth: 0,
          formatter: (p) => (narrow ? `${signed(rows[p.dataIndex])}  ${rows[p.dataIndex].words}` : signed(rows[p.dataIndex])) },
        labelLayout: narrow ? (p) => ({ x: 12, y: p.rect.y - 9, align: "left" }) : undefined },
    ],
  };
}

// ---- each step ----
const steps = { ns: [], chart: null };
function drawSteps() {
  const phase = phaseOf();
  at("steps").hidden = phase.step_ns.length < 2;
  if (phase.step_ns.length < 2) return;
  steps.ns = phase.step_ns;
  const sorted = [...steps.ns].sort((a, b) => a - b);
  const words = `Wall time of each of ${grouped(sorted.length)} steps of the bare run: ${time(sorted[0])} to ${time(sorted[sorted.length - 1])}.`;
  at("steps-note").textContent = words;
  at("steps-chart").setAttribute("aria-label", words);
  steps.chart ??= chart(at("steps-chart"), () => {
    const [scale, unit] = scaleOf(Math.max(...steps.ns));
    return {
      grid: { left: 56, right: 12, top: 8, bottom: 42 },
      xAxis: { type: "category", data: steps.ns.map((_, i) => String(i)), ...axisLook("step"), nameGap: 24 },
      yAxis: { type: "value", min: 0, splitNumber: 3, ...axisLook(unit), nameGap: 36 },
      tooltip: tooltip((p) => tip(`step ${p.dataIndex}`, [["wall time", time(steps.ns[p.dataIndex])]])),
      series: [{ type: "bar", itemStyle: { color: css("--soft") }, barCategoryGap: "25%", data: steps.ns.map((ns) => ns / scale) }],
    };
  }, { height: 150 });
  steps.chart.draw();
}

// ---- layers ----
function toPart(part) {
  change({ part });
  reveal("waterfall");
}
const layers = { rows: [], chart: null };
function drawLayers() {
  const phase = phaseOf();
  const rows = [...partsHere().values()].filter((p) => p.scope === "layer").map((p) => {
    const [row] = p.rows;
    const roof = ["ideal_ns", "one_after_another_ns", "left_out_ns", "roofs_ns"].reduce((sum, t) => sum + (row[t] ?? 0), 0);
    return { name: row.name, key: p.key, total: row.total_ns, roof };
  });
  at("layers").hidden = rows.length < 2;
  layers.rows = rows.length < 2 ? [] : rows;
  if (rows.length < 2) return;
  const odd = data.siblings.filter((s) => s.phase === phase.name);
  fill(at("siblings"), odd.length
    ? element("div", { class: "doubts" }, element("strong", {}, "Unlike their siblings"), ...odd.map((s) => element("p", {}, s.words)))
    : element("p", { class: "note" }, "No layer is reported to differ from its siblings."));
  at("layer-chart").setAttribute("aria-label", `Time of each layer of ${phase.name}; the table below holds the figures`);
  if (!layers.chart) {
    layers.chart = chart(at("layer-chart"), layerOptions, { height: 240 });
    layers.chart.on("click", (event) => toPart(layers.rows[event.dataIndex].key));
  }
  layers.chart.draw();
  foldedTable("layer-table", "The layers as a table", rows, { caption: `Layers of ${phase.name}`, first: 100, sort: { column: 1, down: true }, columns: [
    { head: "layer", value: (r) => r.name, cell: (r) => link(r.name, () => toPart(r.key)) },
    amount(`kernels and idle before${each()}`, "total", eachTime),
    amount("at its roofs", "roof", eachTime),
    { head: "beyond", number: true, value: (r) => r.total - r.roof, text: (r) => time(per(r.total - r.roof)) },
  ], rowClass: (r) => (r.key === state.part ? "chosen" : "") });
}
function layerOptions() {
  const [scale, unit] = scaleOf(per(Math.max(...layers.rows.map((r) => r.total))));
  const odd = new Set(data.siblings.filter((s) => s.phase === phaseOf().name).map((s) => s.layer));
  const edge = (r) => (odd.has(r.name) || r.key === state.part ? { borderColor: css("--ink"), borderWidth: isNarrow() ? 1 : 2 } : {});
  return {
    grid: { left: 62, right: 12, top: 32, bottom: 44 },
    legend: { data: ["at its roofs", "beyond"], textStyle: { color: css("--ink") }, top: 0, left: 56, selectedMode: false },
    xAxis: { type: "category", data: layers.rows.map((r) => r.name.split(".").pop()), ...axisLook(`layer${onPaper ? "" : "; click one for its waterfall"}`), nameGap: 26 },
    yAxis: { type: "value", min: 0, ...axisLook(`${unit}${each()}`), nameGap: 42 },
    tooltip: tooltip((p) => {
      const r = layers.rows[p.dataIndex];
      return tip(r.name, [["kernels and idle before", time(per(r.total)) + each()], ["at its roofs", time(per(r.roof))]],
        odd.has(r.name) ? "differs from its siblings" : null);
    }),
    series: [
      { type: "bar", name: "at its roofs", stack: "t", color: GOOD, data: layers.rows.map((r) => ({ value: per(Math.min(r.roof, r.total)) / scale, itemStyle: edge(r) })) },
      { type: "bar", name: "beyond", stack: "t", color: BEYOND, data: layers.rows.map((r) => ({
        value: per(Math.max(0, r.total - r.roof)) / scale, itemStyle: edge(r) })) },
    ],
  };
}
