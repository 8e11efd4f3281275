"use strict";
// The comparison of two runs: all figures are per forward, B against A.

const data = JSON.parse(document.getElementById("data").textContent);
const at = (id) => document.getElementById(id);
const names = Object.keys(data.phases);
const state = { phase: names.includes("decode") ? "decode" : names[0] };
const linesOf = () => data.lines.filter((l) => l.phase === state.phase);
const delta = (ns) => (ns === null ? DASH : `${ns < 0 ? "-" : "+"}${time(Math.abs(ns))}`);
const signedPct = (v) => (v === null ? DASH : `${v < 0 ? "-" : "+"}${Math.abs(v).toFixed(1)} %`);

function drawSummary() {
  fill(at("warnings"), data.warnings.length ? element("div", { class: "doubts" }, element("strong", {}, "What makes these figures doubtful"), listOf(data.warnings)) : null);
  fill(at("sentences"), ...names.map((n) => element("li", {}, data.phases[n].sentence)));
  const rows = data.setup.map((d) => [d.what, `${d.a} → ${d.b}${d.effect ? ` (${d.effect})` : ""}`]);
  fill(at("setup"), element("h3", {}, "Set-up"), rows.length ? factList(rows)
    : element("p", {}, "No difference of set-up is recorded: what differs is the machine, or code beneath it."),
    element("p", { class: "note" }, `${data.roofs_line}.`));
  fill(at("paper-note"), names.length > 1 ? `What follows is of ${state.phase}; the page itself shows ${names.filter((n) => n !== state.phase).join(", ")} too.` : null);
  fill(at("phases"), ...names.map((n) => element("button", { "aria-pressed": String(n === state.phase),
    onclick: () => { state.phase = n; draw(); at("phases").querySelector('[aria-pressed="true"]').focus(); } }, n)));
}

const terms = { rows: [], made: null };
function drawTerms() {
  terms.rows = data.terms.filter((t) => t.phase === state.phase && (t.a_ns || t.b_ns));
  at("terms").hidden = !terms.rows.length;
  if (!terms.rows.length) return;
  at("terms-chart").setAttribute("aria-label", `Terms of ${state.phase} in both runs; the table below holds the figures`);
  if (!terms.made) terms.made = chart(at("terms-chart"), termOptions, { height: () => 90 + 46 * terms.rows.length });
  terms.made.draw();
  new SortedTable(at("terms-table"), { caption: `${state.phase}: the terms of both runs, per forward`, first: 20, sort: { column: null }, columns: [
    { head: "term", value: (t) => data.words[t.term], text: (t) => data.words[t.term] },
    { head: "A", number: true, value: (t) => t.a_ns, text: (t) => time(t.a_ns) },
    { head: "B", number: true, value: (t) => t.b_ns, text: (t) => time(t.b_ns) },
    { head: "B - A", number: true, value: (t) => t.b_ns - t.a_ns, text: (t) => delta(t.b_ns - t.a_ns) },
  ] }).show(terms.rows);
}
function unitOf(ns) {
  for (const [size, unit] of [[1e9, "s"], [1e6, "ms"], [1e3, "µs"]]) if (ns >= size) return [size, unit];
  return [1, "ns"];
}
function termOptions() {
  const [scale, unit] = unitOf(Math.max(...terms.rows.flatMap((t) => [Math.abs(t.a_ns), Math.abs(t.b_ns)])));
  const narrow = innerWidth < 700;
  const bars = (side, colour, decal) => ({ type: "bar", name: side, itemStyle: { color: colour, decal }, barGap: "10%",
    data: terms.rows.map((t) => t[`${side.toLowerCase()}_ns`] / scale),
    label: { show: true, position: "right", color: css("--ink"), formatter: (p) => time(terms.rows[p.dataIndex][`${side.toLowerCase()}_ns`]) } });
  return {
    legend: { data: ["A", "B"], top: 0, textStyle: { color: css("--ink") } },
    grid: { left: narrow ? 110 : 260, right: 80, top: 34, bottom: 45 },
    xAxis: { type: "value", ...axisLook(`${unit} per forward`), nameGap: 28 },
    yAxis: { type: "category", inverse: true, data: terms.rows.map((t) => data.words[t.term]),
      axisLabel: { color: css("--ink"), fontSize: narrow ? 11 : 13, width: narrow ? 100 : 245, overflow: "break" }, axisLine: { lineStyle: { color: css("--line") } } },
    tooltip: tooltip((p) => tip(data.words[terms.rows[p.dataIndex].term], [["A", time(terms.rows[p.dataIndex].a_ns)], ["B", time(terms.rows[p.dataIndex].b_ns)]])),
    series: [bars("A", kindColour("mlp"), null), bars("B", kindColour("projection"), { symbol: "rect", dashArrayX: [1, 0], dashArrayY: [2, 5], rotation: Math.PI / 4, color: "rgba(0,0,0,0.35)" })],
  };
}

let table = null;
function drawLines() {
  const rows = linesOf();
  const changed = rows.filter((r) => r.changed).length;
  at("lines-note").textContent = `${rows.length} roles (module and kind of work, all layers together); ${changed || "none"} changed by more than noise. `
    + "A role that only one run has is gathered with its counterparts at the nearest module above both.";
  const sides = (head, key, form) => ["a", "b"].map((s) => ({ head: `${head} ${s.toUpperCase()}`, number: true, value: (r) => r[`${s}_${key}`], text: (r) => form(r[`${s}_${key}`]) }));
  // One figure where both runs have the same.
  const pair = (head, key, form) => ({ head: `${head}, A\u00a0→\u00a0B`, number: true, value: (r) => r[`b_${key}`] ?? r[`a_${key}`],
    text: (r) => [...new Set(["a", "b"].map((s) => form(r[`${s}_${key}`])))].join(" → ") });
  const old = table;
  table = new SortedTable(at("lines-table"), { caption: `Roles of ${state.phase}, per forward`, first: 20, sort: old?.sort ?? { column: 4, down: true },
    rowClass: (r) => (r.changed ? "chosen" : ""), columns: [
      { head: "role", value: (r) => r.module, tip: (r) => `A: ${r.a_names ?? DASH}\nB: ${r.b_names ?? DASH}`, cell: (r) => element("span", {}, element("span", { class: "dot", style: `background:${kindColour(r.kind)}` }), ...breakable(r.module), ` (${r.kind})`) },
      ...sides("time", "time_ns", (v) => time(v)),
      { head: "B - A", number: true, value: (r) => r.delta_ns, cell: (r) => element("span", { class: r.changed ? (r.delta_ns > 0 ? "slower" : "faster") : null }, delta(r.delta_ns)) },
      { head: "size of change", number: true, value: (r) => Math.abs(r.delta_ns), text: (r) => (r.a_time_ns ? signedPct((100 * r.delta_ns) / r.a_time_ns) : DASH) },
      { head: "noise floor", number: true, value: (r) => r.noise_ns, text: (r) => time(r.noise_ns) },
      { head: "verdict", value: (r) => r.says, text: (r) => r.says },
      pair("bytes", "bytes", (v) => quantity(v, "B", 3)),
      pair("FLOP/B", "intensity", (v) => (v === null ? DASH : fixed(v, 3))),
      pair("of roof", "pct_of_roof", percent),
      { ...pair("bound", "bound", (v) => v ?? DASH), number: false },
      pair("launches", "launches", (v) => (v === null ? DASH : String(Number(v.toPrecision(4))))),
    ] });
  table.show(rows);
}

const roofline = { made: null };
const placed = (r, s) => r[`${s}_flops`] > 0 && r[`${s}_bytes`] > 0 && r[`${s}_time_ns`] > 0;
const point = (r, s) => [r[`${s}_flops`] / r[`${s}_bytes`], (r[`${s}_flops`] / r[`${s}_time_ns`]) * 1e9];
function drawRoofline() {
  const rows = linesOf().filter((r) => placed(r, "a") && placed(r, "b"));
  at("roofline").hidden = !rows.length;
  if (!rows.length) return;
  at("roofline-note").textContent = `An arrow for each role with FLOPs and bytes in both runs: it begins at A and ends at B. Solid roofs: A (${data.roofs[0].name}); dashed: B (${data.roofs[1].name}). Strong arrows changed by more than noise.`;
  at("roofline-chart").setAttribute("aria-label", at("roofline-note").textContent);
  if (!roofline.made) roofline.made = chart(at("roofline-chart"), rooflineOptions, { height: 500 });
  roofline.made.draw();
}
// The roles that changed most, named at the end of their arrows.
function arrowNames(rows, spot) {
  return [...rows].sort((a, b) => Math.abs(b.delta_ns) - Math.abs(a.delta_ns)).slice(0, 8).map((r) => {
    const at = point(r, "b"), short = r.module.replace(/^model\.(layers\.\*\.)?/, "");
    return { ...spot(at), at, words: `${short} (${r.kind})` };
  });
}
function rooflineOptions() {
  const rows = linesOf().filter((r) => placed(r, "a") && placed(r, "b"));
  const points = rows.flatMap((r) => [point(r, "a"), point(r, "b")]);
  const ridges = data.roofs.map((r) => r.compute[0].flop_s / r.memory[0].byte_s);
  const x0 = 10 ** Math.floor(Math.log10(Math.min(...points.map((p) => p[0]), ...ridges) / 1.5));
  const x1 = 10 ** Math.ceil(Math.log10(Math.max(...points.map((p) => p[0]), ...ridges) * 2));
  const y1 = 10 ** Math.ceil(Math.log10(Math.max(...data.roofs.map((r) => r.compute[0].flop_s)) * 1.6));
  const y0 = 10 ** Math.floor(Math.log10(Math.min(...points.map((p) => p[1])) / 2));
  const grid = { left: 78, right: 24, top: 18, bottom: 52 };
  const target = at("roofline-chart"), size = [target.clientWidth - grid.left - grid.right, target.clientHeight - grid.top - grid.bottom];
  const across = size[0] / Math.log10(x1 / x0), up = size[1] / Math.log10(y1 / y0);
  const spot = ([x, y]) => ({ x: across * Math.log10(x / x0), y: size[1] - up * Math.log10(y / y0), size: 10 });
  const heights = data.roofs.map((r) => spot([x1, r.compute[0].flop_s]).y), high = heights.map((y, i) => y <= heights[1 - i]);
  if (heights[0] === heights[1]) high[1] = false;
  // A roof's words stand at its right end, the higher one's above and the lower one's below, and in the middle of its slope.
  const words = data.roofs.flatMap((r, i) => [
    { at: [x1, r.compute[0].flop_s], text: `${"AB"[i]}: ${r.compute[0].name} ${quantity(r.compute[0].flop_s, "FLOP/s", 3)}`, look: { position: "left", offset: [0, high[i] ? -10 : 12] } },
    slopeWords(r, i),
  ]);
  function slopeWords(r, i) {
    const [memory, other] = [r.memory[0].byte_s, data.roofs[1 - i].memory[0].byte_s];
    const from = Math.max(x0, y0 / memory), until = r.compute[0].flop_s / memory, x = from * (until / from) ** 0.3;
    const above = memory > other || (memory === other && i === 0);
    return { at: [x, memory * x], text: `${"AB"[i]}: ${r.memory[0].name} ${quantity(memory, "B/s", 3)}`,
      look: { position: "inside", rotate: (Math.atan2(up, across) * 180) / Math.PI, offset: [0, above ? -11 : 12] } };
  }
  const taken = words.flatMap((w) => {
    const { x, y } = spot(w.at);
    if (w.look.position === "left") return [[x - 170, y - 20, x, y + 20]];
    return [-60, -40, -20, 0, 20, 40, 60].map((dx) => [x + dx - 10, y - (dx * up) / across - 22, x + dx + 10, y - (dx * up) / across + 22]);
  });
  const names = placeNames(arrowNames(rows, spot), points.map(spot), taken, size);
  const roof = (r, i) => ({ type: "line", symbol: "none", silent: true, tooltip: { show: false }, lineStyle: { color: css("--ink"), width: 1.8, type: i ? "dashed" : "solid" },
    data: [x0, r.compute[0].flop_s / r.memory[0].byte_s, x1].map((x) => [x, Math.min(r.compute[0].flop_s, r.memory[0].byte_s * x)]).filter(([, y]) => y >= y0) });
  return {
    grid,
    xAxis: { type: "log", min: x0, max: x1, ...axisLook("intensity, FLOP per byte"), nameGap: 30, axisLabel: { color: css("--soft"), formatter: (v) => String(Number(v.toPrecision(3))) } },
    yAxis: { type: "log", min: y0, max: y1, ...axisLook("attained, FLOP/s"), nameGap: 62, axisLabel: { color: css("--soft"), formatter: (v) => quantity(v, "", 3).trim() } },
    tooltip: tooltip((p) => { const r = rows[p.data.row]; return tip(`${r.module} (${r.kind})`, [["time", `${time(r.a_time_ns)} → ${time(r.b_time_ns)}`], ["of roof", `${percent(r.a_pct_of_roof)} → ${percent(r.b_pct_of_roof)}`]]); }),
    series: [...data.roofs.map(roof), nameSeries(names),
      { type: "scatter", silent: true, z: 2, symbolSize: 0.1, data: words.map((w) => ({ value: w.at, label: { show: true, formatter: () => w.text, ...w.look } })),
        label: { color: css("--ink"), fontSize: 12, textBorderColor: css("--paper"), textBorderWidth: 3 } },
      ...rows.map((r, i) => ({ type: "line", symbol: ["circle", "arrow"], symbolSize: [7, 11], showSymbol: true,
        lineStyle: { color: kindColour(r.kind), width: r.changed ? 3 : 1.3, opacity: r.changed ? 1 : 0.6 }, itemStyle: { color: kindColour(r.kind), borderColor: css("--ink"), borderWidth: 0.5 },
        data: [{ value: point(r, "a"), row: i, symbol: "circle", symbolSize: 7 }, { value: point(r, "b"), row: i, symbol: "triangle", symbolSize: 10 }] }))],
  };
}

function draw() {
  drawSummary();
  drawTerms();
  drawLines();
  drawRoofline();
}
startPage();
repaint = draw;
draw();
window.kernelroof = { lines: () => linesOf().map((l) => `${l.module} (${l.kind})`) };
