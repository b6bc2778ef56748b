// What the views share: the socket, the catalogue, galleries, the decoder's progress, and what Act is doing.

import { notice, sleep } from "./dom.js";
import { Live } from "./live.js";
import { bitmap } from "./picture.js";

const status = document.getElementById("status");

export const live = new Live((what) => {
  if (what === "restarted") { notice("The worker ended and another took over; nothing on this page is lost."); beginAgain(); }
  showStatus();
});

const WORDS = {
  gallery: "encoding stored frames", decide: "planning", episodes: "reading records", episode: "repeating the episode",
  decompose: "taking the error apart", imagine: "imagining", advance: "acting", catalogue: "looking around",
  scene: "starting the simulator", draw: "drawing", recorded: "reading the episode", dataset: "reading the dataset", weights: "reading weights",
};

let shown = 0;
function showStatus() {
  clearTimeout(shown);
  if (!live.connected) {
    status.textContent = live.reason || "not connected; is saltwm explore still running?";
    status.classList.add("away");
    return;
  }
  status.classList.remove("away");
  const asks = [...live.open.values()].map((question) => question.ask).filter((ask) => ask !== "decoder");
  // Short work is not worth a word: it would only flicker.
  shown = setTimeout(() => { status.textContent = asks.length ? `${WORDS[asks[0]] ?? asks[0]} …` : "ready"; }, asks.length ? 250 : 0);
}

export const shared = { catalogue: null, act: null, model: null };

// What there is to explore; the promise is kept, a failure is not.
export async function catalogue() {
  if (!shared.catalogue) {
    const made = live.ask("catalogue").then(({ header }) => header);
    made.catch(() => { shared.catalogue = null; });
    shared.catalogue = made;
  }
  return shared.catalogue;
}

// The model that the address names, or the last one; an address from elsewhere may name one that is not here.
export function chosen(able, query) {
  const named = query.get("model");
  const found = able.find((entry) => entry.name === (named ?? shared.model)) ?? able[0];
  if (named && found.name !== named) notice(`There is no model ${named} to show here; this is ${found.name}.`, 12);
  return found;
}
export const usable = (models) => models.filter((model) => !model.problem && model.simulated);

const galleries = new Map();

// Stored frames of a model's world with their latents; the promise is kept, a failure is not.
export function gallery(model) {
  if (!galleries.has(model)) {
    const made = live.ask("gallery", { model }).then(async ({ header, blobs }) => {
      const [sheet, latents, mean, axes, states] = blobs;
      return {
        ...header,
        image: await bitmap(sheet),
        latents: new Float32Array(latents),
        mean: new Float32Array(mean),
        axes: new Float32Array(axes),
        states: new Float32Array(states),
      };
    });
    made.catch(() => galleries.delete(model));
    galleries.set(model, made);
  }
  return galleries.get(model);
}

// The decoder is fitted in the worker's spare moments; the page asks now and then how far it is, while somebody follows it.
const shares = new Map();
const followers = new Map();
const asking = new Set();

// Calls `onChange` whenever more is known; returns what ends that.
export function followDecoder(model, onChange) {
  if (!followers.has(model)) followers.set(model, new Set());
  followers.get(model).add(onChange);
  askDecoder(model);
  return () => followers.get(model).delete(onChange);
}

async function askDecoder(model) {
  if (asking.has(model)) return;
  asking.add(model);
  try {
    while (followers.get(model).size) {
      const { header } = await live.ask("decoder", { model });
      shares.set(model, header.steps / header.of);
      for (const tell of followers.get(model)) tell();
      if (decoderReady(model)) return;
      await sleep(3000);
    }
  } catch { shares.delete(model); } finally { asking.delete(model); }
}

// Another worker has no decoders yet.
function beginAgain() {
  shares.clear();
  for (const model of followers.keys()) askDecoder(model);
}

export const decoderWords = (model) => `a decoder is being fitted meanwhile${shares.has(model) ? ` (${Math.round(100 * shares.get(model))} %)` : ""}`;

export const decoderReady = (model) => shares.get(model) === 1;

// The address of a view: #/browse?cell=...&task=3
export function readAddress() {
  const [path, query] = location.hash.replace(/^#\/?/, "").split("?");
  return { view: path || "act", query: new URLSearchParams(query ?? "") };
}

export function writeAddress(view, options) {
  const query = new URLSearchParams();
  for (const [key, value] of Object.entries(options)) if (value !== null && value !== undefined && value !== "") query.set(key, value);
  const text = query.toString();
  history.replaceState(null, "", `#/${view}${text ? `?${text}` : ""}`);
}

export function failed(error) { notice(error.message, 9); }
