// Recurrent sequence-to-sequence models, with Bahdanau's attention or without, as in models/recurrent.py.
// A state is the hidden state and, of an LSTM, the memory cell behind it.
import { linear, lookUp, map, maskedSoftmax, mix, sigmoid, tensor } from "./math.js";
import { range } from "./positions.js";
import { tapped, within } from "./tap.js";

/** @import { Tensor } from "./math.js" */
/** @import { Tap } from "./tap.js" */
/** @import { Sample } from "./transformer.js" */
/** @typedef {{ keys: Tensor, values: Tensor } | null} Memory of the source */

/** @param {Float32Array} values */
const row = (values) => tensor([values.length], values);

/** @param {Float32Array[]} parts */
function joined(parts) {
  const out = new Float32Array(parts.reduce((sum, part) => sum + part.length, 0));
  let at = 0;
  for (const part of parts) {
    out.set(part, at);
    at += part.length;
  }
  return out;
}

/** [n*D] as n vectors. @param {Float32Array} values @param {number} size */
const chunks = (values, size) =>
  range(values.length / size).map((n) => values.subarray(n * size, (n + 1) * size));

/** @param {number} size @param {(i: number) => number} f @returns {Float32Array} */
const vector = (size, f) => Float32Array.from({ length: size }, (_, i) => f(i));

/**
 * i, f, o = sigmoid(W x + U h + b), g = tanh(W x + U h + b), c' = f * c + i * g, h' = o * tanh(c').
 * @param {any} cell @param {Float32Array} read W x + b @param {Float32Array} state @param {Tap | null} tap
 */
function lstm(cell, read, state, tap) {
  const size = cell.size;
  const [h, c] = chunks(state, size);
  const recur = linear(row(h), cell.recur).data;
  const sums = chunks(
    vector(4 * size, (n) => read[n] + recur[n]),
    size,
  );
  const acts = [sigmoid, sigmoid, Math.tanh, sigmoid];
  const names = ["input", "forget", "candidate", "output"];
  const [i, f, g, o] = sums.map((sum, n) => tapped(tap, names[n], row(sum.map(acts[n]))).data);
  const memory = vector(size, (n) => f[n] * c[n] + i[n] * g[n]);
  const hidden = tapped(tap, "hidden", row(memory.map((value, n) => o[n] * Math.tanh(value)))).data;
  return joined([hidden, tapped(tap, "memory", row(memory)).data]);
}

/**
 * r, z = sigmoid(W x + U h + b), n = tanh(W x + b + r * (U h + b')), h' = (1 - z) * n + z * h.
 * @param {any} cell @param {Float32Array} read @param {Float32Array} state @param {Tap | null} tap
 */
function gru(cell, read, state, tap) {
  const size = cell.size;
  const [xr, xz, xn] = chunks(read, size);
  const [hr, hz, hn] = chunks(linear(row(state), cell.recur).data, size);
  const r = tapped(tap, "reset", row(vector(size, (i) => sigmoid(xr[i] + hr[i])))).data;
  const z = tapped(tap, "update", row(vector(size, (i) => sigmoid(xz[i] + hz[i])))).data;
  const fresh = vector(size, (i) => Math.tanh(xn[i] + r[i] * hn[i]));
  const n = tapped(tap, "candidate", row(fresh)).data;
  return tapped(tap, "hidden", row(vector(size, (i) => (1 - z[i]) * n[i] + z[i] * state[i]))).data;
}

/** @type {Record<string, (cell: any, read: Float32Array, state: Float32Array, tap: Tap | null) => Float32Array>} */
const CELLS = { lstm, gru };

/** @param {any} cell @param {Float32Array} read @param {Float32Array} state @param {Tap | null} tap */
const run = (cell, read, state, tap) => CELLS[cell.kind](cell, read, state, tap);

/**
 * A cell over a sequence, [T,inputs] -> hidden states by position, and the last state.
 * @param {any} cell @param {Tensor} x @param {boolean} backwards @param {Tap | null} tap
 */
function overSequence(cell, x, backwards, tap) {
  const reads = chunks(linear(x, cell.read).data, cell.read.weight.shape[0]);
  /** @type {Float32Array[]} */
  const hidden = [];
  let state = vector(cell.parts * cell.size, () => 0);
  for (const time of backwards ? range(reads.length).reverse() : range(reads.length)) {
    state = run(cell, reads[time], state, tap && tap.at(time));
    hidden[time] = state.subarray(0, cell.size);
  }
  return { hidden, state };
}

/** @param {any} part @param {Tensor} x @param {Tap | null} tap */
function encodeLayers(part, x, tap) {
  const last = part.layers.map((/** @type {any[]} */ cells, /** @type {number} */ n) => {
    const ways = cells.map((cell, way) => {
      const backwards = part.reverse !== Boolean(way);
      return overSequence(cell, x, backwards, within(tap, `${n}.${backwards ? "backward" : "forward"}`));
    });
    const rows = ways[0].hidden.map((_, t) => joined(ways.map(({ hidden }) => hidden[t])));
    x = tapped(tap, `${n}.hidden`, tensor([rows.length, rows[0].length], joined(rows)));
    const size = cells[0].size; // the states of both directions part by part: [h h', c c']
    return joined(range(cells[0].parts).flatMap((p) => ways.map(({ state }) => chunks(state, size)[p])));
  });
  return { x, last };
}

/**
 * e_j of a query and all keys: [D], [S,D] -> [S].
 * @param {any} score @param {Float32Array} query @param {Tensor} keys
 */
function scored(score, query, keys) {
  const width = keys.shape[1];
  const rows = chunks(keys.data, width);
  if (score.kind !== "additive") {
    return rows.map((key) => key.reduce((sum, value, i) => sum + value * query[i], 0));
  }
  const projected = linear(row(query), score.query).data;
  return rows.map(
    (key) => linear(row(key.map((value, i) => Math.tanh(value + projected[i]))), score.value).data[0],
  );
}

export class Recurrent {
  /** @param {any} part */
  constructor(part) {
    this.part = part;
    this.attentions = {};
    this.readsPrompts = false;
  }

  /** Logits at every target position, [T,V]. @param {Sample} sample @param {Tap | null} tap */
  forward(sample, tap) {
    const { states: first, memory } = this.encode(sample, tap);
    let states = first;
    const words = tapped(tap, "decoder.embedding", lookUp(this.part.target, sample.target));
    const scope = within(tap, "decoder");
    const out = sample.target.map((_, t) => {
      const word = words.data.subarray(t * words.shape[1], (t + 1) * words.shape[1]);
      const next = this.decode(word, states, memory, scope && scope.at(t));
      states = next.states;
      return next.x;
    });
    const hidden = tapped(scope, "out", tensor([out.length, out[0].length], joined(out)));
    return tapped(tap, "logits", linear(hidden, this.part.output));
  }

  /**
   * The first states of the decoder, and the memory of its attention.
   * @param {Sample} sample @param {Tap | null} tap
   */
  encode({ source }, tap) {
    const { encoder, bridge, score } = this.part;
    const x = tapped(tap, "encoder.embedding", lookUp(this.part.source, source));
    const { x: encoded, last } = encodeLayers(encoder, x, within(tap, "encoder"));
    let first = tensor([last.length, last[0].length], joined(last));
    if (bridge) first = map(linear(first, bridge), Math.tanh);
    first = tapped(tap, "decoder.first", first);
    const states = chunks(first.data, last[0].length);
    if (!score) return { states, memory: null };
    const keys = tapped(tap, "decoder.cross.key", score.key ? linear(encoded, score.key) : encoded);
    return { states, memory: { keys, values: tapped(tap, "decoder.cross.value", encoded) } };
  }

  /**
   * a_j = softmax_j(e_j), c = sum_j a_j h_j.
   * @param {Float32Array[]} states @param {NonNullable<Memory>} memory @param {Tap | null} tap
   */
  context(states, { keys, values }, tap) {
    const size = this.part.layers[this.part.layers.length - 1].size;
    const query = tapped(tap, "query", row(states[states.length - 1].subarray(0, size)));
    const e = scored(this.part.score, query.data, keys);
    const products = tapped(tap, "scores", tensor([1, e.length], Float32Array.from(e)));
    const all = { shape: [1, e.length], data: new Uint8Array(e.length).fill(1) };
    const weights = maskedSoftmax(tensor([1, 1, e.length], products.data), all);
    const a = tapped(tap, "weights", tensor([1, e.length], weights.data));
    const [count, width] = values.shape;
    const mixed = mix(tensor([1, 1, count], a.data), tensor([1, count, width], values.data));
    return tapped(tap, "context", row(mixed.data)).data;
  }

  /**
   * One step.
   * @param {Float32Array} word @param {Float32Array[]} states @param {Memory} memory @param {Tap | null} tap
   */
  decode(word, states, memory, tap) {
    const context = memory && this.context(states, memory, within(tap, "cross"));
    let x = context ? joined([word, context]) : word;
    const after = this.part.layers.map((/** @type {any} */ cell, /** @type {number} */ n) => {
      const state = run(cell, linear(row(x), cell.read).data, states[n], within(tap, String(n)));
      x = state.subarray(0, cell.size);
      return state;
    });
    if (context) x = linear(row(joined([x, context, word])), this.part.readout).data.map(Math.tanh);
    return { x, states: after };
  }

  /** @param {Sample} sample @param {number} start @param {Tap | null} tap */
  start(sample, start, tap) {
    return { ...this.encode(sample, tap), first: start };
  }

  /**
   * @param {{ states: Float32Array[], memory: Memory, first: number }} cache @param {number} token
   * @param {Tap | null} tap
   */
  step(cache, token, tap) {
    const word = lookUp(this.part.target, [token]).data;
    const { x, states } = this.decode(word, cache.states, cache.memory, within(tap, "decoder"));
    return { logits: linear(row(x), this.part.output).data, cache: { ...cache, states } };
  }
}
