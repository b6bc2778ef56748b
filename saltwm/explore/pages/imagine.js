// Imagine: action blocks by hand. A state-affine model is rolled out in this page, at once; the simulator answers beside it.

import { choice, field, figure, fill, h, milliseconds, number, slider } from "./dom.js";
import { affine, nearest } from "./affine.js";
import { BarChart, LineChart } from "./charts.js";
import { newest, turns } from "./live.js";
import { Picture, bitmap } from "./picture.js";
import { catalogue, chosen, decoderReady, decoderWords, failed, followDecoder, gallery, live, shared, writeAddress } from "./world.js";

// A slider of 200 steps, and as many digits as tell one from the next.
function fineRange(low, high) {
  const step = (high - low) / 200;
  const digits = Math.max(2, Math.min(8, Math.ceil(-Math.log10(step))));
  return { low, high, step, show: (x) => x.toFixed(digits) };
}

export async function imagine(query) {
  const { models } = await catalogue();
  const able = models.filter((entry) => !entry.problem && entry.dataset);
  if (!able.length) return { element: h("p", { class: "empty" }, "Imagining needs a model and a dataset of its world.") };
  const entry = chosen(able, query);
  const s = { model: entry.name, entry, blocks: [], count: Number(query.get("blocks")) || 5, fine: null, state: null, scene: null, stored: null, sheet: null, affine: null, z: null, closed: false };

  const happens = h("div", { class: "line" });
  const expects = h("div", { class: "line" });
  const cards = h("div", { class: "blocks" });
  const growth = new LineChart({ title: "Rollout error, in spreads of the latents", x: "block", height: 140 });
  const shares = new BarChart({ title: "Share of each one-step error in the error at the end", height: 160 });
  const norms = new BarChart({ title: "Norm of each one-step error at the end, ‖Φₖ→H εₖ‖", height: 160 });
  const numbers = h("div", { class: "numbers" });
  const how = h("p", { class: "soft small", role: "status" });
  const which = h("p", { class: "soft small" });
  const lead = h("p", { class: "lead" });
  const startPicture = new Picture("Start", { kind: "truth" });
  const episode = h("input", { type: "number", min: 0, value: Number(query.get("episode")) || 0 });
  const from = slider("From step", { low: 0, high: 1, step: 5, value: 0 }, () => begin(false));
  const countSlider = slider("Blocks", { low: 1, high: 10, step: 1, value: s.count }, (value) => { s.count = value; begin(true); });
  episode.addEventListener("change", () => open(Number(episode.value)));
  const modelChoice = choice("Model", able.map((entry) => entry.name), s.model, (value) => load(able.find((one) => one.name === value)));

  // The blocks of an address, if they are whole.
  function blocksOf(text) {
    const numbers = (text ?? "").split("_").map(Number);
    const size = s.scene.frameskip * s.scene.action_dim;
    if (numbers.length !== s.count * size || !numbers.every(Number.isFinite)) return [];
    return Array.from({ length: s.count }, (_, block) => numbers.slice(block * size, (block + 1) * size));
  }

  // The old world stays until the new one answers; of two loads the later one counts.
  let given = [];
  const loads = turns();
  async function load(entry) {
    const later = loads();
    const overtaken = () => s.closed || later();
    try {
      const { header } = await live.ask("scene", { model: entry.name });
      if (overtaken()) return;
      shared.model = entry.name;
      unfollow();
      Object.assign(s, { model: entry.name, entry, scene: header, stored: null, state: null, affine: null, sheet: null, z: null });
      const truth = s.scene.simulated ? "the simulator says what it really does" : "the recording says what it really did, as long as the actions are the recorded ones (this world has no simulator here)";
      lead.textContent = `Move a slider: the model says what its action block leads to, and ${truth}. Below, the error at the end is taken apart into the one-step errors that it grew from.`;
      if (!s.opened) { given = blocksOf(query.get("actions")); from.input.max = "1000000"; from.set(Number(query.get("step")) || 0); }
      s.opened = true;
      await open(Number(episode.value));
      if (overtaken()) return;
      const sheet = await gallery(entry.name);
      const rolled = entry.affine ? await affine(entry.name) : null;
      if (overtaken()) return;
      Object.assign(s, { sheet, affine: rolled });
      unfollow = followDecoder(entry.name, word);
      word();
      update();
    } catch (error) {
      if (overtaken()) return;
      modelChoice.select.value = s.model;
      failed(error);
    }
  }

  function word() {
    which.textContent = decoderReady(s.model) ? "Imagined pictures: a small decoder, fitted to stored frames after training." : `Imagined pictures: the stored frame whose latent is nearest, of ${s.sheet?.frames ?? "…"}; ${decoderWords(s.model)}.`;
  }

  const opens = turns();
  async function open(number_) {
    const later = opens();
    try {
      const { header, blobs } = await live.ask("recorded", { dataset: s.scene.dataset, episode: number_ });
      if (s.closed || later()) return;
      s.stored = header;
      s.frames = blobs;
      s.episode = number_;
      episode.max = String(s.scene.lengths.length - 1);
      from.input.step = String(header.frame_every);
      from.input.max = String(Math.max(0, s.stored.actions.length - s.scene.frameskip));
      from.set(Math.min(Number(from.input.value), Number(from.input.max)));
      begin(false);
    } catch (error) { if (!later()) failed(error); }
  }

  // The recorded actions are where sliders begin; beyond the record they are zero.
  function recorded(block) {
    const { frameskip, action_dim: dim } = s.scene;
    return Array.from({ length: frameskip }, (_, i) => s.stored.actions[s.step + block * frameskip + i] ?? Array(dim).fill(0)).flat();
  }

  function begin(keep) {
    if (!s.stored) return; // the episode is on its way
    const start = Number(from.input.value);
    s.state = s.stored.states[start];
    s.step = start;
    s.z = null;
    showStart();
    s.blocks = Array.from({ length: s.count }, (_, block) => (keep && s.blocks[block]) || given[block] || recorded(block));
    given = [];
    dress();
    update();
  }

  // The stored frame of the start; a long episode is sent thinned, and then it is the last one before.
  async function showStart() {
    const place = Math.max(0, s.stored.steps.findLastIndex((step) => step <= s.step));
    const image = await bitmap(s.frames[place]);
    startPicture.show(image);
    startPicture.say(`step ${s.stored.steps[place]}`);
  }

  const set = (edit) => { if (!s.stored) return; s.blocks = s.blocks.map((block, place) => block.map((a, i) => edit(a, place, i))); dress(); update(); };

  // One draw for each slider, anywhere in its range.
  function drawAll() {
    const { action_low: low, action_high: high, action_dim: dim } = s.scene;
    const draws = s.blocks.map(() => low.map((least, part) => least + Math.random() * (high[part] - least)));
    set((_, place, i) => draws[place][i % dim]);
  }

  function dress() {
    const { frameskip, action_dim: dim, action_low: low, action_high: high, action_names: names } = s.scene;
    fill(cards, s.blocks.map((block, place) => {
      const fine = s.fine === place;
      const range = (part) => fineRange(low[part], high[part]);
      const mean = (part) => block.filter((_, i) => i % dim === part).reduce((a, b) => a + b, 0) / frameskip;
      const controls = fine
        ? block.map((a, i) => slider(`block ${place + 1}, step ${Math.floor(i / dim) + 1}, ${names[i % dim]}`, { ...range(i % dim), value: a }, (value) => { s.blocks[place][i] = value; update(); }))
        : Array.from({ length: dim }, (_, part) => slider(names[part], { ...range(part), value: mean(part) }, (value) => { for (let i = part; i < block.length; i += dim) s.blocks[place][i] = value; update(); }));
      controls.forEach((control) => control.input.setAttribute("aria-label", `${control.input.getAttribute("aria-label")} of block ${place + 1}`));
      return h("div", { class: `block${fine ? " fine" : ""}`, role: "group", "aria-label": `Block ${place + 1}` },
        h("div", { class: "spread" }, h("h3", {}, `Block ${place + 1}`), h("button", { type: "button", class: "quiet", "aria-pressed": String(fine), on: { click: () => { s.fine = fine ? null : place; dress(); } } }, fine ? "one slider each" : "every step")), fine ? h("div", { class: "blocks" }, controls) : controls);
    }));
    const strip = (line, kind) => { line.pictures = s.blocks.map((_, place) => new Picture(`after ${(place + 1) * frameskip}`, { kind })); fill(line, line.pictures.map((one) => one.element)); };
    if (happens.pictures?.length !== s.blocks.length) { strip(happens, "truth"); strip(expects, "dream"); }
  }

  // Actions that are not the recorded ones, for the address; whoever opens it has the same sliders. Every digit is there:
  // of a world without a simulator only the recorded actions are known, to the last bit.
  function moved() {
    const same = s.blocks.every((block, place) => block.every((a, i) => a === recorded(place)[i]));
    return same ? null : s.blocks.flat().join("_");
  }

  function update() {
    if (!s.state) return;
    inPage();
    ask();
    takeApart();
    writeAddress("imagine", { model: s.model, episode: episode.value, step: s.step || null, blocks: s.count === 5 ? null : s.count, actions: moved() });
  }

  // The page's own rollout: as fast as a slider moves.
  function inPage() {
    if (!s.affine || !s.z || !s.sheet) return;
    const started = performance.now();
    const path = s.affine.rollout(s.z, s.blocks);
    if (!decoderReady(s.model)) path.forEach((z, place) => expects.pictures[place]?.tile(s.sheet, nearest(s.sheet, z)));
    how.textContent = `Rolled out in this page in ${milliseconds((performance.now() - started) / 1000)}.`;
  }

  const ask = newest(async () => {
    const { scene } = s;
    const blocks = s.blocks.map((block) => [...block]);
    const started = performance.now();
    try {
      const { header, blobs } = await live.ask("imagine", { model: s.model, state: s.state, episode: s.episode, step: s.step, blocks });
      if (s.closed || scene !== s.scene || blocks.length !== happens.pictures.length) return;
      const first = s.z === null;
      s.z = new Float32Array(blobs[0]);
      const path = new Float32Array(blobs[1]);
      const pictures = await Promise.all(blobs.slice(2).map(bitmap));
      happens.pictures.forEach((one, place) => { if (place < header.pictures) { one.show(pictures[place]); one.say(""); } else { one.clear(); one.say("not recorded"); } });
      const decoded = pictures.slice(header.pictures);
      if (decoded.length) expects.pictures.forEach((one, place) => one.show(decoded[place]));
      else if (s.sheet && (!s.affine || first)) header.nearest.forEach((frame, place) => expects.pictures[place].tile(s.sheet, frame));
      expects.pictures.forEach((one, place) => one.say(place < header.pictures ? `error ${number(header.errors[place], 2)}` : ""));
      growth.set([
        { name: "the model", kind: "dream", points: [[0, 0], ...header.errors.map((e, i) => [i + 1, e])] },
        { name: "nothing moves", kind: "soft", dash: true, points: [[0, 0], ...header.moved.map((e, i) => [i + 1, e])] },
      ], { floor: 0, low: 0 });
      const answered = milliseconds((performance.now() - started) / 1000);
      if (!s.affine) how.textContent = `Rolled out by the worker; answered in ${answered}.`;
      else if (first) inPage();
      else how.textContent = `Rolled out in this page; the worker's rollout differs by ${number(difference(s.affine.rollout(s.z, blocks), path), 2)} and came, with the truth, after ${answered}.`;
    } catch (error) { failed(error); }
  });

  const difference = (mine, theirs) => Math.max(...mine.flatMap((z, k) => Array.from(z, (value, i) => Math.abs(value - theirs[k * z.length + i]))));

  let timer = 0;
  let unfollow = () => {};
  function takeApart() {
    clearTimeout(timer);
    timer = setTimeout(() => decompose(), 350);
  }

  const decompose = newest(async () => {
    const { scene } = s;
    try {
      const { header } = await live.ask("decompose", { model: s.model, state: s.state, episode: s.episode, step: s.step, blocks: s.blocks });
      if (s.closed || scene !== s.scene) return;
      if (!header.blocks) { shares.set([]); norms.set([]); fill(numbers, h("p", { class: "soft" }, "Nothing is known of what these actions do, so there is no error to take apart.")); return; }
      const name = (k) => `ε${k + 1}`;
      const exact = Math.abs(header.remainder) < 1e-6;
      shares.set([...header.shares.map((share, k) => ({ name: name(k), value: share, note: `${Math.round(100 * share)} %`, kind: share < 0 ? "goal" : "dream" })), { name: "rest", value: header.remainder, note: exact ? "0" : `${Math.round(100 * header.remainder)} %`, kind: "soft" }]);
      norms.set(header.terms.map((term, k) => ({ name: name(k), value: term, kind: "truth" })));
      fill(numbers, figure("ρ, not explained to first order", number(header.rho, 2)), figure("‖δ‖ at the end", number(header.delta.at(-1))), figure("largest ‖ε‖", number(Math.max(...header.epsilon))), figure("‖Φ₁→H‖", number(header.phi[0])));
    } catch (error) { failed(error); }
  });

  const element = h("div", { class: "view" },
    h("div", { class: "panel" },
      h("section", { class: "card stack", "aria-label": "Start" }, modelChoice, field("Stored episode", episode), from, countSlider, startPicture.element),
      h("section", { class: "card stack", "aria-label": "Set all sliders" }, h("h2", {}, "All sliders"),
        h("div", { class: "row" }, h("button", { type: "button", on: { click: () => begin(false) } }, "as recorded"), h("button", { type: "button", on: { click: () => set(() => 0) } }, "zero"),
          h("button", { type: "button", on: { click: drawAll } }, "random")))),
    h("div", { class: "stack" },
      h("div", {}, h("h1", {}, "Imagine"), lead),
      h("section", { class: "card stack", "aria-label": "Action blocks" }, h("div", { class: "spread" }, h("h2", {}, "Action blocks"), how), cards),
      h("section", { class: "card stack", "aria-label": "Pictures" }, h("div", { class: "spread" }, h("h2", { class: "truth" }, "What happens"), which), h("div", { class: "pairs", tabindex: 0, role: "region", "aria-label": "What happens, and what the model expects, block by block" }, happens, h("h2", { class: "dream" }, "What the model expects"), expects)),
      h("section", { class: "card columns", "aria-label": "Errors" }, growth.element, shares.element, norms.element, h("div", { class: "stack" }, h("h3", {}, "In numbers"), numbers, h("p", { class: "soft small" }, "For a state-affine model the shares add up to 100 % and ρ is zero up to rounding (eq. 5). For LeWM the rest is what no linear propagation explains.")))));
  return { element, ready: load(entry), close() { s.closed = true; clearTimeout(timer); unfollow(); }, go() {}, key: () => false };
}
