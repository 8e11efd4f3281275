"use strict";
// The report: what is shown follows from `state` alone; every control changes it and draws again.

const data = JSON.parse(document.getElementById("data").textContent);
const at = (id) => document.getElementById(id);

// Rows out of columns. Amounts are sums over a phase's forwards; `per` makes them one forward's.
const roleColumns = Object.fromEntries(Object.entries(data.roles).map(([k, v]) => [k, v.codes ? decode(v) : v]));
const roles = roleColumns.phase.map((phase, i) => {
  const row = { index: i };
  for (const [name, column] of Object.entries(roleColumns)) row[name] = column[i];
  return row;
});
const moduleColumns = Object.fromEntries(Object.entries(data.modules).map(([k, v]) => [k, v.codes ? decode(v) : v]));
const modules = moduleColumns.phase.map((phase, i) => {
  const row = { index: i };
  for (const [name, column] of Object.entries(moduleColumns)) row[name] = column[i];
  return row;
});
const paths = decode(data.launches.path);
const launchesOf = new Map();
data.launches.role.forEach((role, i) => {
  if (!launchesOf.has(role)) launchesOf.set(role, []);
  launchesOf.get(role).push(i);
});
const parts = data.parts && Object.fromEntries(Object.entries(data.parts).map(([k, v]) => [k, v.codes ? decode(v) : v]));

const state = { phase: 0, view: "kernels", kinds: null, bounds: null, text: "", module: null, role: null };

// ---- figures ----
const phaseOf = () => data.phases[state.phase];
const per = (value, phase = phaseOf()) => (value === null || value === undefined ? null : value / phase.steps);
const each = (phase = phaseOf()) => (phase.steps > 1 ? " per step" : "");
const roofsOf = (phase = phaseOf()) => phase.roofs ?? data.roofs;
const flopRate = (v) => quantity(v, "FLOP/s", 3);
const byteRate = (v) => quantity(v, "B/s", 3);
const kindColour = (kind) => data.colours.kinds[kind] ?? data.colours.kinds.other;
const shapeOf = (bound) => data.colours.shapes[bound] ?? "circle";
const shortModule = (m) => m.replace(/^model\./, "").replace(/^layers\.(?!\*$)/, "");

// ---- what passes the filters ----
function passes(row) {
  const text = state.text.toLowerCase();
  return row.phase === state.phase
    && (!state.kinds || state.kinds.has(row.kind ?? ""))
    && (!state.bounds || state.bounds.has(row.bound ?? ""))
    && (!text || `${row.module} ${row.kernel ?? ""} ${row.label ?? ""}`.toLowerCase().includes(text));
}
const inModule = (row) => state.module === null || row.module === state.module;
const shownRoles = () => roles.filter((r) => passes(r) && inModule(r));
// Filters by kernel name, kind or bound hold for kernels; a module is shown while one of its kernels is.
function shownModules() {
  const kept = new Set(roles.filter(passes).map((r) => r.module));
  return modules.filter((m) => m.phase === state.phase && kept.has(m.module));
}

// ---- state and its place in the address ----
function change(more) {
  Object.assign(state, more);
  save();
  draw();
}
function save() {
  const out = new URLSearchParams();
  out.set("phase", phaseOf().name);
  if (state.view !== "kernels") out.set("view", state.view);
  if (state.kinds) out.set("kinds", [...state.kinds].join(","));
  if (state.bounds) out.set("bounds", [...state.bounds].join(","));
  if (state.text) out.set("text", state.text);
  if (state.module !== null) out.set("module", state.module);
  if (state.role !== null) out.set("kernel", roles[state.role].label);
  history.replaceState(null, "", `#${out}`);
}
function load() {
  if (!location.hash.includes("=")) return false;
  const given = new URLSearchParams(location.hash.slice(1));
  const phase = data.phases.findIndex((p) => p.name === given.get("phase"));
  state.phase = Math.max(0, phase);
  state.view = given.get("view") === "modules" ? "modules" : "kernels";
  const set = (name) => (given.get(name) ? new Set(given.get(name).split(",")) : null);
  state.kinds = set("kinds");
  state.bounds = set("bounds");
  state.text = given.get("text") ?? "";
  const module = given.get("module");
  state.module = roles.some((r) => r.phase === state.phase && r.module === module) ? module : null;
  const role = roles.find((r) => r.phase === state.phase && r.label === given.get("kernel"));
  state.role = role ? role.index : null;
  return true;
}

// ---- summary ----
function drawSummary() {
  at("by").textContent = data.made_by;
  fill(at("doubts"), data.doubts.length
    ? element("div", { class: "doubts" }, element("strong", {}, "Doubtful: "), data.doubts.join("; "))
    : null);
  fill(at("phases"), ...data.phases.map((phase, i) => {
    const took = phase.wall_ns ?? phase.kernel_ns;
    const what = phase.wall_ns === null ? "in kernels" : phase.steps > 1 ? "per step" : "in all";
    const ideal = phase.ideal_ns === null ? null
      : `the model's ideal is ${time(per(phase.ideal_ns, phase))}: ${fixed(took / phase.ideal_ns, 2)} times as long`;
    return element("button", { type: "button", class: "phase", "aria-pressed": String(i === state.phase),
      onclick: () => change({ phase: i, module: null, role: null }) },
      element("span", { class: "name" }, `${phase.name}${phase.steps > 1 ? `, ${phase.steps} steps` : ""}${phase.name.endsWith(phase.clock) ? "" : `; ${phase.clock}`}`),
      element("span", { class: "big" }, `${time(per(took, phase))} ${what}`),
      ideal ? element("span", { class: "rest" }, ideal) : null);
  }));
  const phase = phaseOf();
  const answers = phase.answers.flatMap(([q, a]) => [element("dt", {}, q), element("dd", {}, a)]);
  fill(at("answers"),
    answers.length ? element("dl", { class: "answers" }, ...answers) : element("p", {}, phase.verdict),
    element("ul", { class: "plain note" }, ...phase.facts.map((f) => element("li", {}, f)), ...spreadFact(phase).map((f) => element("li", {}, f))));
  fill(at("subject"), factList(data.subject));
}
function spreadFact(phase) {
  if (phase.wall_low_ns === null || !phase.repeats) return [];
  if (phase.repeats < 2) return ["the wall time is of one bare run: its spread is not known"];
  return [`bare wall time: ${phase.repeats} repeats took ${time(per(phase.wall_low_ns))} to ${time(per(phase.wall_high_ns))}${each()}`];
}

// ---- waterfall ----
function wantedTerms() {
  const phase = phaseOf();
  if (state.module !== null && parts) {
    const wanted = new RegExp(`^${state.module.replace(/[.+?^${}()|[\]\\]/g, "\\$&").replace(/\*/g, "\\d+")}$`);
    const rows = parts.name.map((name, i) => i).filter((i) =>
      parts.scope[i] === "module" && parts.phase[i] === phase.name && wanted.test(parts.name[i]));
    if (rows.length) {
      return { title: `${state.module}, all layers: from its ideal to the time of its kernels`, end: "time of its kernels",
        terms: data.terms.map(([term, words]) => ({ term, words, ns: rows.reduce((sum, i) => sum + parts[term][i], 0) })) };
    }
  }
  if (!phase.waterfall) return null;
  return { title: `${phase.name}: from the model's ideal to the wall time`, end: "bare wall time", terms: phase.waterfall };
}
function drawWaterfall() {
  const wanted = wantedTerms();
  at("waterfall").hidden = wanted === null;
  if (!wanted) return;
  const kept = wanted.terms.filter((t) => t.ns !== 0 || t.term === "ideal_ns");
  const total = wanted.terms.reduce((sum, t) => sum + t.ns, 0);
  at("waterfall-note").textContent = `${wanted.title}${each()}. Each term changes one assumption; together they are the measured time exactly.`;
  const rows = [];
  let reached = 0;
  for (const t of kept) {
    rows.push({ words: t.words, from: reached, to: reached + t.ns, ns: t.ns, first: t.term === "ideal_ns" });
    reached += t.ns;
  }
  rows.push({ words: wanted.end, from: 0, to: total, ns: total, last: true });
  at("waterfall-chart").setAttribute("aria-label",
    `${wanted.title}: ${rows.map((r) => `${r.words} ${time(per(r.ns))}`).join(", ")}`);
  waterfallChart.rows = rows;
  if (!waterfallChart.made) {
    waterfallChart.made = chart(at("waterfall-chart"), waterfallOptions, { height: () => 70 + 34 * waterfallChart.rows.length });
  }
  waterfallChart.made.draw();
  new SortedTable(at("waterfall-table"), {
    caption: wanted.title, first: 30, sort: { column: 3, down: false },
    columns: [
      { head: "term", value: (r) => r.words, text: (r) => r.words },
      { head: `time${each()}`, value: (r) => r.ns, text: (r) => signed(r), number: true },
      { head: "up to", value: (r) => r.to, text: (r) => time(per(r.to)), number: true },
      { head: "order", value: (r) => r.order, text: (r) => r.order, number: true },
    ],
  }).show(rows.map((r, i) => ({ ...r, order: i + 1 })));
}
const signed = (r) => (r.first || r.last ? time(per(r.ns)) : `${r.ns < 0 ? "-" : "+"}${time(Math.abs(per(r.ns)))}`);
const waterfallChart = { rows: [], made: null };
function waterfallOptions() {
  const rows = waterfallChart.rows;
  const top = Math.max(...rows.map((r) => Math.max(r.from, r.to)), 1);
  const [scale, unit] = scaleOf(per(top));
  const narrow = innerWidth < 700;
  const tint = (r) => (r.first ? "#009E73" : r.last ? css("--soft") : r.ns < 0 ? "#0072B2" : "#D55E00");
  return {
    grid: { left: narrow ? 8 : 260, right: 110, top: narrow ? 20 : 8, bottom: 45 },
    xAxis: { type: "value", min: 0, ...axisLook(`${unit}${each()}`), nameGap: 28 },
    yAxis: { type: "category", inverse: true, data: rows.map((r) => r.words), axisTick: { show: false },
      axisLine: { lineStyle: { color: css("--line") } },
      axisLabel: { show: !narrow, color: css("--ink"), fontSize: 13, width: 245, overflow: "break" } },
    tooltip: tooltip((p) => tip(rows[p.dataIndex].words, [["time", signed(rows[p.dataIndex])], ["up to", time(per(rows[p.dataIndex].to))]])),
    series: [
      { type: "bar", stack: "w", silent: true, itemStyle: { color: "transparent" }, tooltip: { show: false }, barWidth: narrow ? 12 : 20,
        data: rows.map((r) => per(Math.min(r.from, r.to)) / scale) },
      { type: "bar", stack: "w", barMinHeight: 2, barWidth: narrow ? 12 : 20,
        data: rows.map((r) => ({ value: per(Math.abs(r.to - r.from)) / scale, itemStyle: { color: tint(r), decal: r.ns < 0 ? { symbol: "rect", dashArrayX: [1, 0], dashArrayY: [3, 4], rotation: Math.PI / 4, color: "rgba(255,255,255,0.5)" } : null } })),
        label: { show: true, position: "right", color: css("--ink"), fontSize: 13,
          formatter: (p) => (narrow ? `${signed(rows[p.dataIndex])} ${rows[p.dataIndex].words}` : signed(rows[p.dataIndex])) },
        labelLayout: narrow ? (p) => ({ x: 12, y: p.rect.y - 9, align: "left", hideOverlap: false }) : undefined },
    ],
  };
}
function scaleOf(ns) {
  for (const [size, unit] of [[1e9, "s"], [1e6, "ms"], [1e3, "µs"]]) if (ns >= size) return [size, unit];
  return [1, "ns"];
}

// ---- filters and the way down ----
function drawFilters() {
  const here = roles.filter((r) => r.phase === state.phase);
  const kinds = [...new Set(here.map((r) => r.kind ?? ""))];
  const bounds = [...new Set(here.map((r) => r.bound ?? ""))];
  const toggles = (name, values, chosen, key, sample) => element("fieldset", { class: "set" }, element("span", {}, name),
    ...values.map((v) => element("button", { type: "button", "aria-pressed": String(chosen ? chosen.has(v) : false),
      onclick: () => {
        const next = new Set(chosen ?? []);
        if (!next.delete(v)) next.add(v);
        change({ [key]: next.size ? next : null });
        focusFilter(key, v);
      }, "data-filter": `${key}:${v}` }, sample(v), v || "not known")),
    chosen ? element("button", { type: "button", onclick: () => change({ [key]: null }) }, "all") : null);
  const dot = (v) => element("span", { class: "dot", style: `background:${kindColour(v)}` });
  const mark = (v) => `${{ triangle: "▲", circle: "●", diamond: "◆", rect: "■" }[shapeOf(v)] ?? "▼"} `;
  const search = element("input", { type: "search", value: state.text, placeholder: "module or kernel", "aria-label": "Filter by module or kernel name" });
  search.addEventListener("input", () => { change({ text: search.value }); });
  const view = element("fieldset", { class: "set" }, element("span", {}, "points"),
    ...["modules", "kernels"].map((v) => element("button", { type: "button", "aria-pressed": String(state.view === v), "data-filter": `view:${v}`,
      onclick: () => { change({ view: v, module: null, role: null }); focusFilter("view", v); } }, v)));
  const hadFocus = document.activeElement?.type === "search" && at("filters").contains(document.activeElement);
  const caret = hadFocus ? document.activeElement.selectionStart : 0;
  fill(at("filters"), view, toggles("kind", kinds, state.kinds, "kinds", dot), toggles("bound", bounds, state.bounds, "bounds", mark), search);
  if (hadFocus) { search.focus(); search.setSelectionRange(caret, caret); }
}
function focusFilter(key, value) {
  [...at("filters").querySelectorAll("button")].find((b) => b.dataset.filter === `${key}:${value}`)?.focus();
}
function drawCrumbs() {
  const steps = [[phaseOf().name, { module: null, role: null }]];
  if (state.module !== null) steps.push([state.module, { role: null }]);
  if (state.role !== null) steps.push([roles[state.role].label, {}]);
  fill(at("crumbs"), ...steps.flatMap(([words, to], i) => {
    const last = i === steps.length - 1;
    const made = last ? element("span", { "aria-current": "true" }, words)
      : element("button", { type: "button", onclick: () => change(to) }, words);
    return i ? [element("span", { "aria-hidden": "true" }, "▸"), made] : [made];
  }));
}
const chooseModule = (module) => change({ module, role: null });
const chooseRole = (row) => change({ module: row.module, role: row.index });

// ---- roofline ----
const placed = (flops, bytes, ns) => flops > 0 && bytes > 0 && ns > 0;
function rooflinePoints() {
  if (state.role !== null) {
    const role = roles[state.role];
    return (launchesOf.get(state.role) ?? []).map((i) => {
      const [flops, bytes, ns] = ["flops", "bytes", "time_ns"].map((k) => data.launches[k][i]);
      return { launch: i, kind: role.kind, bound: role.bound, ok: placed(flops, bytes, ns), x: flops / bytes, y: (flops / ns) * 1e9, size: 9 };
    });
  }
  const rows = state.view === "modules" && state.module === null ? shownModules() : shownRoles();
  return rows.map((row) => ({
    row, kind: row.kind, bound: row.bound, ok: placed(row.flops, row.bytes, row.time_ns), x: row.intensity,
    y: row.attained_flop_s, size: Math.min(46, Math.max(9, Math.sqrt(row.share_pct ?? 0) * 9)),
  }));
}
const roofline = { points: [], marks: [], made: null };
function drawRoofline() {
  const points = rooflinePoints();
  roofline.points = points.filter((p) => p.ok);
  const phase = phaseOf();
  roofline.marks = [];
  const roofs = roofsOf();
  if (roofs?.memory.length && roofs.compute.length) {
    const top = (x) => Math.min(roofs.compute[0].flop_s, roofs.memory[0].byte_s * x);
    const add = (name, flops, bytes, kind) => {
      if (flops > 0 && bytes > 0) roofline.marks.push({ name, flops, bytes, kind, x: flops / bytes, y: top(flops / bytes) });
    };
    if (phase.model) add(`${phase.name}, the whole model`, phase.model.flops, phase.model.bytes, null);
    for (const e of phase.estimates) if (!state.kinds || state.kinds.has(e.kind)) add(`${e.kind}, as traced`, e.flops, e.bytes, e.kind);
  }
  at("roofline").hidden = !roofs && !roofline.points.length;
  const what = state.role !== null ? "launches" : state.view === "modules" && state.module === null ? "modules" : "kernels";
  at("roofline-chart").setAttribute("aria-label", `Roofline of ${phase.name}: ${roofline.points.length} ${what}; the tables below hold their figures`);
  at("roofline-note").textContent = [
    state.role !== null ? "Each mark is one launch." : `Each mark is one of the ${what} (of all layers together), its area the share of time; colour: kind of module, shape: bound.`,
    roofline.marks.length ? "Hollow: the model's estimate on its roof (star: whole phase; diamonds: kinds of module)." : "",
    state.role !== null ? data.launches_note ?? "" : "Click a mark to go down: module, kernel, launches.",
    roofs ? `Roofs: ${roofs.note}.` : "No roofs are known.",
  ].filter(Boolean).join(" ");
  if (!roofline.made) roofline.made = chart(at("roofline-chart"), rooflineOptions, { height: () => (innerWidth < 700 ? 360 : 520) });
  roofline.made.draw();
  roofline.made.instance.off("click");
  roofline.made.instance.on("click", (event) => {
    const row = event.data?.point?.row;
    if (!row) return;
    if (row.kernel === undefined) chooseModule(row.module);
    else chooseRole(row);
  });
  drawUnplaced(points.filter((p) => !p.ok && p.row));
}
function rooflineOptions() {
  const { points, marks } = roofline;
  const roofs = roofsOf();
  const all = [...points, ...marks];
  const memory = roofs?.memory ?? [];
  const compute = roofs?.compute ?? [];
  const ridge = memory.length && compute.length ? compute[0].flop_s / memory[0].byte_s : null;
  const xs = all.map((p) => p.x).concat(ridge ? [ridge / 4, ridge * 8] : [0.1, 100]);
  const x0 = 10 ** Math.floor(Math.log10(Math.min(...xs) / 1.5));
  const x1 = 10 ** Math.ceil(Math.log10(Math.max(...xs) * 1.3));
  const peak = Math.max(...compute.map((c) => c.flop_s), ...all.map((p) => p.y), 1);
  const lowest = Math.min(...all.map((p) => p.y), memory.length ? memory[0].byte_s * x0 * 3 : peak);
  const y0 = 10 ** Math.floor(Math.log10(lowest / 2));
  const y1 = 10 ** Math.ceil(Math.log10(peak * 1.6));
  const narrow = innerWidth < 700;
  const lines = [];
  const line = (name, from, to, text, first, where) => lines.push({
    type: "line", name, data: [from, to], symbol: "none", silent: true, z: 1, tooltip: { show: false },
    lineStyle: { color: css("--ink"), width: first ? 2.2 : 1.2, type: first ? "solid" : "dashed", opacity: first ? 1 : 0.7 },
    endLabel: where === "end" ? { show: true, formatter: text, color: css("--ink"), fontSize: 12, align: "right", verticalAlign: "bottom", offset: [-6, -2], backgroundColor: css("--paper") } : undefined,
    markPoint: where === "slope" ? { symbol: "circle", symbolSize: 0.1, silent: true, animation: false, data: [{ coord: slopeAt(from, to), value: text }],
      label: { show: true, formatter: text, color: css("--ink"), fontSize: 12, position: "left", distance: 12, backgroundColor: css("--paper") } } : undefined,
  });
  const slopeAt = (from, to) => [Math.sqrt(from[0] * to[0]), Math.sqrt(from[1] * to[1])];
  const topPeak = compute.length ? Math.max(...compute.map((c) => c.flop_s)) : peak;
  memory.forEach((m, i) => {
    const until = Math.min(topPeak / m.byte_s, x1);
    const from = Math.max(x0, y0 / m.byte_s);
    if (until > from) line(m.name, [from, m.byte_s * from], [until, m.byte_s * until], `${m.name} ${byteRate(m.byte_s)}`, i === 0, "slope");
  });
  compute.forEach((c, i) => {
    const from = memory.length ? Math.max(c.flop_s / Math.max(...memory.map((m) => m.byte_s)), x0) : x0;
    if (from < x1) line(c.name, [from, c.flop_s], [x1, c.flop_s], `${c.name} ${flopRate(c.flop_s)}`, i === 0, "end");
  });
  const names = named();
  const tooHigh = (p) => roofs && compute.length && p.y > 1.05 * topPeak;
  return {
    grid: { left: narrow ? 52 : 78, right: narrow ? 12 : 24, top: 18, bottom: 52 },
    xAxis: { type: "log", min: x0, max: x1, ...axisLook("intensity, FLOP per byte"), nameGap: 30,
      axisLabel: { color: css("--soft"), fontSize: 12, formatter: (v) => String(Number(v.toPrecision(3))) } },
    yAxis: { type: "log", min: y0, max: y1, ...axisLook("attained, FLOP/s"), nameGap: narrow ? 40 : 62,
      axisLabel: { color: css("--soft"), fontSize: 12, formatter: (v) => quantity(v, "", 3).trim() } },
    tooltip: tooltip((p) => pointTip(p.data)),
    series: [
      ...lines,
      { type: "scatter", z: 3, data: points.map((p) => ({
          value: [p.x, p.y], point: p, symbol: shapeOf(p.bound), symbolSize: p.size,
          itemStyle: { color: kindColour(p.kind), opacity: points.length > 400 ? 0.45 : 0.82, borderColor: tooHigh(p) ? "#D55E00" : css("--ink"), borderWidth: tooHigh(p) ? 3 : 0.7 } })),
        label: { show: points.length > 0 && state.role === null && !narrow, formatter: (p) => (names.has(p.data.point.row?.index) ? labelOf(p.data.point) : ""), position: "right", color: css("--ink"), fontSize: 11.5, textBorderColor: css("--paper"), textBorderWidth: 3 },
        labelLayout: { hideOverlap: true } },
      { type: "scatter", z: 4, data: marks.map((m) => ({
          value: [m.x, m.y], mark: m, symbol: m.kind ? "diamond" : "path://M10 0 L13 7 L20 7 L14.5 11.5 L16.5 19 L10 14.5 L3.5 19 L5.5 11.5 L0 7 L7 7 Z",
          symbolSize: m.kind ? 13 : 24, itemStyle: { color: "transparent", borderColor: m.kind ? kindColour(m.kind) : css("--ink"), borderWidth: 2 } })) },
    ],
  };
}
const labelOf = (p) => (p.row.label ?? shortModule(p.row.module));
function named() {
  return new Set(roofline.points.filter((p) => p.row).sort((a, b) => b.row.time_ns - a.row.time_ns).slice(0, 9).map((p) => p.row.index));
}
function pointTip(found) {
  if (found.mark) {
    const m = found.mark;
    return tip(m.name, [["FLOPs", quantity(per(m.flops), "FLOP", 3) + each()], ["bytes", quantity(per(m.bytes), "B", 3) + each()],
      ["intensity", `${fixed(m.x, 3)} FLOP/B`], ["at its roof", flopRate(m.y)]], "the model's own estimate, where an ideal run would be");
  }
  const p = found.point;
  if (p.launch !== undefined) {
    const i = p.launch, l = data.launches;
    return tip(paths[i] ?? roles[state.role].module, [["step", l.step[i] ?? DASH], ["time", time(l.time_ns[i])], ["FLOPs", quantity(l.flops[i], "FLOP", 3)],
      ["bytes", quantity(l.bytes[i], "B", 3)], ["of its roof", percent(l.pct_of_roof[i])], ["launches", grouped(l.count[i])]]);
  }
  const r = p.row;
  return tip(r.label ?? r.module, figuresOf(r), r.reason);
}
function figuresOf(r) {
  const source = (name) => (r[name] ? ` (${r[name]})` : "");
  return [
    r.kernel ? ["module", r.module] : null,
    [`time${each()}`, `${time(per(r.time_ns))}${r.share_pct === null ? "" : `, ${percent(r.share_pct)}`}${source("time_source")}`],
    ["recoverable", time(per(r.recoverable_ns))],
    ["bound", r.bound ?? DASH],
    ["of its roof", percent(r.pct_of_roof)],
    [`FLOPs${each()}`, quantity(per(r.flops), "FLOP", 3) + source("flops_source")],
    [`bytes${each()}`, quantity(per(r.bytes), "B", 3) + source("bytes_source")],
    ["intensity", r.intensity === null ? DASH : `${fixed(r.intensity, 3)} FLOP/B`],
    ["attained", `${flopRate(r.attained_flop_s ?? null)}, ${byteRate(r.attained_byte_s ?? null)}`],
    r.dram_pct === null || r.dram_pct === undefined ? null : ["DRAM, SM (ncu)", `${percent(r.dram_pct)}, ${percent(r.sm_pct)}`],
  ].filter(Boolean);
}
function drawUnplaced(points) {
  const rows = points.map((p) => p.row).sort((a, b) => (b.time_ns ?? 0) - (a.time_ns ?? 0));
  if (!rows.length) { fill(at("unplaced")); return; }
  const total = rows.reduce((sum, r) => sum + (r.time_ns ?? 0), 0);
  fill(at("unplaced"), element("details", {},
    element("summary", {}, `${grouped(rows.length)} without a place (no FLOPs or no bytes): ${time(per(total))}${each()}`),
    element("ul", { class: "plain" }, ...rows.slice(0, 40).map((r) => element("li", {},
      `${r.label ?? r.module}: ${time(per(r.time_ns))}${r.flops === 0 && r.attained_byte_s ? `, moves ${byteRate(r.attained_byte_s)}` : ""}${r.reason ? ` (${r.reason})` : ""}`)),
      rows.length > 40 ? element("li", {}, `and ${rows.length - 40} more, in the table below`) : null)));
}

// ---- what is chosen ----
function drawDetail() {
  const box = at("detail");
  if (state.role !== null) {
    const r = roles[state.role];
    const launches = r.launches === null ? null : r.launches / phaseOf().steps;
    const spread = r.step_median_ns === null || r.step_median_ns === undefined
      ? ["spread", "not known: one forward was recorded"]
      : ["median of a step", `${time(r.step_median_ns)}, half of ${grouped(r.samples)} within ${time(r.step_low_ns)} to ${time(r.step_high_ns)}`];
    fill(box, element("h3", {}, r.label), r.advice ? element("p", { class: "advice" }, r.advice) : null,
      factList([...figuresOf(r), [`launches${each()}`, launches === null ? DASH : String(Number(launches.toPrecision(4)))],
        ["at its roof", `${time(per(r.ideal_ns))}${each()}`], phaseOf().steps > 1 ? spread : null].filter(Boolean)),
      r.reason ? element("p", { class: "note" }, r.reason) : null,
      element("p", {}, element("code", {}, r.kernel)));
    return;
  }
  if (state.module !== null) {
    const m = modules.find((row) => row.phase === state.phase && row.module === state.module);
    const inside = roles.filter((r) => r.phase === state.phase && r.module === state.module);
    fill(box, element("h3", {}, state.module), m ? factList([...figuresOf(m), ["at its roof", `${time(per(m.ideal_ns))}${each()}`]]) : null,
      m?.reason ? element("p", { class: "note" }, m.reason) : null,
      element("p", {}, `${inside.length} kernels; choose one to see its launches.`));
    return;
  }
  const worst = roles.filter((r) => r.phase === state.phase && r.recoverable_ns).sort((a, b) => b.recoverable_ns - a.recoverable_ns).slice(0, 5);
  fill(box, element("h3", {}, "Most to recover"),
    worst.length ? element("ol", {}, ...worst.map((r) => element("li", {},
      element("button", { type: "button", class: "screen", onclick: () => chooseRole(r) }, r.label),
      ` ${time(per(r.recoverable_ns))}${each()} of ${time(per(r.time_ns))}`,
      r.advice ? element("p", { class: "note" }, r.advice) : null))) : element("p", {}, "Nothing that is known to be recoverable."));
}

// ---- tables ----
const kindCell = (r) => element("span", {}, element("span", { class: "dot", style: `background:${kindColour(r.kind)}` }), r.kind ?? DASH);
const amountColumns = () => [
  { head: `time${each()}`, number: true, value: (r) => r.time_ns, text: (r) => time(per(r.time_ns)) },
  { head: "share", number: true, value: (r) => r.share_pct, text: (r) => percent(r.share_pct) },
  { head: `recoverable${each()}`, number: true, value: (r) => r.recoverable_ns, text: (r) => time(per(r.recoverable_ns)), tip: (r) => (r.recoverable_ns === null ? r.reason : null) },
  { head: "at its roof", number: true, value: (r) => r.ideal_ns, text: (r) => time(per(r.ideal_ns)), tip: (r) => (r.ideal_ns === null ? r.reason : null) },
  { head: "bound", value: (r) => r.bound, text: (r) => r.bound ?? DASH, tip: (r) => r.reason },
  { head: "of roof", number: true, value: (r) => r.pct_of_roof, text: (r) => percent(r.pct_of_roof) },
  { head: `FLOPs${each()}`, number: true, value: (r) => r.flops, text: (r) => quantity(per(r.flops), "FLOP", 3) },
  { head: `bytes${each()}`, number: true, value: (r) => r.bytes, text: (r) => quantity(per(r.bytes), "B", 3) },
  { head: "FLOP/B", number: true, value: (r) => r.intensity, text: (r) => (r.intensity === null ? DASH : fixed(r.intensity, 3)) },
  { head: `launches${each()}`, number: true, value: (r) => r.launches, text: (r) => (r.launches === null ? DASH : String(Number((r.launches / phaseOf().steps).toPrecision(4)))) },
];
let kernelTable = null;
let moduleTable = null;
function drawTables() {
  const phase = phaseOf();
  const spread = roles.some((r) => r.phase === state.phase && r.step_median_ns);
  const columns = [
    { head: "kernel", value: (r) => r.label, cell: (r) => element("button", { type: "button", class: "link", title: r.kernel, onclick: () => { chooseRole(r); at("roofline").scrollIntoView(); } }, r.label) },
    { head: "kind", value: (r) => r.kind, cell: kindCell },
    ...amountColumns(),
    ...(spread ? [{ head: "quartiles of steps", number: true, value: (r) => (r.step_median_ns ? (r.step_high_ns - r.step_low_ns) / r.step_median_ns : null),
      text: (r) => (r.step_median_ns === null ? DASH : `${time(r.step_low_ns)} – ${time(r.step_high_ns)}`) }] : []),
  ];
  const keep = (old, sort) => (old ? { sort: old.sort.column < columns.length ? old.sort : sort } : { sort });
  const all = kernelTable?.all ?? false;
  kernelTable = new SortedTable(at("kernel-table"), { caption: `Kernels of ${phase.name.replace(/^all kernels/, "the files")}${state.module === null ? "" : ` in ${state.module}`}: those that pass the filters, all layers together`,
    columns, ...keep(kernelTable, { column: 4, down: true }), first: 20, rowClass: (r) => (r.index === state.role ? "chosen" : "") });
  kernelTable.all = all;
  kernelTable.show(shownRoles());
  moduleTable = new SortedTable(at("module-table"), { caption: `Modules of ${phase.name} with kernels that pass the filters, all layers together`, first: 12,
    columns: [{ head: "module", value: (r) => r.module, cell: (r) => element("button", { type: "button", class: "link", onclick: () => { chooseModule(r.module); at("roofline").scrollIntoView(); } }, r.module) },
      { head: "kind", value: (r) => r.kind, cell: kindCell }, ...amountColumns()],
    ...keep(moduleTable, { column: 4, down: true }), rowClass: (r) => (r.module === state.module ? "chosen" : "") });
  moduleTable.show(shownModules());
}

// ---- layers ----
const layers = { rows: [], made: null };
function drawLayers() {
  const phase = phaseOf();
  const rows = parts ? parts.name.map((name, i) => i).filter((i) => parts.scope[i] === "layer" && parts.phase[i] === phase.name)
    .map((i) => ({ name: parts.name[i], total: parts.total_ns[i], ideal: parts.ideal_ns[i] + parts.one_after_another_ns[i] + parts.left_out_ns[i] + parts.roofs_ns[i] })) : [];
  at("layers").hidden = rows.length < 2;
  if (rows.length < 2) return;
  const odd = data.siblings.filter((s) => s.phase === phase.name);
  fill(at("siblings"), odd.length ? element("ul", { class: "plain" }, ...odd.map((s) => element("li", {}, s.words)))
    : element("p", { class: "note" }, "No layer differs from its siblings by more than the steps' own spread."));
  layers.rows = rows;
  at("layer-chart").setAttribute("aria-label", `Time of each layer of ${phase.name}; the table below holds the figures`);
  if (!layers.made) layers.made = chart(at("layer-chart"), layerOptions, { height: 260 });
  layers.made.draw();
  new SortedTable(at("layer-table"), { caption: `Layers of ${phase.name}`, first: 100, sort: { column: 1, down: true }, columns: [
    { head: "layer", value: (r) => r.name, text: (r) => r.name },
    { head: `time of its kernels${each()}`, number: true, value: (r) => r.total, text: (r) => time(per(r.total)) },
    { head: "at its roofs", number: true, value: (r) => r.ideal, text: (r) => time(per(r.ideal)) },
  ] }).show(rows);
}
function layerOptions() {
  const [scale, unit] = scaleOf(per(Math.max(...layers.rows.map((r) => r.total))));
  const odd = new Set(data.siblings.filter((s) => s.phase === phaseOf().name).map((s) => s.layer));
  return {
    grid: { left: 62, right: 16, top: 34, bottom: 48 },
    legend: { data: ["at its roofs", "beyond"], textStyle: { color: css("--ink") }, top: 0 },
    xAxis: { type: "category", data: layers.rows.map((r) => r.name.split(".").pop()), ...axisLook("layer"), nameGap: 28 },
    yAxis: { type: "value", min: 0, ...axisLook(`${unit}${each()}`), nameGap: 44 },
    tooltip: tooltip((p) => { const r = layers.rows[p.dataIndex]; return tip(r.name, [["time of its kernels", time(per(r.total))], ["at its roofs", time(per(r.ideal))]]); }),
    series: [
      { type: "bar", name: "at its roofs", stack: "t", itemStyle: { color: "#009E73" }, data: layers.rows.map((r) => per(Math.min(r.ideal, r.total)) / scale) },
      { type: "bar", name: "beyond", stack: "t", itemStyle: { color: "#E69F00" }, data: layers.rows.map((r) => ({ value: per(Math.max(0, r.total - r.ideal)) / scale,
          itemStyle: odd.has(r.name) ? { color: "#D55E00", borderColor: css("--ink"), borderWidth: 2 } : {} })) },
    ],
  };
}

// ---- timeline ----
const line = { rows: [], made: null };
function drawTimeline() {
  const found = phaseOf().timeline;
  at("timeline").hidden = !found;
  if (!found) return;
  const kept = new Set(shownRoles().map((r) => r.index));
  line.lanes = [...new Set(found.lane)];
  line.rows = found.start_ns.map((start, i) => ({ start, ns: found.time_ns[i], role: found.role[i], lane: line.lanes.indexOf(found.lane[i]), dim: !kept.has(found.role[i]) }));
  line.length = found.length_ns;
  const spans = line.rows.map((r) => [r.start, r.start + r.ns]).sort((a, b) => a[0] - b[0]);
  let busy = 0, end = -Infinity;
  for (const [a, b] of spans) { if (b > end) { busy += b - Math.max(a, end); end = b; } }
  const gap = Math.max(0, found.length_ns - busy);
  at("timeline-note").textContent = `${phaseOf().name}, step ${found.step}: ${time(found.length_ns)} as recorded, ${time(busy)} with a kernel running, ${time(gap)} (${percent((100 * gap) / found.length_ns)}) without. ${found.notes.join(" ")} Drag the handles, or ctrl and wheel, to look closer; what the filters leave out is pale.`;
  at("timeline-chart").setAttribute("aria-label", at("timeline-note").textContent);
  if (!line.made) line.made = chart(at("timeline-chart"), timelineOptions, { height: () => 130 + 34 * line.lanes.length });
  line.made.draw();
  line.made.instance.off("click");
  line.made.instance.on("click", (event) => { const row = line.rows[event.dataIndex]; if (row && row.role >= 0) chooseRole(roles[row.role]); });
}
function timelineOptions() {
  const [scale, unit] = scaleOf(line.length);
  return {
    grid: { left: 90, right: 20, top: 12, bottom: 86 },
    dataZoom: [{ type: "slider", xAxisIndex: 0, filterMode: "weakFilter", bottom: 8, height: 22, textStyle: { color: css("--soft") }, borderColor: css("--line"), showDataShadow: false, labelFormatter: "" },
      { type: "inside", xAxisIndex: 0, filterMode: "weakFilter", zoomOnMouseWheel: "ctrl", moveOnMouseWheel: false }],
    xAxis: { type: "value", min: 0, max: line.length / scale, ...axisLook(`${unit} from the step's beginning`), nameGap: 26,
      axisLabel: { color: css("--soft"), fontSize: 12, showMaxLabel: false, formatter: (v) => String(Number(v.toPrecision(4))) } },
    yAxis: { type: "category", data: line.lanes, axisLabel: { color: css("--ink") }, axisLine: { lineStyle: { color: css("--soft") } } },
    tooltip: tooltip((p) => { const r = line.rows[p.dataIndex]; const role = roles[r.role]; return tip(role ? role.label : "no placed kernel", [["from", time(r.start)], ["lasts", time(r.ns)], ["module", role?.module ?? DASH]]); }),
    series: [{ type: "custom", encode: { x: [0, 1], y: 2 }, data: line.rows.map((r) => ({ value: [r.start / scale, (r.start + r.ns) / scale, r.lane],
        itemStyle: { color: kindColour(roles[r.role]?.kind), opacity: r.dim ? 0.15 : 1, borderColor: css("--paper"), borderWidth: 0.4 } })),
      renderItem: (params, api) => {
        const from = api.coord([api.value(0), api.value(2)]);
        const to = api.coord([api.value(1), api.value(2)]);
        const high = api.size([0, 1])[1] * 0.7;
        const box = echarts.graphic.clipRectByRect({ x: from[0], y: from[1] - high / 2, width: Math.max(to[0] - from[0], 0.6), height: high },
          { x: params.coordSys.x, y: params.coordSys.y, width: params.coordSys.width, height: params.coordSys.height });
        return box && { type: "rect", shape: box, style: api.style() };
      } }],
  };
}

// ---- the rest ----
function copyable(words) {
  const button = element("button", { type: "button", class: "screen", onclick: async () => {
    try { await navigator.clipboard.writeText(words); button.textContent = "copied"; }
    catch { getSelection().selectAllChildren(pre); button.textContent = "selected"; }
  } }, "copy");
  const pre = element("pre", { tabindex: "0" }, words);
  return element("div", {}, pre, button);
}
function drawStatic() {
  at("estimate").hidden = !data.estimate;
  if (data.estimate) fill(at("estimate-card"), element("pre", { tabindex: "0", role: "region", "aria-label": "The estimate card" }, data.estimate.text));
  const list = (title, items) => (items.length ? [element("h3", {}, title), element("ul", { class: "plain" }, ...items.map((i) => element("li", {}, i)))] : []);
  fill(at("missing"), ...list("What is missing, and why", data.missing.map(([what, why, how]) => `${what}: ${why}${how ? `. ${how[0].toUpperCase()}${how.slice(1)}.` : ""}`)));
  fill(at("conventions"), ...list("Conventions", data.conventions));
  fill(at("commands"), ...(data.commands.length ? [element("h3", {}, "Exact command lines")] : []),
    ...data.commands.flatMap(([what, command]) => [element("p", { class: "note" }, what), copyable(command)]));
  fill(at("files"), ...(data.files.length ? [element("h3", {}, "Files beside this page"), factList(data.files)] : []));
  fill(at("environment"), data.environment.length ? element("details", {}, element("summary", {}, "Environment"), factList(data.environment)) : null);
}
function drawSections() {
  fill(at("sections"), ...[...document.querySelectorAll("main section")].filter((s) => !s.hidden)
    .map((s) => element("a", { href: `#${s.id}`, onclick: (e) => { e.preventDefault(); s.scrollIntoView(); s.querySelector("h2").focus?.(); } }, s.querySelector("h2").textContent)));
}

function draw() {
  drawSummary();
  drawWaterfall();
  drawFilters();
  drawCrumbs();
  drawRoofline();
  drawDetail();
  drawTables();
  drawLayers();
  drawTimeline();
  drawSections();
}

startPage();
if (!load()) {
  // A decode step is what one usually asks about.
  state.phase = Math.max(0, data.phases.findIndex((p) => p.name.startsWith("decode")));
}
drawStatic();
draw();
addEventListener("hashchange", () => { if (load()) draw(); });
window.kernelroof = {
  shown: () => ({ state: { ...state }, points: roofline.points.map((p) => p.launch ?? p.row.index), roles: shownRoles().map((r) => r.index), modules: shownModules().map((m) => m.index) }),
};
