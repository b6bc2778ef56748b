// Map: the latents of stored frames in two dimensions, coloured by the state or by the cost to a goal.

import { ARROWS, choice, fill, h, number, setOptions } from "./dom.js";
import { project } from "./affine.js";
import { turns } from "./live.js";
import { Picture } from "./picture.js";
import { catalogue, chosen, failed, gallery, live, shared, writeAddress } from "./world.js";

const PAIRS = [["0-1", "1 and 2"], ["0-2", "1 and 3"], ["1-2", "2 and 3"], ["2-3", "3 and 4"], ["4-5", "5 and 6"]];
// Viridis, thinned: it is read the same by everybody and in grey.
const RAMP = [[68, 1, 84], [71, 44, 122], [59, 81, 139], [44, 113, 142], [33, 144, 141], [39, 173, 129], [92, 200, 99], [170, 220, 50], [253, 231, 37]];

function colour(share) {
  const at = Math.max(0, Math.min(1, share)) * (RAMP.length - 1);
  const low = Math.floor(at);
  const high = Math.min(low + 1, RAMP.length - 1);
  return `rgb(${RAMP[low].map((value, i) => Math.round(value + (RAMP[high][i] - value) * (at - low))).join(" ")})`;
}

export async function map(query) {
  const { models } = await catalogue();
  const able = models.filter((entry) => !entry.problem && entry.dataset);
  if (!able.length) return { element: h("p", { class: "empty" }, "The map needs a model and a dataset of its world.") };
  const asked = chosen(able, query);
  const s = { model: asked.name, pair: query.get("axes") ?? "0-1", by: query.get("by") ?? "cost", goal: Number(query.get("goal")) || 0, at: 0, sheet: null, points: [], fields: [], closed: false };

  const canvas = h("canvas", { tabindex: 0, role: "img", "aria-label": "Map of latents" });
  const picture = new Picture("Frame", { kind: "truth" });
  const target = new Picture("Goal", { kind: "goal" });
  const said = h("dl", { class: "facts" });
  const low = h("span", {});
  const high = h("span", {});
  const ramp = h("canvas", { class: "ramp", width: 120, height: 1, "aria-hidden": "true" });
  const explained = h("p", { class: "soft small" });
  const pathNote = h("p", { class: "soft small" });
  const way = h("span", { class: "s-dream", hidden: true }, "the plan that Act made last");
  const modelChoice = choice("Model", able.map((entry) => entry.name), s.model, (value) => load(value));
  const pair = choice("Principal components", PAIRS, s.pair, (value) => { s.pair = value; place(); });
  const by = choice("Colour", [["cost", "cost to the goal"]], s.by, (value) => { s.by = value; paint(); });
  RAMP.forEach((_, i) => { const c = ramp.getContext("2d"); c.fillStyle = colour(i / (RAMP.length - 1)); c.fillRect((i * 120) / RAMP.length, 0, 120 / RAMP.length + 1, 1); });

  // The old map stays until all of the new one is known; of two loads the later one counts.
  const loads = turns();
  async function load(model) {
    const later = loads();
    const overtaken = () => s.closed || later();
    try {
      const sheet = await gallery(model);
      const about = (await live.ask("recorded", { dataset: sheet.dataset, episode: sheet.episodes[0] })).header;
      if (overtaken()) return;
      shared.model = model;
      Object.assign(s, { model, sheet });
      s.fields = about.fields.flatMap((field) => Array.from({ length: Math.min(field.stop - field.start, 8) }, (_, i) => [`s${field.start + i}`, `${field.name.replaceAll("_", " ")}${field.stop - field.start > 1 ? ` ${i + 1}` : ""}${field.unit ? ` (${field.unit})` : ""}`]));
      // What the task is about is worth a colour: a thing that is moved, else whatever comes after time.
      const first = about.fields.find((field) => /block|cube/.test(field.name)) ?? about.fields.find((field) => field.name !== "time") ?? about.fields[0];
      if (!query.has("by") && !s.chosen) s.by = `s${first.start}`;
      s.chosen = true;
      setOptions(by.select, [["cost", "cost to the goal"], ["step", "step in its episode"], ...s.fields], s.by);
      s.by = by.select.value || "cost";
      s.goal = Math.min(s.goal, s.sheet.frames - 1);
      s.at = Math.min(s.at, s.sheet.frames - 1);
      explained.textContent = `${s.sheet.frames} frames of ${s.sheet.dataset}; ${s.sheet.dim} dimensions, of which the components hold ${s.sheet.explained.map((share) => `${Math.round(100 * share)} %`).join(", ")}.`;
      way.hidden = shared.act?.model !== s.model;
      pathNote.textContent = way.hidden ? `Plan something in Act with ${model}, and its way is drawn here.` : "";
      place();
      look(s.at);
      setGoal(s.goal);
    } catch (error) {
      if (overtaken()) return;
      modelChoice.select.value = s.model;
      failed(error);
    }
  }

  function place() {
    const axes = s.pair.split("-").map(Number);
    s.axes = axes;
    s.points = Array.from({ length: s.sheet.frames }, (_, i) => project(s.sheet, s.sheet.latents, axes, i * s.sheet.dim));
    const xs = s.points.map(([x]) => x);
    const ys = s.points.map(([, y]) => y);
    s.box = [Math.min(...xs), Math.max(...xs), Math.min(...ys), Math.max(...ys)];
    paint();
  }

  function values() {
    const { frames, dim, latents, states, state_dim: width, steps } = s.sheet;
    if (s.by === "step") return steps;
    if (s.by.startsWith("s")) return Array.from({ length: frames }, (_, i) => states[i * width + Number(s.by.slice(1))]);
    return Array.from({ length: frames }, (_, i) => {
      let sum = 0;
      for (let k = 0; k < dim; k += 1) sum += (latents[i * dim + k] - latents[s.goal * dim + k]) ** 2;
      return sum / dim;
    });
  }

  function where([x, y]) {
    const [left, right, bottom, top] = s.box;
    return [24 + ((x - left) / (right - left || 1)) * (canvas.width - 48), canvas.height - 24 - ((y - bottom) / (top - bottom || 1)) * (canvas.height - 48)];
  }

  function paint() {
    if (!s.sheet || !s.points.length) return;
    const scale = window.devicePixelRatio || 1;
    canvas.width = Math.max(300, Math.round(canvas.clientWidth * scale));
    canvas.height = Math.max(200, Math.round(canvas.clientHeight * scale));
    const c = canvas.getContext("2d");
    const style = getComputedStyle(document.documentElement);
    const shade = (name) => style.getPropertyValue(name);
    const found = values();
    const sorted = [...found].sort((a, b) => a - b);
    const [least, most] = [sorted[Math.floor(0.01 * (sorted.length - 1))], sorted[Math.ceil(0.99 * (sorted.length - 1))]];
    low.textContent = number(least);
    high.textContent = number(most);
    c.clearRect(0, 0, canvas.width, canvas.height);
    s.points.forEach((point, i) => {
      const [x, y] = where(point);
      c.fillStyle = colour((found[i] - least) / (most - least || 1));
      c.globalAlpha = 0.85;
      c.beginPath();
      c.arc(x, y, 3.6 * scale, 0, 7);
      c.fill();
    });
    c.globalAlpha = 1;
    const mark = (i, paintStyle, radius) => { const [x, y] = where(s.points[i]); c.strokeStyle = paintStyle; c.lineWidth = 2.4 * scale; c.beginPath(); c.arc(x, y, radius * scale, 0, 7); c.stroke(); };
    mark(s.goal, shade("--goal"), 9);
    mark(s.at, shade("--ink"), 7);
    if (shared.act?.model === s.model && shared.act.path) {
      const { path } = shared.act;
      c.strokeStyle = shade("--dream");
      c.fillStyle = shade("--dream");
      c.lineWidth = 2.4 * scale;
      c.beginPath();
      const stops = Array.from({ length: path.length / s.sheet.dim }, (_, k) => where(project(s.sheet, path, s.axes, k * s.sheet.dim)));
      stops.forEach(([x, y], k) => (k ? c.lineTo(x, y) : c.moveTo(x, y)));
      c.stroke();
      for (const [x, y] of stops) { c.beginPath(); c.arc(x, y, 4 * scale, 0, 7); c.fill(); }
    }
    writeAddress("map", { model: s.model, axes: s.pair === "0-1" ? null : s.pair, by: s.by, goal: s.goal || null });
  }

  function look(i) {
    s.at = i;
    picture.tile(s.sheet, i);
    picture.say(`episode ${s.sheet.episodes[i]}, step ${s.sheet.steps[i]}`);
    const width = s.sheet.state_dim;
    fill(said, s.fields.slice(0, 8).flatMap(([key, name]) => [h("dt", {}, name), h("dd", {}, number(s.sheet.states[i * width + Number(key.slice(1))]))]));
    canvas.setAttribute("aria-label", `Map of latents. Chosen: episode ${s.sheet.episodes[i]}, step ${s.sheet.steps[i]}`);
    paint();
  }

  function setGoal(i) {
    s.goal = i;
    target.tile(s.sheet, i);
    target.say(`episode ${s.sheet.episodes[i]}, step ${s.sheet.steps[i]}`);
    paint();
  }

  function under(event) {
    const box = canvas.getBoundingClientRect();
    const [x, y] = [((event.clientX - box.left) / box.width) * canvas.width, ((event.clientY - box.top) / box.height) * canvas.height];
    let best = 0;
    let least = Infinity;
    s.points.forEach((point, i) => { const [px, py] = where(point); const far = (px - x) ** 2 + (py - y) ** 2; if (far < least) { least = far; best = i; } });
    return best;
  }

  canvas.addEventListener("pointermove", (event) => { if (s.sheet) { const i = under(event); if (i !== s.at) look(i); } });
  canvas.addEventListener("click", (event) => { if (s.sheet) setGoal(under(event)); });
  canvas.addEventListener("keydown", (event) => {
    if (event.key === "Enter") { setGoal(s.at); event.preventDefault(); return; }
    if (!ARROWS[event.key]) return;
    event.preventDefault();
    const [dx, dy] = ARROWS[event.key];
    const [x, y] = where(s.points[s.at]);
    let best = s.at;
    let least = Infinity;
    s.points.forEach((point, i) => {
      const [px, py] = where(point);
      const along = (px - x) * dx + (py - y) * dy;
      const aside = Math.abs((px - x) * dy) + Math.abs((py - y) * dx);
      if (along > 0.5 && aside < 2 * along && along + 2 * aside < least) { least = along + 2 * aside; best = i; }
    });
    look(best);
  });

  const repaint = () => paint();
  window.addEventListener("resize", repaint);
  window.addEventListener("theme", repaint);
  const element = h("div", { class: "view" },
    h("div", { class: "panel" }, h("section", { class: "card stack", "aria-label": "What is shown" }, modelChoice, pair, by, h("div", {}, ramp, h("div", { class: "spread small soft" }, low, high)), explained, pathNote)),
    h("div", { class: "stack" }, h("div", {}, h("h1", {}, "Map of latents"), h("p", { class: "lead" }, "Every point is a stored frame where the model sees it. Point at one to see it; click, or press enter, to make it the goal that costs are measured to.")),
      h("div", { class: "side" }, h("div", { class: "stack close" }, h("div", { class: "map" }, canvas), h("div", { class: "legend" }, h("span", { class: "ringed" }, "the frame pointed at"), h("span", { class: "ringed s-goal" }, "the goal"), way)), h("div", { class: "stack" }, picture.element, target.element, said))));
  return {
    element,
    ready: load(asked.name),
    close() { s.closed = true; window.removeEventListener("resize", repaint); window.removeEventListener("theme", repaint); },
    go(next) { const wanted = next.get("model"); if (wanted && wanted !== s.model) { modelChoice.select.value = wanted; load(wanted); } },
    key: () => false,
  };
}
