// What the page shows, as one value that lives in the address: a link is a whole state.
import { kept, traced } from "./source.js";

const FIRST = {
  view: "attention",
  model: "",
  text: traced.text,
  context: traced.context,
  beam: "",
  prefix: "",
  where: "",
  head: "0",
  query: "",
  key: "",
  side: "",
  neuron: "",
  reading: "weights",
  words: "",
  hide: "",
  sort: "",
  pins: "", // of the heads
  change: "",
  other_text: "",
  other_model: "",
  other_change: "", // what is changed in a run; the run it is compared with
  lesson: "",
  step: "0",
  n: "",
  d: "", // of the lessons
};
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
]; // each is a step that "back" undoes
export const NAMES = Object.keys(FIRST);
const listeners = new Set();
let current = read(place());

/** Of a page that is a file, the part behind # alone may change. */
function place() {
  return kept ? location.hash.slice(1) : location.search;
}

function read(search) {
  const given = new URLSearchParams(search);
  return Object.freeze(Object.fromEntries(NAMES.map((name) => [name, given.get(name) ?? FIRST[name]])));
}

export const state = () => current;
export const number = (name) => (/^\d{1,6}$/.test(current[name]) ? Number(current[name]) : null);

/** The address of a state with some changes. */
export function address(changes = {}) {
  const next = { ...current, ...changes };
  const parameters = new URLSearchParams();
  for (const name of NAMES) if (String(next[name]) !== FIRST[name]) parameters.set(name, next[name]);
  const query = parameters.toString();
  if (kept) return `#${query}`;
  return query ? `/?${query}` : "/";
}

/** Change the state. */
export function set(changes) {
  const before = current;
  const target = address(changes);
  current = read(target.slice(1));
  if (STEPS.some((name) => current[name] !== before[name])) {
    remember("pushState", target);
  } else {
    remember("replaceState", target);
  }
  for (const listener of listeners) listener(current, before);
}

/** In a frame of a notebook there is no address to change; the state lives on without. */
function remember(how, target) {
  try {
    history[how](null, "", target);
  } catch (error) {
    if (!kept) throw error;
  }
}

export const listen = (listener) => listeners.add(listener);

addEventListener("popstate", () => {
  if (kept && /^#\w+$/.test(location.hash)) return; // a way to a place on the page
  const before = current;
  current = read(place());
  for (const listener of listeners) listener(current, before);
});
