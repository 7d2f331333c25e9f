// Figure 1 of the paper, drawn from the model's own settings. Each box leads to where its numbers are.
import { draw, make, select } from "../a11y.js";
import { address, set, state } from "../state.js";

const WIDE = 168,
  APART = 72,
  HIGH = 34,
  GAP = 14;

export async function render(trace, model) {
  const config = trace.meta.config;
  const layers = layerCount(trace);
  const layer = Math.min(Number(state().where.split(".")[1]) || 0, layers - 1);
  const byLayer = trace.attentions.find((name) => /\.\d+\./.test(name)); // an RNN's layers have no attention of their own
  const stacks = ["encoder", "decoder"].filter((side) =>
    [...trace.shapes.keys()].some((name) => name.startsWith(`${side}.`)),
  );
  const drawn = stacks.map((side) =>
    column(trace, side, config, Math.min(layer, layerCount(trace, side) - 1)),
  );
  const height = Math.max(...drawn.map((column) => column.length)) * (HIGH + GAP) + GAP;
  const width = stacks.length * (WIDE + APART) + 12;
  const groups = drawn.map((boxes, i) => stack(boxes, 40 + i * (WIDE + APART), height, stacks[i], config));
  const crossing = stacks.length === 2 ? bridge(drawn, height) : null;
  return [
    make("h2", {}, "The model as a map"),
    make("p", { class: "quiet" }, facts(config, model, trace)),
    layers > 1 && byLayer
      ? select(
          "Layer",
          Array.from({ length: layers }, (_, i) => [String(i), `${i} of 0 to ${layers - 1}`]),
          String(layer),
          (layer) => set({ where: trace.attentions.find((name) => name.split(".")[1] === layer) ?? byLayer }),
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
    make(
      "p",
      { class: "quiet" },
      "Read from below: what comes in at the bottom leaves at the top. Choose a box to see its numbers.",
    ),
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
  for (const [name, words] of [
    ["vocabulary", "pieces"],
    ["parameters", "parameters"],
  ]) {
    if (model?.[name]) parts.push(`${model[name].toLocaleString("en")} ${words}`); // a page that is a file does not know
  }
  return parts.join(", ");
}

/** The boxes of one stack from the bottom to the top: [text, kind, where it leads]. */
function column(trace, side, config, layer) {
  const has = (name) => trace.has(`${side}.${name}`);
  const boxes = [
    [
      side === "encoder" ? "Pieces" : "Pieces so far",
      "end",
      { view: "input", side: side === "encoder" ? "source" : "target" },
    ],
    ["Embedding", "embedding", { view: "input", side: side === "encoder" ? "source" : "target" }],
  ];
  if (has("embedding.positions"))
    boxes.push([
      "+ Positions",
      "embedding",
      { view: "input", side: side === "encoder" ? "source" : "target" },
    ]);
  const pre = isPreNorm(trace, config);
  const part = (text, kind, where) => {
    const from = boxes.length;
    if (pre) boxes.push(["Norm", "norm", null, true]);
    boxes.push([text, kind, where, true]);
    boxes.push([pre ? "Add" : "Add & norm", "norm", null, true, from]);
  };
  const look = (kind) => ({
    view: "attention",
    where: `${side}.${layer}.${kind}`,
    head: "0",
    query: "",
    key: "",
  });
  if (has(`${layer}.self.weights`))
    part(side === "decoder" ? "Masked self-attention" : "Self-attention", "attention", look("self"));
  if (has(`${layer}.cross.weights`)) part("Cross-attention", "attention cross", look("cross"));
  if (has(`${layer}.feed_forward.output`)) part("Feed-forward", "forward", null);
  if (has(`${layer}.hidden`))
    boxes.push([
      `${config.cell.toUpperCase()} ${side === "encoder" ? "reads" : "writes"}`,
      "forward",
      null,
      true,
    ]);
  if (has("cross.weights"))
    boxes.push([
      "Attention",
      "attention cross",
      { view: "attention", where: "decoder.cross", head: "0", query: "", key: "" },
    ]);
  if (pre && has("out")) boxes.push(["Norm", "norm", null]);
  const last = side === "decoder" || !trace.tokens.target;
  if (last) boxes.push(["Linear", "forward", { view: "output" }], ["Softmax", "end", { view: "output" }]);
  return boxes;
}

const level = (i, height) => height - GAP - HIGH - i * (HIGH + GAP);

function stack(boxes, x, height, side, config) {
  const inside = boxes.map((box, i) => (box[3] ? i : -1)).filter((i) => i >= 0);
  const parts = [];
  if (inside.length) {
    const top = level(inside.at(-1), height) - 7,
      bottom = level(inside[0], height) + HIGH + 7;
    const count = (side === "encoder" ? config.encoder_layers : config.decoder_layers) ?? config.layers;
    parts.push(
      draw("rect", { x: x - 26, y: top, width: WIDE + 36, height: bottom - top, rx: 10, class: "frame" }),
      draw("text", { x: x + WIDE + 15, y: (top + bottom) / 2, class: "axis" }, `× ${count}`),
    );
  }
  boxes.forEach(([text, kind, leads, , from], i) => {
    const y = level(i, height);
    if (from !== undefined) {
      // the residual path: x + f(x)
      const below = level(from, height) + HIGH + GAP / 2;
      parts.push(
        draw("path", {
          d: `M${x + WIDE / 2} ${below}H${x - 18}V${y + HIGH / 2}H${x}`,
          class: "arrow residual",
        }),
      );
    }
    if (i)
      parts.push(
        draw("line", {
          x1: x + WIDE / 2,
          x2: x + WIDE / 2,
          y1: y + HIGH + GAP,
          y2: y + HIGH,
          class: "arrow",
        }),
      );
    const shapes = [
      draw("rect", { x, y, width: WIDE, height: HIGH, rx: 6, class: `box ${kind}` }),
      draw("text", { x: x + WIDE / 2, y: y + 22, "text-anchor": "middle", class: "box-text" }, text),
    ];
    parts.push(
      leads
        ? draw(
            "a",
            {
              href: address(leads),
              "aria-label": `${side}: ${text}`,
              onclick: (event) => {
                if (event.ctrlKey || event.metaKey || event.shiftKey) return;
                event.preventDefault();
                set(leads);
              },
            },
            ...shapes,
          )
        : draw("g", {}, ...shapes),
    );
  });
  return draw("g", {}, ...parts);
}

/** From the top of the encoder to where the decoder looks at it, or takes over its state. */
function bridge([encoder, decoder], height) {
  const cross = decoder.findIndex(([, kind]) => kind.includes("cross"));
  const to = level(cross < 0 ? decoder.findIndex((box) => box[3]) : cross, height) + HIGH / 2;
  const from = level(encoder.length - 1, height);
  const x = 40 + WIDE / 2,
    middle = 40 + WIDE + APART - 34,
    y = from - 12;
  return draw("path", {
    d: `M${x} ${from}V${y}H${middle}V${to}H${40 + WIDE + APART}`,
    class: "arrow bridge",
  });
}
