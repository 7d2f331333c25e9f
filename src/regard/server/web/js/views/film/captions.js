// What a step of the film shows, in words.
import { fixed } from "../../figures.js";
import { patchesOf, tokensOf } from "./boxes.js";

/** @import { Trace } from "../../trace.js" */
/** @import { FilmStep } from "./plan.js" */

/**
 * @param {Trace} trace
 * @param {FilmStep} step
 * @param {{ query: number, key: number, weight: number }[]} strokes
 */
export function caption(trace, step, strokes) {
  const { kind, side } = step;
  const count = trace.tokens[tokensOf(side)]?.ids.length ?? 0;
  const width = trace.shapes.get(step.vectors)?.at(-1) ?? trace.meta.config.width;
  switch (kind) {
    case "tokens":
      return tokens(trace, side, count);
    case "embedding":
      return `A table gives each ${patchOr(trace, side)} ${width} numbers; the colours are eight of them.`;
    case "positions":
      return "A vector for the place is added: attention alone does not know the order.";
    case "attention":
      return attention(trace, step, strokes);
    case "feed_forward": {
      const inner = trace.shapes.get(`${side}.${step.layer}.feed_forward.hidden`)?.at(-1);
      return `Each position alone: ${width} numbers become ${inner ?? "more"}, then ${width}, which are added.`;
    }
    case "recurrent":
      return recurrent(trace, step);
    case "context":
      return `All that the decoder gets of the text at its start: ${width} numbers, however long the text is.`;
    case "output":
      return output(trace, step);
    case "choose":
      return chosen(trace, step);
    default:
      return trace.tokens.output
        ? "Each bar is the probability of a token when it was written. Choose anything to see its numbers."
        : "Choose anything to see its numbers.";
  }
}

/** @param {Trace} trace @param {string} side */
const patchOr = (trace, side) => (side === "encoder" && trace.meta.input ? ONE[patchesOf(trace)] : "token");
const ONE = { Moments: "moment", Patches: "patch" };

/** @param {Trace} trace @param {string} side @param {number} count */
function tokens(trace, side, count) {
  if (side === "encoder" && trace.meta.input) {
    const what = trace.meta.input.kind === "audio" ? "spectrogram" : "picture";
    return `The ${what} is cut into ${count} ${patchesOf(trace).toLowerCase()}.`;
  }
  if (side === "encoder") return `The text becomes ${count} tokens: words, parts of words and signs.`;
  const isPrompt = (trace.meta.prompt ?? 0) > 1;
  return isPrompt
    ? `The text is read as ${trace.meta.prompt} tokens. The model computes what follows the last one.`
    : `The decoder begins with ${trace.tokens.target.shown[0]} alone and writes one token after another.`;
}

/** @param {Trace} trace @param {FilmStep} step @param {{ query: number, key: number, weight: number }[]} strokes */
function attention(trace, step, strokes) {
  const [queries, keys] = trace.sides(step.where);
  const isCross = step.where.endsWith("cross");
  const rows = isCross || step.side === "encoder" ? "" : " What comes later is masked.";
  const others = strokes.filter(({ query, key }) => isCross || query !== key);
  const best = others.reduce((a, b) => (b.weight > a.weight ? b : a), others[0]);
  const reads = isCross ? "The decoder reads the encoder’s output." : "Each token reads the others.";
  if (!best) return `${reads}${rows} There is only one to read.`;
  const query = (isCross ? queries.labels : null)?.[best.query] ?? queries.shown[best.query];
  const key = keys.shown[best.key];
  return `${reads}${rows} A stroke’s opacity is its weight: “${query}” gives ${fixed(best.weight, 2)} to “${key}”.`;
}

/** @param {Trace} trace @param {FilmStep} step */
function recurrent(trace, step) {
  const both = trace.has(`${step.side}.${step.layer}.backward.hidden`);
  if (step.side === "decoder") return "The state before and the last token make the next state.";
  return both
    ? "Token by token, from the left and from the right: each state is made of the one before and a token."
    : "Token by token: each state is made of the one before and a token. What the last state does not hold is lost.";
}

/** @param {Trace} trace @param {FilmStep} step */
function output(trace, step) {
  const choices = trace.shapes.get("logits")?.at(-1) ?? trace.meta.config.vocabulary;
  const many = choices ? choices.toLocaleString("en") : "all";
  if (trace.tokens.output)
    return `The last vector becomes a score for each of ${many} tokens, then a probability.`;
  const what = trace.meta.labels?.length ? "labels" : trace.meta.head === "span" ? "places" : "tokens";
  const where =
    step.word !== null && trace.meta.head === "words" ? ` at “${trace.steps[step.word].shown}”` : "";
  return `The vector${where} becomes a score for each of ${many} ${what}, and probabilities.`;
}

/** @param {Trace} trace @param {FilmStep} step */
function chosen(trace, step) {
  if (step.word === null) return "";
  const { shown, p, best, id } = trace.steps[step.word];
  if (!trace.tokens.output) return `The answer: ${trace.output}`;
  const isLast = step.rows[1] >= trace.tokens.target.ids.length;
  const top = best[0];
  const { beam, sample } = trace.meta.decode ?? {};
  const why =
    top && top.id !== id && id !== null
      ? ` ${sample ? "It was drawn;" : `The search (beam ${beam}) prefers it;`} most probable is “${top.shown}”.`
      : "";
  const next = isLast ? "It is the last one." : "It becomes the next input of the decoder.";
  return `“${shown}” has p = ${fixed(p ?? 0, 2)}.${why} ${next}`;
}
