// Where the tokens of a step stand on the map: pure arithmetic.
import { stacksOf, tokensOf } from "./boxes.js";
import { boxOf, slots } from "./layout.js";

/** @import { Trace } from "../../trace.js" */
/** @import { Layout, Placed } from "./layout.js" */
/** @import { FilmStep } from "./plan.js" */
/**
 * @typedef {object} Chip a token on the map
 * @property {string} id
 * @property {string} side
 * @property {number} index
 * @property {string} text
 * @property {number} x its middle
 * @property {number} y
 * @property {number} width
 * @property {"rest" | "climb" | "key"} role it stays, it climbs, or it is read by an attention
 * @property {[number, number]} [start] where it comes from
 */

/** @param {Layout} layout @param {Placed} box */
const middle = (layout, box) => box.y + (box.height + (layout.narrow ? 11 : 0)) / 2;
/** The rows of an attention: keys below, queries above. @param {Layout} layout @param {Placed} box */
export const rowsOf = (layout, box) => ({
  keys: box.y + box.height - 16,
  queries: box.y + (layout.narrow ? 29 : 16),
});

/**
 * @param {Trace} trace
 * @param {Layout} layout
 * @param {FilmStep} step
 * @returns {Chip[]}
 */
export function chipsOf(trace, layout, step) {
  const stacks = stacksOf(trace);
  const isDecoding = step.side === "decoder";
  const chips = [];
  if (stacks.includes("encoder")) {
    chips.push(
      ...row(trace, layout, "encoder", "tokens", "rest", "s").map((chip) => filled(trace, step, chip)),
    );
    if (isDecoding) chips.push(...row(trace, layout, "encoder", "out", "climb", "e"));
  }
  if (stacks.includes("decoder") && isDecoding) {
    const read = step.word === null ? 0 : step.rows[1];
    chips.push(...row(trace, layout, "decoder", "tokens", "rest", "t", [0, read]));
  }
  return [...chips, ...climbing(trace, layout, step), ...keys(trace, layout, step)];
}

/**
 * Tokens of a side in a box.
 * @param {Trace} trace @param {Layout} layout @param {string} side @param {string} id @param {Chip["role"]} role
 * @param {string} letter @param {[number, number]} [rows] @param {number} [height]
 * @returns {Chip[]}
 */
function row(trace, layout, side, id, role, letter, rows, height) {
  const box = boxOf(layout, side, id);
  if (!box) return [];
  const { shown } = trace.tokens[tokensOf(side)];
  const { x, width } = slots(layout, box, shown.length);
  const [from, to] = rows ?? [0, shown.length];
  return shown.slice(from, to).map((text, i) => ({
    id: `${letter}${from + i}`,
    side,
    index: from + i,
    text,
    x: x[from + i],
    y: height ?? middle(layout, box),
    width,
    role,
  }));
}

const ANSWERED = ["choose", "end"];

/**
 * The word that was filled into a gap stands there at last.
 * @param {Trace} trace @param {FilmStep} step @param {Chip} chip
 */
function filled(trace, step, chip) {
  const gap = trace.meta.head === "words" && step.kind === "end" && trace.steps[chip.index];
  const word = gap && gap.best.find((each) => each.id === gap.id);
  return word ? { ...chip, id: `${chip.id} filled`, text: word.shown } : chip;
}

/** The label of a token, where each has one. @param {Trace} trace @param {FilmStep} step @param {Chip} chip */
function tagged(trace, step, chip) {
  const labels = trace.meta.task === "tag" && ANSWERED.includes(step.kind) && step.side === "encoder";
  return labels
    ? { ...chip, id: `${chip.id} label`, text: trace.steps[chip.index]?.best[0]?.shown ?? "" }
    : chip;
}

/**
 * Of the whole run, a query by what it writes: it has read the token before.
 * @param {Trace} trace @param {FilmStep} step @param {Chip} chip
 */
function written(trace, step, chip) {
  const isQuery = step.kind === "end" && step.side === "decoder" && trace.tokens.output;
  return isQuery ? { ...chip, id: `${chip.id} writes`, text: trace.tokens.output.shown[chip.index] } : chip;
}

/** @param {Trace} trace @param {Layout} layout @param {FilmStep} step */
function climbing(trace, layout, step) {
  const { kind, side, box: id, rows } = step;
  const box = boxOf(layout, side, id);
  if (!box || ["tokens", "context"].includes(kind)) return [];
  if (side === "decoder" && (kind === "choose" || (kind === "end" && !step.where))) return [];
  const letter = side === "encoder" ? "e" : "d";
  const height = step.where ? rowsOf(layout, box).queries : undefined;
  /** @type {[number, number]} */
  let shown = rows;
  if (kind === "output" && side === "decoder") shown = [rows[1] - 1, rows[1]];
  if (kind === "recurrent") shown = [0, rows[1]];
  if (side === "encoder" && step.word !== null) shown = answering(trace, step);
  const chips = row(trace, layout, side, id, "climb", letter, shown, height);
  const begin = row(trace, layout, side, "tokens", "rest", letter, shown);
  return chips.map((chip, i) => ({
    ...written(trace, step, tagged(trace, step, chip)),
    start: begin[i] && [begin[i].x, begin[i].y],
  }));
}

/**
 * The positions whose vectors make the answer.
 * @param {Trace} trace @param {FilmStep} step @returns {[number, number]}
 */
function answering(trace, { word, rows }) {
  if (trace.meta.head === "words" && word !== null) return [word, word + 1];
  return trace.steps.length === 1 && trace.meta.config.pool !== "mean" ? [0, 1] : rows;
}

/**
 * What an attention reads: the same tokens, or those of the encoder, which come over to it.
 * @param {Trace} trace @param {Layout} layout @param {FilmStep} step
 */
function keys(trace, layout, step) {
  const box = boxOf(layout, step.side, step.box);
  if (!box || !step.where) return [];
  const from = step.where.endsWith("cross") ? "encoder" : step.side;
  const { shown } = trace.tokens[tokensOf(from)];
  const count = from === "decoder" ? step.rows[1] : shown.length;
  const { x, width } = slots(layout, box, shown.length);
  const origin = from === step.side ? [] : row(trace, layout, "encoder", "out", "key", "k");
  const y = rowsOf(layout, box).keys;
  return shown.slice(0, count).map((text, i) => ({
    id: `k${i} ${step.where}`, // of another attention it is another token
    side: from,
    index: i,
    text,
    x: x[i],
    y,
    width,
    role: /** @type {const} */ ("key"),
    start: origin[i] && /** @type {[number, number]} */ ([origin[i].x, origin[i].y]),
  }));
}
