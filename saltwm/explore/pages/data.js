// Data: episodes of any dataset, with or without a simulator.

import { choice, commandLine, copy, fill, h, number, refill, setOptions } from "./dom.js";
import { LineChart, histogram } from "./charts.js";
import { Picture, bitmap } from "./picture.js";
import { Player } from "./player.js";
import { catalogue, failed, live, writeAddress } from "./world.js";

const COLUMNS = ["episode", "steps", "mean |a|", "mean change of a"];

export async function data(query) {
  const { datasets } = await catalogue();
  const good = datasets.filter((entry) => !entry.problem);
  if (!good.length) return { element: h("p", { class: "empty" }, datasets.length ? datasets[0].problem : "No dataset was given. Collect one, or give one: saltwm explore DATASET") };
  const state = { dataset: good[0].name, episode: 0, step: 0, sort: 0, down: false, field: 0, flags: new Set() };
  takeQuery(query);
  let about = null;
  let found = null;
  let frames = [];

  function takeQuery(next) {
    if (good.some((entry) => entry.name === next.get("dataset"))) state.dataset = next.get("dataset");
    state.episode = Math.max(0, Number.parseInt(next.get("episode") ?? "0", 10) || 0);
    state.step = Math.max(0, Number.parseInt(next.get("step") ?? "0", 10) || 0);
    if (next.get("flags")) state.flags = new Set(next.get("flags").split("-").map(Number).filter(Number.isInteger));
  }

  const pick = choice("Dataset", good.map((entry) => [entry.name, `${entry.name} (${entry.episodes})`]), state.dataset, (value) => { state.dataset = value; state.episode = 0; state.flags.clear(); load(); });
  const fields = choice("State shown", [["0", "state"]], "0", (value) => { state.field = Number(value); chart(); });
  const facts = h("dl", { class: "facts" });
  const spreads = h("div", { class: "columns" });
  const body = h("tbody");
  const head = h("tr");
  const picture = new Picture("Stored frame", { kind: "truth" });
  const actions = new LineChart({ title: "Actions", x: "step", width: 760, height: 170, onPick: (x) => player.go(Math.round(x)) });
  const states = new LineChart({ title: "State", x: "step", width: 760, height: 170, onPick: (x) => player.go(Math.round(x)) });
  const player = new Player(show);
  const title = h("h2");
  const flag = h("button", { type: "button", "aria-pressed": "false", on: { click: toggleFlag } }, "Flag");
  const flags = h("p", { class: "soft small" });
  const exported = h("button", { type: "button", on: { click: () => copy(command(), "Command") } }, "Copy command of the flags");

  async function load() {
    try {
      about = (await live.ask("dataset", { dataset: state.dataset })).header;
      fill(facts, Object.entries(about.facts).flatMap(([key, value]) => [h("dt", {}, key), h("dd", {}, key === "sha256" ? h("code", {}, value.slice(0, 16)) : value)]));
      fill(spreads, histogram("Steps of an episode", about.lengths, about.same_length), about.actions.map((part, place) =>
        h("div", { class: "stack" }, histogram(`${about.action_names[place]}: mean ${number(part.mean)}, std ${number(part.std)}`, part.bins), h("p", { class: "soft small" }, `like itself one step later: ${number(part.lasting[0], 2)}, five: ${number(part.lasting[4], 2)}`))));
      setOptions(fields.select, about.fields.map((entry, place) => [String(place), `${entry.name.replaceAll("_", " ")}${entry.unit ? ` (${entry.unit})` : ""}`]), "0");
      // Time goes up; whatever comes after it is worth a look.
      state.field = Math.max(0, about.fields.findIndex((entry) => entry.name !== "time"));
      fields.select.value = String(state.field);
      list();
      await open(state.episode, state.step);
    } catch (error) { failed(error); }
  }

  function list() {
    refill(head, () => head.querySelectorAll("button")[state.sort], COLUMNS.map((name, place) => h("th", { scope: "col", class: "n", "aria-sort": state.sort === place ? (state.down ? "descending" : "ascending") : "none" },
      h("button", { class: "quiet", type: "button", on: { click: () => { state.down = state.sort === place && !state.down; state.sort = place; list(); } } }, name))));
    const rows = [...about.episodes].sort((a, b) => (a[state.sort] - b[state.sort]) * (state.down ? -1 : 1)).slice(0, 300);
    refill(body, () => body.querySelector("[aria-selected=true]") ?? body.closest("[tabindex]"), rows.map((row) => h("tr", { tabindex: 0, "aria-selected": String(row[0] === state.episode), on: { click: () => open(row[0]), keydown: (event) => { if (event.key === "Enter") open(row[0]); } } },
      row.map((value, place) => h("td", { class: "n" }, place === 0 && state.flags.has(value) ? `⚑ ${value}` : number(value))))));
    const chosen = [...state.flags].sort((a, b) => a - b);
    flags.textContent = chosen.length ? `flagged: ${chosen.join(", ")}` : "Nothing is flagged. Press f on an episode that deserves a second look.";
    exported.disabled = !chosen.length;
  }

  async function open(episode, step = 0) {
    player.wait();
    try {
      const answer = await live.ask("recorded", { dataset: state.dataset, episode });
      state.episode = episode;
      found = answer.header;
      frames = await Promise.all(answer.blobs.map(bitmap));
      title.textContent = `Episode ${episode}, ${found.actions.length} steps`;
      flag.setAttribute("aria-pressed", String(state.flags.has(episode)));
      chart();
      list();
      player.set(found.actions.length, step);
    } catch (error) { failed(error); player.set(player.last, player.at); }
  }

  function chart() {
    const one = (rows, part) => rows.map((row, step) => [step, row[part]]);
    actions.set(found.actions[0].map((_, part) => ({ name: found.action_names[part], kind: part % 5, points: one(found.actions, part) })), { low: 0 });
    const { start, stop, name } = found.fields[state.field] ?? found.fields[0];
    states.set(Array.from({ length: Math.min(5, stop - start) }, (_, part) => ({ name: `${name.replaceAll("_", " ")} ${stop - start > 1 ? part + 1 : ""}`, kind: part % 5, points: one(found.states, start + part) })), { low: 0 });
    for (const c of [actions, states]) c.cursor(player.at);
  }

  function show(step) {
    if (!found) return;
    state.step = step;
    let place = found.steps.findLastIndex((s) => s <= step);
    if (place < 0) place = 0;
    picture.show(frames[place]);
    picture.say(found.steps[place] === step ? `step ${step}` : `step ${found.steps[place]}, the last stored before ${step}`);
    actions.cursor(step);
    states.cursor(step);
    writeAddress("data", { dataset: state.dataset, episode: state.episode, step, flags: [...state.flags].join("-") });
  }

  function toggleFlag() {
    if (!state.flags.delete(state.episode)) state.flags.add(state.episode);
    flag.setAttribute("aria-pressed", String(state.flags.has(state.episode)));
    list();
    show(player.at);
  }

  function command() {
    return commandLine("saltwm", "data", "preview", about.path, "--only", ...[...state.flags].sort((a, b) => a - b), "--out", "flagged");
  }

  const move = (by) => { const next = state.episode + by; if (next >= 0 && next < about.facts.episodes) open(next); };
  const element = h("div", { class: "view" },
    h("div", { class: "panel" }, h("section", { class: "card stack", "aria-label": "Dataset" }, pick, facts),
      h("section", { class: "card stack", "aria-label": "Flags" }, h("h2", {}, "Flags"), flags, exported)),
    h("div", { class: "stack" },
      h("div", {}, h("h1", {}, "Stored episodes"), h("p", { class: "lead" }, "Frames as they are stored, the actions between them and the states behind them. Nothing is simulated here.")),
      h("section", { class: "card stack", "aria-label": "The chosen episode" },
        h("div", { class: "spread" }, title, h("div", { class: "row" }, h("button", { type: "button", on: { click: () => move(-1) } }, "Previous"), h("button", { type: "button", on: { click: () => move(1) } }, "Next"), flag)),
        h("div", { class: "side" }, h("div", { class: "stack" }, actions.element, states.element, fields), picture.element), player.element),
      h("section", { class: "card", "aria-label": "Statistics" }, spreads),
      h("section", { class: "card", "aria-label": "Episodes" }, h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Table of episodes" }, h("table", {}, h("thead", {}, head), body)))));
  return {
    element,
    ready: load(),
    close: () => player.stop(),
    go: (next) => { const before = state.dataset; takeQuery(next); if (state.dataset === before) open(state.episode, state.step); else load(); },
    key(event) {
      if (event.key === "f") toggleFlag();
      else if (event.key === "n") move(1);
      else if (event.key === "p") move(-1);
      else return player.key(event);
      return true;
    },
  };
}
