// Small charts as SVG: lines with a cursor, bars, histograms. What a chart shows is also said in its label.

import { fill, h, number, svg } from "./dom.js";

const USUAL = 460;
const LEFT = 44;
const RIGHT = 10;
const TOP = 10;
const BOTTOM = 26;

function ticks(low, high, count = 4) {
  const span = high - low || 1;
  const raw = span / count;
  const base = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((m) => m * base).find((s) => span / s <= count) ?? 10 * base;
  const found = [];
  for (let at = Math.ceil(low / step) * step; at <= high + step * 1e-6; at += step) found.push(Math.abs(at) < step * 1e-6 ? 0 : at);
  return found;
}

export class LineChart {
  constructor({ title, x = "", height = 150, width = USUAL, onPick = null }) {
    this.width = width;
    this.title = title;
    this.xName = x;
    this.height = height;
    this.picture = svg("svg", { class: "chart", viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": title });
    this.legend = h("div", { class: "legend" });
    this.element = h("div", { class: "stack close" }, h("div", { class: "spread" }, h("h3", {}, title), this.legend), this.picture);
    if (onPick) {
      this.picture.addEventListener("pointerdown", (event) => {
        const box = this.picture.getBoundingClientRect();
        const at = ((event.clientX - box.left) / box.width) * this.width;
        onPick(this.low + ((at - LEFT) / (this.width - LEFT - RIGHT)) * (this.high - this.low));
      });
    }
  }

  // series: {name, kind, points: [[x, y]], dots, dash, thin, quiet}
  set(series, { low = null, high = null, limit = null, limitName = "", floor = null } = {}) {
    const points = series.flatMap((s) => s.points).filter(([, y]) => y !== null && Number.isFinite(y));
    fill(this.picture);
    fill(this.legend, series.filter((s) => s.name && !s.quiet).map((s) => h("span", { class: `s-${s.kind}` }, s.name)), limitName ? h("span", { class: "s-goal dotted" }, limitName) : null);
    if (!points.length) {
      this.picture.append(svg("text", { x: this.width / 2, y: this.height / 2, "text-anchor": "middle" }, "nothing yet"));
      return;
    }
    this.low = low ?? Math.min(...points.map(([x]) => x));
    this.high = Math.max(high ?? Math.max(...points.map(([x]) => x)), this.low + 1e-9);
    let bottom = floor ?? Math.min(...points.map(([, y]) => y));
    let top = Math.max(...points.map(([, y]) => y), limit ?? -Infinity);
    if (top - bottom < 1e-9) { top += 0.5; bottom -= floor === null ? 0.5 : 0; }
    const px = (x) => LEFT + ((x - this.low) / (this.high - this.low)) * (this.width - LEFT - RIGHT);
    const py = (y) => TOP + (1 - (y - bottom) / (top - bottom)) * (this.height - TOP - BOTTOM);
    this.px = px;
    for (const at of ticks(bottom, top, 3)) {
      const y = py(at);
      this.picture.append(
        svg("line", { class: "axis", x1: LEFT, x2: this.width - RIGHT, y1: y, y2: y }),
        svg("text", { x: LEFT - 6, y: y + 3.5, "text-anchor": "end" }, number(at, 2)),
      );
    }
    for (const at of ticks(this.low, this.high, 6).filter((tick) => px(tick) < this.width - RIGHT - 46)) {
      this.picture.append(svg("text", { x: px(at), y: this.height - 8, "text-anchor": "middle" }, number(at, 3)));
    }
    this.picture.append(svg("text", { x: this.width - RIGHT, y: this.height - 8, "text-anchor": "end" }, this.xName));
    if (limit !== null) this.picture.append(svg("line", { class: "limit", x1: LEFT, x2: this.width - RIGHT, y1: py(limit), y2: py(limit) }));
    for (const s of series) {
      const shown = s.points.filter(([, y]) => y !== null && Number.isFinite(y));
      if (!s.dots) {
        const style = `line s-${s.kind}${s.dash ? " dash" : ""}${s.thin ? " thin" : ""}`;
        this.picture.append(svg("polyline", { class: style, points: shown.map(([x, y]) => `${px(x)},${py(y)}`).join(" ") }));
      } else {
        for (const [x, y] of shown) this.picture.append(svg("circle", { class: `f-${s.kind}`, cx: px(x), cy: py(y), r: 3 }));
      }
    }
    this.line = svg("line", { class: "cursor", y1: TOP, y2: this.height - BOTTOM, x1: -9, x2: -9 });
    this.picture.append(this.line);
    const said = series.filter((s) => s.name && s.points.length).map((s) => `${s.name} ends at ${number(s.points.at(-1)[1])}`);
    this.picture.setAttribute("aria-label", `${this.title}. ${said.join(", ")}`);
  }

  cursor(x) {
    if (!this.line || !this.px) return;
    const at = Math.max(LEFT, Math.min(this.width - RIGHT, this.px(x)));
    this.line.setAttribute("x1", at);
    this.line.setAttribute("x2", at);
  }
}

// Bars from a zero line: [{name, value, kind, note}]
export class BarChart {
  constructor({ title, height = 150 }) {
    Object.assign(this, { title, height });
    this.picture = svg("svg", { class: "chart", viewBox: `0 0 ${USUAL} ${height}`, role: "img", "aria-label": title });
    this.element = h("div", { class: "stack close" }, h("h3", {}, title), this.picture);
  }

  set(bars) {
    fill(this.picture);
    if (!bars.length) return;
    const values = bars.map((bar) => bar.value ?? 0);
    const top = Math.max(0, ...values);
    const bottom = Math.min(0, ...values);
    const span = top - bottom || 1;
    const under = bottom < 0 ? BOTTOM + 14 : BOTTOM; // a bar below zero has its number below it
    const py = (y) => 18 + (1 - (y - bottom) / span) * (this.height - 18 - under);
    const each = (USUAL - 2 * RIGHT) / bars.length;
    this.picture.append(svg("line", { class: "axis", x1: RIGHT, x2: USUAL - RIGHT, y1: py(0), y2: py(0) }));
    bars.forEach((bar, place) => {
      const middle = RIGHT + (place + 0.5) * each;
      const width = Math.min(46, each * 0.62);
      const [a, b] = [py(Math.max(0, bar.value ?? 0)), py(Math.min(0, bar.value ?? 0))];
      this.picture.append(
        svg("rect", { class: `f-${bar.kind ?? "truth"}`, x: middle - width / 2, y: a, width, height: Math.max(1, b - a), rx: 2 }),
        svg("text", { x: middle, y: (bar.value ?? 0) < 0 ? b + 11 : a - 4, "text-anchor": "middle" }, bar.note ?? number(bar.value, 2)),
        svg("text", { x: middle, y: this.height - 8, "text-anchor": "middle" }, bar.name),
      );
    });
    this.picture.setAttribute("aria-label", `${this.title}: ${bars.map((b) => `${b.name} ${b.note ?? number(b.value)}`).join(", ")}`);
  }
}

export function histogram(title, { counts, low, high }, same = null) {
  if (same !== null) return h("div", { class: "stack close" }, h("h3", {}, title), h("p", { class: "soft" }, `${number(same)} in every one`));
  const most = Math.max(...counts, 1);
  const each = (USUAL - 2 * RIGHT) / counts.length;
  const picture = svg("svg", { class: "chart", viewBox: `0 0 ${USUAL} 96`, role: "img", "aria-label": `${title}, from ${number(low)} to ${number(high)}` },
    counts.map((count, place) => svg("rect", { class: "f-truth", x: RIGHT + place * each + 1, width: each - 2, y: 74 - (count / most) * 66, height: (count / most) * 66 })),
    svg("text", { x: RIGHT, y: 90 }, number(low)),
    svg("text", { x: USUAL - RIGHT, y: 90, "text-anchor": "end" }, number(high)));
  return h("div", {}, h("h3", {}, title), picture);
}
