// Sampling with temperature, top-k and top-p. The random numbers of a draw are those of Python: a Philox generator
// (Salmon et al. 2011), as numpy has it, whose key is BLAKE2b of the seed and the prompt.
import { softmax, top } from "./math.js";
import { hypothesis, penalised, processLogits } from "./search.js";

/** @import { Tap } from "./tap.js" */
/** @import { Hypothesis, Options, Special } from "./search.js" */

const WORD = (1n << 64n) - 1n;
const INITIAL = [
  0x6a09e667f3bcc908n,
  0xbb67ae8584caa73bn,
  0x3c6ef372fe94f82bn,
  0xa54ff53a5f1d36f1n,
  0x510e527fade682d1n,
  0x9b05688c2b3e6c1fn,
  0x1f83d9abfb41bd6bn,
  0x5be0cd19137e2179n,
];
const ORDER = [
  "0123456789abcdef",
  "ea489fd61c02b753",
  "b8c052fdae367194",
  "7931dcbe265a40f8",
  "905724afe1bc683d",
  "2c6a0b834d75fe19",
  "c51fed4a0763928b",
  "db7ec13950f4862a",
  "6fe9b308c2d714a5",
  "a2847615fb9e3cd0",
].map((row) => [...row].map((digit) => parseInt(digit, 16)));
const QUARTERS = [
  [0, 4, 8, 12],
  [1, 5, 9, 13],
  [2, 6, 10, 14],
  [3, 7, 11, 15],
  [0, 5, 10, 15],
  [1, 6, 11, 12],
  [2, 7, 8, 13],
  [3, 4, 9, 14],
];

/** @param {bigint} x @param {bigint} n */
const turned = (x, n) => ((x >> n) | (x << (64n - n))) & WORD;

/**
 * One block of BLAKE2b (RFC 7693, 3.2), in place.
 * @param {bigint[]} h @param {bigint[]} m @param {number} count of bytes so far @param {boolean} last
 */
function compress(h, m, count, last) {
  const v = [...h, ...INITIAL];
  v[12] ^= BigInt(count);
  if (last) v[14] ^= WORD;
  for (let round = 0; round < 12; round++) {
    const order = ORDER[round % 10];
    QUARTERS.forEach(([a, b, c, d], i) => {
      for (const [word, one, two] of /** @type {[bigint, bigint, bigint][]} */ ([
        [m[order[2 * i]], 32n, 24n],
        [m[order[2 * i + 1]], 16n, 63n],
      ])) {
        v[a] = (v[a] + v[b] + word) & WORD;
        v[d] = turned(v[d] ^ v[a], one);
        v[c] = (v[c] + v[d]) & WORD;
        v[b] = turned(v[b] ^ v[c], two);
      }
    });
  }
  for (let i = 0; i < 8; i++) h[i] ^= v[i] ^ v[i + 8];
}

/** The first 16 bytes of BLAKE2b with that digest size, as two words. @param {string} text */
export function blake2b(text) {
  const bytes = new TextEncoder().encode(text);
  const blocks = Math.max(1, Math.ceil(bytes.length / 128));
  const padded = new Uint8Array(blocks * 128);
  padded.set(bytes);
  const view = new DataView(padded.buffer);
  const h = [INITIAL[0] ^ 0x01010010n, ...INITIAL.slice(1)];
  for (let n = 0; n < blocks; n++) {
    const words = Array.from({ length: 16 }, (_, i) => view.getBigUint64(n * 128 + i * 8, true));
    compress(h, words, Math.min(bytes.length, (n + 1) * 128), n === blocks - 1);
  }
  return [h[0], h[1]];
}

/** Numbers from 0 to 1: Philox4x64 with ten rounds. @param {bigint[]} key @returns {() => number} */
export function philox(key) {
  let counter = 0n;
  /** @type {bigint[]} */
  let buffer = [];
  return () => {
    if (!buffer.length) {
      counter += 1n;
      let [a, b, c, d] = [counter, 0n, 0n, 0n];
      let [k, l] = key;
      for (let round = 0; round < 10; round++) {
        const [one, two] = [0xd2e7470ee14c6c93n * a, 0xca5a826395121157n * c];
        [a, b, c, d] = [(two >> 64n) ^ b ^ k, two & WORD, (one >> 64n) ^ d ^ l, one & WORD];
        k = (k + 0x9e3779b97f4a7c15n) & WORD;
        l = (l + 0xbb67ae8584caa73bn) & WORD;
      }
      buffer = [a, b, c, d];
    }
    return Number(/** @type {bigint} */ (buffer.shift()) >> 11n) * 2 ** -53;
  };
}

/** p of each token, 0 outside of top-k and top-p. @param {Float32Array} logits @param {Options} options */
function distribution(logits, { temperature, top_k: topK, top_p: topP }) {
  const values = Float64Array.from(logits, (value) => value / temperature);
  if (topK > 0 && topK < values.length) {
    const smallest = values[top(values, topK)[topK - 1]];
    values.forEach((value, i) => value < smallest && (values[i] = -Infinity));
  }
  if (topP < 1) {
    const p = softmax(values.slice());
    const order = Array.from(values.keys()).sort((i, j) => values[j] - values[i] || i - j);
    let before = 0;
    for (const i of order) {
      if (before >= topP) values[i] = -Infinity;
      before += p[i];
    }
  }
  return softmax(values);
}

/**
 * The token at which the cumulative probability exceeds a share.
 * @param {ArrayLike<number>} p @param {number} share
 */
function drawn(p, share) {
  let total = 0;
  for (let i = 0; i < p.length; i++) total += p[i];
  let [sum, last] = [0, 0];
  for (let i = 0; i < p.length; i++) {
    sum += p[i];
    if (p[i] > 0) last = i;
    if (sum > share * total) return i;
  }
  return last;
}

/**
 * The best of `beam` draws.
 * @param {any} model @param {any} input @param {any} active @param {Options} options
 * @param {Special} special @param {Tap | null} tap
 * @returns {Hypothesis}
 */
export function sample(model, input, active, options, special, tap) {
  const ids = `[${input.source.join(", ")}]`;
  const draws = Array.from({ length: options.beam }, (_, number) => {
    const random = philox(blake2b(`${options.seed} ${number} ${ids}`));
    /** @type {number[]} */
    const tokens = [];
    /** @type {number[]} */
    const logP = [];
    let cache = model.start(input, special.start, tap);
    let token = cache.first;
    do {
      const fed = model.step(cache, token, tap);
      cache = fed.cache;
      const forced = active.forced.get(tokens.length);
      if (forced !== undefined) {
        [token, logP[tokens.length]] = [forced, 0];
      } else {
        processLogits(fed.logits, active, tokens, options, special);
        const seen = [...active.context, ...tokens];
        const penalty = options.repetition_penalty;
        const logits = penalty === 1 ? fed.logits : penalised(fed.logits, seen, penalty);
        if (logits.every((/** @type {number} */ value) => value === -Infinity)) logits[special.end] = 0;
        const p = distribution(logits, options);
        token = drawn(p, random());
        logP[tokens.length] = Math.log(p[token]);
      }
      tokens.push(token);
    } while (!active.ends.includes(token) && tokens.length < active.limit);
    return hypothesis(
      tokens,
      logP,
      logP.reduce((a, b) => a + b, 0),
      active,
      options,
    );
  });
  return draws.reduce((best, each) => (each.score > best.score ? each : best));
}
