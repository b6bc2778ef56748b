// Elements without markup: text stays text, so a hostile name is only ever seen.

export function h(tag, options = {}, ...children) {
  const element = document.createElement(tag);
  apply(element, options);
  append(element, children);
  return element;
}

export function svg(tag, options = {}, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  apply(element, options);
  append(element, children);
  return element;
}

function apply(element, options) {
  for (const [name, value] of Object.entries(options)) {
    if (value === undefined || value === null || value === false) continue;
    if (name === "on") {
      for (const [event, listener] of Object.entries(value)) element.addEventListener(event, listener);
    } else if (name === "value" || name === "checked" || name === "selected") {
      element[name] = value;
    } else {
      element.setAttribute(name, value === true ? "" : String(value));
    }
  }
}

function append(element, children) {
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child instanceof Node ? child : String(child));
  }
}

export function fill(element, ...children) {
  element.replaceChildren();
  append(element, children);
  return element;
}

// Fill it again without losing the keyboard's place: if the focus was inside, what `next` finds has it then.
export function refill(element, next, ...children) {
  const held = element.contains(document.activeElement);
  fill(element, ...children);
  if (held) next()?.focus({ preventScroll: true });
}

export function field(label, control) {
  return h("label", { class: "field" }, label, control);
}

export function choice(label, options, value, onChange) {
  const select = h("select", { on: { change: () => onChange(select.value) } });
  setOptions(select, options, value);
  return Object.assign(field(label, select), { select });
}

// Options are strings, or pairs of value and text.
export function setOptions(select, options, value) {
  fill(select, options.map((option) => {
    const [key, text] = Array.isArray(option) ? option : [option, option];
    return h("option", { value: key }, text);
  }));
  if (value !== undefined && value !== null) select.value = String(value);
}

export function slider(label, { low, high, step, value, unit = "", show = (x) => x }, onInput) {
  const output = h("output", {}, show(value) + unit);
  const input = h("input", { type: "range", min: low, max: high, step, "aria-label": label, on: {
    input: () => { output.textContent = show(Number(input.value)) + unit; onInput(Number(input.value)); },
  } });
  input.value = String(value);
  const element = h("label", { class: "slide" }, h("span", {}, label), output, input);
  return Object.assign(element, {
    input,
    set(next) { input.value = String(next); output.textContent = show(next) + unit; },
  });
}

export function number(value, digits = 3) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  if (Number.isSafeInteger(value)) return String(value); // a count, or the name of an episode: nothing to round
  const size = Math.abs(value);
  if (size >= 1e4 || size < 1e-3) return value.toExponential(1).replace("e+", "e");
  return String(Number(value.toPrecision(digits)));
}

// A number that a person came for, and what it is.
export const figure = (what, value) => h("div", {}, h("b", {}, value), h("span", {}, what));

// Which way an arrow key leads: right and down.
export const ARROWS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };

export function milliseconds(seconds) {
  return seconds < 1 ? `${Math.round(seconds * 1000)} ms` : `${seconds.toFixed(2)} s`;
}

export function notice(text, seconds = 6) {
  const place = document.getElementById("notice");
  place.textContent = text;
  place.hidden = false;
  clearTimeout(notice.timer);
  notice.timer = setTimeout(() => { place.hidden = true; }, seconds * 1000);
}

export async function copy(text, what) {
  try {
    await navigator.clipboard.writeText(text);
    notice(`${what} copied: ${text}`);
  } catch {
    notice(text, 20);
  }
}

// A word that a shell reads back as it is.
function quoted(word) {
  const text = String(word);
  return /^[A-Za-z0-9_\-./=:,@%+]+$/.test(text) ? text : `'${text.replaceAll("'", "'\"'\"'")}'`;
}

export const commandLine = (...words) => words.map(quoted).join(" ");

export const calm = () => window.matchMedia("(prefers-reduced-motion: reduce)").matches;

export const sleep = (ms) => new Promise((resolve) => { setTimeout(resolve, ms); });
