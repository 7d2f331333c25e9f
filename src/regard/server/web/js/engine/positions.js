// Positions: vectors that are added to the embeddings, rotations of queries and keys, biases of the scores.
import { add, lookUp, map, norm, sizeOf, tensor } from "./math.js";
import { tapped } from "./tap.js";

/** @import { Mask, Tensor } from "./math.js" */
/** @import { Tap } from "./tap.js" */
/**
 * @typedef {{ rotation: Tensor[] | null, bias: Tensor | null }} Terms what positions contribute to attention
 */

/** @type {Terms} */
export const NO_TERMS = { rotation: null, bias: null };

/** @param {number} count @param {number} from @returns {number[]} */
export const range = (count, from = 0) => Array.from({ length: count }, (_, i) => from + i);

/**
 * PE(pos, 2i) = sin(pos / 10000^(2i/D)), PE(pos, 2i+1) = cos(pos / 10000^(2i/D))  (paper, 3.5): [T] -> [T,D].
 * @param {number[]} positions
 * @param {{ width: number, first: number, halves: boolean, denominator: number | null }} part
 */
function sinusoid(positions, { width, first, halves, denominator }) {
  const out = tensor([positions.length, width]);
  positions.forEach((place, t) => {
    const position = place + first;
    for (let i = 0; 2 * i < width; i++) {
      const angle = position / 10000 ** ((2 * i) / (denominator ?? width));
      out.data[t * width + (halves ? i : 2 * i)] = Math.sin(angle);
      out.data[t * width + (halves ? width / 2 + i : 2 * i + 1)] = Math.cos(angle);
    }
  });
  return out;
}

/** @param {any} part @param {number[]} positions */
const positionVectors = (part, positions) =>
  part.kind === "sinusoidal"
    ? sinusoid(positions, part)
    : lookUp(
        part.table,
        positions.map((each) => each + part.first),
      );

/**
 * embedding(token) * factor + position (paper, 3.4 and 3.5), of BERT also + segment, then its norm: [T] -> [T,D].
 * @param {any} part
 * @param {number[]} ids
 * @param {number[]} positions
 * @param {Tap | null} tap
 * @param {number[] | null} segments
 */
export function embed(part, ids, positions, tap, segments = null) {
  let x = tapped(
    tap,
    "tokens",
    map(lookUp(part.tokens, ids), (value) => value * part.factor),
  );
  if (part.positions) x = add(x, tapped(tap, "positions", positionVectors(part.positions, positions)));
  if (part.segments) {
    const last = part.segments.shape[0] - 1; // one for both texts: RoBERTa
    const which = ids.map((_, t) => Math.min(segments?.[t] ?? 0, last));
    x = add(x, tapped(tap, "segments", lookUp(part.segments, which)));
  }
  x = tapped(tap, "sum", x);
  return tapped(tap, "out", norm(x, part.norm));
}

/**
 * Which key each query may see: [T], [S] -> [T,S].
 * @param {number[]} queries
 * @param {number[]} keys
 * @param {boolean} causal
 * @param {number | null} reach the window: how many tokens self-attention sees
 * @returns {Mask}
 */
export function visible(queries, keys, causal, reach = null) {
  const shape = [queries.length, keys.length];
  const data = new Uint8Array(sizeOf(shape));
  queries.forEach((query, t) =>
    keys.forEach((key, s) => {
      const near = reach === null || Math.abs(query - key) < reach;
      data[t * keys.length + s] = Number((!causal || key <= query) && near);
    }),
  );
  return { shape, data };
}

/**
 * Rotation or bias for all attentions of a stack: [T], [S].
 * @param {any} part
 * @param {number[]} queries
 * @param {number[]} keys
 * @param {Tap | null} tap
 * @returns {Terms}
 */
export function positionTerms(part, queries, keys, tap) {
  if (!part) return NO_TERMS;
  if (part.kind !== "rotary") {
    const bias = (part.kind === "alibi" ? alibi : relativeBias)(part, queries, keys);
    return { rotation: null, bias: tapped(tap, "bias", bias) };
  }
  const pairs = part.frequencies.length;
  const [cosine, sine] = [Math.cos, Math.sin].map((wave) => {
    const out = tensor([queries.length, pairs]);
    for (let at = 0; at < out.data.length; at++) {
      out.data[at] = wave(queries[Math.floor(at / pairs)] * part.frequencies[at % pairs]);
    }
    return out;
  });
  return { rotation: [tapped(tap, "cosine", cosine), tapped(tap, "sine", sine)], bias: null };
}

/**
 * ALiBi: minus a multiple of the distance, of its own for each head: -> [H,T,S].
 * @param {any} part @param {number[]} queries @param {number[]} keys
 */
function alibi({ slopes }, queries, keys) {
  const out = tensor([slopes.length, queries.length, keys.length]);
  for (let at = 0; at < out.data.length; at++) {
    const [key, row] = [keys[at % keys.length], Math.floor(at / keys.length)];
    const distance = Math.abs(key - queries[row % queries.length]);
    out.data[at] = -slopes[Math.floor(row / queries.length)] * distance;
  }
  return out;
}

/**
 * T5's learned bias of each head for a distance: -> [H,T,S].
 * @param {any} part @param {number[]} queries @param {number[]} keys
 */
function relativeBias(part, queries, keys) {
  const heads = part.table.shape[1];
  const out = tensor([heads, queries.length, keys.length]);
  queries.forEach((query, t) =>
    keys.forEach((key, s) => {
      const row = bucket(part, key - query) * heads;
      for (let h = 0; h < heads; h++) {
        out.data[(h * queries.length + t) * keys.length + s] = part.table.data[row + h];
      }
    }),
  );
  return out;
}

/**
 * Small distances have a bucket each; larger ones share buckets of logarithmic size.
 * @param {any} part @param {number} distance
 */
function bucket({ both_ways: bothWays, buckets, farthest }, distance) {
  const count = bothWays ? Math.floor(buckets / 2) : buckets;
  const first = bothWays && distance > 0 ? count : 0;
  const size = bothWays ? Math.abs(distance) : Math.max(0, -distance);
  const exact = Math.floor(count / 2);
  if (size < exact) return first + size;
  const share = Math.fround(Math.fround(Math.log(Math.fround(size / exact))) / Math.log(farthest / exact));
  return first + Math.min(count - 1, exact + Math.trunc(Math.fround(share * (count - exact))));
}

/** Each pair of channels (i, i + C/2) rotated: [H,T,C]. @param {Tensor} x @param {Tensor[]} rotation */
export function rotate(x, [cosine, sine]) {
  const [, rows, channels] = x.shape;
  const half = channels / 2;
  const out = tensor(x.shape);
  for (let row = 0; row < x.data.length / channels; row++) {
    for (let i = 0; i < half; i++) {
      const [one, two] = [row * channels + i, row * channels + half + i];
      const [c, s] = [cosine.data[(row % rows) * half + i], sine.data[(row % rows) * half + i]];
      out.data[one] = x.data[one] * c - x.data[two] * s;
      out.data[two] = x.data[two] * c + x.data[one] * s;
    }
  }
  return out;
}
