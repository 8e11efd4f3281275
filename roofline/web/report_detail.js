// Filters, the way down (phase, branch, kind, module, kernel, launches) and what is known of the thing chosen.

const MARKS = { triangle: "▲", circle: "●", diamond: "◆", rect: "■" };
const NO_FILTER = { kinds: null, bounds: null, under: "", text: "", module: null, role: null };
function drawFilters() {
  const here = roles.filter((r) => r.phase === state.phase);
  const values = (name) => [...new Set(here.map((r) => r[name] ?? ""))];
  const heldBy = document.activeElement?.dataset?.filter;
  const caret = heldBy === "text" ? document.activeElement.selectionStart : 0;
  const button = (key, value, pressed, next, ...inside) => element("button", { "aria-pressed": String(pressed), "data-filter": `${key}:${value}`,
    onclick: () => change(next()) }, ...inside);
  const set = (name, ...inside) => element("div", { class: "set", role: "group", "aria-label": name }, element("span", {}, name), ...inside);
  const toggles = (name, key, column, sample) => set(name, ...values(column).map((v) => button(key, v, state[key]?.has(v) ?? false, () => {
    const next = new Set(state[key] ?? []);
    if (!next.delete(v)) next.add(v);
    return { [key]: next.size ? next : null, role: null };
  }, sample(v), v || "not known")));
  const tree = element("select", { "data-filter": "under", "aria-label": "Branch of the module tree", onchange: (event) => change({ under: event.target.value, module: null, role: null }) },
    element("option", { value: "" }, "all modules"),
    ...branches().map((b) => element("option", { value: b.path, selected: b.path === (state.module ?? state.under) }, `${"  ".repeat(b.depth - 1)}${b.name}  ${time(per(b.time_ns))}`)));
  const search = element("input", { type: "search", value: state.text, placeholder: "name of kernel or module", "aria-label": "Filter by name of kernel or module", "data-filter": "text",
    oninput: (event) => change({ text: event.target.value }) });
  const shown = shownRoles();
  const total = (rows) => rows.reduce((sum, r) => sum + (r.time_ns ?? 0), 0);
  fill(at("filters"),
    data.phases.length > 1 ? set("phase", ...data.phases.map((p, i) => button("phase", i, i === state.phase, () => ({ phase: i, module: null, role: null, part: "", under: "" }), p.name))) : null,
    set("points", ...VIEWS.map((v) => button("view", v, state.role === null && v === (state.module === null ? state.view : "kernels"), () => ({ view: v, module: null, role: null }), v)),
      state.role === null ? null : button("view", "launches", true, () => ({}), "launches")),
    toggles("kind", "kinds", "kind", (v) => element("span", { class: "dot", style: `background:${kindColour(v)}` })),
    toggles("bound", "bounds", "bound", (v) => element("span", { "aria-hidden": "true" }, `${MARKS[shapeOf(v)] ?? "▼"} `)),
    set("module", tree), search,
    anyFilter() || state.module !== null ? element("button", { "data-filter": "clear",
      onclick: () => change(NO_FILTER) }, "clear all") : null,
    element("span", { class: "count", role: "status" }, `${grouped(shown.length)} of ${grouped(here.length)} kernels, ${time(per(total(shown)))} of ${time(per(total(here)))}`));
  const again = heldBy && [...at("filters").querySelectorAll("[data-filter]")].find((e) => e.dataset.filter === heldBy);
  if (again) {
    again.focus({ preventScroll: true });
    if (heldBy === "text") again.setSelectionRange(caret, caret);
  }
}
function crumbs() {
  const up = { module: null, role: null };
  const found = [[phaseOf().name, { ...up, kinds: null, under: "" }]];
  if (state.under) found.push([state.under, { ...up, kinds: null }]);
  if (state.kinds?.size === 1) found.push([[...state.kinds][0] || "kind not known", up]);
  if (state.module !== null) found.push([state.module, { role: null }]);
  if (state.role !== null) found.push([roles[state.role].label, {}]);
  return found;
}
function drawCrumbs() {
  const found = crumbs();
  const held = at("crumbs").contains(document.activeElement);
  const back = found.length > 1 ? element("button", { class: "back screen", onclick: () => change(found[found.length - 2][1], { step: true }) }, "← back") : null;
  fill(at("crumbs"), back, ...found.flatMap(([words, to], i) => {
    const made = i === found.length - 1 ? element("span", { "aria-current": "true" }, words)
      : link(words, () => change(to, { step: true }));
    return i ? [element("span", { "aria-hidden": "true" }, "▸"), made] : [made];
  }));
  if (held) at("crumbs").querySelector("button")?.focus({ preventScroll: true });
}

function drawDetail() {
  const inside = state.role !== null ? roleDetail(roles[state.role]) : state.module !== null ? moduleDetail() : worstDetail();
  fill(at("detail"), ...inside);
}
const pick = (row) => link(nameOf(row), () => chooseRow(row));
function roleDetail(r) {
  const spread = none(r.step_median_ns) ? DASH : `${time(r.step_median_ns)}; quartiles ${time(r.step_low_ns)} to ${time(r.step_high_ns)} of ${grouped(r.samples)} forwards`;
  const indices = launchesOf.get(r.index) ?? [];
  const holder = element("div", { class: "launches" });
  if (indices.length) {
    new SortedTable(holder, { caption: `Launches of ${r.label}`, first: 8, sort: { column: 2, down: true }, columns: [
      { head: "module", value: (i) => launchPaths[i] ?? "", text: (i) => (launchPaths[i] ? shortModule(launchPaths[i]) : DASH), tip: (i) => launchPaths[i] },
      { head: "step", number: true, value: (i) => launches.step[i], text: (i) => launches.step[i] ?? DASH },
      { head: "time", number: true, value: (i) => launches.time_ns[i], text: (i) => time(launches.time_ns[i]) },
      { head: "of roof", number: true, value: (i) => launches.pct_of_roof[i], text: (i) => percent(launches.pct_of_roof[i]) },
      ...(indices.some((i) => launches.count[i] > 1) ? [{ head: "launches", number: true, value: (i) => launches.count[i], text: (i) => grouped(launches.count[i]) }] : []),
    ] }).show(indices);
  }
  return [
    element("h3", {}, ...breakable(r.label)), r.advice ? element("p", { class: "advice" }, r.advice) : null,
    busyBars(r),
    factList([...figuresOf(r), [`launches${each()}`, launchesEach(r)], ["at its roof", none(r.ideal_ns) ? DASH : `${time(per(r.ideal_ns))}${each()}`],
      ["median of a step", spread]]),
    r.reason ? element("p", { class: "note" }, r.reason) : null,
    element("p", { class: "kernel" }, element("code", {}, r.kernel)),
    indices.length ? holder : element("p", { class: "note" }, "This page holds no single launches of it."),
  ];
}
// Shares of a machine's peak, as ncu counted them, as bars of up to 100 %.
function busyBars(r) {
  const shares = [["DRAM", r.dram_pct], ["SM", r.sm_pct], ["roof", r.pct_of_roof]].filter(([, v]) => !none(v));
  if (!shares.length) return null;
  return element("div", { class: "bars" }, ...shares.flatMap(([name, v]) => [element("span", {}, name),
    element("span", { class: "track" }, element("span", { class: v > 105 ? "over" : "", style: `width:${Math.min(100, Math.max(0, v))}%` })), element("span", { class: "value" }, percent(v))]));
}
function moduleDetail() {
  const rows = modules.filter((row) => row.phase === state.phase && row.module === state.module);
  const inside = shownRoles().sort((a, b) => (b.time_ns ?? 0) - (a.time_ns ?? 0));
  const part = partsHere().get(`module:${state.module}`);
  return [
    element("h3", {}, ...breakable(state.module)),
    ...rows.flatMap((m) => [
      rows.length > 1 ? element("p", {}, element("strong", {}, kindCell(m))) : null,
      factList([...figuresOf(m), [`launches${each()}`, launchesEach(m)], ["at its roof", none(m.ideal_ns) ? DASH : `${time(per(m.ideal_ns))}${each()}`]]),
      m.reason ? element("p", { class: "note" }, m.reason) : null,
    ]),
    part ? element("h3", {}, "Where its time goes") : null,
    part ? factList(termsOf(part).filter((t) => t.ns !== 0).map((t) => [t.words, signed({ ...t, first: t.term === "ideal_ns" })])) : null,
    part ? element("button", { class: "screen", onclick: () => toPart(part.key) }, "show as a waterfall") : null,
    element("h3", {}, "Its kernels"),
    element("ol", {}, ...inside.map((r) => element("li", {}, pick(r), ` ${time(per(r.time_ns))}`))),
  ];
}
function worstDetail() {
  if (!passingRoles().length) return [element("h3", {}, "Nothing matches"), element("p", {}, `No kernel of ${phaseOf().name} passes these filters.`),
    element("button", { onclick: () => change(NO_FILTER) }, "clear all filters")];
  const worst = passingRoles().filter((r) => r.recoverable_ns > 0).sort((a, b) => b.recoverable_ns - a.recoverable_ns).slice(0, 5);
  if (!worst.length) {
    const longest = passingRoles().sort((a, b) => (b.time_ns ?? 0) - (a.time_ns ?? 0)).slice(0, 5);
    return [
      element("h3", {}, "Longest"),
      element("p", { class: "note" }, "Nothing here is known to be recoverable."),
      element("ol", {}, ...longest.map((r) => element("li", {}, pick(r), element("div", {}, `${time(per(r.time_ns))}${each()}`)))),
    ];
  }
  return [
    element("h3", {}, "Most to recover"),
     element("ol", {}, ...worst.map((r) => element("li", {}, pick(r), element("div", {}, `${time(per(r.recoverable_ns))}${each()} of ${time(per(r.time_ns))}`),
      r.advice ? element("p", { class: "note" }, r.advice) : null))),
  ];
}
