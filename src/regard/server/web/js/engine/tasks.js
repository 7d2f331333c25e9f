// What the model of each task reads of a text, and what its output means, as in tasks/task_inputs.py.
import { rowOf, sigmoid, softmax, top } from "./math.js";
import { strip } from "./tokenizer.js";
import { findWords } from "./words.js";

/** @import { Tensor } from "./math.js" */
/** @import { Sample } from "./transformer.js" */
/**
 * @typedef {{ text: string, chosen: [number, number][] }} Output of an encoder: its choice at some positions
 */
/**
 * @typedef {object} Input
 * @property {number[]} source
 * @property {number[] | null} [segments]
 * @property {((logits: Tensor) => Output)} [read] of an encoder
 * @property {((ids: number[]) => string)} [textOf] of a model that writes
 */

const GAP = /<mask>|\[MASK\]|_{3,}/;
const THRESHOLD = 0.5; // of several labels, those with p >= 0.5
const LEAST_CONTEXT = 8; // tokens of a context beside a question

/** @param {number} tokens @param {number} limit */
function checkLength(tokens, limit) {
  if (tokens > limit) {
    throw new Error(`a text of ${tokens} tokens is too long to trace: the model reads ${limit}`);
  }
}

/** @param {any} model @param {string} text @returns {Input} */
function translate({ info, source, target }, text) {
  const read = info.spans ? maskSpans(strip(text), info.spans, info.placeholders) : strip(text);
  const ids = source.encode(info.prefix + read);
  checkLength(ids.length, info.longest);
  return { source: [...ids, source.content.end], textOf: (written) => target.decode(written) };
}

/**
 * Parts that are no language (numbers, addresses) become tokens.
 * @param {string} text @param {{ any: string, span: string }} patterns @param {number} count
 */
function maskSpans(text, { any, span }, count) {
  if (!new RegExp(any, "u").test(text)) return text;
  let number = crc32(text);
  return text.replace(new RegExp(span, "gu"), (found, ...rest) => {
    const groups = rest[rest.length - 1];
    const digits = groups.digits ?? "";
    const isSmall = digits && digits.length <= 2 && !groups.before && !groups.behind;
    return groups.number !== undefined && isSmall ? found : `⟦${number++ % count}⟧`;
  });
}

/** @param {string} text */
function crc32(text) {
  let crc = -1;
  for (const byte of new TextEncoder().encode(text)) {
    crc ^= byte;
    for (let bit = 0; bit < 8; bit++) crc = (crc >>> 1) ^ (0xedb88320 & -(crc & 1));
  }
  return (crc ^ -1) >>> 0;
}

/** @param {any} model @param {string} text @returns {Input} */
function generate({ info, source }, text) {
  const ids = source.encode(text);
  const prompt = source.content.adds_start || !ids.length ? [source.content.start, ...ids] : ids;
  if (info.longest_target !== null) checkLength(prompt.length, info.longest_target);
  const textOf = (/** @type {number[]} */ written) => {
    const [before, whole] = [source.decode(prompt), source.decode([...prompt, ...written])];
    return whole.startsWith(before) ? whole.slice(before.length) : source.decode(written);
  };
  return { source: prompt, textOf };
}

/**
 * Text around gaps, and the tokens of its parts; the space before a gap belongs to the gap.
 * @param {any} model @param {string} text
 */
function cut({ info, source }, text) {
  const parts = text.split(GAP);
  if (parts.length < 2) {
    throw new Error('The text has no gap; write <mask> where a word is missing, as in "The <mask> sleeps."');
  }
  const bare = parts.map((part, i) =>
    info.spaced && i < parts.length - 1 && part.endsWith(" ") ? part.slice(0, -1) : part,
  );
  const ids = bare.map((part, i) => (i ? source.encodeInside(part) : source.encode(part)));
  checkLength(ids.flat().length + parts.length - 1, info.longest);
  return { parts, bare, ids };
}

/**
 * The text with the gaps filled by tokens.
 * @param {any} model @param {{ parts: string[], bare: string[] }} gapped @param {number[][]} spans
 */
function fillIn({ info, source }, { parts, bare }, spans) {
  let filled = "";
  spans.forEach((ids, i) => {
    const glued = !ids.length || !source.text(ids[0]).startsWith(" ");
    filled += bare[i];
    if (info.spaced && !glued && filled) filled += " ";
    filled += source.decode(ids);
  });
  return filled + parts[parts.length - 1];
}

/** @param {any} model @param {string} text @returns {Input} */
function fill(model, text) {
  const { source: tokenizer, kind } = model;
  const { start, end, mask, sentinels, suppressed } = tokenizer.content;
  const gapped = cut(model, text);
  if (kind !== "encoder") {
    const rest = gapped.ids.slice(1).flatMap((ids, i) => [sentinels[i], ...ids]);
    const textOf = (/** @type {number[]} */ written) => {
      const spans = gapped.ids.slice(1).map(() => /** @type {number[]} */ ([]));
      let gap = -1;
      for (const id of written) {
        if (sentinels.includes(id)) gap = sentinels.indexOf(id);
        else spans[gap]?.push(id);
      }
      return fillIn(model, gapped, spans);
    };
    return { source: [...gapped.ids[0], ...rest, end], textOf };
  }
  const inside = gapped.ids.flatMap((ids, i) => (i ? [mask, ...ids] : ids));
  const source = [start, ...inside, end];
  const read = (/** @type {Tensor} */ logits) => {
    const places = source.flatMap((id, place) => (id === mask ? [place] : []));
    const chosen = places.map((place) => {
      const values = rowOf(logits, place).slice();
      for (const id of [...suppressed, end]) values[id] = -Infinity;
      return /** @type {[number, number]} */ ([place, top(values, 1)[0]]);
    });
    const spans = chosen.map(([, id]) => [id]);
    return { text: fillIn(model, gapped, spans), chosen };
  };
  return { source, read };
}

/** @param {any} model @param {string} text @returns {Input} */
function classify({ info, source }, text) {
  const ids = source.encode(text);
  checkLength(ids.length, info.longest);
  return { source: [source.content.start, ...ids, source.content.end], read: readLabels(info) };
}

/** The most probable label, or all above the threshold. @param {any} info */
const readLabels =
  ({ many, labels }) =>
  (/** @type {Tensor} */ logits) => {
    const values = rowOf(logits, 0);
    const p = many ? values.map(sigmoid) : softmax(values.slice());
    const best = top(p, many ? p.length : 1).filter((i) => !many || p[i] >= THRESHOLD);
    const chosen = best.map((i) => /** @type {[number, number]} */ ([0, i]));
    return { text: best.map((i) => labels[i]).join(", "), chosen };
  };

/** @param {any} model @param {string} text @returns {Input} */
function tag({ info, source }, text) {
  const words = findWords(text);
  const { ids, spans } = source.spans(words.join(" "));
  checkLength(ids.length, info.longest);
  let [begin, place] = [0, 0];
  const first = words.map((word) => {
    while (place < spans.length && spans[place][1] <= begin) place++; // tokens that end before the word
    const end = begin + word.length;
    const span = place < spans.length && spans[place][0] < end ? place : null;
    begin = end + 1;
    return span;
  });
  const read = (/** @type {Tensor} */ logits) => {
    const best = (/** @type {number} */ token) => top(rowOf(logits, token + 1), 1)[0]; // after the start
    return {
      text: first.map((token) => (token === null ? "O" : info.labels[best(token)])).join(" "),
      chosen: first.flatMap((token) =>
        token === null ? [] : [/** @type {[number, number]} */ ([token + 1, best(token)])],
      ),
    };
  };
  return { source: [source.content.start, ...ids, source.content.end], read };
}

/** @param {any} model @param {string} question @param {string} context @returns {Input} */
function answer({ info, source }, question, context) {
  if (!strip(context))
    throw new Error("A question needs a text to answer it from: write it into the field Context.");
  const { start, end, separators } = source.content;
  const before = [start, ...source.encode(question.replaceAll("\n", " ")), ...Array(separators).fill(end)];
  const { ids, spans } = source.spans(context);
  const room = info.max_length - before.length - 1;
  if (room < ids.length || room < Math.min(ids.length, LEAST_CONTEXT)) {
    throw new Error(`question and context are too long to trace: the model reads ${info.max_length} tokens`);
  }
  const begins = before.length;
  const read = (/** @type {Tensor} */ logits) => {
    const span = bestSpan(logits, spans, begins, info.longest_answer, context);
    if (!span || (info.may_refuse && span.score < 0)) {
      return {
        text: "",
        chosen: /** @type {[number, number][]} */ ([
          [0, 0],
          [0, 1],
        ]),
      };
    }
    return {
      text: span.text,
      chosen: /** @type {[number, number][]} */ ([
        [span.first, 0],
        [span.last, 1],
      ]),
    };
  };
  const rows = [...before, ...ids, end];
  return { source: rows, segments: rows.map((_, i) => Number(i >= begins)), read };
}

/**
 * The best text between a first and a last token: score = logits of both ends over those of "no answer".
 * @param {Tensor} logits @param {number[][]} spans @param {number} begins @param {number} longest
 * @param {string} context
 */
function bestSpan(logits, spans, begins, longest, context) {
  const at = (/** @type {number} */ place, /** @type {number} */ end) => logits.data[2 * place + end];
  let best = null;
  for (let first = 0; first < spans.length; first++) {
    for (let last = first; last < Math.min(spans.length, first + longest); last++) {
      const score = at(begins + first, 0) + at(begins + last, 1) - (at(0, 0) + at(0, 1));
      if (best && score <= best.score) continue;
      const text = strip(context.slice(spans[first][0], spans[last][1]));
      if (text) best = { text, score, first, last };
    }
  }
  if (!best) return null;
  const start = context.indexOf(best.text, spans[best.first][0]);
  const inside = spans.flatMap(([from, to], i) =>
    to > start && from < start + best.text.length ? [i + begins] : [],
  );
  return { ...best, first: inside[0], last: inside[inside.length - 1] };
}

/** @type {Record<string, (model: any, text: string, context: string) => Input>} */
export const INPUTS = { translate, generate, fill, classify, tag, answer };
