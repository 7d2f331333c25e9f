// A run as a list of steps, computed from what the server says of it: what moves, where, and which tensors show it.
import { layerCount, patchesOf, stacksOf } from "./boxes.js";

/** @import { Trace } from "../../trace.js" */
/**
 * @typedef {object} FilmStep
 * @property {string} kind tokens, embedding, positions, attention, feed_forward, recurrent, context, output, choose
 *   or end
 * @property {string} side encoder or decoder
 * @property {number} layer
 * @property {string} box the box of the map where the tokens are
 * @property {[number, number]} rows the positions that climb: from, to
 * @property {number | null} word the step of the output that is computed
 * @property {string} title
 * @property {string} vectors the tensor of the vectors behind this step; "" for none
 * @property {string} where the attention; "" for none
 * @property {number} pace its share of the usual time
 * @property {string} chapter
 */

const FAST = 0.42; // of the words behind the first one
const SUB_LAYERS = ["self", "cross", "feed_forward"];
const NAMES = { self: "self-attention", cross: "cross-attention", feed_forward: "feed-forward" };

/** @param {Trace} trace @returns {FilmStep[]} */
export function plan(trace) {
  const stacks = stacksOf(trace);
  const steps = stacks.includes("encoder") ? encode(trace) : [];
  if (stacks.includes("decoder")) {
    if (trace.has("decoder.first")) steps.push(handOver(trace));
    for (const word of words(trace)) steps.push(...write(trace, word));
  } else if (trace.steps.length) steps.push(...answer(trace));
  const last = steps.at(-1);
  return last ? [...steps, end(trace, last)] : [];
}

/** All words at once, with the attention that “regard explain” shows. @param {Trace} trace @param {FilmStep} last */
function end(trace, last) {
  const step = { ...last, kind: "end", title: "The whole run", chapter: "Done", pace: 3 };
  const where = trace.defaultAttention ?? "";
  if (!trace.tokens.output || !where.startsWith("decoder")) return step;
  const [, layer, part] = where.split(".");
  const rows = /** @type {[number, number]} */ ([0, trace.tokens.target.ids.length]);
  return { ...step, where, rows, box: part ?? layer, layer: part ? Number(layer) : 0 };
}

/** The steps of the output that the model computed itself; before them stands the given text. @param {Trace} trace */
export function words(trace) {
  const first = Math.max(0, (trace.meta.prompt || 1) - 1);
  return trace.steps.map((_, word) => word).slice(first);
}

/** @param {Trace} trace @returns {FilmStep[]} */
function encode(trace) {
  const count = trace.tokens.source.ids.length;
  const base = { word: null, pace: 1, chapter: "Read", rows: /** @type {[number, number]} */ ([0, count]) };
  const title = trace.meta.input ? patchesOf(trace) : "Tokens";
  return [
    step({ ...base, kind: "tokens", side: "encoder", box: "tokens", title }),
    ...climb(trace, "encoder", base),
  ];
}

/**
 * What all climbs share: the embedding, then layer by layer.
 * @param {Trace} trace @param {string} side @param {Partial<FilmStep>} base
 */
function climb(trace, side, base) {
  const name = side === "encoder" ? "Encoder" : "Decoder";
  const tokens = [`${side}.embedding.tokens`, `${side}.embedding`].find((each) => trace.has(each)) ?? "";
  const steps = [
    step({ ...base, kind: "embedding", side, box: "embedding", title: "Embedding", vectors: tokens }),
  ];
  if (trace.has(`${side}.embedding.positions`)) {
    const vectors = `${side}.embedding.out`;
    steps.push(step({ ...base, kind: "positions", side, box: "positions", title: "Positions", vectors }));
  }
  for (let layer = 0; layer < layerCount(trace, side); layer++) {
    const at = `${side}.${layer}`;
    for (const part of SUB_LAYERS) {
      const where = part === "feed_forward" ? "" : `${at}.${part}`;
      if (!trace.has(where ? `${where}.weights` : `${at}.${part}.output`)) continue;
      const vectors = where ? `${at}.after_${part}` : `${at}.out`;
      const title = `${name} layer ${layer}: ${NAMES[/** @type {keyof typeof NAMES} */ (part)]}`;
      const kind = where ? "attention" : "feed_forward";
      steps.push(step({ ...base, kind, side, layer, box: part, title, where, vectors }));
    }
    if (!trace.has(`${at}.out`) && recurrentStates(trace, at)) {
      const title = `${name} layer ${layer}: ${String(trace.meta.config.cell).toUpperCase()}`;
      const vectors = recurrentStates(trace, at);
      steps.push(step({ ...base, kind: "recurrent", side, layer, box: "cell", title, vectors }));
    }
  }
  if (trace.has(`${side}.cross.weights`)) {
    const where = `${side}.cross`;
    steps.push(
      step({
        ...base,
        kind: "attention",
        side,
        box: "cross",
        title: "Attention",
        where,
        vectors: `${where}.context`,
      }),
    );
  }
  return steps.map((each) => ({ ...each, vectors: trace.has(each.vectors) ? each.vectors : "" }));
}

/**
 * The states of a recurrent layer; an encoder of one direction is left out where both are.
 * @param {Trace} trace @param {string} at
 */
const recurrentStates = (trace, at) =>
  [`${at}.hidden`, `${at}.forward.hidden`, `${at}.backward.hidden`].find((each) => trace.has(each)) ?? "";

/** A recurrent decoder begins with one vector. @param {Trace} trace */
const handOver = (trace) =>
  step({
    kind: "context",
    side: "decoder",
    box: "cell",
    title: "One vector of the whole sentence",
    vectors: "decoder.first",
    chapter: "Read",
    rows: [0, trace.shapes.get("decoder.first")?.[0] ?? 1],
    pace: 1.5,
  });

/**
 * One written token: what was written so far climbs the decoder, and one of the vocabulary is chosen.
 * @param {Trace} trace @param {number} word
 */
function write(trace, word) {
  const isFirst = word === words(trace)[0];
  const shown = trace.steps[word].shown;
  const pace = isFirst ? 1 : FAST;
  const rows = /** @type {[number, number]} */ ([isFirst ? 0 : word, word + 1]);
  const base = { word, pace, rows, chapter: shown };
  return [
    ...(isFirst
      ? [step({ ...base, kind: "tokens", side: "decoder", box: "tokens", title: "Tokens so far" })]
      : []),
    ...climb(trace, "decoder", base),
    step({
      ...base,
      kind: "output",
      side: "decoder",
      box: "linear",
      title: "Linear and softmax",
      pace: isFirst ? 1.4 : 0.7,
    }),
    step({
      ...base,
      kind: "choose",
      side: "decoder",
      box: "softmax",
      title: `“${shown}” is written`,
      pace: isFirst ? 1.4 : 0.8,
    }),
  ].map((each) => ({
    ...each,
    layer:
      each.layer || (each.box === "linear" || each.box === "softmax" ? layerCount(trace, "decoder") - 1 : 0),
  }));
}

/** A model without a decoder: one answer for the text, or one for each token. @param {Trace} trace */
function answer(trace) {
  const count = trace.tokens.source.ids.length;
  const layer = layerCount(trace, "encoder") - 1;
  const base = {
    side: "encoder",
    layer,
    word: answered(trace),
    rows: /** @type {[number, number]} */ ([0, count]),
    chapter: "Answer",
  };
  const last = trace.meta.many ? "Linear and sigmoid" : "Linear and softmax";
  return [
    step({ ...base, kind: "output", box: "linear", title: last, pace: 1.5 }),
    step({ ...base, kind: "choose", box: "softmax", title: "The answer", pace: 2 }),
  ];
}

/** The step of the output whose probabilities are shown: the first gap, or the surest tag. @param {Trace} trace */
function answered(trace) {
  const gap = trace.steps.findIndex((each) => each.id !== null);
  if (trace.meta.task !== "tag") return Math.max(0, gap);
  const sure = trace.steps.map((each, i) => ({ i, p: each.best[0]?.shown === "O" ? 0 : (each.p ?? 0) }));
  return sure.reduce((a, b) => (b.p > a.p ? b : a)).i;
}

/** @param {Partial<FilmStep>} given @returns {FilmStep} */
const step = (given) => ({
  kind: "",
  side: "",
  layer: 0,
  box: "",
  rows: [0, 0],
  word: null,
  title: "",
  vectors: "",
  where: "",
  pace: 1,
  chapter: "",
  ...given,
});

/** The first step of each chapter. @param {FilmStep[]} steps */
export function chapters(steps) {
  const of = (/** @type {number} */ i) => (steps[i].kind === "end" ? "end" : String(steps[i].word));
  return steps
    .map(({ chapter }, at) => ({ at, text: chapter }))
    .filter(({ at }) => !at || of(at) !== of(at - 1));
}

/**
 * The weights that a step draws: [heads, queries, keys] as the strokes of its rows; `head` -1 is the mean.
 * @param {{ data: ArrayLike<number>, shape: number[] }} weights
 * @param {[number, number]} rows
 * @param {number} head
 * @param {number} [most] strokes, the strongest ones
 */
export function strokes({ data, shape }, rows, head, most = 500) {
  const [heads, queries, keys] = shape;
  const chosen = head < 0 || head >= heads ? Array.from({ length: heads }, (_, h) => h) : [head];
  const all = [];
  for (let query = rows[0]; query < Math.min(rows[1], queries); query++)
    for (let key = 0; key < keys; key++) {
      let weight = 0;
      for (const h of chosen) weight += data[(h * queries + query) * keys + key] / chosen.length;
      if (weight >= 0.005) all.push({ query, key, weight });
    }
  return all.length > most ? all.sort((a, b) => b.weight - a.weight).slice(0, most) : all;
}
