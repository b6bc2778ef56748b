// Pictures: a canvas with a caption, and an overlay that is given in shares of its side.

import { fill, h, svg } from "./dom.js";

// Units along a side of the overlay: in units of a whole side strokes are drawn with ragged edges.
const SIDE = 1000;

export const bitmap = (bytes) => createImageBitmap(new Blob([bytes], { type: "image/png" }));

export class Picture {
  constructor(title, { note = "", kind = "" } = {}) {
    this.canvas = h("canvas", { width: 192, height: 192, role: "img", "aria-label": title });
    this.overlay = svg("svg", { viewBox: `0 0 ${SIDE} ${SIDE}`, preserveAspectRatio: "none", "aria-hidden": "true" });
    this.frame = h("div", { class: "frame" }, this.canvas, this.overlay);
    this.note = h("span", {}, note);
    this.element = h("figure", {}, this.frame, h("figcaption", {}, h("b", { class: kind }, title), this.note));
    this.title = title;
  }

  // `through` is another picture that shines through this one.
  show(image, { through = null } = {}) {
    this.canvas.width = image.width;
    this.canvas.height = image.height;
    const context = this.canvas.getContext("2d");
    context.drawImage(image, 0, 0);
    if (!through) return;
    // What is dark shows on a light ground, what is light on a dark one; the ground itself changes nothing.
    context.globalCompositeOperation = isDark(through) ? "lighten" : "darken";
    context.globalAlpha = 0.4;
    context.drawImage(through, 0, 0, image.width, image.height);
  }

  clear() { this.canvas.getContext("2d").clearRect(0, 0, this.canvas.width, this.canvas.height); }

  // One tile of a sheet of pictures.
  tile(sheet, place) {
    const size = sheet.size;
    this.canvas.width = size;
    this.canvas.height = size;
    const left = (place % sheet.columns) * size;
    const top = Math.floor(place / sheet.columns) * size;
    this.canvas.getContext("2d").drawImage(sheet.image, left, top, size, size, 0, 0, size, size);
  }

  say(note, label = note) {
    this.note.textContent = note;
    this.canvas.setAttribute("aria-label", label ? `${this.title}: ${label}` : this.title);
  }

  badge(text, kind = "") {
    this.frame.querySelector(".badge")?.remove();
    if (text) this.frame.append(h("span", { class: `badge ${kind}` }, text));
  }

  // Words in an empty frame.
  hint(text) {
    this.frame.querySelector(".hint")?.remove();
    if (text) this.frame.append(h("span", { class: "hint" }, text));
  }

  draw(...shapes) { fill(this.overlay, ...shapes); }
}

export function trail(points, kind) {
  return svg("polyline", { class: `trail ${kind}`, points: points.map(([x, y]) => `${x * SIDE},${y * SIDE}`).join(" ") });
}

export const ring = (x, y, radius, kind) => svg("circle", { cx: x * SIDE, cy: y * SIDE, r: radius * SIDE, class: kind });

function isDark(image) {
  const small = new OffscreenCanvas(16, 16).getContext("2d");
  small.drawImage(image, 0, 0, 16, 16);
  const { data } = small.getImageData(0, 0, 16, 16);
  const lit = data.filter((_, place) => place % 4 < 3);
  return lit.reduce((sum, value) => sum + value, 0) / lit.length < 128;
}
