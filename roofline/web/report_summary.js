// The top of the report (what was run, how long it took, the answers) and its end (how it was made).

function drawSummary() {
  fill(at("phases"), ...data.phases.map(phaseCard));
  const phase = phaseOf();
  const doubts = [...new Set([...data.doubts, ...data.phases.filter((p) => p === phase || onPaper).flatMap((p) => p.doubts.map((d) => (data.doubts.includes(d) ? d : `${p.name}: ${d}`)))])];
  fill(at("doubts"), doubts.length ? element("div", { class: "doubts" }, element("strong", {}, "What makes these figures doubtful"), listOf(doubts)) : null);
  const others = data.phases.filter((p) => p !== phase);
  fill(at("answers"), ...answersOf(phase), ...(onPaper && others.length
    ? [...others.flatMap((p) => [element("h3", {}, p.name), ...answersOf(p)]), element("p", { class: "note" }, `All that follows is of ${phase.name}; the page itself shows the same of ${others.map((p) => p.name).join(", ")}.`)] : []));
}
function answersOf(phase) {
  const answers = phase.answers.map(([question, answer]) => element("div", {}, element("dt", {}, question),
    element("dd", {}, ...numbered(answer).map((line) => element("p", {}, line)))));
  return [
    answers.length ? element("dl", { class: "answers" }, ...answers) : element("p", { class: "verdict" }, phase.verdict),
    element("details", {}, element("summary", {}, `The figures of ${phase.name}`),
      listOf([...(answers.length && phase.verdict ? [phase.verdict] : []), ...phase.facts, ...spreadFact(phase)])),
  ];
}
// "1. this 2. that" as lines; other text is one line.
function numbered(words) {
  const lines = [];
  let rest = words;
  for (let next = 2; rest.startsWith(`${next - 1}. `); next += 1) {
    const cut = rest.indexOf(` ${next}. `);
    lines.push(cut < 0 ? rest : rest.slice(0, cut));
    rest = cut < 0 ? "" : rest.slice(cut + 1);
  }
  return rest ? [...lines, rest] : lines;
}
function phaseCard(phase, i) {
  const took = phase.wall_ns ?? phase.kernel_ns;
  const what = none(phase.wall_ns) ? ` in kernels${each(phase)}` : phase.steps > 1 ? " per step" : "";
  const times = none(phase.ideal_ns) || none(took) ? null : took / phase.ideal_ns;
  const ideal = none(phase.ideal_ns) ? "the model's ideal is not known"
    : `the model's ideal is ${time(per(phase.ideal_ns, phase))}${times === null ? "" : `: ${fixed(times, 2)} times as long`}`;
  const details = [phase.steps > 1 ? `${grouped(phase.steps)} steps` : null, phase.name.endsWith(phase.clock) ? null : phase.clock, ...spreadFact(phase, true)].filter(Boolean).join("; ");
  return element("button", { class: "phase", "aria-pressed": String(i === state.phase),
    onclick: () => change({ phase: i, module: null, role: null, part: "", under: "" }) },
    element("span", { class: "name" }, `${phase.name}: `),
    element("span", { class: "big" }, time(per(took, phase)), element("span", { class: "unit" }, what)),
    element("span", { class: "rest" }, ideal), shareBar(phase), element("span", { class: "more" }, details));
}
// Ideal, the rest in kernels and no kernel at all, as parts of the wall time; left out where they don't add up to it.
function shareBar(phase) {
  const gap = phase.gap_ns;
  if (none(phase.wall_ns) || none(phase.ideal_ns) || none(gap) || phase.wall_ns <= 0) return null;
  const rest = phase.wall_ns - phase.ideal_ns - gap;
  if (rest < 0 || gap < 0) return null;
  const pieces = [["ideal", "ideal", phase.ideal_ns], ["beyond", "more in kernels", rest], ["idle", "no kernel", gap]];
  return element("span", {},
    element("span", { class: "bar" }, ...pieces.map(([name, , ns]) => element("span", { class: name, style: `flex-grow:${ns / phase.wall_ns}` }))),
    element("span", { class: "key" }, ...pieces.map(([name, words, ns]) =>
      element("span", {}, element("span", { class: `patch ${name}` }), `${words} ${time(per(ns, phase))} `))));
}
function spreadFact(phase, short = false) {
  if (none(phase.wall_low_ns) || none(phase.wall_high_ns) || !phase.repeats) return [];
  if (phase.repeats < 2) return [short ? "one run" : "the wall time is of one bare run: its spread is not known"];
  const range = `${time(per(phase.wall_low_ns, phase))} to ${time(per(phase.wall_high_ns, phase))}`;
  return [short ? `${phase.repeats} repeats, ${range}` : `bare wall time: ${phase.repeats} repeats took ${range}${each(phase)}`];
}

function drawEnd() {
  if (!data.estimate) fill(at("estimate-card"), element("p", { class: "note" }, whyMissing("No estimate of the model", /estimate/i)));
  document.querySelectorAll(".copy").forEach(copyable);
}
function drawSections() {
  fill(at("sections"), ...[...document.querySelectorAll("main section")].filter((s) => !s.hidden).map((s) =>
    element("a", { href: `#${s.id}`, onclick: (event) => {
      event.preventDefault();
      s.tabIndex = -1;
      s.focus({ preventScroll: true });
      s.scrollIntoView();
    } }, s.querySelector("h2").textContent)));
}
