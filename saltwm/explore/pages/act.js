// Act: look, plan, act, look again, live. The page holds the whole situation; the worker only answers.

import { ARROWS, calm, choice, copy, field, figure, fill, h, milliseconds, notice, number, setOptions, sleep, slider } from "./dom.js";
import { BarChart, LineChart } from "./charts.js";
import { newest, turns } from "./live.js";
import { Picture, bitmap, ring, trail } from "./picture.js";
import { catalogue, chosen, decoderReady, decoderWords, failed, followDecoder, gallery, live, shared, usable, writeAddress } from "./world.js";

const PLANNERS = {
  map: "The likeliest plan: what the action prior expects and the goal together, by Gauss-Newton steps.",
  "gauss-newton": "Least squares on the model's own rollout, without a prior.",
  prior: "What the action prior expects, without a search.",
  "cem-map": "Candidates drawn from the action prior, which stays in their cost: the posterior mode for any model.",
  "cem-prior": "Candidates, refined round by round; the first are drawn from the action prior.",
  cem: "The paper's search: candidates, refined round by round.",
  icem: "cem with smooth candidates, the best of which are kept.",
  mppi: "A mean of candidates, weighted by their costs.",
};
const LAST = "last candidates";
const LOOKS = [["plan", "the whole plan"], ["1", "one block"], ["2", "two blocks"], ["3", "three blocks"]];
const SPEEDS = { slow: 240, normal: 90, fast: 25, "no pause": 0 };

// A whole number of an address inside its bounds; `usual` where there is none.
function whole(text, low, high, usual) {
  const value = text === null || text.trim() === "" ? NaN : Number(text);
  return Number.isInteger(value) ? Math.max(low, Math.min(high, value)) : usual;
}

export async function act(query) {
  const { models } = await catalogue();
  const able = usable(models);
  if (!able.length) return { element: h("p", { class: "empty" }, models.find((m) => m.problem)?.problem ?? "No model with a simulator was given.") };
  const asked = chosen(able, query);
  const s = {
    model: asked.name, scene: null, start: null, state: null, goal: null, queue: [], step: 0, plans: 0, sinceLook: 0,
    planner: null, horizon: 5, look: "1", history: 1, looked: [], taken: [], begin: 0, speed: "normal",
    seed: 1, task: 0, recorded: null, variant: "clean", goalBlocks: null, playing: false, running: false, epoch: 0, reached: false, ended: false, closed: false,
    distances: [], seen: [], expected: [], times: [], been: [], decision: null, handle: 0, sheet: null, pictures: {},
  };

  // --- what is on the page

  const now = new Picture("Now", { kind: "truth" });
  const goal = new Picture("Goal", { kind: "goal" });
  const dream = new Picture("Imagined", { kind: "dream" });
  const thumbs = h("div", { class: "thumbs" });
  const play = h("button", { type: "button", class: "main playing-key", on: { click: toggle } }, "Play");
  const single = h("button", { type: "button", on: { click: () => oneStep() } }, "One step");
  const again = h("button", { type: "button", on: { click: reset } }, "Back to the start");
  const distance = new LineChart({ title: "True distance, in success radii", x: "step", height: 130 });
  const cost = new LineChart({ title: "Cost: expected by plans, and seen", x: "step", height: 130 });
  const times = new BarChart({ title: "Time of each decision", height: 120 });
  const search = new LineChart({ title: "The search: cost by iteration", x: "iteration", height: 120 });
  const fans = h("div", { class: "columns" });
  const numbers = h("div", { class: "numbers" });
  const dreamNote = h("p", { class: "soft small" });
  const story = h("p", { class: "soft small", role: "status" });
  const hold = h("div", { class: "stack" });
  const lead = h("p", { class: "lead" });
  let unfollow = () => {};
  let planCard = null;
  let chartCard = null;

  const modelChoice = choice("Model", able.map((entry) => entry.name), s.model, (value) => load(new URLSearchParams(), value));
  const plannerHint = h("p", { class: "soft small" });
  const plannerChoice = choice("Planner", ["cem"], null, (value) => { s.planner = value; sayPlanner(); remember(); });
  const key = h("div", { class: "legend" });
  const lookChoice = choice("Look again after", LOOKS, s.look, (value) => { s.look = value; remember(); });
  const historyChoice = choice("Frames that it is shown", [["1", "the present alone"]], "1", (value) => { s.history = Number(value); remember(); });
  const speedChoice = choice("Speed", Object.keys(SPEEDS), s.speed, (value) => { s.speed = value; });
  const horizon = slider("Horizon", { low: 1, high: 20, step: 1, value: s.horizon, unit: " blocks" }, (value) => { s.horizon = value; remember(); });
  const bounded = h("input", { type: "checkbox", checked: true, on: { change: () => remember() } });
  const through = h("input", { type: "checkbox", checked: true, on: { change: () => showNow() } });
  const episode = h("input", { type: "number", min: 0, value: 0, "aria-label": "Episode" });
  const from = slider("Start at step", { low: 0, high: 1, step: 1, value: 0 }, () => fromEpisode());
  const to = slider("Goal at step", { low: 0, high: 1, step: 1, value: 1 }, () => fromEpisode());
  episode.addEventListener("change", () => openEpisode(Number(episode.value)));

  // --- setting the scene

  // What an address says of who acts; what it leaves out stays as it is.
  function settings(next) {
    s.planner = next.get("planner") ?? s.planner;
    s.horizon = whole(next.get("horizon"), 1, 20, s.horizon);
    s.look = next.get("look") === "plan" ? "plan" : String(whole(next.get("look"), 1, 20, s.look));
    s.seed = whole(next.get("seed"), 0, 1e7, s.seed);
    s.history = whole(next.get("history"), 1, 8, s.history);
    bounded.checked = Boolean(whole(next.get("bounded"), 0, 1, s.recorded ? s.recorded.bounded : bounded.checked));
    horizon.set(s.horizon);
    setOptions(lookChoice.select, LOOKS.some(([key]) => key === s.look) ? LOOKS : [...LOOKS, [s.look, `${s.look} blocks`]], s.look);
  }

  // The recorded task that an address names: its start and goal, and the rules of its protocol.
  async function recordedTask(next) {
    if (!next.get("cell")) return null;
    const episode = { results: next.get("results"), cell: next.get("cell"), task: whole(next.get("task"), 0, 1e7, 0) };
    const { state, goal, bounded, variant, goal_steps } = (await live.ask("episode", episode)).header;
    return { episode, state, goal, bounded, variant, goal_steps };
  }

  // Who moves the start or the goal is on a task of their own, under the rules of a task by hand.
  function leaveRecorded() {
    Object.assign(s, { recorded: null, task: 0, variant: "clean", goalBlocks: null });
    sayLead();
  }

  function enterRecorded(recorded) {
    const { episode, variant, goal_steps, state, goal } = recorded;
    Object.assign(s, { recorded, task: episode.task, variant, goalBlocks: Math.ceil(goal_steps / s.scene.frameskip), start: state, goal });
  }

  function sayLead() {
    const which = s.recorded ? `Task ${s.task} of ${s.recorded.episode.cell}. ` : "";
    lead.textContent = `${which}The agent is given one picture of its goal. It looks, plans in its latent space, acts, and looks again. ${s.scene.handles.length ? "Click in a picture to move the goal or to push the world" : "Move the goal, or the world, with the sliders"}, then press Play.`;
  }

  // The old world stays until all of the new one is known; of two loads the later one counts.
  const loads = turns();
  async function load(next, model = s.model) {
    pause();
    const later = loads();
    const overtaken = () => s.closed || later();
    try {
      const { header } = await live.ask("scene", { model });
      if (overtaken()) return;
      const recorded = await recordedTask(next);
      if (overtaken()) return;
      pause();
      s.epoch += 1;
      stored = null;
      shared.model = model;
      Object.assign(s, { model, scene: header, start: header.state, goal: header.goal, step: 0, queue: [], decision: null, sheet: null });
      leaveRecorded();
      if (recorded) enterRecorded(recorded);
      else if (next.get("start") && next.get("goal")) [s.start, s.goal] = [next.get("start"), next.get("goal")].map((text) => text.split("_").map(Number));
      s.state = s.start;
      settings(next);
      dressPlanner();
      dressHistory();
      dressHold();
      sayLead();
      const exact = s.recorded !== null; // a record is what it is; what comes by hand is put right
      await Promise.all([place(goal, "goal", s.goal, exact), place(now, "state", s.start, exact)]);
      if (overtaken()) return;
      reset();
      if (header.dataset) {
        openEpisode(header.episode ?? 0, true);
        gallery(model).then((sheet) => { if (overtaken()) return; s.sheet = sheet; unfollow(); unfollow = followDecoder(s.model, dreamWord); dreamWord(); }).catch(failed);
      }
      dreamWord();
    } catch (error) {
      if (overtaken()) return;
      modelChoice.select.value = s.model;
      failed(error);
    }
  }

  const kindOf = (planner) => planner?.split(",")[0];

  // The planners that work with the model; a recorded one with settings of its own stands beside them.
  function dressPlanner() {
    const { planners } = s.scene;
    if (!planners.includes(kindOf(s.planner))) s.planner = planners[0];
    setOptions(plannerChoice.select, planners.includes(s.planner) ? planners : [s.planner, ...planners], s.planner);
    sayPlanner();
  }

  function sayPlanner() {
    plannerHint.textContent = PLANNERS[kindOf(s.planner)] ?? "";
  }

  // A model that looks back can be shown more frames than it is shown by itself, as `evaluate --history` does.
  function dressHistory() {
    const { usual, most } = s.scene.history;
    s.history = Math.min(Math.max(s.history, usual), most);
    const words = (n) => (n === 1 ? "the present alone" : `the last ${n}`);
    setOptions(historyChoice.select, Array.from({ length: most - usual + 1 }, (_, i) => [String(usual + i), words(usual + i)]), String(s.history));
    historyChoice.hidden = most === usual;
  }

  function dreamWord() {
    if (!s.scene.dataset) dreamNote.textContent = "No dataset of this world was given, so what the model imagines cannot be shown as pictures.";
    else if (decoderReady(s.model)) dreamNote.textContent = "Imagined pictures come from a small decoder, fitted to stored frames after training.";
    else dreamNote.textContent = `Imagined pictures are the stored frames whose latents are nearest${s.sheet ? ` among ${s.sheet.frames}` : ""}; ${decoderWords(s.model)}.`;
  }

  let stored = null;
  async function openEpisode(number_, keep = false) {
    const scene = s.scene;
    try {
      const { header } = await live.ask("recorded", { dataset: scene.dataset, episode: number_ });
      if (scene !== s.scene) return;
      stored = header;
      episode.max = String(s.scene.lengths.length - 1);
      episode.value = String(number_);
      const last = header.states.length - 1;
      for (const control of [from, to]) control.input.max = String(last);
      from.set(0);
      to.set(Math.min(25, last));
      if (!keep) fromEpisode();
    } catch (error) { failed(error); }
  }

  const fromEpisode = newest(async () => {
    if (!stored) return;
    leaveRecorded();
    s.start = stored.states[Number(from.input.value)];
    s.goal = stored.states[Number(to.input.value)];
    await Promise.all([place(goal, "goal", s.goal, true), place(now, "state", s.start, true)]);
    reset();
  });

  // A state, as the world allows it, and its picture.
  async function place(picture, key, state, exact = false) {
    const scene = s.scene;
    const { header, blobs } = await live.ask("draw", { model: s.model, state, variant: s.variant });
    if (scene !== s.scene) return; // of another world by now
    s[key] = exact ? state : header.state;
    if (key === "state" && s.step === 0) s.start = s[key];
    s.pictures[key] = await bitmap(blobs[0]);
    if (picture === goal) goal.show(s.pictures.goal);
    showNow();
    marks();
  }

  function showNow() {
    if (s.pictures.state) now.show(s.pictures.state, { through: through.checked ? s.pictures.goal : null });
  }

  function dressHold() {
    const { handles, sliders } = s.scene;
    for (const [picture, key] of [[now, "state"], [goal, "goal"]]) {
      picture.frame.classList.toggle("grab", handles.length > 0);
      if (handles.length) {
        picture.canvas.setAttribute("tabindex", "0");
        picture.title = `${key === "goal" ? "Goal" : "Now"}: click or use arrow keys to move the ${handles.map((x) => x.name).join(" or ")}`;
        picture.canvas.setAttribute("aria-label", picture.title);
      } else { picture.canvas.removeAttribute("tabindex"); }
    }
    const parts = [];
    following = [];
    const of = (name, key, index, range) => {
      const one = slider(`${name}, ${key === "goal" ? "goal" : "now"}`, { ...range, value: s[key === "state" ? "start" : key][index] }, (value) => change(key, (state) => { state[index] = value; }));
      following.push(() => { if (document.activeElement !== one.input || s.playing) one.set(s[key][index]); });
      parts.push(one);
    };
    if (handles.length > 1) parts.push(choice("Arrow keys move", handles.map((x, i) => [String(i), x.name]), "0", (value) => { s.handle = Number(value); }));
    for (const key of ["goal", "state"]) {
      for (const entry of handles.filter((x) => x.angle !== null)) of(`${entry.name} angle`, key, entry.angle, { low: 0, high: 6.28, step: 0.02, unit: " rad", show: (x) => x.toFixed(2) });
      for (const entry of sliders) of(entry.name, key, entry.index, { low: entry.low, high: entry.high, step: (entry.high - entry.low) / 200, unit: ` ${entry.unit}`, show: (x) => x.toFixed(3) });
    }
    fill(hold, handles.length ? h("p", { class: "soft small" }, `Click or drag in a picture to set the goal, or to push the world. Keys: arrows${handles.some((x) => x.angle !== null) ? ", [ and ] turn" : ""}.`) : h("p", { class: "soft small" }, "The world is moved with these sliders, or by a stored moment below."), parts);
  }

  // The sliders show where the world and its goal are now.
  let following = [];
  const follow = () => { for (const set of following) set(); };

  const moves = { goal: newest((state) => place(goal, "goal", state)), state: newest((state) => place(now, "state", state)) };

  // A change by hand: of the goal at any time, of the present as a push that the agent does not hear of.
  function change(key, edit) {
    const state = [...s[key]];
    edit(state);
    if (s.recorded && (key === "goal" || s.step === 0)) leaveRecorded();
    s[key] = state;
    s.epoch += 1;
    s.reached = s.ended = false;
    now.badge("");
    if (key === "state" && s.step > 0) { s.been.push(null); notice("Pushed: the agent learns of it when it looks again.", 3); }
    if (key === "goal") { s.queue = []; s.decision = null; }
    moves[key](state).catch?.(failed);
    remember();
  }

  const middle = (state, entry) => {
    const angle = entry.angle === null ? 0 : state[entry.angle];
    const [dx, dy] = entry.offset;
    return [state[entry.x] + Math.cos(angle) * dx - Math.sin(angle) * dy, state[entry.y] + Math.sin(angle) * dx + Math.cos(angle) * dy];
  };

  function grab(picture, key) {
    let held = null;
    const at = (event, entry) => {
      const box = picture.canvas.getBoundingClientRect();
      return [((event.clientX - box.left) / box.width) * entry.scale, ((event.clientY - box.top) / box.height) * entry.scale];
    };
    const move = (event) => {
      const [x, y] = at(event, held);
      const [mx, my] = middle(s[key], held);
      change(key, (state) => { state[held.x] += x - mx; state[held.y] += y - my; });
    };
    picture.frame.addEventListener("pointerdown", (event) => {
      const { handles } = s.scene;
      if (!handles.length) return;
      const far = (entry) => { const [x, y] = at(event, entry); const [mx, my] = middle(s[key], entry); return Math.hypot(x - mx, y - my) / entry.radius; };
      held = [...handles].sort((a, b) => far(a) - far(b))[0];
      if (far(held) > 1 && handles.length > 1) held = handles[s.handle];
      picture.frame.setPointerCapture(event.pointerId);
      move(event);
    });
    picture.frame.addEventListener("pointermove", (event) => { if (held) move(event); });
    for (const end of ["pointerup", "pointercancel"]) picture.frame.addEventListener(end, () => { held = null; });
    picture.canvas.addEventListener("keydown", (event) => {
      const entry = s.scene.handles[s.handle];
      const by = entry && entry.scale * (event.shiftKey ? 0.08 : 0.02);
      const way = ARROWS[event.key];
      if (entry && way) change(key, (state) => { state[entry.x] += way[0] * by; state[entry.y] += way[1] * by; });
      else if (entry && entry.angle !== null && "[]".includes(event.key)) change(key, (state) => { state[entry.angle] = (state[entry.angle] + (event.key === "]" ? 0.1 : -0.1) + 6.2832) % 6.2832; });
      else return;
      event.preventDefault();
      event.stopPropagation();
    });
  }
  grab(now, "state");
  grab(goal, "goal");

  // --- acting

  function reset() {
    pause();
    s.epoch += 1;
    Object.assign(s, { state: s.start, looked: [], taken: [], queue: [], step: 0, plans: 0, sinceLook: 0, reached: false, ended: false, distances: [], seen: [], expected: [], times: [], been: [], decision: null });
    follow();
    now.badge("");
    dream.clear();
    dream.say("");
    dream.hint("Press Play: here is what the model expects of its plan.");
    fill(thumbs);
    fill(fans);
    story.textContent = "";
    for (const card of [planCard, chartCard]) if (card) card.hidden = true;
    place(now, "state", s.start, true).catch(failed);
    charts();
    remember();
  }

  async function decide() {
    const epoch = s.epoch;
    const planner = s.planner;
    const { header, blobs } = await live.ask("decide", { model: s.model, state: s.state, goal: s.goal, planner, horizon_blocks: s.horizon, seed: s.seed, number: s.plans, task: s.task, bounded: bounded.checked, look_every: looks(), executed_blocks: Math.floor(s.step / s.scene.frameskip), rest: wholeBlocks(s.queue), history_frames: s.history, variant: s.variant, goal_blocks: s.goalBlocks, ...past() });
    if (epoch !== s.epoch) return; // pushed meanwhile: it looks once more
    const skip = s.scene.frameskip;
    s.plans += 1;
    s.queue = header.actions;
    s.begin = s.step;
    s.sinceLook = 0;
    s.decision = { ...header, begin: s.step, dreams: await Promise.all(blobs.slice(1).map(bitmap)), path: new Float32Array(blobs[0]) };
    s.seen.push([s.step, header.cost_now]);
    s.expected.push([[s.step, header.cost_now], ...header.expected_costs.map((value, block) => [s.step + (block + 1) * skip, value])]);
    if (!s.distances.length) s.distances.push([s.step, header.distance]);
    s.times.push({ planner, look: header.look_seconds, plan: header.plan_seconds });
    shared.act = { model: s.model, path: s.decision.path, state: s.state, goal: s.goal };
    showPlan();
    charts();
  }

  // States at the beginning of the last whole blocks, and the actions since: what an agent that looks back has seen.
  function past() {
    const skip = s.scene.frameskip;
    const states = [];
    while (states.length < s.scene.history.most - 1) {
      const seen = s.looked[s.step - (states.length + 1) * skip];
      if (!seen) break;
      states.unshift(seen);
    }
    return { past: states, past_actions: s.taken.slice(s.step - states.length * skip, s.step) };
  }

  async function advance(count) {
    const epoch = s.epoch;
    if ((s.step - s.begin) % s.scene.frameskip === 0) s.looked[s.step] = s.state;
    const actions = s.queue.splice(0, count);
    const plan = s.decision;
    const { header, blobs } = await live.ask("advance", { model: s.model, state: s.state, goal: s.goal, actions, variant: s.variant });
    for (const [place_, state] of header.states.entries()) {
      const image = await bitmap(blobs[place_]);
      if (epoch !== s.epoch) {
        if (plan === s.decision) s.queue = [...actions.slice(place_), ...s.queue]; // pushed: the rest is still to be done
        return;
      }
      s.taken[s.step] = actions[place_];
      s.step += 1;
      s.sinceLook += 1;
      s.state = state;
      follow();
      s.distances.push([s.step, header.distances[place_]]);
      rememberWay();
      s.pictures.state = image;
      showNow();
      now.say(`step ${s.step}, distance ${number(header.distances[place_], 2)}`);
      showDream();
      marks();
      charts();
      if (!calm()) await sleep(SPEEDS[s.speed]);
    }
    if (header.reached) {
      s.reached = true;
      s.queue = [];
      now.badge("reached", "goal");
      story.textContent = `Reached in ${s.step} steps with ${s.plans} ${s.plans === 1 ? "plan" : "plans"}.`;
      pause();
    }
    if (header.ended) {
      s.ended = true;
      s.queue = [];
      now.badge("ended", "bad");
      story.textContent = `The world ended the episode after ${s.step} steps, short of the goal.`;
      pause();
    }
  }

  // A look after every block of a plan of one block is a look after the whole plan.
  const looks = () => (s.look === "plan" || Number(s.look) >= s.horizon ? null : Number(s.look));

  // What is left of a plan helps the next one to begin, if it is whole blocks.
  const wholeBlocks = (actions) => (looks() && actions.length % s.scene.frameskip === 0 ? actions : []);

  async function turn(count) {
    const every = looks() === null ? Infinity : looks() * s.scene.frameskip;
    if (!s.queue.length || s.sinceLook >= every) await decide();
    const steps = Math.min(count, s.queue.length, every - s.sinceLook);
    if (steps > 0) await advance(steps);
  }

  async function run() {
    if (s.running) return;
    s.running = true;
    try {
      while (s.playing && !s.closed) {
        await turn(s.scene.frameskip);
        if (!s.reached && s.step >= s.scene.budget) { story.textContent = `Not reached in ${s.step} steps.`; pause(); }
      }
    } catch (error) { failed(error); pause(); } finally { s.running = false; }
  }

  function toggle() {
    if (s.playing) { pause(); return; }
    if (s.reached || s.ended) reset();
    s.playing = true;
    play.textContent = "Pause";
    story.textContent = "";
    run();
  }

  function pause() { s.playing = false; play.textContent = "Play"; }

  async function oneStep() {
    if (s.running) return;
    if (s.ended) reset();
    s.running = true;
    try { await turn(1); } catch (error) { failed(error); pause(); } finally { s.running = false; }
    if (s.playing) run(); // Play was pressed meanwhile
  }

  // --- what is seen of it

  function rememberWay() {
    const entry = s.scene.handles[0];
    if (entry) s.been.push([s.state[entry.x] / entry.scale, s.state[entry.y] / entry.scale]);
  }

  function marks() {
    const shapes = [];
    const d = s.decision;
    const [first] = s.scene.handles;
    if (d?.trail && s.step < d.begin + d.trail.length) {
      d.trails.forEach((some, place_) => some.forEach((points) => shapes.push(trail(points, d.drawn[place_] === LAST ? "many" : "many early"))));
      shapes.push(trail(d.trail, "plan"), trail(d.trail, "plan-core"));
    }
    let stretch = [];
    for (const point of [...s.been, null]) {
      if (point) stretch.push(point);
      else { if (stretch.length > 1) shapes.push(trail(stretch, "gone")); stretch = []; }
    }
    if (first && s.goal) { const [x, y] = middle(s.goal, s.scene.handles.at(-1)); shapes.push(ring(x / first.scale, y / first.scale, 0.035, "mark-goal")); }
    now.draw(...shapes);
    fill(key, d?.trail ? [
      h("span", { class: "s-dream" }, "plan"),
      d.drawn.map((name) => h("span", { class: name === LAST ? "s-dream faint" : "s-soft" }, name)),
      s.been.length > 1 && h("span", { class: "s-truth" }, "the way so far"),
    ] : []);
  }

  function showPlan() {
    const d = s.decision;
    for (const card of [planCard, chartCard]) card.hidden = false;
    const decoded = d.dreams.length > 0;
    const pictures = d.nearest.map((place_, block) => {
      const one = new Picture(`+${(block + 1) * s.scene.frameskip}`);
      if (decoded) one.show(d.dreams[block]); else if (s.sheet) one.tile(s.sheet, place_);
      return one.element;
    });
    fill(thumbs, pictures);
    showDream();
    const last = d.elite_costs.length - 1;
    search.set([{ name: "cost of the best", kind: "dream", points: d.elite_costs.map((value, i) => [i + 1, value]) }], { floor: 0 });
    fill(numbers,
      figure("time of the last decision", milliseconds(d.look_seconds + d.plan_seconds)),
      figure("of it, looking", milliseconds(d.look_seconds)),
      figure("cost before search", number(d.elite_costs[0])), figure("cost promised", number(d.elite_costs[last])));
    // Actions without a place in the picture are drawn as what they are: numbers over time.
    fill(fans, d.trail ? [] : Array.from({ length: s.scene.action_dim }, (_, part) => {
      const chart = new LineChart({ title: `Planned: ${s.scene.action_names[part]}`, x: "step", height: 110 });
      const lines = d.population.flatMap((some, place_) => some.slice(0, 10).map((plan, which) => ({ name: d.drawn[place_], kind: d.drawn[place_] === LAST ? "dream" : "soft", thin: true, quiet: which > 0, points: plan.map((a, i) => [s.step + i, a[part]]) })));
      chart.set([...lines, { name: "plan", kind: "dream", points: d.actions.map((a, i) => [s.step + i, a[part]]) }]);
      return chart.element;
    }));
    marks();
  }

  function showDream() {
    const d = s.decision;
    if (!d?.nearest.length) return;
    const block = Math.max(0, Math.min(d.nearest.length - 1, Math.ceil((s.step - d.begin) / s.scene.frameskip) - 1));
    dream.hint("");
    if (d.dreams.length) dream.show(d.dreams[block]); else if (s.sheet) dream.tile(s.sheet, d.nearest[block]);
    dream.say(`for step ${d.begin + (block + 1) * s.scene.frameskip}, plan ${s.plans}`);
  }

  function charts() {
    distance.set([{ name: "distance", kind: "truth", points: s.distances }], { limit: 1, limitName: "reached", floor: 0, low: 0 });
    cost.set([
      ...s.expected.map((points, place_) => ({ name: "expected", quiet: place_ > 0, kind: "dream", dash: true, points })),
      { name: "seen at a look", kind: "truth", dots: true, points: s.seen },
    ], { floor: 0, low: 0 });
    times.set(s.times.slice(-10).map((one, i) => ({ name: `${Math.max(0, s.times.length - 10) + i + 1}`, value: one.plan + one.look, note: milliseconds(one.plan + one.look), kind: "truth" })));
  }

  function remember() {
    writeAddress("act", { model: s.model, planner: s.planner, horizon: s.horizon, look: s.look, history: s.history === s.scene?.history.usual ? null : s.history, seed: s.seed === 1 ? null : s.seed, bounded: bounded.checked === (s.recorded?.bounded ?? true) ? null : Number(bounded.checked), ...(s.recorded ? s.recorded.episode : { start: s.start?.join("_"), goal: s.goal?.join("_") }) });
  }

  // The start, the goal and the settings of now; pushes and changes on the way are no part of it.
  async function copyCommand() {
    try {
      const { header } = await live.ask("command", { model: s.model, start: s.start, goal: s.goal, planner: s.planner, horizon_blocks: s.horizon, look_every: looks(), history_frames: s.history, seed: s.seed, bounded: bounded.checked, recorded: s.recorded?.episode ?? null });
      copy(header.command, "Command");
    } catch (error) { failed(error); }
  }

  const element = h("div", { class: "view" },
    h("div", { class: "panel" },
      h("section", { class: "card stack", "aria-label": "Who acts" }, modelChoice, plannerChoice, plannerHint, horizon, lookChoice, historyChoice, speedChoice, h("label", { class: "check" }, bounded, "actions inside their bounds"), h("label", { class: "check" }, through, "goal shines through")),
      h("section", { class: "card stack", "aria-label": "Start and goal" }, h("h2", {}, "Start and goal"), hold, h("details", {}, h("summary", {}, "From a stored episode"), h("div", { class: "stack" }, field("Episode", episode), from, to)))),
    h("div", { class: "stack" },
      h("div", {}, h("h1", {}, "Watch a model act"), lead),
      h("section", { class: "card stack", "aria-label": "The episode" },
        h("div", { class: "pictures" }, now.element, dream.element, goal.element), key,
        h("div", { class: "row" }, play, single, again, h("button", { type: "button", class: "quiet", on: { click: () => copy(location.href, "Address") } }, "Copy address"), h("button", { type: "button", class: "quiet", on: { click: copyCommand } }, "Copy command"), story)),
      (planCard = h("section", { class: "card stack", "aria-label": "The plan", hidden: true }, h("div", { class: "spread" }, h("h2", {}, "What the plan expects"), dreamNote), thumbs, numbers, fans)),
      (chartCard = h("section", { class: "card columns", "aria-label": "Charts", hidden: true }, distance.element, cost.element, times.element, search.element))));
  return {
    element,
    ready: load(query),
    close() { s.closed = true; pause(); unfollow(); },
    go(next) { const wanted = next.get("model"); if (wanted) { modelChoice.select.value = wanted; load(next, wanted); } },
    key(event) {
      if (event.key === " ") toggle();
      else if (event.key === "." || event.key === "ArrowRight") oneStep();
      else if (event.key === "r") reset();
      else return false;
      return true;
    },
  };
}
