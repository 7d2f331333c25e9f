// The routes of the explorer, answered in the browser: models of a static folder, or one inside an exported page.
import { narrow } from "../embedded.js";
import { encode } from "../safetensors.js";
import { compare, pageJson } from "./compare.js";
import { headStatistics, matrix, maxPool } from "./readings.js";
import { openModel, tokensOf, trace } from "./run.js";
import { matcher } from "./tap.js";
import { readWeights } from "./weights.js";

/** @import { Part } from "../safetensors.js" */
/** @import { AnyTensor, Tensor } from "./math.js" */
/** @import { Run } from "./run.js" */
/**
 * @typedef {object} Files where a site's parts come from
 * @property {() => Promise<any>} models the answer of /api/v1/models, with what readings are not
 * @property {(file: string) => Promise<{ description: any, weights: ArrayBuffer }>} model by the name of its files
 * @property {(name: string) => Promise<any>} lesson a recorded lesson; of "" the list of all
 */

const MOST = 16; // runs that are kept
const SHARES = [".weights", ".probabilities", ".mask"]; // values between 0 and 1
const DTYPES = new Map(
  /** @type {[any, string][]} */ ([
    [Float32Array, "F32"],
    [Uint8Array, "BOOL"],
    [BigInt64Array, "I64"],
  ]),
);

/** @param {number} status @param {string} error @param {string} code */
const refuse = (status, error, code) => new Response(JSON.stringify({ error, code }), { status });
/** @param {unknown} content */
const json = (content) => new Response(JSON.stringify(content));

class Expired extends Error {}

/** @param {AnyTensor} x @returns {Part} */
const partOf = ({ shape, data }) => ({
  dtype: /** @type {string} */ (DTYPES.get(data.constructor)),
  shape,
  bytes: new Uint8Array(data.buffer, data.byteOffset, data.byteLength),
});

/**
 * A matrix of all heads: the slice of one; keys may serve several heads.
 * @param {Run} run @param {string} name @param {number} head @returns {AnyTensor}
 */
function ofHead({ tensors }, name, head) {
  const x = /** @type {AnyTensor} */ (tensors.get(name));
  if (x.shape.length !== 3) return x;
  const queries = tensors.get(`${name.replace(/\.[^.]*$/, "")}.query`);
  const heads = queries?.shape.length === 3 ? queries.shape[0] : x.shape[0];
  if (!(head < heads)) throw new Error(`head = ${head}: ${name} has ${heads} heads, from 0 on`);
  const size = x.data.length / x.shape[0];
  const at = Math.floor((head * x.shape[0]) / heads) * size;
  return { shape: x.shape.slice(1), data: x.data.slice(at, at + size) };
}

export class Site {
  /** @param {Files} files */
  constructor(files) {
    this.files = files;
    /** @type {Promise<any> | null} */
    this.about = null;
    /** @type {Map<string, Promise<any>>} */
    this.opened = new Map();
    /** @type {Map<string, Run>} */
    this.runs = new Map(); // by the text of their request, which is their id
  }

  /** As fetch. @param {string} path @param {{ method?: string, body?: string }} options */
  async respond(path, { method = "GET", body = "{}" } = {}) {
    const [route, search] = path.slice("/api/v1/".length).split("?");
    const query = new URLSearchParams(search);
    try {
      return await this.answer(`${method} ${route}`, query, body);
    } catch (error) {
      const { message } = /** @type {Error} */ (error);
      return error instanceof Expired
        ? refuse(410, message, "trace_expired")
        : refuse(400, message, "E_USAGE");
    }
  }

  /** @param {string} route @param {URLSearchParams} query @param {string} body */
  async answer(route, query, body) {
    const [verb, ...rest] = route.split(/[ /]/);
    switch (`${verb} ${rest[0]}`) {
      case "GET models":
        return json(await this.models());
      case "POST tokenize": {
        const { model, text } = JSON.parse(body);
        const { source } = await this.open(model);
        return json(tokensOf(source, source.encode(text)));
      }
      case "POST trace":
        return json(await this.trace(JSON.parse(body)));
      case "GET compare": {
        const [before, after] = ["before", "after"].map((name) => this.run(query.get(name) ?? ""));
        const { settings } = await this.models();
        const step = query.has("step") ? Number(query.get("step")) : null;
        return json(compare(before, after, step, settings.interventions));
      }
      case "GET lessons":
        return json(await this.files.lesson(rest[1] ?? ""));
    }
    if (rest[2] === "tensors") return this.tensors(this.run(decodeURIComponent(rest[1])), query);
    if (rest[2] === "reading") return this.reading(this.run(decodeURIComponent(rest[1])), query);
    throw new Error("A page without a program behind it cannot do this; start “regard explore” for it.");
  }

  models() {
    return (this.about ??= this.files.models());
  }

  /** @param {string} name */
  async open(name) {
    const { models } = await this.models();
    const chosen = models.find((/** @type {any} */ each) => each.name === name) ?? models[0];
    if (!this.opened.has(chosen.name)) {
      const loading = this.files.model(chosen.file).then(({ description, weights }) => ({
        ...openModel(description, readWeights(weights)),
        name: chosen.name,
      }));
      this.opened.set(chosen.name, loading);
      loading.catch(() => this.opened.delete(chosen.name)); // the next request tries again
    }
    return /** @type {Promise<any>} */ (this.opened.get(chosen.name));
  }

  /** @param {string} id */
  run(id) {
    const run = this.runs.get(id);
    if (!run) throw new Expired("this trace is no longer cached; request it again");
    return run;
  }

  /** @param {any} body */
  async trace(body) {
    const model = await this.open(body.model);
    const id = JSON.stringify([model.name, body]);
    if (!this.runs.has(id)) this.runs.set(id, trace(model, body));
    for (const oldest of this.runs.keys()) if (this.runs.size > MOST) this.runs.delete(oldest);
    return { model: model.name, ...pageJson(id, this.run(id)) };
  }

  /** @param {Run} run @param {URLSearchParams} query */
  tensors(run, query) {
    /** @type {Map<string, Part>} */
    const parts = new Map();
    for (const pattern of query.getAll("name")) {
      const names = [...run.tensors.keys()].filter((name) => matcher(pattern).test(name));
      if (!names.length) throw new Error(`"${pattern}" is not in this trace`);
      for (const name of names) parts.set(name, selected(run, name, query));
    }
    return new Response(encode(parts));
  }

  /** @param {Run} run @param {URLSearchParams} query */
  async reading(run, query) {
    const kind = query.get("kind") ?? "";
    if (kind === "heads") {
      const parts = [...headStatistics(run)].map(([name, x]) => /** @type {const} */ ([name, partOf(x)]));
      return new Response(encode(new Map(parts), { "regard.reading": "{}" }));
    }
    const head = query.get("head") ?? "mean";
    const { caveats } = await this.models();
    const { values, about } = matrix(run, caveats, {
      kind,
      where: query.get("where") ?? "",
      head: head === "mean" ? null : Number(head),
      words: query.get("words") === "true",
    });
    return new Response(
      encode(new Map([["values", partOf(values)]]), { "regard.reading": JSON.stringify(about) }),
    );
  }
}

/**
 * The part of a tensor that a query asks for.
 * @param {Run} run @param {string} name @param {URLSearchParams} query @returns {Part}
 */
function selected(run, name, query) {
  let x = /** @type {AnyTensor} */ (run.tensors.get(name));
  if (query.has("head")) x = ofHead(run, name, Number(query.get("head")));
  let part = partOf(x);
  for (const [field, back] of /** @type {[string, number][]} */ ([
    ["row", 2],
    ["column", 1],
  ])) {
    if (query.has(field)) part = narrow(part, part.shape.length - back, Number(query.get(field)));
  }
  if (query.has("pool")) part = partOf(maxPool(/** @type {Tensor} */ (x), Number(query.get("pool"))));
  if (query.get("dtype") !== "U8" || part.dtype !== "F32" || !SHARES.some((end) => name.endsWith(end)))
    return part;
  const { shape, bytes } = part;
  const values = new Float32Array(bytes.slice().buffer);
  return { dtype: "U8", shape, bytes: Uint8Array.from(values, (value) => Math.round(value * 255)) };
}
