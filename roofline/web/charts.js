"use strict";
// What all pages share: numbers as the terminal prints them, elements made of text nodes only (names come from
// profilers and may hold anything), sortable tables, and charts in the colours of the page's theme.

const DASH = "–";
const none = (value) => value === null || value === undefined || Number.isNaN(value);

// ---- numbers: kernelroof.roofline.units and .text, digit for digit ----

// Python rounds exact ties to the even digit, toFixed away from zero. A tie's expansion is short, so it can be seen.
function toFixedEven(value, digits) {
  const text = value.toFixed(digits);
  const long = value.toFixed(Math.min(100, digits + 30));
  const cut = long.indexOf(".") + 1 + digits;
  if (!/^50*$/.test(long.slice(cut)) || Number(text[text.length - 1]) % 2 === 0) return text;
  return digits ? long.slice(0, cut) : long.slice(0, cut - 1);
}
function fixed(value, digits = 4) {
  if (value === 0) return "0";
  const whole = String(Math.trunc(Math.abs(Number(value.toPrecision(digits))))).length;
  return toFixedEven(value, Math.max(0, digits - whole));
}
function quantity(value, unit, digits = 4) {
  if (none(value)) return DASH;
  const size = Math.abs(value);
  if (size === 0) return `0 ${unit}`;
  const up = ["", "k", "M", "G", "T", "P", "E"];
  let step = 0;
  while (step < up.length - 1 && Number((size / 1000 ** step).toPrecision(digits)) >= 1000) step += 1;
  return `${fixed(value / 1000 ** step, digits)} ${up[step]}${unit}`;
}
function seconds(value, digits = 4) {
  if (none(value)) return DASH;
  if (value === 0) return "0 s";
  let step = 0;
  while (step < 3 && Number((Math.abs(value) * 1000 ** step).toPrecision(digits)) < 1) step += 1;
  return `${fixed(value * 1000 ** step, digits)} ${["", "m", "µ", "n"][step]}s`;
}
const time = (ns, digits = 3) => (none(ns) ? DASH : seconds(ns / 1e9, digits));
const oneDigit = (v) => (none(v) ? DASH : toFixedEven(v, Math.abs(v) < 99.95 ? 1 : 0));
const percent = (v) => (none(v) ? DASH : `${oneDigit(v)} %`);
// Three digits; what would read as zero says that it is not.
const number = (v) => (none(v) ? DASH : v !== 0 && Math.abs(v) < 0.005 ? "<0.01" : fixed(v, 3));
const grouped = (n) => (none(n) ? DASH : Number(Number(n).toPrecision(6)).toLocaleString("en-US", { maximumFractionDigits: 6 }));
// The unit in which all of some times can be told: its size in ns and its name.
function scaleOf(ns) {
  for (const [size, unit] of [[1e9, "s"], [1e6, "ms"], [1e3, "µs"]]) if (Math.abs(ns) >= size) return [size, unit];
  return [1, "ns"];
}

// ---- tables that came as columns ----
function decode(column) {
  return column.codes.map((code) => (code < 0 ? null : column.names[code]));
}
function rowsOf(columns) {
  const plain = Object.entries(columns).map(([name, column]) => [name, column.codes ? decode(column) : column]);
  return plain[0][1].map((_, index) => Object.fromEntries([["index", index], ...plain.map(([name, column]) => [name, column[index]])]));
}

// ---- elements ----
// element("td", {class: "number"}, "text", otherElement)
function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  if (tag === "button") made.type = tag;
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (!none(value) && value !== false) made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.filter((c) => !none(c)).map((c) => (c instanceof Node ? c : String(c))));
  return made;
}
function fill(target, ...children) {
  target.replaceChildren(...children.filter((c) => !none(c)));
}
// A name that is chosen by a click; it may break behind its separators.
const breakable = (words) => String(words).split(/(?<=[_.:/])(?=\w)/).flatMap((part, i) => (i ? [element("wbr"), part] : [part]));
const link = (words, onclick) => element("button", { class: "link", onclick }, ...breakable(words));
function factList(pairs) {
  return element("dl", { class: "facts" }, ...pairs.flatMap(([name, value]) => [element("dt", {}, name), element("dd", {}, value)]));
}
function listOf(items) {
  return element("ul", { class: "plain" }, ...items.map((item) => element("li", {}, item)));
}
// A button beside a text copies it.
function copyable(button) {
  const pre = button.previousElementSibling;
  button.onclick = async () => {
    try { await navigator.clipboard.writeText(pre.textContent); button.textContent = "copied"; }
    catch { getSelection().selectAllChildren(pre); button.textContent = "selected"; }
    setTimeout(() => { button.textContent = "copy"; }, 2000);
  };
}

// ---- tables ----
// A table whose heads sort it. columns: [{head, title, value(row), text(row) or cell(row), tip(row), number}].
// Missing values come last whichever way it is sorted; of equals the order given is kept, and without a column all of it.
class SortedTable {
  constructor(target, { caption, columns, first = 20, sort = null, rowClass = () => "" }) {
    Object.assign(this, { target, caption, columns, first, rowClass, rows: [], all: false, sort: sort ?? { column: 0, down: true } });
  }
  show(rows) {
    this.rows = rows;
    this.draw();
  }
  sorted() {
    const { column, down } = this.sort;
    const value = this.columns[column]?.value ?? (() => 0);
    const sign = down ? -1 : 1;
    return this.rows
      .map((row, at) => [row, value(row), at])
      .sort(([, a, i], [, b, j]) => {
        if (none(a) || none(b)) return none(a) - none(b) || i - j;
        return sign * ((a > b) - (a < b)) || i - j;
      })
      .map(([row]) => row);
  }
  draw(focus = null) {
    const heads = this.columns.map((column, at) => {
      const on = at === this.sort.column;
      const button = element("button", { class: "screen", title: column.title, onclick: () => this.by(at) }, column.head);
      const state = on ? (this.sort.down ? "descending" : "ascending") : "none";
      return element("th", { scope: "col", class: column.number ? "number" : null, "aria-sort": state }, button, element("span", { class: "paper-only" }, column.head));
    });
    const rows = this.sorted();
    const body = rows.slice(0, this.all ? undefined : this.first).map((row) =>
      element("tr", { class: this.rowClass(row) || null },
        ...this.columns.map((c) => element("td", { class: c.number ? "number" : null, title: c.tip?.(row) },
          c.cell ? c.cell(row) : c.text(row)))));
    const empty = rows.length ? null : element("tr", {}, element("td", { colspan: this.columns.length }, "Nothing passes the filters."));
    const more = rows.length > this.first
      ? element("button", { class: "more screen", "aria-expanded": String(this.all), onclick: () => {
          this.all = !this.all;
          this.draw();
          this.target.querySelector("button.more")?.focus();
        } }, this.all ? `show the first ${this.first}` : `show all ${grouped(rows.length)}`)
      : null;
    const table = element("table", {}, element("caption", {}, this.caption), element("thead", {}, element("tr", {}, ...heads)),
      element("tbody", {}, ...body, ...(empty ? [empty] : [])));
    const scrolled = this.target.querySelector(".scroll")?.scrollLeft ?? 0;
    const scroll = element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": this.caption }, table);
    const cut = more && !this.all ? element("p", { class: "note paper-only" }, `${this.first} of ${grouped(rows.length)} rows, in the order chosen on the screen.`) : null;
    fill(this.target, scroll, more, cut);
    scroll.scrollLeft = scrolled;
    const hint = () => scroll.classList.toggle("cut", scroll.scrollLeft + scroll.clientWidth < scroll.scrollWidth - 1);
    scroll.addEventListener("scroll", hint);
    new ResizeObserver(hint).observe(scroll);
    if (focus !== null) this.target.querySelectorAll("th button")[focus].focus();
  }
  by(at) {
    this.sort = { column: at, down: this.sort.column === at ? !this.sort.down : Boolean(this.columns[at].number) };
    this.draw(at);
    this.sorts?.();
  }
}

// ---- charts ----
const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const isNarrow = () => document.documentElement.clientWidth < 700;

// Charts are drawn anew when the theme, the width or the medium changes; a chart is a function of nothing to options.
// On paper they are vectors, on the screen a canvas, which stays quick with many points.
const charts = [];
let onPaper = false;
function chart(target, options, { height = 420 } = {}) {
  target.classList.add("chart");
  const made = { target, options, instance: null, paper: false, listeners: [] };
  made.on = (name, call) => made.listeners.push([name, call]);
  made.draw = () => {
    if (target.offsetParent === null) return;
    target.style.height = `${typeof height === "function" ? height() : height}px`;
    if (made.instance && made.paper !== onPaper) {
      made.instance.dispose();
      made.instance = null;
    }
    if (made.instance) made.instance.resize();
    else {
      made.instance = echarts.init(target, null, { renderer: onPaper ? "svg" : "canvas" });
      made.paper = onPaper;
      for (const [name, call] of made.listeners) made.instance.on(name, call);
    }
    made.instance.setOption({ animation: false, textStyle: { fontFamily: getComputedStyle(document.body).fontFamily }, ...options() },
      { notMerge: true });
  };
  charts.push(made);
  return made;
}
function redrawAll() {
  for (const made of charts) if (made.instance) made.draw();
}

// A kind of module's colour in the page's theme, or that of its outline.
function kindColour(kind, set = "kinds") {
  const tints = data.colours[document.documentElement.dataset.theme === "dark" ? "dark" : set];
  return tints[kind] ?? tints.other;
}
const kindEdge = (kind) => kindColour(kind, "edges");
// Names beside marks, first come first served: in the frame, over no other name and nothing `taken`, over few marks.
// All in pixels: names {words, x, y, size}, marks {x, y, size}, taken [left, top, right, bottom].
const pen = document.createElement("canvas").getContext("2d");
function placeNames(names, marks, taken, [width, height]) {
  pen.font = `12px ${getComputedStyle(document.body).fontFamily}`;
  const meets = (a, b) => a[0] < b[2] && b[0] < a[2] && a[1] < b[3] && b[1] < a[3];
  const around = marks.map((m) => [m.x - m.size / 2, m.y - m.size / 2, m.x + m.size / 2, m.y + m.size / 2]);
  return names.filter((name) => {
    const wide = pen.measureText(name.words).width, far = name.size / 2 + 5;
    const spots = { right: [far, -8], left: [-far - wide, -8], top: [-wide / 2, -far - 16], bottom: [-wide / 2, far] };
    let best = null, least = 4;
    for (const [side, [dx, dy]] of Object.entries(spots)) {
      const [x, y] = [name.x + dx, name.y + dy], box = [x, y, x + wide, y + 16];
      if (x < 0 || y < 0 || box[2] > width || box[3] > height || taken.some((t) => meets(box, t))) continue;
      const cost = around.filter((m) => meets(box, m)).length;
      if (cost < least) [best, least, name.side] = [box, cost, side];
    }
    if (best) taken.push(best);
    return best;
  });
}
const nameSeries = (names) => ({ type: "scatter", id: "names", z: 5, silent: true, itemStyle: { color: "transparent" },
  label: { show: true, distance: 5, formatter: (p) => names[p.dataIndex].words, color: css("--ink"), fontSize: 11.5, textBorderColor: css("--paper"), textBorderWidth: 3 },
  data: names.map((n) => ({ value: n.at, symbolSize: n.size, label: { position: n.side } })) });

// Plain look of axes and tooltips in the theme's colours.
function axisLook(name) {
  return {
    name, nameLocation: "middle", nameTextStyle: { color: css("--soft"), fontSize: 12.5 },
    axisLabel: { color: css("--soft"), fontSize: 12 }, axisLine: { lineStyle: { color: css("--line") } },
    axisTick: { lineStyle: { color: css("--line") } },
    splitLine: { lineStyle: { color: css("--grid") } },
  };
}
// `formatter` returns an element made by `tip`: no text is ever read as markup.
function tooltip(formatter) {
  return {
    trigger: "item", confine: true, backgroundColor: css("--paper"), borderColor: css("--line"), textStyle: { color: css("--ink") },
    extraCssText: "box-shadow: var(--shadow);", formatter,
  };
}
function tip(title, pairs, note = null) {
  return element("div", { class: "tip" }, element("b", {}, title), factList(pairs), note ? element("p", { class: "note" }, note) : null);
}

// ---- theme and paper ----
let repaint = redrawAll;
function setTheme(name) {
  document.documentElement.dataset.theme = name;
  const button = document.getElementById("theme");
  if (button) button.textContent = name === "dark" ? "light page" : "dark page";
  repaint();
}
// Paper is white, as wide as a sheet, and nothing on it can be opened: all that is folded is printed open.
function toPaper(on) {
  if (on === onPaper) return;
  onPaper = on;
  const root = document.documentElement;
  if (on) {
    root.dataset.screenTheme = root.dataset.theme;
    root.classList.add("paper");
    setTheme("light");
    for (const folded of document.querySelectorAll("details:not([open])")) {
      folded.dataset.folded = "";
      folded.open = true;
    }
  } else {
    for (const folded of document.querySelectorAll("details[data-folded]")) {
      delete folded.dataset.folded;
      folded.open = false;
    }
    root.classList.remove("paper");
    setTheme(root.dataset.screenTheme);
  }
}
function startPage() {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  setTheme(dark.matches ? "dark" : "light");
  dark.addEventListener("change", () => { if (!onPaper) setTheme(dark.matches ? "dark" : "light"); });
  document.getElementById("theme")?.addEventListener("click", () =>
    setTheme(document.documentElement.dataset.theme === "dark" ? "light" : "dark"));
  addEventListener("beforeprint", () => toPaper(true));
  addEventListener("afterprint", () => toPaper(false));
  matchMedia("print").addEventListener("change", (medium) => toPaper(medium.matches));
  let waiting = null;
  addEventListener("resize", () => { clearTimeout(waiting); waiting = setTimeout(redrawAll, 120); });
}
