// The top of the report (what was run, how long it took, the answers) and its end (how it was made).

function drawSummary() {
  at("by").textContent = data.made_by;
  fill(at("subject"), element("dl", { class: "subject" },
    ...data.subject.map(([name, value]) => element("div", {}, element("dt", {}, name), element("dd", {}, value)))));
  fill(at("phases"), ...data.phases.map(phaseCard));
  const phase = phaseOf();
  const doubts = [...new Set([...data.doubts, ...phase.doubts])];
  fill(at("doubts"), doubts.length
    ? element("div", { class: "doubts" }, element("strong", {}, "What makes these figures doubtful"), ...doubts.map((d) => element("p", {}, d)))
    : null);
  const answers = phase.answers.map(([question, answer]) => element("div", {}, element("dt", {}, question),
    element("dd", {}, ...numbered(answer).map((line) => element("p", {}, line)))));
  fill(at("answers"),
    answers.length ? element("dl", { class: "answers" }, ...answers) : element("p", { class: "verdict" }, phase.verdict),
    element("details", {}, element("summary", {}, `The figures of ${phase.name}`),
      listOf([...(answers.length && phase.verdict ? [phase.verdict] : []), ...phase.facts, ...spreadFact(phase)])));
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
  return element("button", { type: "button", class: "phase", "aria-pressed": String(i === state.phase),
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
  const titled = (title, ...inside) => [element("h3", {}, title), ...inside];
  const card = data.estimate
    ? element("pre", { tabindex: "0", role: "region", "aria-label": "The estimate as the terminal prints it" }, data.estimate.text)
    : element("p", { class: "note" }, whyMissing("No estimate of the model", /estimate/i));
  fill(at("estimate-card"), card);
  fill(at("missing"), ...(data.missing.length
    ? titled("What is missing, and why", listOf(data.missing.map(([what, why, remedy]) =>
        element("span", {}, element("strong", {}, what), `: ${why}${remedy ? `. ${sentence(remedy)}` : ""}`))))
    : [element("p", { class: "note" }, "Nothing is missing.")]));
  fill(at("conventions"), ...(data.conventions.length ? titled("Conventions", listOf(data.conventions)) : []));
  fill(at("commands"), ...(data.commands.length
    ? titled("Exact command lines", ...data.commands.flatMap(([what, command]) => [element("p", { class: "note" }, what), copyable(command, what)])) : []));
  fill(at("files"), ...(data.files.length ? titled("Files beside this page", factList(data.files)) : []));
  fill(at("environment"), data.environment.length
    ? element("details", {}, element("summary", {}, "Environment"), factList(data.environment)) : null);
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
