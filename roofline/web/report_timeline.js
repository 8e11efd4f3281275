// One step as it was recorded: kernels by lane, and what no kernel covers as blank.

const line = { rows: [], lanes: [], length: 0, phase: null, range: {}, chart: null };
function drawTimeline() {
  const found = phaseOf().timeline;
  for (const id of ["timeline-chart", "gaps"]) at(id).hidden = !found;
  line.rows = [];
  if (!found) {
    at("timeline-note").textContent = whyMissing(`No timeline of ${phaseOf().name}`, /timeline/i);
    return;
  }
  const kept = new Set(state.role !== null ? [state.role] : shownRoles().map((r) => r.index));
  line.lanes = [...new Set(found.lane)].sort();
  line.rows = found.start_ns.map((start, i) => ({ start, ns: found.time_ns[i], role: found.role[i], lane: line.lanes.indexOf(found.lane[i]), pale: !kept.has(found.role[i]) }));
  line.length = found.length_ns;
  // What one looks at closely stays in sight when a filter changes, not in another phase.
  if (line.phase !== state.phase) Object.assign(line, { phase: state.phase, range: {} });
  const { busy, gaps } = coverage(line.rows, found.length_ns);
  const blank = gaps.reduce((sum, g) => sum + g.ns, 0);
  const note = [`${phaseOf().name}, step ${found.step ?? DASH}: ${time(found.length_ns)} as recorded, ${time(busy)} with a kernel running,`,
    `${time(blank)} (${percent((100 * blank) / found.length_ns)}) without, in ${grouped(gaps.length)} gaps.`, ...found.notes].join(" ");
  fill(at("timeline-note"), note, element("span", { class: "screen" }, " Drag the handles below, or hold ctrl and turn the wheel, to look closer; what the filters leave out is pale."));
  at("timeline-chart").setAttribute("aria-label", note);
  if (!line.chart) {
    line.chart = chart(at("timeline-chart"), timelineOptions, { height: () => 104 + 46 * line.lanes.length });
    line.chart.on("datazoom", (event) => { const { start, end: until } = event.batch?.[0] ?? event; line.range = { start, end: until }; });
    line.chart.on("click", (event) => { const role = roles[line.rows[event.dataIndex]?.role]; if (role) goTo(role); });
  }
  line.chart.draw();
  drawGaps(gaps);
}
// The time that any event covers and the gaps between, the step's beginning and end included.
function coverage(rows, length) {
  const sorted = [...rows].sort((a, b) => a.start - b.start);
  const gaps = [];
  let busy = 0, end = 0, last = null;
  for (const row of sorted) {
    const from = Math.max(0, row.start), until = Math.min(length, row.start + row.ns);
    if (from > end) gaps.push({ from: end, ns: from - end, after: last, before: row });
    if (until > end) {
      busy += until - Math.max(from, end);
      end = until;
      last = row;
    }
  }
  if (end < length) gaps.push({ from: end, ns: length - end, after: last, before: null });
  return { busy, gaps };
}
function drawGaps(gaps) {
  const name = (row, none_) => (row === null ? none_ : roles[row.role]?.label ?? "an event of no known kernel");
  foldedTable("gaps", "The longest gaps", gaps, { caption: "Gaps of this step, in which nothing ran", first: 10, sort: { column: 0, down: true }, columns: [
    { head: "lasts", number: true, value: (g) => g.ns, text: (g) => time(g.ns) },
    { head: "from", number: true, value: (g) => g.from, text: (g) => time(g.from) },
    { head: "after", value: (g) => name(g.after, ""), text: (g) => name(g.after, "the step's beginning") },
    { head: "before", value: (g) => name(g.before, ""), text: (g) => name(g.before, "the step's end") },
  ] });
}
function timelineOptions() {
  const [scale, unit] = scaleOf(line.length);
  const range = line.range;
  const crowded = line.rows.length > 3000;
  const end = line.length / scale;
  return {
    grid: { left: 92, right: 20, top: 8, bottom: onPaper ? 46 : 84 },
    dataZoom: onPaper ? [] : [
      { type: "slider", xAxisIndex: 0, filterMode: "weakFilter", bottom: 8, height: 22, textStyle: { color: css("--soft") }, borderColor: css("--line"), showDataShadow: false, labelFormatter: "", brushSelect: false, ...range },
      { type: "inside", xAxisIndex: 0, filterMode: "weakFilter", zoomOnMouseWheel: "ctrl", moveOnMouseWheel: false, ...range }],
    xAxis: { type: "value", min: 0, max: end, ...axisLook(`${unit} from the step's beginning`), nameGap: 25, splitLine: { show: false },
      axisLabel: { color: css("--soft"), fontSize: 12, formatter: (v) => fixed(v, 4).replace(/(\.\d*?)0+$/, "$1").replace(/\.$/, ""), showMaxLabel: false } },
    yAxis: { type: "category", data: line.lanes, axisTick: { show: false }, axisLabel: { color: css("--ink"), width: 82, overflow: "truncate" }, axisLine: { lineStyle: { color: css("--line") } }, splitLine: { show: false } },
    tooltip: tooltip((p) => {
      const r = line.rows[p.dataIndex], role = roles[r.role];
      return tip(role?.label ?? "no placed kernel", [["from", time(r.start)], ["lasts", time(r.ns)], ["lane", line.lanes[r.lane]], ["module", role?.module ?? DASH], ["of its roof", percent(role?.pct_of_roof)]]);
    }),
    series: [{ type: "custom", encode: { x: [0, 1], y: 2 }, progressive: 0,
      data: line.rows.map((r) => ({ value: [r.start / scale, (r.start + r.ns) / scale, r.lane],
        itemStyle: { color: kindColour(roles[r.role]?.kind), borderColor: kindEdge(roles[r.role]?.kind), borderWidth: 1, opacity: r.pale ? 0.16 : 1 } })),
      renderItem: (params, api) => {
        const from = api.coord([api.value(0), api.value(2)]);
        const to = api.coord([api.value(1), api.value(2)]);
        const high = api.size([0, 1])[1] * 0.72;
        const { x, y, width, height } = params.coordSys;
        // A hair's breadth is left between neighbours while there is room for it.
        const wide = Math.max(to[0] - from[0] - (crowded ? 0 : 0.3), 0.6);
        const shape = echarts.graphic.clipRectByRect({ x: from[0], y: from[1] - high / 2, width: wide, height: high }, { x, y, width, height });
        return shape && { type: "rect", shape, style: api.style(wide > 4 ? {} : { lineWidth: 0, fill: kindEdge(roles[line.rows[params.dataIndex].role]?.kind) }) };
      } }],
  };
}
