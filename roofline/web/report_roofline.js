// The roofline: roofs, what ran, and where the model's own estimate stands on the roof.

const STAR = "path://M10 0 L13 7 L20 7 L14.5 11.5 L16.5 19 L10 14.5 L3.5 19 L5.5 11.5 L0 7 L7 7 Z";
const ODD = "#D5006C";
const placed = (flops, bytes, ns) => flops > 0 && bytes > 0 && ns > 0;
const isOdd = (p) => p.y > 1.05 * roofAt(p.x) || /^(impossible|inconsistent)/.test(p.row?.reason ?? "");
// The highest roof over an intensity; nothing is above where none is known.
function roofAt(intensity) {
  const roofs = roofsOf();
  if (!roofs?.memory.length || !roofs.compute.length) return Infinity;
  return Math.min(Math.max(...roofs.compute.map((c) => c.flop_s)), Math.max(...roofs.memory.map((m) => m.byte_s)) * intensity);
}
const pointOf = (row) => ({
  row, kind: row.kind, bound: row.bound, ok: placed(row.flops, row.bytes, row.time_ns), x: row.intensity, y: row.attained_flop_s,
  size: Math.min(46, Math.max(9, Math.sqrt(row.share_pct ?? 0) * (isNarrow() ? 6 : 8.5))),
});
function rooflinePoints() {
  if (state.role !== null) {
    const role = roles[state.role];
    return (launchesOf.get(state.role) ?? []).map((i) => {
      const [flops, bytes, ns] = [launches.flops[i], launches.bytes[i], launches.time_ns[i]];
      return { launch: i, kind: role.kind, bound: role.bound, ok: placed(flops, bytes, ns), x: flops / bytes, y: (flops / ns) * 1e9, size: 9 };
    });
  }
  const rows = state.module !== null || state.view === "kernels" ? shownRoles() : state.view === "modules" ? shownModules() : shownKinds();
  return rows.map(pointOf);
}
// What else passes the filters, pale, while one looks at a part of it.
function contextPoints() {
  if (state.module === null) return [];
  return passingRoles().filter((r) => (state.role === null ? r.module !== state.module : r.index !== state.role)).map(pointOf).filter((p) => p.ok);
}
function estimateMarks() {
  const roofs = roofsOf(), phase = phaseOf();
  if (!roofs?.memory.length || !roofs.compute.length) return [];
  const marks = [];
  const add = (name, flops, bytes, kind) => {
    if (!(flops > 0 && bytes > 0)) return;
    marks.push({ name, flops, bytes, kind, x: flops / bytes, y: Math.min(roofs.compute[0].flop_s, (roofs.memory[0].byte_s * flops) / bytes) });
  };
  if (phase.model) add(`${phase.name}, the whole model`, phase.model.flops, phase.model.bytes, null);
  for (const e of phase.estimates) if (!state.kinds || state.kinds.has(e.kind)) add(`${e.kind}, as traced`, e.flops, e.bytes, e.kind);
  return marks;
}
// Small marks are drawn last, so that large ones don't hide them.
const roofline = { points: [], context: [], marks: [], unplaced: [], chart: null };
function drawRoofline() {
  const points = rooflinePoints();
  const phase = phaseOf(), roofs = roofsOf();
  Object.assign(roofline, { points: points.filter((p) => p.ok).sort((a, b) => b.size - a.size), context: contextPoints(), marks: estimateMarks(), unplaced: points.filter((p) => !p.ok) });
  const what = state.role !== null ? "launches" : state.module !== null ? "kernels" : state.view;
  const odd = roofline.points.filter(isOdd).length;
  // A chart of roofs alone tells nothing of the run.
  const nothing = !roofline.marks.length && !roles.some((r) => r.phase === state.phase && placed(r.flops, r.bytes, r.time_ns));
  at("roofline-chart").hidden = nothing;
  at("roofline-chart").setAttribute("aria-label", `Roofline of ${phase.name}: ${roofline.points.length} ${what}; the tables hold their figures`);
  const down = { kinds: "a kind for its modules", modules: "a module for its kernels", kernels: "a kernel for its launches" };
  const shapes = [...new Set(roofline.points.map((p) => p.bound ?? "unknown"))].map((b) => `${MARKS[shapeOf(b)] ?? "▼"} ${b}`).join(", ");
  roofline.why = state.role === null || roofline.points.length ? "" : whyNoPoint(roles[state.role]);
  fill(at("roofline-note"), roofline.why ? element("strong", {}, `${roofline.why} `) : null, [
    !roofs ? whyMissing("No roofs", /roof/i) : "",
    nothing ? "No kernel here has both FLOPs and bytes, so none has a place on the roofline." : state.role !== null ? (roofline.why ? "" : `Each mark is one launch. ${data.launches_note ? sentence(data.launches_note) : ""}`)
      : `Area: share of time; colour: kind of module; shape: bound${shapes && ` (${shapes})`}.${onPaper ? "" : ` Choose ${down[what]}.`}`,
    roofline.marks.length ? "Hollow: the model's estimate on its roof (star: the whole phase, diamonds: kinds of module)." : "",
    odd ? `${odd} above every roof or otherwise impossible, ringed in pink: such figures are wrong, not fast.` : "",
    roofs?.note ? `Roofs${roofs.note.includes(roofs.name) ? "" : ` of ${roofs.name}`}: ${roofs.note}.` : "",
  ].filter(Boolean).join(" "));
  if (!roofline.chart) {
    roofline.chart = chart(at("roofline-chart"), rooflineOptions, { height: () => (isNarrow() ? 360 : Math.min(640, Math.max(460, innerHeight * 0.58))) });
    roofline.chart.on("click", (event) => goDown(foundAt(event)));
  }
  roofline.chart.draw();
  drawUnplaced();
}
function whyNoPoint(r) {
  if (none(r.flops) || none(r.bytes)) return `FLOPs or bytes are not known${r.reason ? `: ${r.reason}` : ""}; it has no place here.`;
  if (r.flops > 0 && r.bytes > 0) return "";
  const dram = roofsOf()?.memory[0]?.name ?? "memory";
  return r.bytes > 0 ? `No FLOPs: only its bytes/s count, ${byteRate(r.attained_byte_s)}${none(r.pct_of_roof) ? "" : `, ${percent(r.pct_of_roof)} of the ${dram} roof`}.`
    : `No ${r.flops > 0 ? "" : "FLOPs and no "}bytes: it has no place here.`;
}
// The chart library copies its data, so events name a place in our own lists.
const foundAt = (event) => ({ points: { point: roofline.points[event.dataIndex] }, context: { point: roofline.context[event.dataIndex] }, marks: { mark: roofline.marks[event.dataIndex] } })[event.seriesId] ?? {};
function goDown(found) {
  if (found.mark) change(found.mark.kind ? { kinds: new Set([found.mark.kind]), view: "modules", module: null, role: null } : { view: "kinds", module: null, role: null }, { step: true });
  else if (found.point?.row) chooseRow(found.point.row);
}
function chooseRow(row) {
  if (row.module === null) change({ kinds: new Set([row.kind ?? ""]), view: "modules" }, { step: true });
  else if (row.kernel === undefined) change({ module: row.module, role: null }, { step: true });
  else change({ module: row.module, role: row.index }, { step: true });
}

// Whole decades around all that is drawn and the knee of the roofs.
function rooflineRange(all, memory, compute) {
  const ridge = memory.length && compute.length ? compute[0].flop_s / memory[0].byte_s : null;
  const xs = [...all.map((p) => p.x), ...(ridge ? [ridge / 4, ridge * 4] : all.length ? [] : [0.1, 100])];
  const ys = [...all.map((p) => p.y), ...compute.map((c) => c.flop_s)];
  const x0 = 10 ** Math.floor(Math.log10(Math.min(...xs) * 0.8));
  const x1 = 10 ** Math.ceil(Math.log10(Math.max(...xs) * 1.2));
  if (memory.length) ys.push(Math.max(memory[0].byte_s * x0, Math.min(...ys) / 3));
  const y0 = 10 ** Math.floor(Math.log10(Math.min(...ys) * 0.8));
  const y1 = 10 ** Math.ceil(Math.log10(Math.max(...ys) * 1.6));
  return { x0, x1, y0, y1, ridge };
}
function rooflineOptions() {
  const { points, context, marks } = roofline;
  const roofs = roofsOf();
  const memory = roofs?.memory ?? [], compute = roofs?.compute ?? [];
  const { x0, x1, y0, y1, ridge } = rooflineRange([...points, ...context, ...marks], memory, compute);
  const narrow = isNarrow();
  const grid = { left: narrow ? 50 : 72, right: narrow ? 10 : 20, top: 16, bottom: 50 };
  const target = at("roofline-chart");
  const [wide, high] = [target.clientWidth - grid.left - grid.right, target.clientHeight - grid.top - grid.bottom];
  const pixels = [wide / Math.log10(x1 / x0), high / Math.log10(y1 / y0)];
  const spot = (p) => ({ x: pixels[0] * Math.log10(p.x / x0), y: high - pixels[1] * Math.log10(p.y / y0), size: p.size ?? 18 });
  const boxes = [];
  const slope = (Math.atan2(pixels[1], pixels[0]) * 180) / Math.PI;
  const taken = compute.map((c) => [pixels[0] * Math.log10(x1) - 80, pixels[1] * Math.log10(c.flop_s)]);
  const topPeak = Math.max(...compute.map((c) => c.flop_s));
  const line = (name, from, to, first, label) => ({
    type: "line", name, data: [from, to], symbol: "none", silent: true, z: 1,
    lineStyle: { color: css("--ink"), width: first ? 2.2 : 1.3, type: first ? "solid" : "dashed", opacity: first ? 1 : 0.75 },
    markPoint: { symbol: "circle", symbolSize: 0.1, silent: true, data: [{ coord: label.at }],
      label: { show: true, formatter: label.text, color: css("--ink"), fontSize: narrow ? 10.5 : 12, fontWeight: first ? 600 : 400, textBorderColor: css("--paper"), textBorderWidth: 3, ...label.look } },
  });
  const roofLines = [
    ...memory.map((m, i) => {
      const until = compute.length ? Math.min(topPeak / m.byte_s, x1) : Math.min(y1 / m.byte_s, x1);
      const from = Math.max(x0, y0 / m.byte_s);
      if (until <= from) return null;
      const where = clearest(from, until, m.byte_s, [...points, ...marks], taken, pixels);
      const { x, y } = spot({ x: where, y: m.byte_s * where });
      for (let along = -75; along <= 75; along += 10) boxes.push([x + along - 6, y - (along * pixels[1]) / pixels[0] - 24, x + along + 6, y - (along * pixels[1]) / pixels[0]]);
      return line(m.name, [from, m.byte_s * from], [until, m.byte_s * until], i === 0,
        { at: [where, m.byte_s * where], text: `${m.name} ${byteRate(m.byte_s)}`, look: { rotate: slope, position: "inside", offset: [0, -11] } });
    }),
    ...compute.map((c, i) => {
      const from = memory.length ? Math.max(c.flop_s / Math.max(...memory.map((m) => m.byte_s)), x0) : x0;
      if (from >= x1) return null;
      boxes.push([wide - 160, spot({ x: x1, y: c.flop_s }).y - 20, wide, spot({ x: x1, y: c.flop_s }).y]);
      return line(c.name, [from, c.flop_s], [x1, c.flop_s], i === 0,
        { at: [x1, c.flop_s], text: `${c.name} ${flopRate(c.flop_s)}`, look: { position: "left", offset: [0, -10] } });
    }),
  ].filter(Boolean);
  const ridgeLine = ridge && ridge > x0 && ridge < x1 ? [{
    type: "line", name: "ridge", data: [[ridge, y0], [ridge, compute[0].flop_s]], symbol: "none", silent: true, z: 1,
    lineStyle: { color: css("--soft"), width: 1, type: "dotted" },
    markPoint: { symbol: "circle", symbolSize: 0.1, silent: true, data: [{ coord: [ridge, y0] }],
      label: { show: true, formatter: `ridge ${fixed(ridge, 3)}`, position: "right", offset: [2, -10], color: css("--soft"), fontSize: 11.5 } },
  }] : [];
  if (ridgeLine.length) boxes.push([spot({ x: ridge, y: y0 }).x, high - 20, spot({ x: ridge, y: y0 }).x + 76, high]);
  const names = placeNames(pointNames(points, spot, narrow ? 3 : 9), [...points, ...context, ...marks].map(spot), boxes, [wide, high]);
  const drawn = (p, pale) => ({
    value: [p.x, p.y], symbol: shapeOf(p.bound), symbolSize: p.size,
    itemStyle: { color: kindColour(p.kind), opacity: pale ? 0.16 : points.length > 400 ? 0.5 : 0.85,
      borderColor: isOdd(p) ? ODD : css("--ink"), borderWidth: isOdd(p) ? 3.5 : 0.8 },
  });
  return {
    grid,
    xAxis: { type: "log", min: x0, max: x1, ...axisLook("intensity, FLOP per byte"), nameGap: 28,
      axisLabel: { color: css("--soft"), fontSize: 12, hideOverlap: true, formatter: (v) => String(Number(v.toPrecision(3))) } },
    yAxis: { type: "log", min: y0, max: y1, ...axisLook("attained, FLOP/s"), nameGap: narrow ? 36 : 54,
      axisLabel: { color: css("--soft"), fontSize: 12, formatter: (v) => quantity(v, "", 3).replace(/\.0+ /, " ").trim() } },
    tooltip: tooltip((p) => pointTip(foundAt(p))),
    series: [
      ...roofLines, ...ridgeLine,
      { type: "scatter", id: "context", z: 2, data: context.map((p) => drawn(p, true)) },
      { type: "scatter", id: "points", z: 3, data: points.map((p) => drawn(p, false)), cursor: state.role === null ? "pointer" : "default" },
      nameSeries(names),
      { type: "scatter", id: "marks", z: 4, data: marks.map((m) => ({
          value: [m.x, m.y], symbol: m.kind ? "diamond" : STAR, symbolSize: m.kind ? 13 : 24,
          itemStyle: { color: m.kind ? "transparent" : css("--paper"), borderColor: m.kind ? kindEdge(m.kind) : css("--ink"), borderWidth: 2 } })) },
    ],
  };
}
// Where on a memory roof there is most room for its label, away from marks and from other roofs' labels.
function clearest(from, until, byteRate_, marks, taken, pixels) {
  const place = (x, y) => [pixels[0] * Math.log10(x), pixels[1] * Math.log10(y)];
  const apart = (a, b, size) => Math.hypot(a[0] - b[0], a[1] - b[1]) - size;
  const others = [...marks.map((m) => [place(m.x, m.y), (m.size ?? 18) / 2]), ...taken.map((t) => [t, 60])];
  let best = { x: from, room: -Infinity, spot: null };
  for (let part = 0.15; part < 0.85; part += 0.05) {
    const x = from * (until / from) ** part;
    const spot = place(x, byteRate_ * x);
    const room = Math.min(140, ...others.map(([o, size]) => apart(spot, o, size)));
    if (room > best.room) best = { x, room, spot };
  }
  if (best.spot) taken.push(best.spot);
  return best.x;
}
// Names of those that took longest; of marks that lie on each other only the longest is named, with how many are there.
function pointNames(points, spot, most) {
  const found = [];
  for (const p of points.filter((q) => q.row).sort((a, b) => b.row.time_ns - a.row.time_ns)) {
    const place = spot(p);
    const near = found.find((f) => Math.abs(f.y - place.y) < 15 && Math.abs(f.x - place.x) < f.size / 2 + 15);
    if (near) near.others += 1;
    else if (found.length < most) found.push({ ...place, at: [p.x, p.y], name: nameOf(p.row), others: 0 });
  }
  return found.map((f) => ({ ...f, words: `${f.name.length > 44 ? `${f.name.slice(0, 20)}…${f.name.slice(-20)}` : f.name}${f.others ? ` (+${f.others})` : ""}` }));
}
const nameOf = (row) => row.label ?? (row.module === null ? row.kind ?? "not known" : shortModule(row.module));
function pointTip(found) {
  if (found.mark) {
    const m = found.mark;
    return tip(m.name, [["FLOPs", quantity(per(m.flops), "FLOP", 3) + each()], ["bytes", quantity(per(m.bytes), "B", 3) + each()],
      ["intensity", `${number(m.x)} FLOP/B`], ["at its roof", flopRate(m.y)]], "the model's own estimate, where an ideal run would be");
  }
  if (found.point.launch === undefined) return tip(nameOf(found.point.row), figuresOf(found.point.row), found.point.row.reason);
  const i = found.point.launch;
  return tip(launchPaths[i] ?? roles[launches.role[i]].module, [["step", launches.step[i] ?? DASH], ["time", time(launches.time_ns[i])],
    ["FLOPs", quantity(launches.flops[i], "FLOP", 3)], ["bytes", quantity(launches.bytes[i], "B", 3)], ["of its roof", percent(launches.pct_of_roof[i])],
    ["launches", grouped(launches.count[i])]]);
}
// All figures of a row with their sources.
function figuresOf(r) {
  const source = (name) => (r[name] ? ` (${r[name]})` : "");
  return [
    r.kernel ? ["module", r.module] : null,
    [`time${each()}`, `${time(per(r.time_ns))}${none(r.share_pct) ? "" : `, ${percent(r.share_pct)} of ${shareOf()}`}${source("time_source")}`],
    ["recoverable", none(r.recoverable_ns) ? DASH : `${time(per(r.recoverable_ns))}${each()}`],
    ["bound", r.bound ?? DASH],
    ["of its roof", percent(r.pct_of_roof)],
    [`FLOPs${each()}`, quantity(per(r.flops), "FLOP", 3) + source("flops_source")],
    [`bytes${each()}`, quantity(per(r.bytes), "B", 3) + source("bytes_source")],
    ["intensity", none(r.intensity) ? DASH : `${number(r.intensity)} FLOP/B`],
    ["attained", `${flopRate(r.attained_flop_s)}, ${byteRate(r.attained_byte_s)}`],
    none(r.dram_pct) && none(r.sm_pct) ? null : ["DRAM, SM busy (ncu)", `${percent(r.dram_pct)}, ${percent(r.sm_pct)}`],
  ].filter(Boolean);
}
// What has no place on log axes is told in words, with its time: no FLOPs is one thing, not known another.
function drawUnplaced() {
  const rows = roofline.unplaced.filter((p) => p.row).map((p) => p.row).sort((a, b) => (b.time_ns ?? 0) - (a.time_ns ?? 0));
  const launchesWithout = roofline.unplaced.length - rows.length;
  const unknown = rows.filter((r) => none(r.flops) || none(r.bytes));
  const idle = rows.filter((r) => !unknown.includes(r));
  const list = (title, some, words) => {
    if (!some.length) return null;
    const total = some.reduce((sum, r) => sum + (r.time_ns ?? 0), 0);
    const item = (r) => element("li", {}, pick(r),
      ` ${time(per(r.time_ns))}${words(r)}`);
    const rest = some.slice(5);
    return element("div", { class: "unplaced" },
      element("p", {}, element("strong", {}, `${title}: `), `${grouped(some.length)}, ${time(per(total))}${each()} in all`),
      element("ul", {}, ...some.slice(0, 5).map(item)),
      rest.length ? element("details", {}, element("summary", {}, `${grouped(rest.length)} more`), element("ul", {}, ...rest.map(item))) : null);
  };
  fill(at("unplaced"),
    list("Not on the chart, FLOPs or bytes not known", unknown, (r) => (r.reason ? `, ${r.reason}` : "")),
    list("Not on the chart, no FLOPs or no bytes", idle, (r) => (r.attained_byte_s ? `, moves ${byteRate(r.attained_byte_s)}${none(r.pct_of_roof) ? "" : `, ${percent(r.pct_of_roof)} of its roof`}` : "")),
    launchesWithout ? element("p", {}, `${grouped(launchesWithout)} launches have no FLOPs or no bytes, and no place on the chart; the list of launches has them all.`) : null);
}
