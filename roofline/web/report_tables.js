// The tables of kernels and modules: all that the roofline shows and what it can't, as numbers.

const kindCell = (r) => element("span", { class: "nowrap" }, element("span", { class: "dot", style: `background:${kindColour(r.kind)}` }), r.kind ?? DASH);
const amountColumns = () => [
  { head: "kind", value: (r) => r.kind, cell: kindCell },
  { head: `time${each()}`, number: true, value: (r) => r.time_ns, text: (r) => time(per(r.time_ns)), tip: (r) => r.time_source },
  { head: "share", number: true, title: `part of ${shareOf()}`, value: (r) => r.share_pct, text: (r) => percent(r.share_pct) },
  { head: "recoverable", number: true, title: `time above the roof${each()}`, value: (r) => r.recoverable_ns, text: (r) => time(per(r.recoverable_ns)), tip: (r) => (none(r.recoverable_ns) ? r.reason : null) },
  { head: "at its roof", number: true, value: (r) => r.ideal_ns, text: (r) => time(per(r.ideal_ns)), tip: (r) => (none(r.ideal_ns) ? r.reason : null) },
  { head: "bound", value: (r) => r.bound, text: (r) => r.bound ?? DASH, tip: (r) => r.reason },
  { head: "of roof", number: true, value: (r) => r.pct_of_roof, text: (r) => percent(r.pct_of_roof), tip: (r) => r.reason },
  { head: "FLOPs", number: true, title: `FLOPs${each()}`, value: (r) => r.flops, text: (r) => quantity(per(r.flops), "FLOP", 3), tip: (r) => r.flops_source ?? (none(r.flops) ? r.reason : null) },
  { head: "bytes", number: true, title: `bytes${each()}`, value: (r) => r.bytes, text: (r) => quantity(per(r.bytes), "B", 3), tip: (r) => r.bytes_source ?? (none(r.bytes) ? r.reason : null) },
  { head: "FLOP/B", number: true, value: (r) => r.intensity, text: (r) => number(r.intensity) },
  { head: "launches", number: true, title: `launches${each()}`, value: (r) => r.launches, text: launchesEach },
];
function goTo(row) {
  chooseRow(row);
  reveal();
}
// A table that is folded under a title, and stays as it was when it is drawn anew.
function foldedTable(id, title, rows, made) {
  const open = at(id).querySelector("details")?.open ?? false, holder = element("div");
  new SortedTable(holder, made).show(rows);
  fill(at(id), rows.length ? element("details", { open }, element("summary", {}, title), holder) : null);
}
const tables = { kernels: null, modules: null };
// A table keeps how it is sorted and unfolded while what it shows changes.
function keepTable(name, target, made) {
  // Sorted by what is recoverable, or by time where nothing is known to be.
  const first = { column: roles.some((r) => !none(r.recoverable_ns)) ? 4 : 2, down: true };
  tables[name] ??= new SortedTable(at(target), { ...made, sort: first });
  if (tables[name].sort.column >= made.columns.length) tables[name].sort = first;
  if (name === "kernels") {
    // How kernels are sorted is in the address: a column's number, with a minus where it goes down.
    const [, column, down] = /^(\d+)(-?)$/.exec(state.sort) ?? [];
    if (made.columns[column]) tables[name].sort = { column: Number(column), down: down === "-" };
    tables[name].sorts = () => {
      state.sort = `${tables[name].sort.column}${tables[name].sort.down ? "-" : ""}`;
      save();
    };
  }
  return Object.assign(tables[name], made);
}
function drawTables() {
  const phase = phaseOf();
  const here = shownRoles();
  const spread = roles.some((r) => r.phase === state.phase && !none(r.step_median_ns));
  keepTable("kernels", "kernel-table", {
    caption: `${phase.name}: kernels${state.module === null ? "" : ` in ${state.module}`} that pass the filters; those of all layers are together`, first: 20,
    columns: [
      { head: "kernel", value: (r) => r.label, tip: (r) => r.kernel, cell: (r) => element("div", {},
          link(r.label, () => goTo(r)), element("div", { class: "sub" }, r.kernel ?? "")) },
      ...amountColumns(),
      ...(spread ? [
        { head: "median step", number: true, title: "median over steps", value: (r) => r.step_median_ns, text: (r) => time(r.step_median_ns) },
        { head: "quartiles", number: true, title: "lower and upper quartile over steps; sorted by their distance", value: (r) => (none(r.step_median_ns) ? null : r.step_high_ns - r.step_low_ns),
          text: (r) => (none(r.step_median_ns) ? DASH : `${time(r.step_low_ns)} – ${time(r.step_high_ns)}`) },
      ] : []),
    ],
    rowClass: (r) => (r.index === state.role ? "chosen" : ""),
  }).show(here);
  keepTable("modules", "module-table", {
    caption: `${phase.name}: modules with a kernel that passes the filters; those of all layers are together`, first: 12,
    columns: [{ head: "module", value: (r) => r.module, cell: (r) => link(r.module, () => goTo(r)) }, ...amountColumns()],
    rowClass: (r) => (r.module === state.module ? "chosen" : ""),
  }).show(shownModules());
}
