// What the page shows, as one value that lives in the address: a link is a whole state.

const FIRST = {
  view: "attention", model: "", text: "", context: "", beam: "", prefix: "",
  where: "", head: "0", query: "", key: "", side: "",
};
export const NAMES = Object.keys(FIRST);
const listeners = new Set();
let current = read(location.search);

function read(search) {
  const given = new URLSearchParams(search);
  return Object.freeze(Object.fromEntries(NAMES.map((name) => [name, given.get(name) ?? FIRST[name]])));
}

export const state = () => current;
export const number = (name) => (/^\d{1,6}$/.test(current[name]) ? Number(current[name]) : null);

/** The address of a state with some changes. */
export function address(changes = {}) {
  const next = { ...current, ...changes };
  const told = new URLSearchParams();
  for (const name of NAMES) if (String(next[name]) !== FIRST[name]) told.set(name, next[name]);
  const query = told.toString();
  return query ? `/?${query}` : "/";
}

/** Change the state. A new view, text or forced word is a step that "back" undoes. */
export function set(changes) {
  const before = current;
  const target = address(changes);
  current = read(target.slice(1));
  if (current.view !== before.view || current.prefix !== before.prefix || current.text !== before.text) {
    history.pushState(null, "", target);
  } else {
    history.replaceState(null, "", target);
  }
  for (const listener of listeners) listener(current, before);
}

export const listen = (listener) => listeners.add(listener);

addEventListener("popstate", () => {
  const before = current;
  current = read(location.search);
  for (const listener of listeners) listener(current, before);
});
