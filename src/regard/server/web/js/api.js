// Questions to the server. Whatever goes wrong becomes an Error whose message is a sentence.
import { answer as answered } from "./source.js";

const GONE =
  "The program behind this page does not answer. Start it again with “regard explore”, then press Trace.";

async function ask(path, options) {
  let answer;
  try {
    answer = await answered(path, options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Error(GONE);
  }
  if (answer.ok) return answer;
  let message = null;
  try {
    message = (await answer.json()).error;
  } catch {
    /* not JSON: default message below */
  }
  const failure = new Error(message ?? `The server answered with the status ${answer.status}.`);
  failure.status = answer.status;
  throw failure;
}

const post = (path, body, signal) =>
  ask(path, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify(body),
    signal,
  });

export const models = async () => (await ask("/api/v1/models")).json();
export const trace = async (body, signal) => (await post("/api/v1/trace", body, signal)).json();

/** How the second of two runs differs from the first. */
export async function compare(before, after, step = null, signal = undefined) {
  const query = new URLSearchParams({ before, after, ...(step === null ? {} : { step }) });
  return (await ask(`/api/v1/compare?${query}`, { signal })).json();
}

/** `options`: head, row, column, pool, dtype. */
export async function tensors(id, names, options = {}) {
  const query = new URLSearchParams(names.map((name) => ["name", name]));
  for (const [name, value] of Object.entries(options)) query.set(name, value);
  const answer = await ask(`/api/v1/trace/${encodeURIComponent(id)}/tensors?${query}`);
  return parse(await answer.arrayBuffer());
}

/** A reading of the trace: {values, rows, columns ...}; of the kind "heads" the numbers of all heads. */
export async function reading(id, query) {
  const answer = await ask(`/api/v1/trace/${encodeURIComponent(id)}/reading?${new URLSearchParams(query)}`);
  const buffer = await answer.arrayBuffer();
  const about = headerOf(buffer).header.__metadata__?.["regard.reading"];
  return { ...parse(buffer), ...JSON.parse(about ?? "{}") };
}

export const lessons = async () => (await ask("/api/v1/lessons")).json();
export const lesson = async (name, query) =>
  (await ask(`/api/v1/lessons/${name}?${new URLSearchParams(query)}`)).json();

/** Where the whole page with this trace inside is, as one file. */
export const pageOf = (id) => `/api/v1/trace/${encodeURIComponent(id)}/export?format=html`;

const KINDS = { F32: Float32Array, U8: Uint8Array, BOOL: Uint8Array, I64: BigInt64Array };

/** A safetensors file: 8 bytes with the header's length, the header as JSON, the numbers. */
export function parse(buffer) {
  const { header, length } = headerOf(buffer);
  const tensors = {};
  for (const [name, about] of Object.entries(header)) {
    if (name === "__metadata__") continue;
    const [from, to] = about.data_offsets;
    const bytes = buffer.slice(8 + length + from, 8 + length + to); // a copy begins where its kind needs it to
    tensors[name] = { shape: about.shape, data: new KINDS[about.dtype](bytes) };
  }
  return tensors;
}

function headerOf(buffer) {
  const length = Number(new DataView(buffer).getBigUint64(0, true));
  return { length, header: JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 8, length))) };
}
