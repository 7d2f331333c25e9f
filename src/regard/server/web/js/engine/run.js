// Trace a text: decode, then record one run over source and output, as in tasks/tracing.py.
import { editsOf, replaceTokens } from "./edits.js";
import { linear, rowOf, softmax, tensor, top } from "./math.js";
import { Recurrent } from "./recurrent.js";
import { sample as draw } from "./sampling.js";
import { BeamSearch, activate, withPath } from "./search.js";
import { Tap, stackSteps } from "./tap.js";
import { INPUTS } from "./tasks.js";
import { Tokenizer, strip, wellFormed } from "./tokenizer.js";
import { visible } from "./texts.js";
import { Decoder, EncoderOnly } from "./transformer.js";
import { withWeights } from "./weights.js";

/** @import { AnyTensor, Tensor } from "./math.js" */
/** @import { Edit } from "./tap.js" */
/** @typedef {{ ids: number[], texts: string[], words: number[], shown: string[] }} Tokens */
/**
 * @typedef {object} Run what a trace has, with its tensors
 * @property {Map<string, AnyTensor>} tensors
 * @property {Record<string, Tokens>} tokens
 * @property {string} output
 * @property {Record<string, any>} meta
 * @property {any[]} beam
 * @property {Map<number, string>} vocabulary
 */

const LENS = 5; // best tokens of the logit lens
const LISTED = 10; // best tokens of each position, whose texts a trace has
const LARGEST_LENS = 40e9; // multiplications
const CLASSES = { decoder: Decoder, encoder: EncoderOnly, recurrent: Recurrent };

/** @param {any} description @param {Record<string, Tensor>} weights */
export function openModel(description, weights) {
  const { tokenizer, target, ...info } = description;
  const source = new Tokenizer(tokenizer);
  const kind = /** @type {keyof typeof CLASSES} */ (info.kind);
  return {
    info,
    kind,
    source,
    target: target ? new Tokenizer(target) : source,
    model: new CLASSES[kind](withWeights(info.parts, weights)),
  };
}

/** @param {Tokenizer} tokenizer @param {number[]} ids @returns {Tokens} */
export function tokensOf(tokenizer, ids) {
  const texts = ids.map((id) => tokenizer.text(id));
  return { ids, texts, words: tokenizer.words(ids), shown: texts.map(visible) };
}

/**
 * @param {any} opened
 * @param {{ source: string, target?: string | null, prefix?: number[], context?: string | null,
 *   decode?: Record<string, any>, interventions?: any[] }} body
 * @returns {Run}
 */
export function trace(
  opened,
  { source, target = null, prefix = [], context = null, decode = {}, interventions = [] },
) {
  const { info, kind, model } = opened;
  const text = wellFormed(source);
  if (!strip(text)) throw new Error("the text is empty: there is nothing to trace");
  const input = INPUTS[info.task](opened, text, wellFormed(context ?? ""));
  const { edits, replacements } = editsOf(interventions, info.interventions, info.scale);
  const ids = replaceTokens(opened.source, input.source, replacements, "source");
  if (input.read && info.head !== "sentence" && ids.length !== input.source.length) {
    throw new Error("replace_token: this model predicts by position, so one token replaces one token");
  }
  const sample = { source: ids, target: /** @type {number[]} */ ([]), segments: input.segments };
  /** @type {Map<string, AnyTensor>} */
  const tensors = new Map();
  const meta = metaOf(info, text, target, context, interventions);
  if (input.read) {
    const logits = recorded(opened, sample, edits, tensors);
    const { text: output, chosen } = input.read(logits);
    const tokens = { source: tokensOf(opened.source, ids) };
    const texts = info.head === null || info.head === "words";
    const vocabulary = texts ? vocabularyOf(opened.source, tokens, tensors) : new Map();
    return { tensors, tokens, output, meta: { ...meta, chosen }, beam: [], vocabulary };
  }
  const written = write(opened, { ...input, source: ids }, target, prefix, decode, edits, replacements);
  const alone = kind === "decoder" && model.readsPrompts;
  recorded(opened, { ...sample, target: written.target }, edits, tensors);
  const sides = { ...(alone ? {} : { source: ids }), target: written.target, output: written.output };
  const tokens = Object.fromEntries(
    Object.entries(sides).map(([side, each]) => [
      side,
      tokensOf(side === "source" ? opened.source : opened.target, each),
    ]),
  );
  const { target: read, output } = tokens;
  return {
    tensors,
    tokens,
    output: written.text,
    meta: { ...meta, ...written.meta },
    beam: written.beam,
    vocabulary: vocabularyOf(opened.target, { read, output }, tensors),
  };
}

/**
 * @param {any} info @param {string} text @param {string | null} target @param {string | null} context
 * @param {any[]} interventions
 */
const metaOf = (info, text, target, context, interventions) => ({
  model: info.name,
  task: info.task,
  family: info.family,
  head: info.head,
  many: info.many,
  labels: info.labels,
  config: info.config,
  versions: info.versions,
  text,
  target,
  context,
  interventions,
  precision: "float32",
});

/**
 * What the model writes, and the tree of its search.
 * @param {any} opened @param {any} input @param {number[]} prefix @param {Record<string, any>} given
 * @param {Edit[]} edits
 */
function decoded({ info, model, target: tokenizer }, input, prefix, given, edits) {
  const options = optionsOf(info, given, input.source.length);
  const active = activate(model, input.source, options, info.special, prefix, info.longest_target);
  const tap = edits.length ? new Tap(edits) : null;
  const search = new BeamSearch(model, active, options, info.special, tap);
  const best = options.sample ? draw(model, input, active, options, info.special, tap) : search.run(input);
  const { tokens: ids, finished, score } = best;
  const path = [...ids, ...(finished ? [info.special.end] : [])];
  const beam = withPath(search.nodes, path, (id) => tokenizer.text(id));
  const shown = beam.map((node) => ({ ...node, shown: visible(node.text) }));
  return { ids, finished, beam: shown, meta: { decode: options, finished, score } };
}

/**
 * The given target, or what the model decodes.
 * @param {any} opened @param {any} input @param {string | null} target @param {number[]} prefix
 * @param {Record<string, any>} given @param {any[]} edits @param {any[]} replacements
 */
function write(opened, input, target, prefix, given, edits, replacements) {
  const { info, model, target: tokenizer } = opened;
  const longest = info.longest_target;
  const prompt = model.readsPrompts ? input.source : [tokenizer.content.start];
  const { ids, finished, beam, meta } =
    target === null
      ? decoded(opened, input, prefix, given, edits)
      : {
          ids: tokenizer[model.readsPrompts ? "encodeInside" : "encode"](target),
          finished: true,
          beam: [],
          meta: {},
        };
  const row = replaceTokens(tokenizer, [...prompt, ...ids], replacements, "target");
  const early = replacements.filter(({ position }) => position < prompt.length); // may change its length
  const start = replaceTokens(tokenizer, prompt, early, "target").length;
  const read = finished ? row : row.slice(0, -1);
  if (longest !== null && read.length > longest) {
    throw new Error(`a target of ${read.length} tokens with its start token is too long: ${longest} at most`);
  }
  return {
    target: read,
    output: finished ? [...row.slice(1), tokenizer.content.end] : row.slice(1),
    text: input.textOf(row.slice(start)),
    beam,
    meta: { ...meta, prompt: model.readsPrompts ? start : 0 },
  };
}

/**
 * The folder's [decode] with some fields replaced; a language model stops at the length of its context.
 * @param {any} info @param {Record<string, any>} given @param {number} length
 */
function optionsOf(info, given, length) {
  const searches = given.beam !== undefined && given.sample === undefined && info.task === "generate";
  const options = { ...info.decode, ...given, ...(searches ? { sample: false } : {}) };
  if (info.task !== "generate" || info.longest_target === null) return options;
  const room = Math.max(1, info.longest_target - length + 1);
  return { ...options, max_length: Math.min(options.max_length || room, room) };
}

/**
 * The tensors of one sample in the order of the run; its logits.
 * @param {any} opened @param {any} sample @param {any[]} edits @param {Map<string, AnyTensor>} tensors
 */
function recorded(opened, sample, edits, tensors) {
  const { model } = opened;
  /** @type {Map<string, any>} */
  const all = new Map();
  const logits = model.forward(sample, new Tap(edits, all));
  stackSteps(all);
  for (const [name, x] of all) {
    tensors.set(name, x);
    const attention = name.endsWith(".value") && model.attentions[name.slice(0, -".value".length)];
    if (attention) tensors.set(`${name}_norms`, valueNorms(x, attention));
  }
  addLens(opened, tensors, logits);
  return logits;
}

/** ||v_j W_O^h|| of each head h: [G,S,C] -> [H,S]. @param {Tensor} value @param {any} part */
function valueNorms(value, { heads, output }) {
  const [groups, keys, channels] = value.shape;
  const out = tensor([heads, keys]);
  const wide = tensor([keys, heads * channels]);
  for (let h = 0; h < heads; h++) {
    wide.data.fill(0);
    const group = Math.floor((h * groups) / heads);
    for (let s = 0; s < keys; s++) {
      const from = (group * keys + s) * channels;
      wide.data.set(value.data.subarray(from, from + channels), (s * heads + h) * channels);
    }
    const seen = linear(wide, { weight: output.weight });
    for (let s = 0; s < keys; s++) {
      out.data[h * keys + s] = Math.hypot(...rowOf(seen, s));
    }
  }
  return out;
}

/**
 * The logit lens, for models whose residual stream becomes tokens of the vocabulary.
 * @param {any} opened @param {Map<string, AnyTensor>} tensors @param {Tensor} logits
 */
function addLens({ info, kind, model }, tensors, logits) {
  if (kind === "recurrent" || (kind === "encoder" && info.head && info.head !== "words")) return;
  const side = kind === "encoder" ? "encoder" : "decoder";
  const depths = model.part[side].blocks.map(
    (/** @type {any} */ _, /** @type {number} */ n) => `${side}.${n}.out`,
  );
  const streams = [`${side}.embedding.out`, ...depths].map(
    (name) => /** @type {Tensor} */ (tensors.get(name)),
  );
  const width = logits.shape[1];
  const outs = [...tensors].filter(([name]) => name.endsWith(".out"));
  if (outs.reduce((sum, [, x]) => sum + x.data.length, 0) * width > LARGEST_LENS) return;
  const rows = streams[0].shape[0];
  const shape = [streams.length, rows, Math.min(LENS, width)];
  const ids = new BigInt64Array(shape[0] * shape[1] * shape[2]);
  const p = new Float32Array(ids.length);
  let at = 0;
  for (const stream of streams) {
    const unembedded = model.unembed(stream);
    for (let t = 0; t < rows; t++) {
      const values = softmax(Float64Array.from(rowOf(unembedded, t)));
      for (const id of top(values, shape[2])) [ids[at], p[at++]] = [BigInt(id), values[id]];
    }
  }
  tensors.set("lens.ids", { shape, data: ids });
  tensors.set("lens.probabilities", { shape, data: p });
}

/**
 * Texts of the tokens of the run, and of the best at each position.
 * @param {Tokenizer} tokenizer @param {Record<string, Tokens>} tokens @param {Map<string, AnyTensor>} tensors
 */
function vocabularyOf(tokenizer, tokens, tensors) {
  const ids = new Set(Object.values(tokens).flatMap((side) => side.ids));
  for (const id of tensors.get("lens.ids")?.data ?? []) ids.add(Number(id));
  const logits = /** @type {Tensor | undefined} */ (tensors.get("logits"));
  for (let t = 0; logits && t < logits.shape[0]; t++)
    top(rowOf(logits, t), LISTED).forEach((id) => ids.add(id));
  return new Map([...ids].sort((a, b) => a - b).map((id) => [id, tokenizer.text(id)]));
}
