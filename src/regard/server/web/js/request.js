// What the server is asked: the text or its example, the sentence of several, and how the output is chosen.
import * as api from "./api.js";
import { example } from "./examples.js";
import { isLost, sourceOf, takeFromServer } from "./files.js";
import { isFile } from "./source.js";
import { note, state } from "./state.js";

/**
 * @typedef {object} Hints what the server says of a text before it is run
 * @property {string[]} sentences as `regard translate` splits it
 * @property {string | null} language if it is clearly not the model's
 * @property {string[]} readers models that read this language
 */

export const FIRST_WORDS = 12; // tokens that a language model writes at first
/** @type {Map<string, Promise<Hints | null>>} */
const hints = new Map(); // by model and text
let emptied = false; // the reader has cleared the example

/** @param {boolean} now */
export const setEmptied = (now) => {
  emptied = now;
};

/** Whether a model reads files instead of text. @param {any} model */
export const readsFiles = (model) => (model?.input ?? "text") !== "text";

/** Whether a model writes word by word. @param {any} model */
export const writes = (model) => ["translate", "generate", "caption", "transcribe"].includes(model?.task);

/** Where nothing was written, the page takes an example; whether it did. @param {any} model */
export function takeExample(model) {
  const { text, context, view } = state();
  if (text || context || emptied || isFile() || !model || readsFiles(model) || view === "lessons")
    return false;
  note(example(model));
  return true;
}

/**
 * The same for a model that reads files: its example is a file of the server.
 * @param {any} model
 * @param {AbortSignal} signal
 */
export async function takeExampleFile(model, signal) {
  if (!readsFiles(model) || isFile()) return false;
  const { text, view } = state();
  const name = example(model).text;
  const isAsked = name.includes(".") && (text ? text === name : view !== "lessons");
  if (!isAsked || !isLost(name)) return false;
  try {
    await takeFromServer(name);
  } catch {
    return false; // the page asks for a file
  }
  if (signal.aborted) return false;
  note({ text: name });
  return true;
}

/** Whether the text is an example, which another model has another one for. @param {any} model */
export const isExample = (model) => state().text === example(model).text;

/**
 * The body of a request for a trace.
 * @param {any} model
 * @param {string} text
 * @param {boolean} isPage whether it is the run of the page, and not the one that it is compared with
 */
export function bodyOf(model, text, isPage) {
  const { prefix, context } = state();
  /** @type {Record<string, any>} */
  const body = { model: model?.name ?? "", source: readsFiles(model) ? sourceOf(text) : text };
  if (context && model?.task === "answer") body.context = context;
  const decode = decodeOf(model);
  if (Object.keys(decode).length) body.decode = decode;
  if (isPage && /^\d+(,\d+)*$/.test(prefix)) body.prefix = prefix.split(",").map(Number);
  return body;
}

/** The decoding options of the address; what it does not name is the model's default. @param {any} model */
function decodeOf(model) {
  const { beam, sample, temperature, top_k: topK, length, seed } = state();
  /** @type {Record<string, any>} */
  const decode = {};
  if (isFile() || !writes(model)) return decode;
  const isSearch = /^\d+$/.test(beam) && !sample;
  if (isSearch) decode.beam = Number(beam);
  if (sample) Object.assign(decode, { sample: true, beam: 1 });
  if (!isSearch && (sample || model.task === "generate")) {
    if (/^\d+(\.\d+)?$/.test(temperature)) decode.temperature = Number(temperature);
    if (/^\d+$/.test(topK)) decode.top_k = Number(topK);
    if (/^\d+$/.test(seed)) decode.seed = Number(seed);
  }
  if (/^\d+$/.test(length)) decode.max_length = Number(length);
  else if (model.task === "generate") decode.max_length = FIRST_WORDS;
  return decode;
}

/**
 * What the server says of a text for a translator; null where it says nothing.
 * @param {any} model
 * @param {string} text
 * @param {AbortSignal} signal
 * @returns {Promise<Hints | null>}
 */
export async function hintsOf(model, text, signal) {
  if (isFile() || model?.task !== "translate" || readsFiles(model)) return null;
  const key = JSON.stringify([model.name, text]);
  const request = hints.get(key) ?? api.tokenize({ model: model.name, text }, signal);
  hints.set(key, request);
  try {
    const answer = await request;
    return answer?.sentences ? answer : null;
  } catch (error) {
    hints.delete(key);
    if (/** @type {Error} */ (error).name === "AbortError") throw error;
    return null; // the run itself will say what is wrong
  }
}

/** The sentence that is run, of those of the text. @param {Hints | null} answer @param {string} text */
export function sentenceOf(answer, text) {
  const sentences = answer?.sentences ?? [];
  if (sentences.length < 2) return { text, at: 0, sentences: [] };
  const at = Math.min(sentences.length, Math.max(1, Number(state().sentence) || 1)) - 1;
  return { text: sentences[at], at, sentences };
}

/** A language by its English name. @param {string} code */
export const languageName = (code) => new Intl.DisplayNames("en", { type: "language" }).of(code) ?? code;
