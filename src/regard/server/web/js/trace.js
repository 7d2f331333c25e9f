// One run of the model: what the server told of it, and its tensors, brought when they are looked at.
import * as api from "./api.js";

const MOST = 8; // runs whose tensors are remembered
const runs = new Map();

/** The run that the server told of; the same run is the same object, with the tensors it brought already. */
export function remembered(data) {
  const trace = runs.get(data.id) ?? new Trace(data);
  runs.delete(data.id);
  runs.set(data.id, trace);
  while (runs.size > MOST) runs.delete(runs.keys().next().value);
  return trace;
}

export class Trace {
  constructor(data) {
    const { tensors, ...rest } = data;
    Object.assign(this, rest);
    this.shapes = new Map(tensors.map((each) => [each.name, each.shape]));
    this.cache = new Map();
  }

  has(name) {
    return this.shapes.has(name);
  }

  /** `encoder.0.self`, `decoder.1.cross` ... in the order of the run. */
  get attentions() {
    return [...this.shapes.keys()].filter((n) => n.endsWith(".weights")).map((n) => n.slice(0, -8));
  }

  /** What was changed in this attention, or in one of its heads. */
  changes(type, where, head = null) {
    return (this.meta.interventions ?? []).filter(
      (each) =>
        each.type === type &&
        (each.where ?? where) === where &&
        (head === null || (each.head ?? head) === head),
    );
  }

  heads(where) {
    return this.shapes.get(`${where}.weights`)[0];
  }

  /** The pieces of an attention's queries and keys. */
  sides(where) {
    if (where.endsWith("cross")) return [this.tokens.target, this.tokens.source];
    const pieces = where.startsWith("encoder") ? this.tokens.source : this.tokens.target;
    return [pieces, pieces];
  }

  /** Several tensors by name; those that the run does not have are left out. */
  async tensors(names, options = {}) {
    const wanted = names.filter((name) => name.includes("*") || this.has(name));
    if (!wanted.length) return {};
    const key = JSON.stringify([wanted, options]);
    if (!this.cache.has(key)) {
      const request = api.tensors(this.id, wanted, options);
      this.cache.set(key, request);
      request.catch(() => this.cache.delete(key));
    }
    return this.cache.get(key);
  }

  /** A reading that Python computes: {kind, where, head, words}. */
  async reading(query) {
    const key = `reading ${JSON.stringify(query)}`;
    if (!this.cache.has(key)) {
      const request = api.reading(this.id, query);
      this.cache.set(key, request);
      request.catch(() => this.cache.delete(key));
    }
    return this.cache.get(key);
  }

  /** All that one head of an attention computed. */
  async head(where, head) {
    const side = where.split(".")[0];
    const plain = this.has(`${where}.query`) && this.has(`${where}.mixed`); // then the scores are computed again from q and k
    const parts = ["query", "key", "value", "mask", ...(plain ? [] : ["scores"]), "weights", "mixed"].map(
      (p) => `${where}.${p}`,
    );
    const bias = where.endsWith(".self") ? [`${side}.positions.bias`] : [];
    const tensors = await this.tensors([...parts, ...bias], { head });
    const short = Object.fromEntries(parts.map((name) => [name.slice(where.length + 1), tensors[name]]));
    return {
      ...short,
      bias: bias.length ? tensors[bias[0]] : undefined,
      scale: this.scale(where, short),
      equal: this.changes("uniform", where, head).length > 0,
      off: this.changes("zero_head", where, head).length > 0,
    };
  }

  /** 1 / sqrt(C); T5 leaves it out, and each intervention that drops it divides by it. null: no scaled product (Bahdanau). */
  scale(where, parts) {
    if (!parts.query || !parts.mixed) return null;
    if (this.meta.family === "t5") return 1;
    return parts.query.shape.at(-1) ** (-0.5 * (1 - this.changes("drop_scale", where).length));
  }
}

export const row = (tensor, number) => {
  const width = tensor.shape.at(-1);
  return tensor.data.subarray(number * width, (number + 1) * width);
};

/** The attention of one query, recomputed in float64 from q and k (or from the scores, where there is no product):
    e_j = q . k_j * scale + bias, or 0 where a change made all scores equal;  a_j = exp(e_j - max) / sum_j exp(e_j - max) over the visible keys. */
export function recompute(parts, query) {
  const keys = parts.weights.shape.at(-1);
  const visible = (j) => !parts.mask || parts.mask.data[query * keys + j] !== 0;
  const products = [],
    scores = [];
  for (let j = 0; j < keys; j++) {
    if (parts.scale === null) {
      products.push(null);
      scores.push(parts.scores.data[query * keys + j]);
      continue;
    }
    const q = row(parts.query, query),
      k = row(parts.key, j);
    let sum = 0;
    for (let c = 0; c < q.length; c++) sum += q[c] * k[c];
    products.push(sum);
    scores.push(parts.equal ? 0 : sum * parts.scale + (parts.bias ? parts.bias.data[query * keys + j] : 0));
  }
  const seen = scores.filter((_, j) => visible(j));
  const highest = Math.max(...seen);
  const powers = scores.map((score, j) => (visible(j) ? Math.exp(score - highest) : 0));
  const sum = powers.reduce((a, b) => a + b, 0);
  const weights = powers.map((power) => (sum > 0 ? power / sum : 0));
  return { products, scores, visible: scores.map((_, j) => visible(j)), highest, powers, sum, weights };
}
