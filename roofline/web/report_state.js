// What the report holds and what of it is shown: all of the latter follows from `state`, which is also in the address.

const data = JSON.parse(document.getElementById("data").textContent);
const at = (id) => document.getElementById(id);
const roles = rowsOf(data.roles);
const modules = rowsOf(data.modules);
const launches = data.launches;
const launchPaths = decode(launches.path);
const launchesOf = new Map();
launches.role.forEach((role, i) => {
  if (!launchesOf.has(role)) launchesOf.set(role, []);
  launchesOf.get(role).push(i);
});
const parts = data.parts ? rowsOf(data.parts) : null;

// `view`: what a mark stands for; `under`: a branch of the module tree; `module`, `role`: how far one went down.
const BEGIN = { phase: 0, view: "kernels", kinds: null, bounds: null, under: "", text: "", module: null, role: null, part: "", sort: "" };
const VIEWS = ["kinds", "modules", "kernels"];
const state = { ...BEGIN };

// ---- figures: amounts are sums over a phase's forwards, and are told per forward ----
const phaseOf = () => data.phases[state.phase];
const per = (value, phase = phaseOf()) => (none(value) ? null : value / phase.steps);
const each = (phase = phaseOf()) => (phase.steps > 1 ? " per step" : "");
const shareOf = (phase = phaseOf()) => (none(phase.wall_ns) ? "the kernels' time" : "the wall time");
const roofsOf = (phase = phaseOf()) => phase.roofs ?? data.roofs;
const flopRate = (v) => quantity(v, "FLOP/s", 3);
const byteRate = (v) => quantity(v, "B/s", 3);
const shapeOf = (bound) => data.colours.shapes[bound] ?? "circle";
const shortModule = (m) => m.replace(/^model\./, "").replace(/^layers\.(?!\*$)/, "");
const launchesEach = (row) => (none(row.launches) ? DASH : grouped(per(row.launches)));

// ---- what passes the filters ----
const isUnder = (module, branch) => !branch || module === branch || module.startsWith(`${branch}.`);
function passes(row) {
  const text = state.text.toLowerCase();
  return row.phase === state.phase
    && (!state.kinds || state.kinds.has(row.kind ?? ""))
    && (!state.bounds || state.bounds.has(row.bound ?? ""))
    && isUnder(row.module ?? "", state.under)
    && (!text || `${row.module} ${row.kernel ?? ""} ${row.label ?? ""}`.toLowerCase().includes(text));
}
const inModule = (row) => state.module === null || row.module === state.module;
const passingRoles = () => roles.filter(passes);
const shownRoles = () => roles.filter((r) => passes(r) && inModule(r));
// The filters are of kernels; a module is shown while one of its kernels is. Where a module has a row for each kind
// of its work, one of that kind.
function shownModules() {
  const here = modules.filter((m) => m.phase === state.phase);
  const rowsOfModule = new Map();
  for (const m of here) rowsOfModule.set(m.module, (rowsOfModule.get(m.module) ?? 0) + 1);
  const passing = passingRoles();
  const names = new Set(passing.map((r) => r.module));
  const pairs = new Set(passing.map((r) => JSON.stringify([r.module, r.kind])));
  return here.filter((m) => (rowsOfModule.get(m.module) > 1 ? pairs.has(JSON.stringify([m.module, m.kind])) : names.has(m.module)));
}
// A kind's kernels that pass, summed as everywhere: FLOPs, bytes and rates only of those that have both.
function shownKinds() {
  const groups = new Map();
  for (const r of passingRoles()) {
    if (!groups.has(r.kind)) groups.set(r.kind, []);
    groups.get(r.kind).push(r);
  }
  return [...groups].map(([kind, inside]) => {
    const known = inside.filter((r) => !none(r.flops) && !none(r.bytes));
    const sum = (rows, name) => (rows.length ? rows.reduce((total, r) => total + (r[name] ?? 0), 0) : null);
    const [flops, bytes, busy] = ["flops", "bytes", "time_ns"].map((name) => sum(known, name));
    const left = sum(inside, "time_ns") - (busy ?? 0);
    const rate = (value) => (busy > 0 ? (value / busy) * 1e9 : null);
    return {
      kind, module: null, roles: inside, bound: heaviest(inside, "bound"), launches: sum(inside, "launches"), time_ns: sum(inside, "time_ns"),
      share_pct: sum(inside, "share_pct"), recoverable_ns: sum(inside.filter((r) => !none(r.recoverable_ns)), "recoverable_ns"),
      ideal_ns: sum(known, "ideal_ns"), flops, bytes, intensity: bytes > 0 ? flops / bytes : null, attained_flop_s: rate(flops),
      attained_byte_s: rate(bytes), pct_of_roof: busy > 0 ? (100 * sum(known, "ideal_ns")) / busy : null,
      reason: left > 0 ? `${time(per(left))}${each()} of it has no FLOPs or bytes and is not in the point` : null,
    };
  });
}
function heaviest(rows, name) {
  const sums = new Map();
  for (const r of rows) sums.set(r[name], (sums.get(r[name]) ?? 0) + (r.time_ns ?? 0));
  return [...sums].sort((a, b) => b[1] - a[1])[0]?.[0] ?? null;
}
// Every branch of a phase's module tree with the time of all that is in it.
function branches() {
  const found = new Map();
  for (const r of roles) {
    if (r.phase !== state.phase) continue;
    const pieces = (r.module ?? "").split(".");
    for (let depth = 1; depth <= pieces.length; depth += 1) {
      const path = pieces.slice(0, depth).join(".");
      if (!found.has(path)) found.set(path, { path, depth, name: pieces[depth - 1], time_ns: 0, first: found.size });
      found.get(path).time_ns += r.time_ns ?? 0;
    }
  }
  const all = [...found.values()];
  const below = (path) => all.filter((b) => b.path.startsWith(`${path}.`) && !b.path.slice(path.length + 1).includes("."));
  const walk = (branch) => [branch, ...below(branch.path).sort((a, b) => b.time_ns - a.time_ns).flatMap(walk)];
  return all.filter((b) => b.depth === 1).sort((a, b) => b.time_ns - a.time_ns).flatMap(walk);
}
const anyFilter = () => Boolean(state.kinds || state.bounds || state.under || state.text);

// ---- why a part is not there ----
function whyMissing(what, pattern) {
  const found = data.missing.find(([name]) => pattern.test(name));
  if (!found) return `${what}: the data holds none.`;
  const [, why, remedy] = found;
  return `${what}: ${why}.${remedy ? ` ${sentence(remedy)}` : ""}`;
}
const sentence = (words) => `${/^kernelroof\b/.test(words) ? words[0] : words[0].toUpperCase()}${words.slice(1)}${/[.!?]$/.test(words) ? "" : "."}`;

// ---- state and the address ----
// Filters replace the address, steps down and up are kept, so that the browser's own "back" goes up again.
function change(more, { step = false } = {}) {
  Object.assign(state, more);
  save(step);
  draw();
}
// Where the thing chosen is told; beneath the chart where there is no room beside it.
function reveal(id = innerWidth > 1000 ? "roofline" : "detail") {
  at(id).scrollIntoView({ behavior: matchMedia("(prefers-reduced-motion: reduce)").matches ? "auto" : "smooth" });
}
function address() {
  const out = new URLSearchParams({ phase: phaseOf().name });
  for (const name of ["view", "under", "text", "part", "sort"]) if (state[name] !== BEGIN[name]) out.set(name, state[name]);
  for (const name of ["kinds", "bounds"]) for (const value of state[name] ?? []) out.append(name, value);
  if (state.module !== null) out.set("module", state.module);
  if (state.role !== null) out.set("kernel", String(state.role));
  return `#${out}`;
}
function save(step) {
  if (address() === location.hash) return;
  if (step) history.pushState(null, "", address());
  else history.replaceState(null, "", address());
}
// What the address asks for that is not in this report is left out.
function load() {
  if (!location.hash.includes("=")) return false;
  const given = new URLSearchParams(location.hash.slice(1));
  Object.assign(state, BEGIN);
  state.phase = Math.max(0, data.phases.findIndex((p) => p.name === given.get("phase")));
  if (VIEWS.includes(given.get("view"))) state.view = given.get("view");
  const here = roles.filter((r) => r.phase === state.phase);
  for (const [name, column] of [["kinds", "kind"], ["bounds", "bound"]]) {
    const known = given.getAll(name).filter((v) => here.some((r) => (r[column] ?? "") === v));
    if (known.length) state[name] = new Set(known);
  }
  for (const name of ["text", "part", "sort"]) state[name] = given.get(name) ?? "";
  state.under = here.some((r) => isUnder(r.module ?? "", given.get("under") ?? "")) ? given.get("under") ?? "" : "";
  const module = given.get("module");
  if (here.some((r) => r.module === module)) state.module = module;
  const role = given.has("kernel") ? roles[Number(given.get("kernel"))] : undefined;
  if (role?.phase === state.phase) Object.assign(state, { role: role.index, module: role.module });
  return true;
}
