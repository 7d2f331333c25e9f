// The predictions of a run at each step, and how they differ between two runs, as in interpret/predictions.py.
import { describe } from "./edits.js";
import { logSumExp, rowOf, sigmoid, softmax, tensor, top } from "./math.js";
import { attentionsOf, firstAttention, queryLabels } from "./readings.js";
import { mergeBytes, visible } from "./texts.js";
import { SPACES, strip } from "./tokenizer.js";

/** @import { Tensor } from "./math.js" */
/** @import { Run, Tokens } from "./run.js" */

const LISTED = 10; // best choices of each step
const COMPARED = 5; // best choices of each run
const CONTEXT = 8; // tokens
const DIFFERENT =
  "The two models choose among different words, so that their probabilities have no common scale.";
const DTYPES = new Map(
  /** @type {[any, string][]} */ ([
    [Uint8Array, "bool"],
    [BigInt64Array, "int64"],
  ]),
);

// One run

/** A run as the page reads it: all but the tensors. @param {string} id @param {Run} run */
export function pageJson(id, run) {
  const { tokens } = run;
  const labels = tokens.target && tokens.output ? { labels: queryLabels(run, "decoder") } : {};
  return {
    id,
    format: 1,
    output: run.output,
    tensors: [...run.tensors].map(([name, { shape, data }]) => ({
      name,
      shape,
      dtype: DTYPES.get(data.constructor) ?? "float32",
    })),
    tokens: { ...tokens, ...(tokens.target ? { target: { ...tokens.target, ...labels } } : {}) },
    meta: run.meta,
    beam: run.beam,
    vocabulary: Object.fromEntries(run.vocabulary),
    attention: attentionsOf(run).length ? firstAttention(run) : null,
    steps: stepsOf(run),
  };
}

/**
 * @param {string} shown @param {number | null} choice @param {Float32Array} p
 * @param {Map<number, string>} texts
 */
const stepJson = (shown, choice, p, texts) => ({
  shown,
  id: choice,
  p: choice === null ? null : p[choice],
  best: top(p, Math.min(LISTED, p.length)).map((id) => ({
    id,
    shown: texts.get(id) ?? `<id ${id}>`,
    p: p[id],
  })),
});

/** The prediction at each step: the choice made, and the best choices. @param {Run} run */
function stepsOf({ tensors, tokens, meta, vocabulary }) {
  const logits = /** @type {Tensor} */ (tensors.get("logits"));
  const texts = new Map([...vocabulary].map(([id, text]) => [id, visible(text)]));
  const p = (/** @type {Tensor} */ x, /** @type {number} */ t) =>
    /** @type {any} */ (softmax(rowOf(x, t).slice()));
  if (tokens.output) {
    return tokens.output.ids.map((id, t) => stepJson(tokens.output.shown[t], id, p(logits, t), texts));
  }
  const { shown } = tokens.source;
  if (meta.head === "span") {
    const ends = transposed(logits);
    const places = new Map(shown.map((text, place) => [place, text]));
    return ["begins", "ends"].map((text, end) => stepJson(text, null, p(ends, end), places));
  }
  if (meta.head === "words") {
    const chosen = new Map(meta.chosen);
    return shown.map((text, t) => stepJson(text, chosen.get(t) ?? null, p(logits, t), texts));
  }
  const labels = new Map(
    meta.labels.map((/** @type {string} */ label, /** @type {number} */ i) => [i, label]),
  );
  const rows = logits.shape[0];
  return Array.from({ length: rows }, (_, t) => {
    const values = meta.many ? rowOf(logits, t).map(sigmoid) : p(logits, t);
    return stepJson(rows === shown.length ? shown[t] : "the text", top(values, 1)[0], values, labels);
  });
}

/** @param {Tensor} x [T,S] */
function transposed({ shape: [rows, columns], data }) {
  const out = tensor([columns, rows]);
  for (let at = 0; at < data.length; at++)
    out.data[(at % columns) * rows + Math.floor(at / columns)] = data[at];
  return out;
}

// Two runs

/**
 * Logits as [steps, choices]; extractive question answering has two steps, first and last token.
 * @param {Run} run
 */
const choiceLogits = ({ tensors, meta }) => {
  const logits = /** @type {Tensor} */ (tensors.get("logits"));
  return meta.head === "span" ? transposed(logits) : logits;
};

/**
 * Steps at which both runs have read the same target; without a target, all.
 * @param {Run} before @param {Run} after
 */
function sharedSteps(before, after) {
  const length = Math.min(choiceLogits(before).shape[0], choiceLogits(after).shape[0]);
  if (!before.tokens.target || !after.tokens.target) return length;
  const changes = [...before.meta.interventions, ...after.meta.interventions];
  if (changes.some(({ type, side }) => type === "replace_token" && side === "target")) return length;
  const [one, two] = [before.tokens.target.ids, after.tokens.target.ids];
  const first = one.findIndex((id, t) => t < two.length && id !== two[t]);
  return Math.min(length, Math.max(1, first < 0 ? Math.min(one.length, two.length) : first));
}

/**
 * KL(p || q) = sum_x p(x) (log p(x) - log q(x)) in nats.
 * @param {Float32Array} one logits @param {Float32Array} two @param {boolean} many independent labels
 */
function divergence(one, two, many) {
  let sum = 0;
  if (many) {
    const log = (/** @type {number} */ x) => -Math.log1p(Math.exp(-Math.abs(x))) + Math.min(0, x); // log sigmoid(x)
    one.forEach((x, i) => {
      for (const sign of [1, -1]) sum += sigmoid(sign * x) * (log(sign * x) - log(sign * two[i]));
    });
    return Math.max(0, sum);
  }
  const [z, w] = [logSumExp(one), logSumExp(two)];
  one.forEach((x, i) => {
    const p = Math.exp(x - z);
    if (p > 0) sum += p * (x - z - (two[i] - w));
  });
  return Math.max(0, sum);
}

/** The last tokens before a step. @param {Run} run @param {number} step */
function textBefore(run, step) {
  if (run.meta.head === "span") return step ? "last token" : "first token";
  if (run.tokens.target) {
    return visible(
      mergeBytes(
        run.tokens.target.texts
          .slice(1, step + 1)
          .slice(-CONTEXT)
          .join(""),
      ),
    );
  }
  const { shown } = run.tokens.source;
  return choiceLogits(run).shape[0] === shown.length ? shown[step] : "";
}

/** @param {Run} run @param {Run} other @param {number[]} ids */
function choiceTexts(run, other, ids) {
  const { head, labels } = run.meta;
  if (head === "span") return ids.map((id) => run.tokens.source.shown[id] ?? `position ${id}`);
  if (head === "sentence" || head === "tokens") return ids.map((id) => labels[id] ?? `label ${id}`);
  const texts = ids.map((id) => run.vocabulary.get(id) ?? other.vocabulary.get(id) ?? `<id ${id}>`);
  const shown = texts.map(visible);
  return shown.map((text, i) => {
    // of two that differ in the leading space alone, one shows it
    const twice = shown.filter((each) => each === text).length > 1;
    return twice && texts[i].startsWith(" ") && strip(texts[i]) ? `\u2423${text}` : text;
  });
}

/** @param {Run} before @param {Run} after @param {Record<string, any>} kinds */
function changeOf(before, after, kinds) {
  const [one, two] = [before.meta.interventions, after.meta.interventions];
  if (one.length && !two.length) return `back from ${describe(one, kinds)}`;
  const first = new Set(one.map((/** @type {any} */ each) => JSON.stringify(each)));
  return describe(
    two.filter((/** @type {any} */ each) => !first.has(JSON.stringify(each))),
    kinds,
  );
}

/** @param {Run} before @param {Run} after @param {number | null} step @param {Record<string, any>} kinds */
function comparison(before, after, step, kinds) {
  const [one, two] = [choiceLogits(before), choiceLogits(after)];
  const many = Boolean(before.meta.many);
  const divergences = Array.from({ length: sharedSteps(before, after) }, (_, t) =>
    divergence(rowOf(one, t), rowOf(two, t), many),
  );
  const at = step ?? divergences.indexOf(Math.max(...divergences));
  if (!(at >= 0 && at < divergences.length)) {
    throw new Error(`step = ${at}: the two runs share ${divergences.length} steps, from 0 on`);
  }
  const [p, q] = [one, two].map((x) => {
    const row = rowOf(x, at).slice();
    return many ? row.map(sigmoid) : softmax(row);
  });
  const best = [...new Set([...top(p, COMPARED), ...top(q, COMPARED)])];
  const texts = choiceTexts(before, after, best);
  const choices = best.map((id, i) => ({ text: texts[i], before: p[id], after: q[id] }));
  const change = changeOf(before, after, kinds);
  const result = { step: at, behind: textBefore(before, at), choices, divergences };
  const outputs = { before: before.output, after: after.output, change };
  const whole = {
    ...result,
    ...outputs,
    divergence: divergences[at],
    changed: before.output !== after.output,
  };
  return { ...whole, sentence: sentenceOf(whole) };
}

/** The change in words. @param {any} result */
function sentenceOf({ choices, behind, change, divergence: distance, before, after, changed }) {
  const [first] = choices;
  const best = choices.reduce((/** @type {any} */ one, /** @type {any} */ each) =>
    each.after > one.after ? each : one,
  );
  let where = behind ? `after "${behind}", ` : "at the beginning, ";
  if (change) where = `${visible(change)}: ${where}`;
  let text = `${where[0].toUpperCase()}${where.slice(1)}p("${first.text}") ${first.before.toFixed(2)} -> `;
  text += first.after.toFixed(2);
  if (best !== first) text += `, now most probable: "${best.text}" ${best.after.toFixed(2)}`;
  text += `; KL divergence ${short(distance)} nats.`;
  return changed
    ? `${text} The output changed: "${visible(before)}" -> "${visible(after)}"${stop(after)}`
    : `${text} The output did not change: "${visible(before)}"${stop(before)}`;
}

/** The full stop of a sentence that ends with a quotation, unless that has one. @param {string} quotation */
const stop = (quotation) => (/[.!?…]\s*$/.test(quotation) ? "" : ".");

/** A number with three digits, as Python's `.3g` writes it. @param {number} value */
export function short(value) {
  if (value === 0) return "0";
  const [digits, power] = value.toExponential(2).split("e");
  const bare = (/** @type {string} */ text) => (text.includes(".") ? text.replace(/\.?0+$/, "") : text);
  if (Number(power) >= -4 && Number(power) < 3) return bare(value.toFixed(2 - Number(power)));
  return `${bare(digits)}e${Number(power) < 0 ? "-" : "+"}${String(Math.abs(Number(power))).padStart(2, "0")}`;
}

/**
 * Why the output distributions of two runs are not comparable; null if they are.
 * @param {Run} before @param {Run} after
 */
function incomparable(before, after) {
  const same = (/** @type {string} */ name) =>
    JSON.stringify(before.meta[name]) === JSON.stringify(after.meta[name]);
  if (!["head", "labels", "many"].every(same)) return DIFFERENT;
  const [one, two] = [before, after].map(
    ({ tensors }) => /** @type {Tensor} */ (tensors.get("logits")).shape,
  );
  if (before.meta.head === "span") {
    return one.join() === two.join() ? null : "The answers are places of texts of different lengths.";
  }
  if (one[1] !== two[1]) return DIFFERENT;
  const differs = [...before.vocabulary].some(([id, text]) => (after.vocabulary.get(id) ?? text) !== text);
  return differs ? DIFFERENT : null;
}

/**
 * How the second run differs from the first.
 * @param {Run} before @param {Run} after @param {number | null} step @param {Record<string, any>} kinds
 */
export function compare(before, after, step, kinds) {
  const reason = incomparable(before, after);
  const difference = reason ? null : comparison(before, after, step, kinds);
  const [one, two] = [visible(before.output), visible(after.output)];
  const sentence =
    one === two ? `Both say "${one}"${stop(one)}` : `One says "${one}", the other "${two}"${stop(two)}`;
  const sides = ["source", "target"].filter((side) => before.tokens[side] && after.tokens[side]);
  return {
    comparison: difference,
    reason,
    sentence: difference?.sentence ?? sentence,
    words: wordDifferences(before.output, after.output),
    pairs: Object.fromEntries(
      sides.map((side) => [side, pairs(before.tokens[side].ids, after.tokens[side].ids)]),
    ),
  };
}

/** @param {string} before @param {string} after */
function wordDifferences(before, after) {
  const [one, two] = [before, after].map((text) => strip(text).split(SPACES).filter(Boolean));
  return opcodes(one, two).flatMap(({ equal, a, b, c, d }) => {
    const parts = equal ? { same: one.slice(a, b) } : { gone: one.slice(a, b), new: two.slice(c, d) };
    return Object.entries(parts).flatMap(([kind, words]) =>
      words.length ? [{ kind, shown: visible(words.join(" ")) }] : [],
    );
  });
}

/**
 * Aligned positions: equal tokens, and runs of equal length between them.
 * @param {number[]} one @param {number[]} two
 */
const pairs = (one, two) =>
  opcodes(one, two).flatMap(({ equal, a, b, c, d }) =>
    equal || b - a === d - c ? Array.from({ length: b - a }, (_, i) => [a + i, c + i]) : [],
  );

/**
 * Blocks of two lists, equal or not, as Python's difflib finds them.
 * @template T @param {T[]} one @param {T[]} two
 */
function opcodes(one, two) {
  /** @type {{ a: number, c: number, size: number }[]} */
  const blocks = [];
  const search = (
    /** @type {number} */ a,
    /** @type {number} */ b,
    /** @type {number} */ c,
    /** @type {number} */ d,
  ) => {
    const best = longestMatch(one, two, a, b, c, d);
    if (!best.size) return;
    search(a, best.a, c, best.c);
    blocks.push(best);
    search(best.a + best.size, b, best.c + best.size, d);
  };
  search(0, one.length, 0, two.length);
  const codes = [];
  let [a, c] = [0, 0];
  for (const block of [...blocks, { a: one.length, c: two.length, size: 0 }]) {
    if (a < block.a || c < block.c) codes.push({ equal: false, a, b: block.a, c, d: block.c });
    [a, c] = [block.a + block.size, block.c + block.size];
    if (block.size) codes.push({ equal: true, a: block.a, b: a, c: block.c, d: c });
  }
  return codes;
}

/**
 * The longest run that both parts have; of several the first in `one`, then in `two`.
 * @template T @param {T[]} one @param {T[]} two @param {number} a @param {number} b @param {number} c
 * @param {number} d
 */
function longestMatch(one, two, a, b, c, d) {
  let best = { a, c, size: 0 };
  let lengths = new Map();
  for (let i = a; i < b; i++) {
    const next = new Map();
    for (let j = c; j < d; j++) {
      if (one[i] !== two[j]) continue;
      const size = (lengths.get(j - 1) ?? 0) + 1;
      next.set(j, size);
      if (size > best.size) best = { a: i - size + 1, c: j - size + 1, size };
    }
    lengths = next;
  }
  return best;
}
