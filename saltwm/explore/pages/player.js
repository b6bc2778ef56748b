// One time for several pictures: a button, a slider and keys.

import { calm, h } from "./dom.js";

export class Player {
  constructor(onStep, { every = 80 } = {}) {
    this.onStep = onStep;
    this.every = every;
    this.at = 0;
    this.last = 0;
    this.waiting = true;
    this.button = h("button", { type: "button", class: "main", on: { click: () => this.toggle() } }, "Play");
    this.range = h("input", { type: "range", min: 0, max: 0, step: 1, "aria-label": "Step", on: { input: () => this.go(Number(this.range.value)) } });
    this.output = h("output", {}, "0 / 0");
    this.element = h("div", { class: "scrub" }, this.button, this.range, this.output);
  }

  // Something else is on its way: what is shown stays as it is, and Play counts from when set() brings the new one.
  wait() {
    this.stop();
    this.waiting = true;
  }

  set(last, at = 0) {
    this.waiting = false;
    this.last = last;
    this.range.max = last;
    this.go(Math.min(at, last));
  }

  go(at) {
    this.at = Math.max(0, Math.min(this.last, at));
    this.range.value = String(this.at);
    this.output.textContent = `${this.at} / ${this.last}`;
    this.onStep(this.at);
  }

  toggle() { if (this.timer) this.stop(); else this.play(); }

  play() {
    if (!this.waiting && this.at >= this.last) this.go(0);
    this.button.textContent = "Pause";
    this.timer = setInterval(() => this.tick(), this.every);
    if (calm()) this.tick();
  }

  tick() {
    if (this.waiting) return;
    this.go(calm() ? this.last : this.at + 1); // less motion: straight to the end
    if (this.at >= this.last) this.stop();
  }

  stop() {
    clearInterval(this.timer);
    this.timer = null;
    this.button.textContent = "Play";
  }

  key(event) {
    const far = event.shiftKey ? 10 : 1;
    if (event.key === " ") this.toggle();
    else if (event.key === "ArrowRight") this.go(this.at + far);
    else if (event.key === "ArrowLeft") this.go(this.at - far);
    else if (event.key === "Home") this.go(0);
    else if (event.key === "End") this.go(this.last);
    else return false;
    return true;
  }
}
