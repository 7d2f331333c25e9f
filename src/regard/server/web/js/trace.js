// One run of the model: what the server sent of it, and its tensors, fetched when they are looked at.
import * as api from "./api.js";

/** @import { Tensor } from "./safetensors.js" */
/** @import { Change } from "./interventions.js" */
/**
 * @typedef {object} Side tokens of one side of a run
 * @property {number[]} ids
 * @property {string[]} shown
 * @property {number[]} words the word of each token; -1 for none
 * @property {string[]} [labels] of a decoder: what each position has read, and what it writes
 *
 * @typedef {object} Choice
 * @property {number} id
 * @property {string} shown
 * @property {number} p
 *
 * @typedef {object} Step
 * @property {string} shown
 * @property {number | null} id
 * @property {number | null} p
 * @property {Choice[]} best
 *
 * @typedef {object} BeamNode
 * @property {number} number
 * @property {number} step
 * @property {number} parent
 * @property {number} token
 * @property {string} shown
 * @property {number} log_p
 * @property {number} score
 * @property {"kept" | "pruned" | "finished"} fate
 * @property {boolean} best
 *
 * @typedef {object} TraceData a run as the server describes it
 * @property {string} id
 * @property {string} output
 * @property {{ name: string, shape: number[] }[]} tensors
 * @property {Record<string, Side>} tokens
 * @property {Record<string, any>} meta
 * @property {BeamNode[]} beam
 * @property {Record<string, string>} vocabulary
 * @property {Step[]} steps
 * @property {string | null} attention the one that is shown first
 *
 * @typedef {object} HeadParts what one head of an attention computed
 * @property {Tensor} [query]
 * @property {Tensor} [key]
 * @property {Tensor} [value]
 * @property {Tensor<Uint8Array>} [mask]
 * @property {Tensor} [scores]
 * @property {Tensor} weights
 * @property {Tensor} [mixed]
 * @property {Tensor} [bias]
 * @property {number | null} scale
 * @property {boolean} [equal] all scores are made equal
 * @property {boolean} [off] the head is ablated
 * @property {number} group the head of the keys, which several heads of queries may share
 */

const MAX_RUNS = 8; // whose tensors stay in memory
/** @type {Map<string, Trace>} */
const runs = new Map();

/** The run of these data; the same run is the same object, with the tensors it has fetched. @param {TraceData} data */
export function traceOf(data) {
  const trace = runs.get(data.id) ?? new Trace(data);
  runs.delete(data.id);
  runs.set(data.id, trace);
  for (const id of runs.keys()) {
    if (runs.size <= MAX_RUNS) break;
    runs.delete(id);
  }
  return trace;
}

export class Trace {
  /** @param {TraceData} data */
  constructor({ id, output, tensors, tokens, meta, beam, vocabulary, steps, attention }) {
    this.id = id;
    this.output = output;
    this.tokens = tokens;
    this.meta = meta;
    this.beam = beam;
    this.vocabulary = vocabulary;
    this.steps = steps;
    this.defaultAttention = attention;
    this.shapes = new Map(tensors.map((each) => [each.name, each.shape]));
    /** @type {Map<string, Promise<any>>} */
    this.cache = new Map();
  }

  /** @param {string} name */
  has(name) {
    return this.shapes.has(name);
  }

  /** `encoder.0.self`, `decoder.1.cross` ... in the order of the run. */
  get attentions() {
    return [...this.shapes.keys()].filter((n) => n.endsWith(".weights")).map((n) => n.slice(0, -8));
  }

  /**
   * The interventions of a type in this attention, or in one of its heads.
   * @param {string} type
   * @param {string} where
   * @param {number | null} head
   */
  changes(type, where, head = null) {
    /** @type {Change[]} */
    const all = this.meta.interventions ?? [];
    return all.filter(
      (each) =>
        each.type === type &&
        (each.where ?? where) === where &&
        (head === null || (each.head ?? head) === head),
    );
  }

  /** @param {string} where */
  heads(where) {
    return this.shapes.get(`${where}.weights`)?.[0] ?? 0;
  }

  /**
   * The tokens of an attention's queries and keys.
   * @param {string} where
   * @returns {[Side, Side]}
   */
  sides(where) {
    if (where.endsWith("cross")) return [this.tokens.target, this.tokens.source];
    const tokens = where.startsWith("encoder") ? this.tokens.source : this.tokens.target;
    return [tokens, tokens];
  }

  /**
   * Several tensors by name; those that the run does not have are left out.
   * @param {string[]} names
   * @param {Record<string, string | number>} options
   * @returns {Promise<Record<string, Tensor<any>>>}
   */
  async tensors(names, options = {}) {
    const present = names.filter((name) => name.includes("*") || this.has(name));
    if (!present.length) return {};
    return this.cached(["tensors", present, options], () => api.tensors(this.id, present, options));
  }

  /**
   * A reading that Python computes: {kind, where, head, words}.
   * @param {Record<string, any>} query
   */
  async reading(query) {
    return this.cached(["reading", query], () => api.reading(this.id, query));
  }

  /**
   * What was fetched under a key; a request that failed is forgotten.
   * @template Result
   * @param {unknown} key
   * @param {() => Promise<Result>} fetch
   * @returns {Promise<Result>}
   */
  cached(key, fetch) {
    const name = JSON.stringify(key);
    const cached = this.cache.get(name);
    if (cached) return cached;
    const request = fetch();
    this.cache.set(name, request);
    request.catch(() => this.cache.delete(name));
    return request;
  }

  /**
   * All that one head of an attention computed.
   * @param {string} where
   * @param {number} head
   * @returns {Promise<HeadParts>}
   */
  async head(where, head) {
    const computable = this.has(`${where}.query`) && this.has(`${where}.mixed`); // the scores, from q and k
    const parts = ["query", "key", "value", "mask", "weights", "mixed", ...(computable ? [] : ["scores"])];
    const bias = `${where.split(".")[0]}.positions.bias`;
    const names = [...parts.map((part) => `${where}.${part}`), ...(where.endsWith(".self") ? [bias] : [])];
    const tensors = await this.tensors(names, { head });
    const short = Object.fromEntries(parts.map((part) => [part, tensors[`${where}.${part}`]]));
    return {
      ...short,
      weights: short.weights,
      bias: tensors[bias],
      scale: this.scale(where, short),
      equal: this.changes("uniform", where, head).length > 0,
      off: this.changes("zero_head", where, head).length > 0,
      group: Math.floor((head * (this.shapes.get(`${where}.key`)?.[0] ?? 1)) / this.heads(where)),
    };
  }

  /**
   * The factor of q . k: 1 / sqrt(C), in T5 1; each intervention that drops the scale divides by it.
   * null: no scaled product (Bahdanau).
   * @param {string} where
   * @param {Record<string, Tensor | undefined>} parts
   */
  scale(where, { query, mixed }) {
    if (!query || !mixed) return null;
    if (this.meta.family === "t5") return 1;
    return query.shape[query.shape.length - 1] ** (-0.5 * (1 - this.changes("drop_scale", where).length));
  }
}

/** @param {Tensor<any>} tensor @param {number} number */
export const row = (tensor, number) => {
  const width = tensor.shape[tensor.shape.length - 1];
  return tensor.data.subarray(number * width, (number + 1) * width);
};

/**
 * The attention of one query, recomputed in float64 from q and k (or from the scores, where there is no product):
 * e_j = q . k_j * scale + bias, or 0 where all scores are made equal;
 * a_j = exp(e_j - max) / sum_j exp(e_j - max) over the visible keys.
 * @param {HeadParts} parts
 * @param {number} query
 */
export function recompute(parts, query) {
  const { weights, mask, scores: recorded, scale, bias, equal } = parts;
  const keys = weights.shape[weights.shape.length - 1];
  const numbers = Array.from({ length: keys }, (_, j) => j);
  const visible = numbers.map((j) => !mask || mask.data[query * keys + j] !== 0);
  const products = numbers.map((j) => (scale === null ? null : product(parts, query, j)));
  const scores = products.map((each, j) => {
    if (each === null || scale === null) return recorded?.data[query * keys + j] ?? NaN;
    return equal ? 0 : each * scale + (bias ? bias.data[query * keys + j] : 0);
  });
  const highest = Math.max(...scores.filter((_, j) => visible[j]));
  const powers = scores.map((score, j) => (visible[j] ? Math.exp(score - highest) : 0));
  const sum = powers.reduce((a, b) => a + b, 0);
  return {
    products,
    scores,
    visible,
    highest,
    powers,
    sum,
    weights: powers.map((power) => (sum > 0 ? power / sum : 0)),
  };
}

/** q . k @param {HeadParts} parts @param {number} query @param {number} key */
function product({ query: queries, key: keys }, query, key) {
  if (!queries || !keys) return null;
  const k = row(keys, key);
  return row(queries, query).reduce(
    (/** @type {number} */ sum, /** @type {number} */ each, /** @type {number} */ c) => sum + each * k[c],
    0,
  );
}
