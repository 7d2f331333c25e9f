// Where answers come from: the server, or a run that is written into the page itself (an exported file).

const embedded = document.getElementById("kept");
/** Whether the page is a file with one run in it. */
export const kept = Boolean(embedded);
const ALONE = "This page is a file with one run in it. For another, start “regard explore”.";
/** What was traced, if so. */
export const traced = embedded ? JSON.parse(embedded.textContent).models.kept : { text: "", context: "" };
let run = null;

/** As fetch: a promise of a Response. */
export async function answer(path, options = {}) {
  if (!kept) return fetch(path, { credentials: "same-origin", ...options });
  try {
    const [pathname, query] = path.split("?");
    return respond({ pathname, searchParams: new URLSearchParams(query) }, options);
  } catch (error) {
    return refused(error.message);
  }
}

const refused = (text) => new Response(JSON.stringify({ error: text }), { status: 400 });
const json = (content) => new Response(JSON.stringify(content));

function respond(url, { method = "GET", body = "{}" }) {
  run ??= opened();
  const query = url.searchParams;
  switch (`${method} ${url.pathname}`) {
    case "GET /api/v1/models":
      return json(run.models);
    case "POST /api/v1/trace":
      return same(JSON.parse(body)) ? json(run.trace) : refused(ALONE);
    case "GET /api/v1/trace/kept/tensors":
      return new Response(written(tensors(query)));
    case "GET /api/v1/trace/kept/reading":
      return reading(query);
    default:
      return refused(ALONE);
  }
}

const same = ({ source, context, prefix, interventions, decode }) =>
  source === run.models.kept.text &&
  (context ?? "") === run.models.kept.context &&
  !prefix?.length &&
  !interventions?.length &&
  !decode;

function opened() {
  const content = JSON.parse(embedded.textContent);
  const text = atob(document.getElementById("kept-numbers").textContent);
  const bytes = new Uint8Array(text.length);
  for (let at = 0; at < text.length; at++) bytes[at] = text.charCodeAt(at);
  const length = Number(new DataView(bytes.buffer).getBigUint64(0, true));
  const header = JSON.parse(new TextDecoder().decode(bytes.subarray(8, 8 + length)));
  return { ...content, header, numbers: bytes.subarray(8 + length) };
}

/** One tensor, or the slice of a number along its first side. */
function part(name, slice = null) {
  const {
    dtype,
    shape,
    data_offsets: [from, to],
  } = run.header[name] ?? missing();
  const bytes = run.numbers.subarray(from, to);
  if (slice === null) return { dtype, shape, bytes };
  const size = bytes.length / shape[0];
  return { dtype, shape: shape.slice(1), bytes: bytes.subarray(slice * size, (slice + 1) * size) };
}

function missing() {
  throw new Error("This page was written without these numbers, because the text is long.");
}

function tensors(query) {
  const folder = query.has("pool") ? "pooled/" : "whole/";
  const all = Object.keys(run.header)
    .filter((name) => name.startsWith(folder))
    .map((name) => name.slice(folder.length));
  const selected = new Map();
  for (const pattern of query.getAll("name")) {
    const [before, after] = pattern.split("*"); // the page asks with one * at most
    for (const name of all) {
      const fits = after === undefined ? name === pattern : name.startsWith(before) && name.endsWith(after);
      if (!fits) continue;
      let tensor = part(folder + name, query.has("head") ? ofHead(name, Number(query.get("head"))) : null);
      if (query.has("row")) tensor = narrowed(tensor, tensor.shape.length - 2, Number(query.get("row")));
      if (query.has("column"))
        tensor = narrowed(tensor, tensor.shape.length - 1, Number(query.get("column")));
      selected.set(name, tensor);
    }
  }
  return selected;
}

const BYTES = { F32: 4, U8: 1, BOOL: 1, I64: 8 };

/** One row or column, as a matrix of one. */
function narrowed({ dtype, shape, bytes }, dimension, place) {
  const inner = shape.slice(dimension + 1).reduce((a, b) => a * b, BYTES[dtype]);
  const outer = shape.slice(0, dimension).reduce((a, b) => a * b, 1);
  const narrow = new Uint8Array(outer * inner);
  for (let i = 0; i < outer; i++) {
    const from = (i * shape[dimension] + place) * inner;
    narrow.set(bytes.subarray(from, from + inner), i * inner);
  }
  return { dtype, shape: shape.with(dimension, 1), bytes: narrow };
}

/** Keys and values may serve a group of heads each. */
function ofHead(name, head) {
  const { shape } = run.header[`whole/${name}`];
  if (shape.length !== 3) return null;
  const queries = run.header[`whole/${name.replace(/\.[^.]*$/, "")}.query`];
  const heads = queries?.shape.length === 3 ? queries.shape[0] : shape[0];
  return Math.floor((head * shape[0]) / heads);
}

function reading(query) {
  const kind = query.get("kind");
  if (kind === "heads") {
    const names = Object.keys(run.header).filter((name) => name.startsWith("heads/"));
    return new Response(written(new Map(names.map((name) => [name.slice(6), part(name)]))));
  }
  const name = `look/${kind}/${kind === "rollout" ? "" : (query.get("where") ?? "")}/${query.get("words") === "true" ? "words" : "pieces"}`;
  const mean = (query.get("head") ?? "mean") === "mean";
  if (!run.header[name] && run.readings[name] && !mean) {
    // of a long text the plain weights are here, and no reading of them
    const values = part(`whole/${query.get("where")}.weights`, Number(query.get("head")));
    return new Response(
      written(new Map([["values", values]]), { "regard.reading": JSON.stringify(run.readings[name][0]) }),
    );
  }
  const last = (run.header[name] ?? missing()).shape[0] - 1;
  const about = run.readings[name][mean ? 1 : 0];
  return new Response(
    written(new Map([["values", part(name, mean ? last : Number(query.get("head")))]]), {
      "regard.reading": JSON.stringify(about),
    }),
  );
}

/** A safetensors file of some parts. */
function written(parts, metadata = {}) {
  const header = { __metadata__: metadata };
  let at = 0;
  for (const [name, { dtype, shape, bytes }] of parts) {
    header[name] = { dtype, shape, data_offsets: [at, at + bytes.length] };
    at += bytes.length;
  }
  const text = new TextEncoder().encode(JSON.stringify(header));
  const length = new Uint8Array(8);
  new DataView(length.buffer).setBigUint64(0, BigInt(text.length), true);
  return new Blob([length, text, ...[...parts.values()].map((each) => each.bytes)]);
}
