// Figure 1 of the paper, drawn from the model's own settings. Each box leads to where its numbers are.
import { draw, following, make, quiet, select } from "../a11y.js";
import { address, set, state } from "../state.js";

const WIDE = 168;
const APART = 72;
const HIGH = 34;
const GAP = 14;

export async function render(trace, model) {
  const config = trace.meta.config;
  const layers = layerCount(trace);
  const layer = Math.min(Number(state().where.split(".")[1]) || 0, layers - 1);
  const byLayer = trace.attentions.find((name) => /\.\d+\./.test(name)); // an RNN's layers have none
  const stacks = ["encoder", "decoder"].filter((side) =>
    [...trace.shapes.keys()].some((name) => name.startsWith(`${side}.`)),
  );
  const drawn = stacks.map((side) =>
    column(trace, side, config, Math.min(layer, layerCount(trace, side) - 1)),
  );
  const height = Math.max(...drawn.map((boxes) => boxes.length)) * (HIGH + GAP) + GAP;
  const width = stacks.length * (WIDE + APART) + 12;
  const groups = drawn.map((boxes, i) => stack(boxes, 40 + i * (WIDE + APART), height, stacks[i], config));
  const crossing = stacks.length === 2 ? bridge([drawn[0], drawn[1]], height) : null;
  return [
    make("h2", {}, "The model as a map"),
    quiet(facts(config, model, trace)),
    layers > 1 && byLayer
      ? select(
          "Layer",
          Array.from({ length: layers }, (_, i) => [String(i), `${i} of 0 to ${layers - 1}`]),
          String(layer),
          (id) => set({ where: trace.attentions.find((name) => name.split(".")[1] === id) ?? byLayer }),
        )
      : null,
    make(
      "div",
      { class: "scroll whole" },
      draw(
        "svg",
        {
          viewBox: `0 0 ${width} ${height}`,
          class: stacks.length > 1 ? "map two" : "map",
          role: "group",
          "aria-label": `Map of a ${config.family}`,
        },
        ...groups,
        crossing ?? "",
      ),
    ),
    quiet("Read from below: what comes in at the bottom leaves at the top. Choose a box to see its numbers."),
  ].filter(Boolean);
}

const layerCount = (trace, side = "(?:en|de)coder") =>
  1 +
  Math.max(
    0,
    ...[...trace.shapes.keys()].map((name) =>
      Number(new RegExp(`^${side}\\.(\\d+)\\.`).exec(name)?.[1] ?? 0),
    ),
  );

/** GPT, Llama and T5 are pre-norm whatever their config says: what was computed tells. */
const isPreNorm = (trace, config) =>
  config.norm === "pre" || ["encoder", "decoder"].some((side) => trace.has(`${side}.0.self.norm`));

function facts(config, model, trace) {
  const parts = [`${config.family}: width ${config.width}`];
  if (!["rnn", "bahdanau"].includes(config.family))
    parts.push(
      `${config.heads} heads of ${config.head_width ?? config.width / config.heads}`,
      `feed-forward ${config.feed_forward}`,
      `${isPreNorm(trace, config) ? "pre" : "post"}-norm`,
      `${config.positions} positions`,
    );
  else parts.push(config.cell.toUpperCase());
  for (const [name, words] of Object.entries({ vocabulary: "tokens", parameters: "parameters" })) {
    if (model?.[name]) parts.push(`${model[name].toLocaleString("en")} ${words}`); // a file does not have them
  }
  return parts.join(", ");
}

/**
 * @typedef {object} Box
 * @property {string} text
 * @property {string} kind
 * @property {Record<string, string>} [leads] the state of the page that shows its numbers
 * @property {boolean} [repeated] part of each layer
 * @property {number} [from] the box where the residual path begins
 */

/**
 * The boxes of one stack from the bottom to the top.
 * @returns {Box[]}
 */
function column(trace, side, config, layer) {
  const has = (name) => trace.has(`${side}.${name}`);
  const isPre = isPreNorm(trace, config);
  const input = { view: "input", side: side === "encoder" ? "source" : "target" };
  const look = (where) => ({ view: "attention", where, head: "0", query: "", key: "" });
  /** @type {Box[]} */
  const boxes = [
    { text: side === "encoder" ? "Tokens" : "Tokens so far", kind: "end", leads: input },
    { text: "Embedding", kind: "embedding", leads: input },
  ];
  if (has("embedding.positions")) boxes.push({ text: "+ Positions", kind: "embedding", leads: input });
  const subLayer = (text, kind, leads = undefined) => {
    const from = boxes.length;
    if (isPre) boxes.push({ text: "Norm", kind: "norm", repeated: true });
    boxes.push({ text, kind, leads, repeated: true });
    boxes.push({ text: isPre ? "Add" : "Add & norm", kind: "norm", repeated: true, from });
  };
  if (has(`${layer}.self.weights`)) {
    const text = side === "decoder" ? "Masked self-attention" : "Self-attention";
    subLayer(text, "attention", look(`${side}.${layer}.self`));
  }
  if (has(`${layer}.cross.weights`)) {
    subLayer("Cross-attention", "attention cross", look(`${side}.${layer}.cross`));
  }
  if (has(`${layer}.feed_forward.output`)) subLayer("Feed-forward", "forward");
  if (has(`${layer}.hidden`)) {
    const text = `${config.cell.toUpperCase()} ${side === "encoder" ? "reads" : "writes"}`;
    boxes.push({ text, kind: "forward", repeated: true });
  }
  if (has("cross.weights")) {
    boxes.push({ text: "Attention", kind: "attention cross", leads: look("decoder.cross") });
  }
  if (isPre && has("out")) boxes.push({ text: "Norm", kind: "norm" });
  if (side === "decoder" || !trace.tokens.target) {
    boxes.push({ text: "Linear", kind: "forward", leads: { view: "output" } });
    boxes.push({ text: "Softmax", kind: "end", leads: { view: "output" } });
  }
  return boxes;
}

const level = (i, height) => height - GAP - HIGH - i * (HIGH + GAP);

/** @param {Box[]} boxes */
function stack(boxes, x, height, side, config) {
  const inside = boxes.map((box, i) => (box.repeated ? i : -1)).filter((i) => i >= 0);
  const parts = [];
  if (inside.length) {
    const top = level(inside.at(-1), height) - 7;
    const bottom = level(inside[0], height) + HIGH + 7;
    const count = (side === "encoder" ? config.encoder_layers : config.decoder_layers) ?? config.layers;
    parts.push(
      draw("rect", { x: x - 26, y: top, width: WIDE + 36, height: bottom - top, rx: 10, class: "frame" }),
      draw("text", { x: x + WIDE + 15, y: (top + bottom) / 2, class: "axis" }, `× ${count}`),
    );
  }
  boxes.forEach(({ text, kind, leads, from }, i) => {
    const y = level(i, height);
    const middle = x + WIDE / 2;
    if (from !== undefined) {
      const below = level(from, height) + HIGH + GAP / 2;
      const path = `M${middle} ${below}H${x - 18}V${y + HIGH / 2}H${x}`; // x + f(x)
      parts.push(draw("path", { d: path, class: "arrow residual" }));
    }
    if (i) parts.push(draw("path", { d: `M${middle} ${y + HIGH + GAP}V${y + HIGH}`, class: "arrow" }));
    const shapes = [
      draw("rect", { x, y, width: WIDE, height: HIGH, rx: 6, class: `box ${kind}` }),
      draw("text", { x: middle, y: y + 22, "text-anchor": "middle", class: "box-text" }, text),
    ];
    const settings = leads && {
      href: address(leads),
      "aria-label": `${side}: ${text}`,
      onclick: following(() => set(leads)),
    };
    parts.push(draw(leads ? "a" : "g", settings ?? {}, ...shapes));
  });
  return draw("g", {}, ...parts);
}

/** From the top of the encoder to where the decoder looks at it, or takes over its state. */
function bridge([encoder, decoder], height) {
  const cross = decoder.findIndex((box) => box.kind.includes("cross"));
  const to = level(cross < 0 ? decoder.findIndex((box) => box.repeated) : cross, height) + HIGH / 2;
  const from = level(encoder.length - 1, height);
  const middle = 40 + WIDE + APART - 34;
  const path = `M${40 + WIDE / 2} ${from}V${from - 12}H${middle}V${to}H${40 + WIDE + APART}`;
  return draw("path", { d: path, class: "arrow bridge" });
}
