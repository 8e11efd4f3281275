// Draws the report anew whenever the state changes: all of it for another phase or part, else what filters act on.

let drawnFor = null;
function draw() {
  const wanted = `${state.phase} ${state.part}`;
  if (wanted !== drawnFor) {
    drawnFor = wanted;
    drawSummary();
    drawWaterfall();
    drawLayers();
  }
  drawFilters();
  drawCrumbs();
  drawRoofline();
  drawDetail();
  drawTables();
  drawTimeline();
  drawSections();
}

startPage();
if (!load()) {
  // A decode step is what one usually asks about.
  state.phase = Math.max(0, data.phases.findIndex((p) => p.name.startsWith("decode")));
}
drawEnd();
function start() {
  draw();
  if (state.module !== null) reveal();
}
if (data.phases.length) {
  start();
  repaint = () => { drawnFor = null; draw(); };
}
addEventListener("hashchange", () => { if (load()) start(); });
addEventListener("keydown", (event) => {
  if (event.key === "Escape" && state.module !== null && !event.target.matches("input, select")) change({ module: null, role: null }, { step: true });
});

// What is shown, for tests and for the console; nothing here changes it.
window.kernelroof = {
  shown: () => ({
    state: { ...state, kinds: state.kinds && [...state.kinds], bounds: state.bounds && [...state.bounds] },
    points: roofline.points.map((p) => p.launch ?? p.row.index ?? p.row.kind),
    odd: roofline.points.filter(isOdd).map((p) => p.launch ?? p.row.index ?? p.row.kind),
    unplaced: roofline.unplaced.map((p) => p.launch ?? p.row.index ?? p.row.kind),
    marks: roofline.marks.map((m) => m.name),
    context: roofline.context.map((p) => p.row.index),
    roles: shownRoles().map((r) => r.index),
    modules: shownModules().map((m) => m.index),
    waterfall: fall.rows.map((r) => [r.words, r.ns]),
    timeline: line.rows.map((r) => !r.pale),
  }),
  format: { fixed, quantity, seconds, oneDigit, percent, number },
};
