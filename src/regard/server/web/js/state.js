// What the page shows, as one value that lives in the address: a link is a whole state.
import { embeddedText, isFile } from "./source.js";

/** @typedef {Record<string, string>} State */

const DEFAULTS = {
  view: "attention",
  model: "",
  text: "",
  context: "",
  beam: "",
  prefix: "",
  where: "",
  head: "0",
  query: "",
  key: "",
  side: "",
  neuron: "",
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
  step: "0",
  n: "",
  d: "",
};
/** Each change of one of these is a step that "back" undoes. */
const STEPS = [
  "view",
  "prefix",
  "text",
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
    if (String(next[name]) !== initial[name]) parameters.set(name, next[name]);
  }
  return parameters.toString();
}

/** Of a page that is a file, the part behind # alone may change. */
const here = () => (isFile() ? location.hash.slice(1) : location.search);

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
  if (isFile()) return `#${query}`;
  return query ? `/?${query}` : "/";
}

/**
 * Change the state.
 * @param {State} changes
 */
export function set(changes) {
  const before = state();
  const target = address(changes);
  current = decode(target.slice(1));
  const now = current;
  const isStep = STEPS.some((name) => now[name] !== before[name]);
  try {
    history[isStep ? "pushState" : "replaceState"](null, "", target);
  } catch (error) {
    if (!isFile()) throw error; // in a frame of a notebook there is no address to change
  }
  for (const listener of listeners) listener(now, before);
}

/** @param {(now: State, before: State) => void} listener */
export const listen = (listener) => listeners.add(listener);

/** Follow the buttons "back" and "forward". */
export function followHistory() {
  addEventListener("popstate", () => {
    if (isFile() && /^#\w+$/.test(location.hash)) return; // a link to a place on the page
    const before = state();
    current = decode(here());
    for (const listener of listeners) listener(current, before);
  });
}
