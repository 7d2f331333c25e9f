// Where the boxes of Figure 1 stand: pure arithmetic, shared by the views Film and Map.
import { STACKS, boxesOf, layerCount, stacksOf } from "./boxes.js";

/** @import { Trace } from "../../trace.js" */
/** @import { Box } from "./boxes.js" */
/**
 * @typedef {Box & { side: string, x: number, y: number, width: number, height: number }} Placed
 * @typedef {object} Stack
 * @property {string} side
 * @property {string} title
 * @property {boolean} used the model has it
 * @property {boolean} open its boxes are drawn
 * @property {number} layers
 * @property {number} layer the one whose boxes are drawn
 * @property {number} [rows] tokens that are there by now; all of the run
 * @property {number} x
 * @property {number} width
 * @property {number} top
 * @property {number} bottom
 * @property {Placed[]} boxes
 * @property {{ x: number, y: number, width: number, height: number } | null} frame around what is repeated
 *
 * @typedef {object} Layout
 * @property {number} width
 * @property {number} height
 * @property {Stack[]} stacks
 * @property {{ x: number, y: number, width: number, height: number } | null} panel of the probabilities
 * @property {boolean} narrow
 * @property {number} label width at the left of a box that its text takes
 *
 * @typedef {object} Options
 * @property {Record<string, number>} layers the layer of each stack
 * @property {Record<string, number>} [rows] the tokens that each stack has by now
 * @property {boolean} [film] with room for tokens in the boxes and for the probabilities
 * @property {boolean} [narrow] one stack above the other, and only the active one open
 * @property {string} [active]
 */

const GAP = 12; // between two boxes: an arrow with its shape
const THIN = 16; // a norm or an addition
const ROW = 30;
const ATTENTION = 106; // of the active stack: room for strokes
const EDGE = 24; // of a stack: the residual path
const TITLE = 22; // of the frame around a layer
const BETWEEN = 26;
const PANEL = 214;
const CLOSED = 250;
const CLOSED_HEIGHT = 250; // a stack that the model does not have

/** The width that the longest row of tokens needs. @param {Trace} trace */
const region = (trace) => {
  const counts = Object.values(trace.tokens).map((side) => side.ids.length);
  const most = stacksOf(trace).length > 1 ? 430 : 640;
  return Math.min(most, Math.max(270, 44 * Math.max(1, ...counts)));
};

/** @param {Box} box @param {boolean} isActive @param {Options} options */
function heightOf(box, isActive, { film = false, narrow = false }) {
  if (box.kind === "norm") return THIN;
  if (!film) return ROW;
  const isTall = box.kind === "attention" && box.id !== "cell" && isActive;
  return (narrow ? 13 : 0) + (isTall ? ATTENTION : box.id === "cell" ? 2 * ROW : ROW);
}

/**
 * @param {Trace} trace
 * @param {Options} options
 * @returns {Layout}
 */
export function layout(trace, options) {
  const { film = false, narrow = false, active } = options;
  const used = stacksOf(trace);
  const label = film ? (narrow ? 0 : 96) : 270;
  const inside = film ? label + (narrow ? 356 : region(trace)) : label;
  const sides = used.includes("decoder") ? STACKS : ["encoder", "panel", "decoder"];
  const stacks = STACKS.map((side) => {
    const isUsed = used.includes(side);
    const open = isUsed && (!narrow || used.length < 2 || side === active);
    return stackOf(trace, side, isUsed, open, inside, options);
  });
  if (narrow) return stacked(stacks, film, label, inside);
  const open = stacks.filter((stack) => stack.open);
  const heights = open.map(
    ({ side }) => -stackOf(trace, side, true, true, inside, { ...options, active: side }).top,
  );
  const height = Math.max(...heights); // whichever stack is active: the map keeps its size
  return abreast(stacks, height, film ? [...new Set([...sides, "panel"])] : STACKS, label);
}

/**
 * One stack with its boxes, from y = 0 at its bottom upwards (negative), and x = 0 at its left.
 * @param {Trace} trace @param {string} side @param {boolean} used @param {boolean} open
 * @param {number} inside @param {Options} options
 * @returns {Stack}
 */
function stackOf(trace, side, used, open, inside, options) {
  const layers = used ? layerCount(trace, side) : 0;
  const layer = Math.min(options.layers[side] ?? 0, Math.max(0, layers - 1));
  const name = side === "encoder" ? "Encoder" : "Decoder";
  const title = used ? `${name} × ${layers}` : `no ${side} in ${article(trace.meta.family)}`;
  const width = (open || options.narrow ? inside : CLOSED) + EDGE + 10;
  const rows = options.rows?.[side];
  const base = { side, title, used, open, layers, layer, rows, x: 0, width, bottom: 0 };
  if (!open) {
    const height = options.narrow || !options.film ? ROW + 10 : CLOSED_HEIGHT;
    return {
      ...base,
      top: -height,
      boxes: [],
      frame: { x: EDGE, y: -height, width: width - EDGE - 10, height },
    };
  }
  /** @type {Placed[]} */
  const boxes = [];
  let y = 0;
  for (const box of boxesOf(trace, side, layer)) {
    const before = boxes.at(-1)?.repeated;
    if (boxes.length && before !== box.repeated) y -= box.repeated ? 8 : TITLE;
    const height = heightOf(box, side === options.active, options);
    boxes.push({ ...box, side, x: EDGE, y: y - height, width: inside, height });
    y -= height + GAP;
  }
  const frame = frameOf(boxes, width);
  return { ...base, top: Math.min(y + GAP, frame?.y ?? 0), boxes, frame };
}

/** Around the boxes of one layer, with room for a title. @param {Placed[]} boxes @param {number} width */
function frameOf(boxes, width) {
  const repeated = boxes.filter((box) => box.repeated);
  if (!repeated.length) return null;
  const y = Math.min(...repeated.map((box) => box.y)) - TITLE;
  const bottom = Math.max(...repeated.map((box) => box.y + box.height)) + 8;
  return { x: 5, y, width: width - 6, height: bottom - y };
}

/** @param {string} family */
const article = (family) => {
  const names = { gpt: "a GPT", bert: "BERT", llama: "Llama", vit: "ViT" };
  return names[/** @type {keyof typeof names} */ (family)] ?? `“${family}”`;
};

/**
 * Stacks side by side, their bottoms on one line.
 * @param {Stack[]} stacks @param {number} tallest @param {string[]} order @param {number} label
 */
function abreast(stacks, tallest, order, label) {
  const height = tallest + 14;
  let x = 0;
  let panel = null;
  for (const side of order) {
    const stack = stacks.find((each) => each.side === side);
    if (!stack) {
      panel = { x: x + 10, y: 8, width: PANEL, height: height - 60 };
      x += PANEL + BETWEEN;
      continue;
    }
    move(stack, x, height - 6);
    x += stack.width + BETWEEN;
  }
  return { width: x - BETWEEN + 4, height, stacks, panel, narrow: false, label };
}

/**
 * The decoder above the encoder.
 * @param {Stack[]} stacks @param {boolean} film @param {number} label @param {number} inside
 */
function stacked(stacks, film, label, inside) {
  const [encoder, decoder] = stacks;
  const panel = film ? { x: EDGE, y: 4, width: inside, height: 150 } : null;
  let y = panel ? panel.height + 14 : 4;
  for (const stack of [decoder, encoder]) {
    y -= stack.top;
    move(stack, 0, y);
    y += 22;
  }
  return { width: inside + EDGE + 14, height: y - 14, stacks, panel, narrow: true, label };
}

/** @param {Stack} stack @param {number} x @param {number} y */
function move(stack, x, y) {
  stack.x += x;
  stack.top += y;
  stack.bottom += y;
  for (const each of stack.frame ? [...stack.boxes, stack.frame] : stack.boxes) {
    each.x += x;
    each.y += y;
  }
}

/** @param {Layout} map @param {string} side @param {string} id @returns {Placed | undefined} */
export const boxOf = (map, side, id) =>
  map.stacks.find((stack) => stack.side === side)?.boxes.find((box) => box.id === id);

/**
 * The middles of the tokens of a row in a box, and the width of each.
 * @param {Layout} map @param {Placed} box @param {number} count
 */
export function slots(map, box, count) {
  const left = box.x + map.label + 3;
  const width = (box.width - map.label - 6) / Math.max(1, count);
  const each = Math.min(width, 64);
  return { width: each, x: Array.from({ length: count }, (_, i) => left + each * (i + 0.5)) };
}
