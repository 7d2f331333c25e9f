// Readings of a run: weights, value norms, rollout, statistics of heads, as in interpret/activations.py and
// interpret/readings.py.
import { map, tensor } from "./math.js";
import { groupTexts, groupsOf } from "./texts.js";

/** @import { Tensor } from "./math.js" */
/** @import { Run, Tokens } from "./run.js" */

/** The attentions of a run: `encoder.0.self`, `decoder.3.cross` ... @param {Run} run */
export const attentionsOf = (run) =>
  [...run.tensors.keys()].flatMap((name) =>
    name.endsWith(".weights") ? [name.slice(0, -".weights".length)] : [],
  );

/**
 * The attention that is shown first: cross-attention, else self-attention, of the second-to-last layer.
 * @param {Run} run
 */
export function firstAttention(run) {
  const names = attentionsOf(run);
  const kind = names.some((name) => name.endsWith("cross")) ? "cross" : "self";
  const candidates = names.filter((name) => name.endsWith(kind));
  return candidates[Math.max(0, candidates.length - 2)] ?? null;
}

/**
 * The tokens of an attention's queries and keys.
 * @param {Run} run @param {string} where @returns {[Tokens, Tokens]}
 */
function sidesOf({ tokens }, where) {
  if (where.endsWith("cross")) return [tokens.target, tokens.source];
  const side = tokens[where.startsWith("encoder") ? "source" : "target"];
  return [side, side];
}

/**
 * The rows of an attention: of a decoder, the token a position has read and the one it writes.
 * @param {Run} run @param {string} where
 */
export function queryLabels(run, where) {
  const { shown } = sidesOf(run, where)[0];
  const { output } = run.tokens;
  if (where.startsWith("encoder") || !output) return shown;
  const given = (run.meta.prompt || 1) - 1; // positions whose next token was given
  return shown.map((text, t) => `after ${text}, ${t < given ? "reads" : "writes"} ${output.shown[t]}`);
}

/**
 * [H,T,S] of an attention, by the norms of the values or not.
 * @param {Run} run @param {string} where @param {boolean} weighted @returns {Tensor}
 */
function weightsOf({ tensors }, where, weighted = false) {
  const weights = /** @type {Tensor | undefined} */ (tensors.get(`${where}.weights`));
  if (!weights) throw new Error(`there is no attention "${where}" in this trace`);
  if (!weighted) return weights;
  const norms = /** @type {Tensor | undefined} */ (tensors.get(`${where}.value_norms`));
  if (!norms) throw new Error(`${where}: the norms of its values are not in this trace`);
  const [, queries, keys] = weights.shape;
  return map(
    weights,
    (value, at) => value * norms.data[Math.floor(at / (queries * keys)) * keys + (at % keys)],
  );
}

/**
 * One head, or the mean of all: [H,T,S] -> [T,S].
 * @param {Tensor} x @param {number | null} head @returns {Tensor}
 */
function headOf({ shape: [heads, queries, keys], data }, head = null) {
  const size = queries * keys;
  const out = tensor([queries, keys]);
  if (head !== null) out.data.set(data.subarray(head * size, (head + 1) * size));
  else {
    for (let at = 0; at < size; at++) {
      let sum = 0;
      for (let h = 0; h < heads; h++) sum += data[h * size + at];
      out.data[at] = sum / heads;
    }
  }
  return out;
}

/** a b: [T,K], [K,S] -> [T,S]. @param {Tensor} a @param {Tensor} b */
function product(a, b) {
  const [rows, inner] = a.shape;
  const columns = b.shape[1];
  const out = tensor([rows, columns]);
  for (let at = 0; at < out.data.length; at++) {
    const [t, s] = [Math.floor(at / columns), at % columns];
    let sum = 0;
    for (let k = 0; k < inner; k++) sum += a.data[t * inner + k] * b.data[k * columns + s];
    out.data[at] = sum;
  }
  return out;
}

/** (A x + x) / 2: attention and the residual connection. @param {Tensor} a @param {Tensor} x */
const halfway = (a, x) => map(product(a, x), (value, at) => (value + x.data[at]) / 2);

/** @param {number} size */
function identity(size) {
  const out = tensor([size, size]);
  for (let i = 0; i < size; i++) out.data[i * size + i] = 1;
  return out;
}

/**
 * Attention rollout (Abnar & Zuidema 2020): R_0 = I, R_l = (A_l + I) / 2 R_{l-1}, A_l being the mean of the
 * heads; of an encoder-decoder the shares of the source.
 * @param {Run} run
 */
function rollout(run) {
  const names = attentionsOf(run);
  const selves = names.filter((name) => name.endsWith(".self"));
  if (!selves.length) throw new Error("a rollout needs self-attention, which this trace does not have");
  const mean = (/** @type {string} */ name) => headOf(weightsOf(run, name));
  const through = (/** @type {string[]} */ some) =>
    some.map(mean).reduce((shares, a) => halfway(a, shares), identity(weightsOf(run, some[0]).shape[2]));
  const encoder = selves.filter((name) => name.startsWith("encoder."));
  const cross = names.filter((name) => name.endsWith(".cross"));
  if (!cross.length) return through(selves);
  const read = through(encoder);
  let source = tensor([weightsOf(run, cross[0]).shape[1], read.shape[1]]);
  for (const name of cross) {
    source = halfway(mean(name.replace(".cross", ".self")), source);
    source = map(product(mean(name), read), (value, at) => (value + source.data[at]) / 2);
  }
  return source;
}

/**
 * Tokens to words: a_IJ = mean over i in I of the sum over j in J of a_ij: [T,S].
 * @param {Tensor} a @param {number[][]} queries @param {number[][]} keys
 */
function wordAttention(a, queries, keys) {
  const width = a.shape[1];
  const out = tensor([queries.length, keys.length]);
  queries.forEach((rows, i) =>
    keys.forEach((columns, j) => {
      let sum = 0;
      for (const t of rows) for (const s of columns) sum += a.data[t * width + s];
      out.data[i * keys.length + j] = sum / rows.length;
    }),
  );
  return out;
}

/**
 * A matrix with the texts of its rows and columns.
 * @param {Run} run
 * @param {Record<string, string>} caveats
 * @param {{ kind: string, where?: string, head?: number | null, words?: boolean }} query no head: the mean of all
 */
export function matrix(run, caveats, { kind, where = "", head = null, words = false }) {
  let values;
  if (kind === "rollout") {
    values = rollout(run);
    where = attentionsOf(run).find((name) => name.endsWith(".cross")) ?? attentionsOf(run)[0];
  } else values = headOf(weightsOf(run, where, kind === "value_norm"), head);
  const [queries, keys] = sidesOf(run, where);
  const honest = [caveats[kind === "weights" && head === null ? "mean" : kind]];
  let [rows, columns] = [queryLabels(run, where), keys.shown];
  let places = [queries.ids.map((_, i) => i), keys.ids.map((_, i) => i)];
  if (words) {
    values = wordAttention(values, groupsOf(queries), groupsOf(keys));
    [rows, columns] = [groupTexts(queries), groupTexts(keys)];
    places = [queries, keys].map((side) => groupsOf(side).map(([first]) => first));
    honest.push(caveats.words);
  }
  const special = [queries, keys].map(({ words: of }, side) =>
    places[side].flatMap((place, at) => (of[place] < 0 ? [at] : [])),
  );
  return { values, about: { rows, columns, places, special, honest } };
}

/** Entropy in bits and mean distance in tokens of all heads, [H] for each attention. @param {Run} run */
export function headStatistics(run) {
  /** @type {Map<string, Tensor>} */
  const statistics = new Map();
  for (const where of attentionsOf(run)) {
    const { shape, data } = weightsOf(run, where);
    const [heads, queries, keys] = shape;
    const [entropy, distance] = [tensor([heads]), tensor([heads])];
    data.forEach((value, at) => {
      const head = Math.floor(at / (queries * keys));
      const gap = Math.abs((Math.floor(at / keys) % queries) - (at % keys));
      entropy.data[head] -= (value * Math.log2(Math.max(value, 1e-30))) / queries;
      distance.data[head] += (value * gap) / queries;
    });
    statistics.set(`${where}.entropy`, entropy);
    statistics.set(`${where}.distance`, distance);
  }
  return statistics;
}

/**
 * At most `size` rows and columns, each the maximum of its field: [...,T,S].
 * @param {Tensor} x @param {number} size
 */
export function maxPool(x, size) {
  const [queries, keys] = x.shape.slice(-2);
  if (x.shape.length < 2 || Math.max(queries, keys) <= size) return x;
  const [height, width] = [Math.min(size, queries), Math.min(size, keys)];
  const out = tensor([...x.shape.slice(0, -2), height, width]);
  const edge = (/** @type {number} */ i, /** @type {number} */ from, /** @type {number} */ to) => [
    Math.floor((i * from) / to),
    Math.ceil(((i + 1) * from) / to),
  ];
  for (let at = 0; at < out.data.length; at++) {
    const [n, i, j] = [Math.floor(at / (height * width)), Math.floor(at / width) % height, at % width];
    const [[top, bottom], [left, right]] = [edge(i, queries, height), edge(j, keys, width)];
    let most = -Infinity;
    for (let t = top; t < bottom; t++) {
      for (let s = left; s < right; s++) most = Math.max(most, x.data[(n * queries + t) * keys + s]);
    }
    out.data[at] = most;
  }
  return out;
}
