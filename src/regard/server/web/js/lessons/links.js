// Links among lessons, and between a view and the lesson about it.
import { following, make } from "../a11y.js";
import { address, set } from "../state.js";

/** The lesson that explains a view, and the step of it, from 1. @type {Record<string, [string, number, string]>} */
const LESSON_OF = {
  film: ["layers", 1, "the parts of a layer"],
  picture: ["media", 1, "how a picture is read"],
  input: ["tokens", 1, "tokens and positions"],
  map: ["layers", 1, "the parts of a layer"],
  attention: ["queries", 2, "queries, keys and scores"],
  heads: ["heads", 5, "why there are several heads"],
  stream: ["layers", 3, "the sums between the layers"],
  output: ["choosing", 1, "how a word is chosen"],
  compare: ["positions", 5, "what a change proves"],
};

/**
 * A link that leads from a view to its lesson; null for a view without one.
 * @param {string} view
 */
export function lessonLink(view) {
  if (!LESSON_OF[view]) return null;
  const [lesson, step, about] = LESSON_OF[view];
  const changes = { view: "lessons", lesson, step: String(step) };
  return link(`Lesson: ${about}`, changes, { class: "to-lesson" });
}

let arriving = false; // the next step that is drawn gets the keyboard

/** @param {Record<string, string>} changes */
export function go(changes) {
  arriving = true;
  set(changes);
}

/** After the page has taken in what was drawn, the keyboard stands at its heading. @param {HTMLElement} heading */
export function arrived(heading) {
  if (!arriving) return;
  setTimeout(() => {
    if (!arriving || !heading.isConnected) return; // another drawing took its place
    arriving = false;
    heading.focus();
  }, 0);
}

/** @param {any} text @param {Record<string, string>} changes */
export const link = (text, changes, settings = {}) =>
  make("a", { ...settings, href: address(changes), onclick: following(() => go(changes)) }, text);
