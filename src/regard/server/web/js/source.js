// Where answers come from: the server; a run that is written into the page itself (an exported file); or the page's
// own engine (js/engine), on a static site and in a file with a model.
import { EmbeddedRun } from "./embedded.js";

/**
 * @typedef {object} Answerer
 * @property {(path: string, options: { method?: string, body?: string }) => Response | Promise<Response>} respond
 */

/** @type {EmbeddedRun | null | undefined} */
let run;
/** @type {Answerer | null} */
let engine = null;

/** Let the engine answer in place of a server. @param {Answerer} answerer */
export function answerWith(answerer) {
  engine = answerer;
}

/** The run in the page; null where a server or a site is behind it. */
export function embeddedRun() {
  if (run === undefined) {
    const content = globalThis.document?.getElementById("kept");
    run = content ? new EmbeddedRun(JSON.parse(content.textContent), embeddedBytes()) : null;
  }
  return run;
}

function embeddedBytes() {
  const text = atob(/** @type {HTMLElement} */ (document.getElementById("kept-numbers")).textContent);
  const bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
  return bytes;
}

/** Whether the page is a file that was saved: its address is its own, and its state stands behind #. */
export const isSaved = () => embeddedRun() !== null;

/** Whether the page is a file with one run in it, and no model. */
export const isFile = () => isSaved() && engine === null;

/** Whether a server is behind the page, which has lessons for every sentence and writes files. */
export const hasServer = () => engine === null && !isSaved();

/** The text of the run in the page. */
export const embeddedText = () => embeddedRun()?.content.models.kept ?? { text: "", context: "" };

/**
 * As fetch: a promise of a Response.
 * @param {string} path
 * @param {RequestInit} options
 */
export async function request(path, options = {}) {
  const here = engine ?? embeddedRun();
  if (here) return here.respond(path, /** @type {{ method?: string, body?: string }} */ (options));
  return fetch(path, { credentials: "same-origin", ...options });
}
