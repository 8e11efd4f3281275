// The tables of kernels and modules: all that the roofline shows and what it can't, as numbers.

const kindCell = (r) => element("span", { class: "nowrap" }, element("span", { class: "dot", style: `background:${kindColour(r.kind)}` }), r.kind ?? DASH);
// A column of figures of one name, told by `text`.
const amount = (head, name, text, more = {}) => ({ head, number: true, value: (r) => r[name], text: (r) => text(r[name]), ...more });
const eachTime = (ns) => time(per(ns));
const whyNone = (name, source) => ({ tip: (r) => r[source] ?? (none(r[name]) ? r.reason : null) });
const amountColumns = () => [
  { head: "kind", value: (r) => r.kind, cell: kindCell },
  amount(`time${each()}`, "time_ns", eachTime, { tip: (r) => r.time_source }),
  amount("share", "share_pct", percent, { title: `part of ${shareOf()}` }),
  amount("recoverable", "recoverable_ns", eachTime, { title: `time above the roof${each()}`, ...whyNone("recoverable_ns") }),
  amount("at its roof", "ideal_ns", eachTime, whyNone("ideal_ns")),
  { head: "bound", value: (r) => r.bound, text: (r) => r.bound ?? DASH, tip: (r) => r.reason },
  amount("of roof", "pct_of_roof", percent, { tip: (r) => r.reason }),
  amount("FLOPs", "flops", (v) => quantity(per(v), "FLOP", 3), { title: `FLOPs${each()}`, ...whyNone("flops", "flops_source") }),
  amount("bytes", "bytes", (v) => quantity(per(v), "B", 3), { title: `bytes${each()}`, ...whyNone("bytes", "bytes_source") }),
  amount("FLOP/B", "intensity", number),
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
        amount("median step", "step_median_ns", time, { title: "median over steps" }),
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
