// Questions to the server. Whatever goes wrong becomes an Error whose message is a sentence.

const GONE = "The program behind this page does not answer. Start it again with “regard explore”, then press Trace.";

async function ask(path, options) {
  let answer;
  try {
    answer = await fetch(path, { credentials: "same-origin", ...options });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Error(GONE);
  }
  if (answer.ok) return answer;
  let told = null;
  try { told = (await answer.json()).error; } catch { /* no JSON: told below */ }
  const failure = new Error(told ?? `The server answered with the status ${answer.status}.`);
  failure.status = answer.status;
  throw failure;
}

const post = (path, body, signal) =>
  ask(path, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body), signal });

export const models = async () => (await ask("/api/v1/models")).json();
export const trace = async (body, signal) => (await post("/api/v1/trace", body, signal)).json();

export async function tensors(id, names, { head, pool, dtype } = {}) {
  const query = new URLSearchParams();
  for (const name of names) query.append("name", name);
  if (head !== undefined) query.set("head", head);
  if (pool !== undefined) query.set("pool", pool);
  if (dtype !== undefined) query.set("dtype", dtype);
  const answer = await ask(`/api/v1/trace/${encodeURIComponent(id)}/tensors?${query}`);
  return parse(await answer.arrayBuffer());
}

const KINDS = { F32: Float32Array, U8: Uint8Array, BOOL: Uint8Array, I64: BigInt64Array };

/** A safetensors file: 8 bytes with the header's length, the header as JSON, the numbers. */
export function parse(buffer) {
  const length = Number(new DataView(buffer).getBigUint64(0, true));
  const header = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 8, length)));
  const found = {};
  for (const [name, about] of Object.entries(header)) {
    if (name === "__metadata__") continue;
    const [from, to] = about.data_offsets;
    const bytes = buffer.slice(8 + length + from, 8 + length + to); // a copy begins where its kind needs it to
    found[name] = { shape: about.shape, data: new KINDS[about.dtype](bytes) };
  }
  return found;
}
