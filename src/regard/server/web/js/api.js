// Requests to the server. Whatever goes wrong becomes an Error whose message is a sentence.
import { parse, readHeader } from "./safetensors.js";
import { request } from "./source.js";

const GONE =
  "The program behind this page does not answer. Start it again with “regard explore”, then press Run.";

/** A request that the server refused: its HTTP status, and the error's stable code. */
export class ApiError extends Error {
  /**
   * @param {number} status
   * @param {{ error?: string, code?: string }} body
   */
  constructor(status, { error, code }) {
    super(error ?? `The server answered with the status ${status}.`);
    this.status = status;
    this.code = code ?? "";
  }
}

/** Whether the server no longer has a run: asked again, it computes it again. @param {unknown} error */
export const isExpired = (error) => error instanceof ApiError && error.code === "trace_expired";

/** Whether the server refused the request itself. @param {unknown} error */
export const isRefused = (error) => error instanceof ApiError && error.status === 400;

/**
 * @param {string} path
 * @param {RequestInit} options
 */
async function send(path, options = {}) {
  let response;
  try {
    response = await request(path, options);
  } catch (error) {
    if (/** @type {Error} */ (error).name === "AbortError") throw error;
    throw new Error(GONE, { cause: error });
  }
  if (response.ok) return response;
  throw new ApiError(response.status, await response.json().catch(() => ({})));
}

/** @param {string} path @param {unknown} body @param {AbortSignal} [signal] */
const post = (path, body, signal) =>
  send(path, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify(body),
    signal,
  });

export const models = async () => (await send("/api/v1/models")).json();

/** @param {unknown} body @param {AbortSignal} [signal] */
export const trace = async (body, signal) => (await post("/api/v1/trace", body, signal)).json();

/**
 * The tokens of a text; of a translator also the sentences it is split into, and its language.
 * @param {{ model: string, text: string }} body @param {AbortSignal} [signal]
 */
export const tokenize = async (body, signal) => (await post("/api/v1/tokenize", body, signal)).json();

/**
 * How the second of two runs differs from the first.
 * @param {string} before
 * @param {string} after
 * @param {number | null} step
 * @param {AbortSignal} [signal]
 */
export async function compare(before, after, step = null, signal = undefined) {
  const query = new URLSearchParams({ before, after, ...(step === null ? {} : { step: String(step) }) });
  return (await send(`/api/v1/compare?${query}`, { signal })).json();
}

/** @param {string} id @param {string} part */
const traceAddress = (id, part) => `/api/v1/trace/${encodeURIComponent(id)}/${part}`;

/**
 * Tensors of a run by name; `options`: head, row, column, pool, dtype.
 * @param {string} id
 * @param {string[]} names
 * @param {Record<string, string | number>} options
 */
export async function tensors(id, names, options = {}) {
  const query = new URLSearchParams(names.map((name) => ["name", name]));
  for (const [name, value] of Object.entries(options)) query.set(name, String(value));
  return parse(await (await send(traceAddress(id, `tensors?${query}`))).arrayBuffer());
}

/**
 * A reading of a run: {values, rows, columns ...}; of the kind "heads" the numbers of all heads.
 * @param {string} id
 * @param {Record<string, any>} query
 */
export async function reading(id, query) {
  const response = await send(traceAddress(id, `reading?${new URLSearchParams(query)}`));
  const buffer = await response.arrayBuffer();
  const about = readHeader(buffer).metadata["regard.reading"] ?? "{}";
  return { ...parse(buffer), ...JSON.parse(about) };
}

export const lessons = async () => (await send("/api/v1/lessons")).json();

/** @param {string} name @param {Record<string, string>} query */
export const lesson = async (name, query) =>
  (await send(`/api/v1/lessons/${name}?${new URLSearchParams(query)}`)).json();

/** Where the whole page with this run inside is, as one file. @param {string} id */
export const pageOf = (id) => traceAddress(id, "export?format=html");
