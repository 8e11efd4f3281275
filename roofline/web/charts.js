"use strict";
// What all pages share: numbers as the terminal prints them, elements made of text nodes only (names come from
// profilers and may hold anything), sortable tables, and charts in the colours of the page's theme.

const DASH = "–";

// Python rounds exact ties to the even digit, toFixed to the larger one.
function toFixedEven(value, digits) {
  const text = value.toFixed(digits);
  const long = Math.abs(value).toFixed(Math.min(100, digits + 30));
  const tail = long.slice(long.indexOf(".") + 1 + digits);
  if (!/^50*$/.test(tail)) return text;
  const last = Number(text[text.length - 1]);
  if (last % 2 === 0) return text;
  const step = 10 ** -digits;
  return (value - Math.sign(value) * step).toFixed(digits);
}

function fixed(value, digits = 4) {
  if (value === 0) return "0";
  const whole = String(Math.trunc(Math.abs(Number(value.toPrecision(digits))))).length;
  return toFixedEven(value, Math.max(0, digits - whole));
}

function quantity(value, unit, digits = 4) {
  if (value === null || value === undefined) return DASH;
  const size = Math.abs(value);
  if (size === 0) return `0 ${unit}`;
  const up = ["", "k", "M", "G", "T", "P", "E"];
  let step = 0;
  while (step < up.length - 1 && Number((size / 1000 ** step).toPrecision(digits)) >= 1000) step += 1;
  return `${fixed(value / 1000 ** step, digits)} ${up[step]}${unit}`;
}

function seconds(value, digits = 4) {
  if (value === null || value === undefined) return DASH;
  if (value === 0) return "0 s";
  let step = 0;
  while (step < 3 && Number((Math.abs(value) * 1000 ** step).toPrecision(digits)) < 1) step += 1;
  return `${fixed(value * 1000 ** step, digits)} ${["", "m", "µ", "n"][step]}s`;
}

const time = (ns, digits = 3) => (ns === null || ns === undefined ? DASH : seconds(ns / 1e9, digits));
const oneDigit = (v) => (v === null || v === undefined ? DASH : Math.abs(v) < 99.95 ? toFixedEven(v, 1) : toFixedEven(v, 0));
const percent = (v) => (v === null || v === undefined ? DASH : `${oneDigit(v)} %`);
const grouped = (n) => (n === null || n === undefined ? DASH : Number(n).toLocaleString("en-US"));

function decode(column) {
  return column.codes.map((code) => (code < 0 ? null : column.names[code]));
}

// element("td", {class: "number"}, "text", otherElement)
function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (value !== null && value !== undefined && value !== false) made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.filter((c) => c !== null && c !== undefined).map((c) => (c instanceof Node ? c : String(c))));
  return made;
}

function fill(target, ...children) {
  target.replaceChildren(...children.filter((c) => c !== null && c !== undefined));
}

function factList(pairs) {
  return element("dl", { class: "facts" }, ...pairs.flatMap(([name, value]) => [element("dt", {}, name), element("dd", {}, value)]));
}

// A table whose heads sort it. columns: [{head, title, value(row), text(row) or cell(row), number}]; rows: any.
// Missing values come last whichever way it is sorted.
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
    const value = this.columns[column].value;
    const sign = down ? -1 : 1;
    return this.rows
      .map((row, at) => [row, value(row), at])
      .sort(([, a, i], [, b, j]) => {
        const none = (a === null || a === undefined) - (b === null || b === undefined);
        if (none) return none;
        if (a === null || a === undefined) return i - j;
        const order = typeof a === "string" ? a.localeCompare(b) : a - b;
        return sign * order || i - j;
      })
      .map(([row]) => row);
  }
  draw(focus = null) {
    const heads = this.columns.map((column, at) => {
      const on = at === this.sort.column;
      const button = element("button", { type: "button", title: column.title, onclick: () => this.by(at) }, column.head);
      const state = on ? (this.sort.down ? "descending" : "ascending") : "none";
      return element("th", { scope: "col", class: column.number ? "number" : null, "aria-sort": state }, button);
    });
    const rows = this.sorted();
    const shown = this.all ? rows : rows.slice(0, this.first);
    const body = shown.map((row) =>
      element("tr", { class: this.rowClass(row) || null },
        ...this.columns.map((c) => element("td", { class: c.number ? "number" : null, title: c.tip ? c.tip(row) : null },
          c.cell ? c.cell(row) : c.text(row)))));
    const rest = rows.length - this.first;
    const more = rest > 0
      ? element("button", { type: "button", class: "screen", onclick: () => { this.all = !this.all; this.draw(); } },
          this.all ? `show the first ${this.first}` : `show all ${grouped(rows.length)}`)
      : null;
    const table = element("table", {}, element("caption", {}, this.caption), element("thead", {}, element("tr", {}, ...heads)),
      element("tbody", {}, ...body));
    fill(this.target, element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": this.caption }, table), more);
    if (focus !== null) this.target.querySelectorAll("th button")[focus].focus();
  }
  by(at) {
    this.sort = { column: at, down: this.sort.column === at ? !this.sort.down : Boolean(this.columns[at].number) };
    this.draw(at);
  }
}

const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

// Charts are drawn anew when the theme, the width or the medium changes; a chart is a function of nothing to options.
const charts = [];
function chart(target, options, { height = 420 } = {}) {
  target.classList.add("chart");
  const made = { target, options, instance: null };
  made.draw = () => {
    const wanted = typeof height === "function" ? height() : height;
    target.style.height = `${wanted}px`;
    if (!made.instance) made.instance = echarts.init(target, null, { renderer: "canvas" });
    else made.instance.resize();
    made.instance.setOption({ animation: false, textStyle: { fontFamily: getComputedStyle(document.body).fontFamily }, ...options() },
      { notMerge: true });
  };
  charts.push(made);
  return made;
}
function redrawAll() {
  for (const made of charts) if (made.target.offsetParent !== null) made.draw();
}

// Plain look of axes and tooltips in the theme's colours.
function axisLook(name) {
  return {
    name, nameLocation: "middle", nameTextStyle: { color: css("--ink"), fontSize: 13 },
    axisLabel: { color: css("--soft"), fontSize: 12 }, axisLine: { lineStyle: { color: css("--soft") } },
    splitLine: { lineStyle: { color: css("--grid") } }, minorSplitLine: { show: false },
  };
}
function tooltip(formatter) {
  return {
    trigger: "item", confine: true, backgroundColor: css("--paper"), borderColor: css("--line"), textStyle: { color: css("--ink") },
    extraCssText: "box-shadow: var(--shadow);", formatter,
  };
}
function tip(title, pairs, note = null) {
  return element("div", { class: "tip" }, element("b", {}, title), factList(pairs), note ? element("p", { class: "note" }, note) : null);
}

function setTheme(name) {
  document.documentElement.dataset.theme = name;
  const button = document.getElementById("theme");
  if (button) button.textContent = name === "dark" ? "light page" : "dark page";
  redrawAll();
}
function startPage() {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  let before = dark.matches ? "dark" : "light";
  setTheme(before);
  dark.addEventListener("change", () => setTheme(dark.matches ? "dark" : "light"));
  document.getElementById("theme")?.addEventListener("click", () =>
    setTheme(document.documentElement.dataset.theme === "dark" ? "light" : "dark"));
  // Paper is white.
  addEventListener("beforeprint", () => { before = document.documentElement.dataset.theme; setTheme("light"); });
  addEventListener("afterprint", () => setTheme(before));
  let waiting = null;
  addEventListener("resize", () => { clearTimeout(waiting); waiting = setTimeout(redrawAll, 120); });
}
