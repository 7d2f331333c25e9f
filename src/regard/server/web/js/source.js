// Where answers come from: the server, or a run that is written into the page itself (an exported file).
import { EmbeddedRun } from "./embedded.js";

/** @type {EmbeddedRun | null | undefined} */
let run;

/** The run in the page; null where a server is behind it. */
function embeddedRun() {
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

/** Whether the page is a file with one run in it. */
export const isFile = () => embeddedRun() !== null;

/** The text of the run in the page. */
export const embeddedText = () => embeddedRun()?.content.models.kept ?? { text: "", context: "" };

/**
 * As fetch: a promise of a Response.
 * @param {string} path
 * @param {RequestInit} options
 */
export async function request(path, options = {}) {
  const here = embeddedRun();
  if (here) return here.respond(path, /** @type {{ method?: string, body?: string }} */ (options));
  return fetch(path, { credentials: "same-origin", ...options });
}
