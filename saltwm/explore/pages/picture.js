// Pictures: a canvas with a caption, and an overlay in shares of its side.

import { fill, h, svg } from "./dom.js";

export const bitmap = (bytes) => createImageBitmap(new Blob([bytes], { type: "image/png" }));

export class Picture {
  constructor(title, { note = "", kind = "" } = {}) {
    this.canvas = h("canvas", { width: 192, height: 192, role: "img", "aria-label": title });
    this.overlay = svg("svg", { viewBox: "0 0 1 1", preserveAspectRatio: "none", "aria-hidden": "true" });
    this.frame = h("div", { class: "frame" }, this.canvas, this.overlay);
    this.note = h("span", {}, note);
    this.element = h("figure", {}, this.frame, h("figcaption", {}, h("b", { class: kind }, title), this.note));
    this.title = title;
  }

  show(image, { sharp = false } = {}) {
    this.canvas.width = image.width;
    this.canvas.height = image.height;
    this.canvas.classList.toggle("sharp", sharp);
    this.canvas.getContext("2d").drawImage(image, 0, 0);
  }

  clear() { this.canvas.getContext("2d").clearRect(0, 0, this.canvas.width, this.canvas.height); }

  // One tile of a sheet of pictures.
  tile(sheet, place) {
    const size = sheet.size;
    this.canvas.width = size;
    this.canvas.height = size;
    this.canvas.classList.remove("sharp");
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

  draw(...shapes) { fill(this.overlay, ...shapes); }
}

export function trail(points, kind) {
  return svg("polyline", { class: `trail ${kind}`, points: points.map(([x, y]) => `${x},${y}`).join(" ") });
}

export const ring = (x, y, radius, kind) => svg("circle", { cx: x, cy: y, r: radius, class: kind });
