// The boxes of Figure 1 for one model, from what a run recorded: pure data, from the bottom to the top.

/** @import { Trace } from "../../trace.js" */
/**
 * @typedef {object} Box
 * @property {string} id of the box within its stack
 * @property {string} text
 * @property {"end" | "embedding" | "attention" | "forward" | "norm"} kind of its colour
 * @property {string} shape of what leaves it
 * @property {Record<string, string>} leads the state of the page that shows its numbers
 * @property {boolean} [repeated] part of each layer
 * @property {boolean} [cross] it reads the other stack
 * @property {string} [from] the box below which the residual path begins
 */

export const STACKS = ["encoder", "decoder"];
/** @param {string} side */
export const tokensOf = (side) => (side === "encoder" ? "source" : "target");

/** What a model reads in place of tokens. @param {Trace} trace @returns {"Moments" | "Patches"} */
export const patchesOf = (trace) => (trace.meta.input?.kind === "audio" ? "Moments" : "Patches");

/** The stacks that a run has. @param {Trace} trace */
export const stacksOf = (trace) =>
  STACKS.filter((side) => [...trace.shapes.keys()].some((name) => name.startsWith(`${side}.`)));

/** @param {Trace} trace @param {string} side */
export function layerCount(trace, side) {
  const pattern = new RegExp(`^${side}\\.(\\d+)\\.`);
  const numbers = [...trace.shapes.keys()].map((name) => Number(pattern.exec(name)?.[1] ?? -1));
  return 1 + Math.max(-1, ...numbers);
}

/** GPT, Llama and T5 are pre-norm whatever their config says: what was computed tells. @param {Trace} trace */
export const isPreNorm = (trace) =>
  trace.meta.config.norm === "pre" || STACKS.some((side) => trace.has(`${side}.0.self.norm`));

/** [n, d] as "n × d". @param {Trace} trace @param {...string} names the first that is there */
function size(trace, ...names) {
  const name = names.find((each) => trace.has(each));
  return name ? (trace.shapes.get(name) ?? []).join(" × ") : "";
}

/**
 * The boxes of one stack at one layer.
 * @param {Trace} trace
 * @param {string} side
 * @param {number} layer
 * @returns {Box[]}
 */
export function boxesOf(trace, side, layer) {
  const at = (/** @type {string} */ name) => `${side}.${name}`;
  const has = (/** @type {string} */ name) => trace.has(at(name));
  const source = tokensOf(side);
  const input = { view: "input", side: source };
  const stream = { view: "stream", side: source };
  const isMedia = side === "encoder" && trace.meta.input;
  const embedded = size(
    trace,
    at("embedding.tokens"),
    at("embedding"),
    at("embedding.sum"),
    at("embedding.out"),
  );
  /** @type {Box[]} */
  const boxes = [
    {
      id: "tokens",
      text: isMedia
        ? patchesOf(trace)
        : side === "encoder" || !trace.tokens.source
          ? "Tokens"
          : "Tokens so far",
      kind: "end",
      shape: String(trace.tokens[source]?.ids.length ?? ""),
      leads: isMedia ? { view: "picture" } : input,
    },
    { id: "embedding", text: "Embedding", kind: "embedding", shape: embedded, leads: input },
  ];
  if (has("embedding.positions"))
    boxes.push({ id: "positions", text: "+ Positions", kind: "embedding", shape: embedded, leads: input });
  boxes.push(...layerBoxes(trace, side, layer, stream));
  if (has("cross.weights"))
    boxes.push({
      id: "cross",
      text: "Attention",
      kind: "attention",
      shape: size(trace, at("cross.context")),
      leads: attention(at("cross")),
      cross: true,
    });
  if (isPreNorm(trace) && has("out") && has("0.out"))
    boxes.push({ id: "norm", text: "Norm", kind: "norm", shape: size(trace, at("out")), leads: stream });
  return [...boxes, ...outputBoxes(trace, side, stream)];
}

/** @param {string} where */
const attention = (where) => ({ view: "attention", where, head: "0", query: "", key: "" });

/** @param {Trace} trace @param {string} side @param {number} layer @param {Record<string, string>} stream */
function layerBoxes(trace, side, layer, stream) {
  const base = `${side}.${layer}`;
  const isPre = isPreNorm(trace);
  const out = size(trace, `${base}.out`, `${base}.hidden`, `${base}.backward.hidden`);
  /** @type {Box[]} */
  const boxes = [];
  const subLayer = (/** @type {string} */ id, /** @type {Omit<Box, "id" | "shape">} */ box) => {
    const from = isPre ? `norm.${id}` : id;
    if (isPre)
      boxes.push({ id: from, text: "Norm", kind: "norm", shape: out, leads: stream, repeated: true });
    boxes.push({ id, shape: out, repeated: true, ...box });
    const text = isPre ? "Add" : "Add & norm";
    boxes.push({ id: `add.${id}`, text, kind: "norm", shape: out, leads: stream, repeated: true, from });
  };
  if (trace.has(`${base}.self.weights`)) {
    const text = side === "decoder" ? "Masked self-attention" : "Self-attention";
    subLayer("self", { text, kind: "attention", leads: attention(`${base}.self`) });
  }
  if (trace.has(`${base}.cross.weights`)) {
    const leads = attention(`${base}.cross`);
    subLayer("cross", { text: "Cross-attention", kind: "attention", leads, cross: true });
  }
  if (trace.has(`${base}.feed_forward.output`))
    subLayer("feed_forward", { text: "Feed-forward", kind: "forward", leads: stream });
  if (trace.has(`${base}.hidden`)) {
    const text = `${trace.meta.config.cell.toUpperCase()} ${side === "encoder" ? "reads" : "writes"}`;
    boxes.push({ id: "cell", text, kind: "attention", shape: out, leads: stream, repeated: true });
  }
  return boxes;
}

/** @param {Trace} trace @param {string} side @param {Record<string, string>} stream @returns {Box[]} */
function outputBoxes(trace, side, stream) {
  const isLast = side === "decoder" || !stacksOf(trace).includes("decoder");
  if (!isLast) {
    const shape = size(trace, "encoder.out", "encoder.0.hidden");
    return [{ id: "out", text: "Encoder output", kind: "end", shape, leads: stream }];
  }
  const shape = size(trace, "logits");
  const leads = { view: "output" };
  return [
    { id: "linear", text: "Linear", kind: "forward", shape, leads },
    { id: "softmax", text: trace.meta.many ? "Sigmoid" : "Softmax", kind: "end", shape, leads },
  ];
}
