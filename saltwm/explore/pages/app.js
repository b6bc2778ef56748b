// The shell: views by address, theme, keyboard.

import { ARROWS, fill, h, notice } from "./dom.js";
import { act } from "./act.js";
import { browse } from "./browse.js";
import { data } from "./data.js";
import { imagine } from "./imagine.js";
import { map } from "./map.js";
import { failed, live, readAddress } from "./world.js";

const VIEWS = { act: ["Act", act], imagine: ["Imagine", imagine], browse: ["Browse", browse], map: ["Map", map], data: ["Data", data] };
const main = document.getElementById("main");
const nav = document.getElementById("views");
let current = null;

fill(nav, Object.entries(VIEWS).map(([name, [title]]) => h("a", { href: `#/${name}`, "data-view": name }, title)));

async function open() {
  const { view, query } = readAddress();
  const name = view in VIEWS ? view : "act";
  if (current?.name === name && current.go) { current.go(query); return; }
  current?.close?.();
  for (const link of nav.children) {
    if (link.dataset.view === name) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  document.title = `${VIEWS[name][0]} · saltwm explorer`;
  fill(main, h("p", { class: "empty" }, "Looking around …"));
  const mine = { name };
  current = mine;
  try {
    const opened = await VIEWS[name][1](query);
    if (current !== mine) { opened.close?.(); return; }
    mine.close = opened.close;
    fill(main, opened.element);
    busy(true);
    await opened.ready;
    if (current === mine) Object.assign(mine, opened);
  } catch (error) {
    fill(main, h("p", { class: "empty" }, error.message));
    failed(error);
  } finally {
    if (current === mine) busy(false);
  }
}

// A view is seen at once and can be used when its world is there: a simulator may take seconds to start.
function busy(is) {
  main.inert = is;
  main.setAttribute("aria-busy", String(is));
}

window.addEventListener("hashchange", open);

// --- keyboard

const KEYS = [
  ["1 … 5", "Act, Imagine, Browse, Map, Data"],
  ["space", "play or pause"],
  ["← →", "a step back or on; with shift ten"],
  ["n p", "next or previous episode"],
  ["x", "Browse: next failure"],
  [".", "Act: one step"],
  ["r", "Act: back to the start"],
  ["f", "Data: flag the episode"],
  ["arrows on a picture", "Act: move what is chosen; [ and ] turn it"],
  ["arrows on the map", "to the nearest point in that direction; enter makes it the goal"],
  ["t", "dark or light"],
  ["?", "this list"],
];
const dialog = document.getElementById("keys");
fill(dialog, h("h2", { id: "keys-title" }, "Keyboard"), h("dl", { class: "facts" }, KEYS.flatMap(([key, what]) => [h("dt", {}, h("kbd", {}, key)), h("dd", {}, what)])),
  h("p", { class: "row" }, h("button", { type: "button", on: { click: () => dialog.close() } }, "Close")));
document.getElementById("help").addEventListener("click", () => dialog.showModal());
document.getElementById("restart").addEventListener("click", () => live.ask("restart").catch(failed));

const typing = (target) => target.matches?.("input[type=text], input[type=number], textarea");

// Controls keep the keys that they know; everything else belongs to the view.
const KNOWN = [
  ["button.playing-key", []],
  ["select, input[type=range], button, a", [" ", "Enter", ...Object.keys(ARROWS)]],
  ["canvas", ["Enter", ...Object.keys(ARROWS)]],
  ["tr", ["Enter"]],
];
const knows = (target, key) => KNOWN.find(([which]) => target.matches?.(which))?.[1].includes(key) ?? false;

window.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || dialog.open || typing(event.target)) return;
  const views = Object.keys(VIEWS);
  if (event.key >= "1" && event.key <= String(views.length)) { location.hash = `#/${views[Number(event.key) - 1]}`; return; }
  if (event.key === "?") { dialog.showModal(); return; }
  if (event.key === "t") { toggleTheme(); return; }
  if (knows(event.target, event.key)) return;
  if (current?.key?.(event)) event.preventDefault();
});

// --- dark and light

const root = document.documentElement;
const kept = () => { try { return localStorage.getItem("saltwm-theme"); } catch { return null; } };
function setTheme(theme) { root.dataset.theme = theme; window.dispatchEvent(new Event("theme")); }
function toggleTheme() {
  const next = root.dataset.theme === "dark" ? "light" : "dark";
  setTheme(next);
  try { localStorage.setItem("saltwm-theme", next); } catch { notice("The theme is kept for this page only."); }
}
document.getElementById("theme").addEventListener("click", toggleTheme);
setTheme(kept() ?? (window.matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light"));

open();
