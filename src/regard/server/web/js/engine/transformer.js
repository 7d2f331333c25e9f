// The Transformers: the same lines for the whole run, for a step of decoding and for the trace, as in models/*.py.
// A model is its description with tensors in place (weights.js). Shapes as in math.js.
import {
  ACTIVATIONS,
  add,
  appendRows,
  joinHeads,
  linear,
  map,
  maskedSoftmax,
  mix,
  norm,
  repeatHeads,
  rowOf,
  scores,
  splitHeads,
  tensor,
} from "./math.js";
import { embed, positionTerms, range, rotate, visible } from "./positions.js";
import { tapped, within } from "./tap.js";

/** @import { Mask, Tensor } from "./math.js" */
/** @import { Terms } from "./positions.js" */
/** @import { Tap } from "./tap.js" */
/** @typedef {[Tensor, Tensor]} KeysValues of all heads: [G,S,C] each */
/** @typedef {{ source: number[], target: number[], segments?: number[] | null }} Sample */

/** @param {any} part @param {Tensor} x @returns {KeysValues} */
function keysValues(part, x) {
  const key = splitHeads(linear(x, part.key), part.kv_heads);
  return [norm(key, part.key_norm), splitHeads(linear(x, part.value), part.kv_heads)];
}

/**
 * Attention(Q,K,V) = softmax(QK^T / sqrt(d_k)) V, then W_O  (paper, equation 1 and 3.2.2): -> [T,D].
 * @param {any} part
 * @param {Tensor} q
 * @param {KeysValues} kv
 * @param {Mask} mask
 * @param {Tap | null} tap
 * @param {Tensor | null} bias
 */
function attend(part, q, [k, v], mask, tap, bias = null) {
  q = tapped(tap, "query", q);
  const key = repeatHeads(tapped(tap, "key", k), part.heads);
  const value = repeatHeads(tapped(tap, "value", v), part.heads);
  mask = tapped(tap, "mask", mask);
  const products = tapped(tap, "scores", scores(q, key, part.scale, bias));
  const weights = tapped(tap, "weights", maskedSoftmax(products, mask));
  const mixed = tapped(tap, "mixed", mix(weights, value));
  return tapped(tap, "output", linear(joinHeads(mixed), part.output));
}

/** The input of a sub-layer. @param {any} residual @param {Tensor} x @param {Tap | null} tap */
const enter = (residual, x, tap) =>
  residual.placement === "pre" ? tapped(tap, "norm", norm(x, residual.norm)) : x;

/**
 * The residual stream after a sub-layer, whose output is y.
 * @param {any} residual @param {Tensor} x @param {Tensor} y @param {Tap | null} tap
 */
const leave = (residual, x, y, tap) =>
  residual.placement === "pre" ? add(x, y) : norm(tapped(tap, "sum", add(x, y)), residual.norm);

/**
 * FFN(x) = act(x W_1 + b_1) W_2 + b_2, or act(x W_g) * x W_1 in place of act(..).
 * @param {any} part @param {Tensor} x @param {Tap | null} tap
 */
function feedForward(part, x, tap) {
  const act = ACTIVATIONS[part.activation];
  const up = linear(x, part.up);
  let hidden = part.gate ? linear(x, part.gate) : up;
  hidden = map(hidden, (value, i) => act(value) * (part.gate ? up.data[i] : 1));
  return tapped(tap, "output", linear(tapped(tap, "hidden", hidden), part.down));
}

/**
 * Self-attention, in a decoder cross-attention, then feed-forward; each adds to the residual stream: [T,D] -> [T,D].
 * `past` are keys and values of earlier tokens; those with the new ones are returned.
 * @param {any} part
 * @param {Tensor} x
 * @param {Mask} mask
 * @param {{ past?: KeysValues, memory?: KeysValues | null, memoryMask?: Mask | null, order: Terms }} around
 * @param {Tap | null} tap
 * @returns {{ x: Tensor, kv: KeysValues }}
 */
function block(part, x, mask, { past, memory, memoryMask, order }, tap) {
  const [scope, across, feed] = ["self", "cross", "feed_forward"].map((name) => within(tap, name));
  const first = x;
  let y = enter(part.attention_residual, x, scope);
  let q = norm(splitHeads(linear(y, part.attention.query), part.attention.heads), part.attention.query_norm);
  let [k, v] = keysValues(part.attention, y);
  if (order.rotation) [q, k] = [rotate(q, order.rotation), rotate(k, order.rotation)];
  [k, v] = [appendRows(past?.[0] ?? null, k), appendRows(past?.[1] ?? null, v)];
  y = attend(part.attention, q, [k, v], mask, scope, order.bias);
  x = tapped(tap, "after_self", leave(part.attention_residual, x, y, scope));
  if (part.cross && memory && memoryMask) {
    q = splitHeads(linear(enter(part.cross_residual, x, across), part.cross.query), part.cross.heads);
    y = attend(part.cross, q, memory, memoryMask, across);
    x = tapped(tap, "after_cross", leave(part.cross_residual, x, y, across));
  }
  y = feedForward(
    part.feed_forward,
    enter(part.feed_forward_residual, part.parallel ? first : x, feed),
    feed,
  );
  return { x: tapped(tap, "out", leave(part.feed_forward_residual, x, y, feed)), kv: [k, v] };
}

/**
 * @param {any} part
 * @param {Tensor} x
 * @param {Mask} mask
 * @param {{ past?: KeysValues[], memory?: KeysValues[] | null, memoryMask?: Mask | null, order: Terms }} around
 * @param {Tap | null} tap
 */
function stack(part, x, mask, { past, memory, memoryMask, order }, tap) {
  const layers = part.blocks.map((/** @type {any} */ each, /** @type {number} */ n) => {
    const around = { past: past?.[n], memory: memory?.[n], memoryMask, order };
    const { x: next, kv } = block(each, x, mask, around, within(tap, String(n)));
    x = next;
    return kv;
  });
  return { x: tapped(tap, "out", norm(x, part.final_norm)), layers };
}

/**
 * All positions of the source in parallel: [S] -> [S,D].
 * @param {any} part @param {Sample} sample @param {Tap | null} tap
 */
function encode(part, { source, segments }, tap) {
  const positions = range(source.length);
  const scope = within(tap, "encoder");
  const mask = visible(positions, positions, false, part.encoder.window);
  const order = positionTerms(part.encoder.positions, positions, positions, within(scope, "positions"));
  const x = embed(part.source, source, positions, within(tap, "encoder.embedding"), segments);
  return stack(part.encoder, x, mask, { order }, scope).x;
}

/**
 * What a decoder has read: keys and values of all its tokens, and those of the source.
 * @typedef {object} Cache
 * @property {KeysValues[]} layers
 * @property {number} length
 * @property {KeysValues[] | null} memory
 * @property {number} first the token that is fed next
 */

/** Embedding, causal stack and output layer, with an encoder or without (GPT, Llama). */
export class Decoder {
  /** @param {any} part */
  constructor(part) {
    this.part = part;
    this.attentions = attentionsOf(part);
    this.readsPrompts = !part.encoder;
  }

  /** Logits at every target position, [T,V]. @param {Sample} sample @param {Tap | null} tap */
  forward(sample, tap) {
    const { encoder, target } = this.part;
    const memory = encoder ? this.memory(encode(this.part, sample, tap)) : null;
    const positions = range(sample.target.length);
    const x = embed(target, sample.target, positions, within(tap, "decoder.embedding"));
    return tapped(tap, "logits", linear(this.decode(x, positions, 0, memory, tap).x, this.part.output));
  }

  /**
   * Keys and values of the source, the same at every step.
   * @param {Tensor} encoded @returns {KeysValues[]}
   */
  memory(encoded) {
    return this.part.decoder.blocks.map((/** @type {any} */ each) => keysValues(each.cross, encoded));
  }

  /**
   * Tokens at these positions, behind `before` earlier ones.
   * @param {Tensor} x
   * @param {number[]} positions
   * @param {number} before
   * @param {KeysValues[] | null} memory
   * @param {Tap | null} tap
   * @param {KeysValues[]} [past]
   */
  decode(x, positions, before, memory, tap, past) {
    const part = this.part.decoder;
    const scope = within(tap, "decoder");
    const keys = range(before + positions.length);
    const mask = visible(positions, keys, true, part.window);
    const order = positionTerms(part.positions, positions, keys, within(scope, "positions"));
    const memoryMask = memory && visible(positions, range(memory[0][0].shape[1]), false);
    return stack(part, x, mask, { past, memory, memoryMask, order }, scope);
  }

  /**
   * Before the first step; a prompt is read up to its last token.
   * @param {Sample} sample @param {number} start @param {Tap | null} tap @returns {Cache}
   */
  start(sample, start, tap) {
    if (!this.readsPrompts) {
      const memory = this.memory(encode(this.part, sample, tap));
      return { layers: [], length: 0, memory, first: start };
    }
    const prompt = sample.source.slice(0, -1);
    const cache = { layers: [], length: 0, memory: null, first: sample.source[prompt.length] };
    return prompt.length ? this.feed(cache, prompt, tap).cache : cache;
  }

  /** @param {Cache} cache @param {number[]} tokens @param {Tap | null} tap */
  feed(cache, tokens, tap) {
    const positions = range(tokens.length, cache.length);
    const x = embed(this.part.target, tokens, positions, within(tap, "decoder.embedding"));
    const past = cache.layers.length ? cache.layers : undefined;
    const out = this.decode(x, positions, cache.length, cache.memory, tap, past);
    return { x: out.x, cache: { ...cache, layers: out.layers, length: cache.length + tokens.length } };
  }

  /**
   * One more token: logits [V] and the cache after it.
   * @param {Cache} cache @param {number} token @param {Tap | null} tap
   */
  step(cache, token, tap) {
    const { x, cache: after } = this.feed(cache, [token], tap);
    return { logits: linear(x, this.part.output).data, cache: after };
  }

  /** Final norm and output layer, for the logit lens. @param {Tensor} x */
  unembed(x) {
    return linear(norm(x, this.part.decoder.final_norm), this.part.output);
  }
}

/** Encoder-only models (BERT, ViT): logits for each token, or for the whole text. */
export class EncoderOnly {
  /** @param {any} part */
  constructor(part) {
    this.part = part;
    this.attentions = attentionsOf(part);
    this.readsPrompts = false;
  }

  /** @param {Sample} sample @param {Tap | null} tap */
  forward(sample, tap) {
    const x = encode(this.part, sample, tap);
    const head = this.head(this.part.pool ? pooled(x, this.part.pool) : x);
    return tapped(tap, "logits", linear(tapped(tap, "head", head), this.part.output));
  }

  /** @param {Tensor} x */
  head(x) {
    const { head } = this.part;
    return head ? norm(map(linear(x, head.dense), ACTIVATIONS[head.activation]), head.norm ?? null) : x;
  }

  /** @param {Tensor} x */
  unembed(x) {
    return linear(this.head(norm(x, this.part.encoder.final_norm)), this.part.output);
  }
}

/**
 * Mean, or the first position, or the mean of the first two: [S,D] -> [1,D].
 * @param {Tensor} x @param {string} pool
 */
function pooled(x, pool) {
  const [rows, width] = x.shape;
  const count = { first: 1, first_two: 2, mean: rows }[pool] ?? rows;
  const sums = new Float64Array(width);
  for (let t = 0; t < count; t++) rowOf(x, t).forEach((value, i) => (sums[i] += value / count));
  return tensor([1, width], Float32Array.from(sums));
}

/**
 * All attentions by name: `encoder.0.self`, `decoder.3.cross`.
 * @param {any} part @returns {Record<string, any>}
 */
function attentionsOf(part) {
  const sides = ["encoder", "decoder"].filter((side) => part[side]);
  const named = sides.flatMap((side) =>
    part[side].blocks.flatMap((/** @type {any} */ each, /** @type {number} */ n) =>
      [
        [`${side}.${n}.self`, each.attention],
        [`${side}.${n}.cross`, each.cross],
      ].filter(([, attention]) => attention),
    ),
  );
  return Object.fromEntries(named);
}
