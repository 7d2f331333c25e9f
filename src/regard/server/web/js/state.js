// What the page shows, as one value that lives in the address: a link is a whole state.
import { embeddedText, isSaved } from "./source.js";

/** @typedef {Record<string, string>} State */

const DEFAULTS = {
  view: "film",
  model: "",
  text: "",
  context: "",
  language: "", // "keep": of the model, whatever the text looks like
  sentence: "", // of a text of several, from 1
  beam: "",
  sample: "", // how the next token is chosen, as the next four
  temperature: "",
  top_k: "",
  length: "",
  seed: "",
  prefix: "",
  where: "",
  head: "0",
  query: "",
  key: "",
  side: "",
  frame: "", // of the film, from 1, as the next
  strokes: "", // the head whose weights are drawn; none: their mean
  neuron: "",
  word: "", // whose logit is explained, and the one it is compared with: numbers of choices
  against: "",
  reading: "weights", // of the heads, as the next four
  words: "",
  hide: "",
  sort: "",
  pins: "",
  change: "", // what is changed in the run
  other_text: "", // the run it is compared with, as the next two
  other_model: "",
  other_change: "",
  lesson: "", // of the lessons, as the next three
  step: "0", // from 1; 0: the first
  n: "",
  d: "",
};
/** Each change of one of these is a step that "back" undoes. */
const STEPS = [
  "view",
  "prefix",
  "text",
  "sentence",
  "seed",
  "change",
  "other_text",
  "other_model",
  "other_change",
  "lesson",
  "step",
];
/** @type {Set<(now: State, before: State) => void>} */
const listeners = new Set();
/** @type {State | null} */
let current = null;

/** @returns {State} */
const defaults = () => ({ ...DEFAULTS, ...embeddedText() });

/**
 * The state that an address means; what it does not name has its default, what is unknown is ignored.
 * @param {string} search
 * @param {State} initial
 * @returns {State}
 */
export function decode(search, initial = defaults()) {
  const given = new URLSearchParams(search);
  return Object.freeze(
    Object.fromEntries(Object.keys(initial).map((name) => [name, given.get(name) ?? initial[name]])),
  );
}

/**
 * The part of an address that means a state: what differs from the defaults.
 * @param {State} next
 * @param {State} initial
 */
export function encode(next, initial = defaults()) {
  const parameters = new URLSearchParams();
  for (const name of Object.keys(initial)) {
    const value = String(next[name]);
    if (value !== initial[name]) parameters.set(name, value);
  }
  return parameters.toString();
}

/** Of a page that is a file, the part behind # alone may change. */
const here = () => (isSaved() ? location.hash.slice(1) : location.search);

export const state = () => (current ??= decode(here()));

/**
 * A number of the state, from 0; null if it is none.
 * @param {string} name
 */
export const number = (name) => (/^\d{1,6}$/.test(state()[name]) ? Number(state()[name]) : null);

/**
 * The address of a state with some changes.
 * @param {State} changes
 */
export function address(changes = {}) {
  const query = encode({ ...state(), ...changes });
  if (isSaved()) return `#${query}`;
  return query ? `?${query}` : "."; // a site may lie in any folder
}

/**
 * Change the state.
 * @param {State} changes
 */
export function set(changes) {
  const before = state();
  const target = address(changes);
  const now = (current = decode(target.slice(1)));
  const isStep = STEPS.some((name) => now[name] !== before[name]);
  write(target, isStep ? "pushState" : "replaceState");
  for (const listener of listeners) listener(now, before);
}

/**
 * Change what only the address has to know: a view has drawn it already.
 * @param {State} changes
 */
export function note(changes) {
  const target = address(changes);
  current = decode(target.slice(1));
  write(target, "replaceState");
}

/** @param {string} target @param {"pushState" | "replaceState"} method */
function write(target, method) {
  try {
    history[method](null, "", target);
  } catch (error) {
    if (!isSaved()) throw error; // in a frame of a notebook there is no address to change
  }
}

/** @param {(now: State, before: State) => void} listener */
export const listen = (listener) => listeners.add(listener);

/** Follow the buttons "back" and "forward". */
export function followHistory() {
  addEventListener("popstate", () => {
    if (isSaved() && /^#\w+$/.test(location.hash)) return; // a link to a place on the page
    const before = state();
    current = decode(here());
    for (const listener of listeners) listener(current, before);
  });
}
