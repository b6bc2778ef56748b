// Browse: every recorded episode, found by what it is, seen again from its actions.

import { choice, copy, fill, h, number, refill, setOptions } from "./dom.js";
import { LineChart } from "./charts.js";
import { Picture, bitmap } from "./picture.js";
import { Player } from "./player.js";
import { catalogue, decoderReady, decoderWords, failed, followDecoder, live, writeAddress } from "./world.js";

const ALL = "all";
const MOST_ROWS = 150;
const SORTS = { task: "task", r: "r, largest first", steps: "steps", final: "final distance, largest first" };
const rank = (method) => ["salt", "lewm"].findIndex((name) => method.startsWith(name)) + 3 * !/^(salt|lewm)/.test(method);
const read = new Map();

export async function browse(query) {
  const { results: folders, models } = await catalogue();
  if (!folders.length) return { element: h("p", { class: "empty" }, "No results folder was given. Evaluate a model and give its results: saltwm explore results") };
  const state = { results: folders[0].name, environment: ALL, method: ALL, protocol: ALL, kind: ALL, outcome: ALL, sort: "task", cell: null, task: null, beside: "", step: 0 };
  if (!query.size) state.environment = models.find((entry) => !entry.problem)?.environment ?? ALL;
  takeQuery(state, query);
  let cells = [];
  let rows = [];

  const count = h("p", { class: "soft small", role: "status" });
  const filters = {};
  const filter = (key, label) => {
    filters[key] = choice(label, [ALL], ALL, (value) => { state[key] = value; list(); });
    return filters[key];
  };
  const folder = choice("Results", folders.map((entry) => entry.name), state.results, (value) => { state.results = value; state.cell = null; load(); });
  const sort = choice("Sort by", Object.entries(SORTS), state.sort, (value) => { state.sort = value; list(); });
  const beside = choice("Beside it, on the same task", [["", "nothing"]], "", (value) => { state.beside = value; show(); });
  const body = h("tbody");
  const table = h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Table of episodes" }, h("table", {}, h("thead", {}, h("tr", {}, ["environment", "method", "protocol"].map((t) => h("th", { scope: "col" }, t)), h("th", { scope: "col", class: "n" }, "task"), h("th", { scope: "col" }, "kind"), h("th", { scope: "col" }, "outcome"), ["steps", "final", "r"].map((t) => h("th", { scope: "col", class: "n" }, t)))), body));
  const more = h("p", { class: "soft small" });
  const panes = [new Pane(), new Pane()];
  const player = new Player((step) => { state.step = step; for (const pane of panes) pane.go(step); remember(); });
  const title = h("h2", {}, "Choose an episode");
  const verdict = h("p", { class: "soft small" });
  const dreams = h("p", { class: "soft small", hidden: true });
  let closed = false;
  let followed;
  let unfollow = () => {};
  const actions = h("div", { class: "row" });
  const episode = h("section", { class: "card stack", "aria-label": "The chosen episode", hidden: true },
    h("div", { class: "spread" }, title, actions), verdict, panes[0].element, panes[1].element, player.element, dreams);

  async function load() {
    if (!read.has(state.results)) read.set(state.results, live.ask("episodes", { results: state.results }).then(({ header }) => header));
    try {
      const found = await read.get(state.results);
      cells = [...found.cells].sort((a, b) => rank(a.method) - rank(b.method));
      for (const [key, of] of [["environment", (c) => c.environment], ["method", (c) => c.method], ["protocol", (c) => c.protocol]]) {
        setOptions(filters[key].select, [ALL, ...new Set(cells.map(of))], state[key]);
        if (filters[key].select.value !== state[key]) { state[key] = ALL; filters[key].select.value = ALL; }
      }
      setOptions(filters.kind.select, [ALL, ...new Set(cells.flatMap((c) => c.episodes.map((row) => row[8])).filter(Boolean))], state.kind);
      setOptions(filters.outcome.select, [ALL, "reached", "failed"], state.outcome);
      list();
      if (found.problems.length) failed(new Error(`${found.problems.length} evaluations cannot be read: ${found.problems[0]}`));
      if (!state.cell && rows.length) choose(rows[0].cell, rows[0].row[0]);
      else if (state.cell) await show();
    } catch (error) { read.delete(state.results); failed(error); }
  }

  function list() {
    const wanted = (key, value) => state[key] === ALL || state[key] === value;
    rows = cells.filter((c) => wanted("environment", c.environment) && wanted("method", c.method) && wanted("protocol", c.protocol))
      .flatMap((cell) => cell.episodes.filter((row) => wanted("kind", row[8]) && (state.outcome === ALL || row[1] === (state.outcome === "reached"))).map((row) => ({ cell, row })));
    const orders = { task: null, r: (a) => -(a.row[7] ?? -1), steps: (a) => a.row[2], final: (a) => -a.row[5] };
    if (orders[state.sort]) rows.sort((a, b) => orders[state.sort](a) - orders[state.sort](b));
    const reached = rows.filter(({ row }) => row[1]).length;
    count.textContent = rows.length ? `${rows.length} episodes, ${reached} reached (${(100 * reached / rows.length).toFixed(1)} %)` : "no episode is like that";
    draw();
    remember();
  }

  function draw() {
    const at = Math.max(0, rows.findIndex(({ cell, row }) => cell.name === state.cell && row[0] === state.task));
    const first = Math.max(0, Math.min(at - 20, rows.length - MOST_ROWS));
    const chosenRow = () => body.querySelector("[aria-selected=true]");
    refill(body, () => chosenRow() ?? table, rows.slice(first, first + MOST_ROWS).map(({ cell, row }) => {
      const chosen = cell.name === state.cell && row[0] === state.task;
      const open = () => choose(cell, row[0]);
      return h("tr", { tabindex: 0, "aria-selected": String(chosen), on: { click: open, keydown: (event) => { if (event.key === "Enter") open(); } } },
        h("td", {}, cell.environment), h("td", {}, cell.method), h("td", {}, `${cell.protocol}${cell.horizon === 5 ? "" : `, H ${cell.horizon}`}`),
        h("td", { class: "n" }, row[0]), h("td", {}, row[8]),
        h("td", {}, h("span", { class: `pill ${row[1] ? "goal" : "bad"}` }, row[1] ? "reached" : row[3] === "budget" ? "not reached" : row[3])),
        h("td", { class: "n" }, row[2]), h("td", { class: "n" }, number(row[5])), h("td", { class: "n" }, number(row[7])));
    }));
    // The chosen row in the middle of the table; the page itself stays where it is.
    const chosen = chosenRow();
    if (chosen) table.scrollTop = chosen.offsetTop - (table.clientHeight - chosen.offsetHeight) / 2;
    more.textContent = rows.length > MOST_ROWS ? `rows ${first + 1} to ${Math.min(rows.length, first + MOST_ROWS)} of ${rows.length}; narrow the filters to see others` : "";
  }

  function choose(cell, task) {
    state.cell = cell.name;
    state.task = task;
    state.step = 0;
    player.wait();
    draw();
    show();
  }

  function move(by, failuresOnly = false) {
    let at = rows.findIndex(({ cell, row }) => cell.name === state.cell && row[0] === state.task);
    do at += by; while (failuresOnly && rows[at] && rows[at].row[1]);
    if (rows[at]) choose(rows[at].cell, rows[at].row[0]);
  }

  async function show() {
    const cell = cells.find((entry) => entry.name === state.cell);
    if (!cell) { failed(new Error(`${state.results}: no evaluation is called ${state.cell}`)); return; }
    const others = cells.filter((entry) => entry.tasks === cell.tasks && entry.name !== cell.name);
    setOptions(beside.select, [["", "nothing"], ...others.map((entry) => [entry.name, entry.method + (entry.horizon === cell.horizon ? "" : `, H ${entry.horizon}`)])], state.beside);
    if (!others.some((entry) => entry.name === state.beside)) { state.beside = ""; beside.select.value = ""; }
    const other = others.find((entry) => entry.name === state.beside);
    const row = cell.episodes.find((entry) => entry[0] === state.task);
    if (!row) return;
    episode.hidden = false;
    title.textContent = `${cell.environment}, ${cell.protocol}, task ${state.task}${row[8] ? `: ${row[8]}` : ""}`;
    const flips = other ? flipped(cell, other) : null;
    verdict.textContent = flips ? `On these ${flips.n} tasks ${cell.method} alone reached ${flips.mine}, ${other.method} alone ${flips.theirs}; both ${flips.both}, neither ${flips.neither}. Exact McNemar p ${number(flips.p, 2)}.` : "";
    verdict.hidden = !flips;
    fill(actions,
      h("button", { type: "button", class: "quiet", on: { click: () => copy(location.href, "Address") } }, "Copy address"),
      h("button", { type: "button", class: "quiet", on: { click: () => copyCommand() } }, "Copy command"),
      cell.model && h("a", { class: "small", href: `#/act?${acting(cell)}` }, "Act on this task"));
    remember();
    episode.classList.add("busy");
    try {
      const wanted = [cell, other];
      const lengths = await Promise.all(panes.map((pane, place) => pane.load(state.results, wanted[place], state.task)));
      player.set(Math.max(...lengths), state.step);
      sayDreams();
    } catch (error) { failed(error); player.set(player.last, player.at); } finally { episode.classList.remove("busy"); }
  }

  // Where imagined pictures come from; once a decoder is fitted it takes over.
  function sayDreams() {
    const shown = panes.map((pane) => pane.header).filter((header) => header?.imagined.length);
    dreams.hidden = !shown.length;
    const waiting = shown.find((header) => !header.decoded);
    dreams.textContent = waiting ? `Imagined: the stored frame whose latent is nearest to what the plan in force expected; ${decoderWords(waiting.model)}.` : "Imagined: a small decoder, fitted to stored frames after training, draws what the plan in force expected.";
    if (waiting?.model !== followed) follow(waiting?.model);
  }

  function follow(model) {
    unfollow();
    followed = closed ? undefined : model;
    unfollow = followed ? followDecoder(model, () => { if (decoderReady(model)) { follow(); show(); } else sayDreams(); }) : () => {};
  }

  // The same task with the planner, horizon, looks and seed of the evaluation, under its protocol's physics and bounds,
  // which Act finds with the task: the plans are the recorded ones.
  const acting = (cell) => new URLSearchParams({
    model: cell.model, results: state.results, cell: cell.name, task: state.task, planner: cell.planner, horizon: cell.horizon, look: cell.look_every ?? "plan", history: cell.history, seed: cell.seed,
  });

  function copyCommand() {
    const command = panes[0].header?.command;
    if (command) copy(command, "Command");
    else failed(new Error("This evaluation holds no job that can be spelled as a command."));
  }

  function remember() {
    const kept = Object.fromEntries(Object.entries(state).filter(([, value]) => value !== ALL && value !== null && value !== ""));
    if (kept.sort === "task") delete kept.sort;
    if (!state.cell) { delete kept.step; delete kept.task; }
    writeAddress("browse", kept);
  }

  const element = h("div", { class: "view" },
    h("div", { class: "panel" },
      h("section", { class: "card stack", "aria-label": "Filters" }, folder, filter("environment", "Environment"), filter("method", "Method"), filter("protocol", "Protocol"), filter("kind", "Kind of task"), filter("outcome", "Outcome"), sort, beside),
      h("section", { class: "card row", "aria-label": "Jump" },
        h("button", { type: "button", on: { click: () => move(-1) } }, "Previous"), h("button", { type: "button", on: { click: () => move(1) } }, "Next"),
        h("button", { type: "button", on: { click: () => move(1, true) } }, "Next failure"))),
    h("div", { class: "stack" },
      h("div", {}, h("h1", {}, "Recorded episodes"), h("p", { class: "lead" }, "Each is repeated from its recorded actions. r compares the cost seen at the second look with what the first plan promised: far above 1, the model was mistaken.")),
      episode,
      h("section", { class: "card stack", "aria-label": "Episodes" }, h("div", { class: "spread" }, h("h2", {}, "Episodes"), count), table, more)));
  return {
    element,
    ready: load(),
    close() { closed = true; player.stop(); follow(); },
    go: (next) => { takeQuery(state, next); load(); },
    key(event) {
      if (event.key === "n") move(1);
      else if (event.key === "p") move(-1);
      else if (event.key === "x") move(1, true);
      else return player.key(event);
      return true;
    },
  };
}

function takeQuery(state, query) {
  for (const key of Object.keys(state)) {
    if (!query.has(key)) continue;
    state[key] = key === "task" || key === "step" ? Math.max(0, Number.parseInt(query.get(key), 10) || 0) : query.get(key);
  }
}

// The 2 x 2 of outcomes of two cells on the same tasks, with the exact test on the flips.
function flipped(a, b) {
  const theirs = new Map(b.episodes.map((row) => [row[0], row[1]]));
  const found = { n: 0, mine: 0, theirs: 0, both: 0, neither: 0 };
  for (const row of a.episodes) {
    if (!theirs.has(row[0])) continue;
    found.n += 1;
    found[row[1] ? (theirs.get(row[0]) ? "both" : "mine") : theirs.get(row[0]) ? "theirs" : "neither"] += 1;
  }
  const n = found.mine + found.theirs;
  let tail = 0;
  let term = 0.5 ** n;
  for (let k = 0; k <= Math.min(found.mine, found.theirs); k += 1) { tail += term; term *= (n - k) / (k + 1); }
  return { ...found, p: Math.min(1, 2 * tail) };
}

// One method's episode: now, goal and imagined on the player's time.
class Pane {
  constructor() {
    this.now = new Picture("Now", { kind: "truth" });
    this.goal = new Picture("Goal", { kind: "goal" });
    this.imagined = new Picture("Imagined", { kind: "dream" });
    this.distance = new LineChart({ title: "True distance, in success radii", x: "step", height: 116 });
    this.cost = new LineChart({ title: "Cost", x: "step", height: 116 });
    this.heading = h("h3");
    this.rule = h("p", { class: "soft small" });
    this.told = h("p", { class: "soft small", hidden: true });
    this.pictures = h("div", { class: "pictures" }, this.now.element, this.imagined.element, this.goal.element);
    this.element = h("div", { class: "stack close", hidden: true }, h("div", { class: "spread" }, this.heading, this.rule), this.told,
      h("div", { class: "episode" }, this.pictures, h("div", { class: "stack close" }, this.distance.element, this.cost.element)));
  }

  async load(results, cell, task) {
    this.element.hidden = !cell;
    this.header = null;
    if (!cell) return 0;
    const row = cell.episodes.find((entry) => entry[0] === task);
    this.heading.textContent = `${cell.method}: ${row?.[1] ? `reached in ${row[2]} steps` : `not reached, ${number(row?.[5])} success radii away at the end`}`;
    const { header, blobs } = await live.ask("episode", { results, cell: cell.name, task });
    const pictures = await Promise.all(blobs.map(bitmap));
    const count = header.steps.length;
    this.told.hidden = count > 0;
    this.pictures.hidden = !count;
    this.distance.element.hidden = !count;
    this.cost.element.hidden = false;
    if (!count) return this.tell(header);
    Object.assign(this, { header, frames: pictures.slice(0, count), dreams: pictures.slice(count + 1) });
    this.goal.show(pictures[count]);
    this.rule.textContent = `Reached means: within ${header.success_radius}.`;
    this.imagined.element.hidden = !header.imagined.length;
    const high = header.distances.length - 1;
    const looks = { name: "looks", kind: "soft", dots: true, points: header.plans.map((plan) => [plan.step, 0]) };
    this.distance.set([{ name: "distance", kind: "truth", points: header.distances.map((d, step) => [step, d]) }, looks], { limit: 1, limitName: "reached", floor: 0, low: 0, high });
    this.cost.element.hidden = !header.imagined.length;
    this.cost.set([
      { name: "expected", kind: "dream", dash: true, points: header.imagined.map((e) => [e.step, e.expected_cost]) },
      { name: "seen", kind: "truth", points: header.imagined.map((e) => [e.step, e.seen_cost]) },
    ], { floor: 0, low: 0, high });
    return high;
  }

  // Without a simulator the record's own figures are all there is.
  tell(header) {
    const [start, closest, final] = header.told;
    this.header = null;
    this.rule.textContent = "";
    this.told.textContent = `There is no simulator of this world here, so the episode cannot be drawn. Recorded: ${number(start)} success radii away at the start, ${number(closest)} at the closest, ${number(final)} at the end.`;
    this.cost.set([{ name: "promised by each plan", kind: "dream", dots: true, points: header.plans.filter((plan) => plan.costs.length).map((plan) => [plan.step, plan.costs.at(-1)]) }], { floor: 0, low: 0 });
    return 0;
  }

  go(step) {
    if (!this.header) return;
    const { steps, distances, imagined, plans } = this.header;
    let place = steps.findIndex((s) => s >= step);
    if (place < 0) place = steps.length - 1;
    this.now.show(this.frames[place]);
    const here = Math.min(step, distances.length - 1);
    this.now.say(`step ${here}, distance ${number(distances[here], 2)}`);
    this.now.badge(distances[here] < 1 ? "reached" : "", "goal");
    this.distance.cursor(step);
    this.cost.cursor(step);
    // What the plan in force expected for the end of the block that is being carried out.
    const next = imagined.findIndex((entry) => entry.step >= step);
    const shown = next < 0 ? imagined.length - 1 : next;
    if (shown >= 0) {
      this.imagined.show(this.dreams[shown]);
      const made = plans.filter((plan) => plan.step < imagined[shown].step).length;
      this.imagined.say(`for step ${imagined[shown].step}`, `what plan ${made} expected at step ${imagined[shown].step}; error ${number(imagined[shown].error)} spreads`);
    }
  }
}
