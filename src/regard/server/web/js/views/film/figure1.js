// Figure 1 of "Attention Is All You Need" as SVG: boxes, arrows with shapes, the frame of a layer. Each box is a link.
import { draw, following } from "../../a11y.js";
import { address, set } from "../../state.js";
import { boxOf } from "./layout.js";

/** @import { Layout, Placed, Stack } from "./layout.js" */

const PARTS = {
  encoder: ["Self-attention", "Feed-forward"],
  decoder: ["Masked self-attention", "Cross-attention", "Feed-forward"],
};

/**
 * The boxes and arrows of a layout.
 * @param {Layout} layout
 * @param {(leads: Record<string, string>) => void} [go] opens the state of the page that shows a box's numbers
 * @returns {SVGElement[]}
 */
export function figure1(layout, go = set) {
  return [
    ...layout.stacks.map((stack) => (stack.open ? opened(layout, stack, go) : closed(stack))),
    bridge(layout),
  ].filter((each) => each !== null);
}

/** A stack that is not open: of a model without it, what it would hold. @param {Stack} stack */
function closed(stack) {
  const { frame, used, side, title } = stack;
  if (!frame) return null;
  const name = side === "encoder" ? "Encoder" : "Decoder";
  const middle = frame.x + frame.width / 2;
  const inside = used || frame.height < 100 ? [] : PARTS[/** @type {keyof typeof PARTS} */ (side)];
  const boxes = inside.map((text, i) => {
    const y = frame.y + frame.height - 52 - i * 52;
    const rect = { x: frame.x + 18, y, width: frame.width - 36, height: 32, rx: 6, class: "box" };
    return draw(
      "g",
      {},
      draw("rect", rect),
      draw("text", { x: middle, y: y + 21, "text-anchor": "middle", class: "box-text" }, text),
    );
  });
  const y = inside.length ? frame.y + 24 : frame.y + frame.height / 2 + 5;
  const text = used ? title : `${name}: ${title}`;
  return draw(
    "g",
    { class: used ? "closed" : "closed unused", "data-stack": side },
    draw("rect", { ...frame, rx: 10, class: "frame" }),
    draw("text", { x: middle, y, "text-anchor": "middle", class: "box-text" }, text),
    ...boxes,
  );
}

/** @param {Layout} layout @param {Stack} stack @param {(leads: Record<string, string>) => void} go */
function opened(layout, stack, go) {
  const { boxes, frame, side, title, layer, layers } = stack;
  const parts = [];
  if (frame) {
    const right = { x: frame.x + frame.width - 10, "text-anchor": "end" };
    parts.push(draw("rect", { ...frame, rx: 10, class: "frame" }));
    parts.push(draw("text", { x: frame.x + 19, y: frame.y + 15, class: "stack-title" }, title));
    if (layers > 1)
      parts.push(draw("text", { ...right, y: frame.y + 15, class: "stack-title" }, `layer ${layer}`));
  }
  boxes.forEach((box, i) => {
    const below = boxes[i - 1];
    const middle = middleOf(box);
    if (below) {
      parts.push(draw("path", { d: `M${middle} ${below.y}V${box.y + box.height}`, class: "arrow" }));
      const y = below.y - 3;
      parts.push(draw("text", { x: middle + 8, y, class: "shape" }, shapeOf(below, stack)));
    }
    const from = box.from && boxes.find((each) => each.id === box.from);
    if (from) {
      const start = from.y + from.height + 5; // x + f(x)
      const d = `M${middle} ${start}H${box.x - 11}V${box.y + box.height / 2}H${box.x}`;
      parts.push(draw("path", { d, class: "arrow residual" }));
    }
    parts.push(boxLink(layout, box, go));
  });
  return draw("g", { "data-stack": side }, ...parts);
}

/** With the tokens that are there by now. @param {Placed} box @param {Stack} stack */
const shapeOf = ({ shape }, { rows }) => (rows ? shape.replace(/^\d+/, String(rows)) : shape);
const middleOf = (/** @type {Placed} */ box) => box.x + box.width / 2;

/** @param {Layout} layout @param {Placed} box @param {(leads: Record<string, string>) => void} go */
function boxLink(layout, box, go) {
  const { x, y, width, height, text, kind, side, id, leads } = box;
  const isBeside = layout.label && width > layout.label; // tokens stand to the right of the text
  const isThin = kind === "norm";
  const left = isBeside && !isThin;
  const lines = left && text.length > 13 ? text.split(" ") : [text];
  const first =
    isThin || left
      ? y + height / 2 + 4 - 6.5 * (lines.length - 1)
      : layout.narrow
        ? y + 12
        : y + height / 2 + 5;
  const written = lines.map((line, i) => {
    const place = left ? { x: x + 7 } : { x: middleOf(box), "text-anchor": "middle" };
    return draw("text", { ...place, y: first + 13 * i, class: isThin ? "box-text thin" : "box-text" }, line);
  });
  const settings = {
    href: address(leads),
    "aria-label": `${side}: ${text}`,
    "data-box": `${side}.${id}`,
    onclick: following(() => go(leads)),
  };
  return draw("a", settings, draw("rect", { x, y, width, height, rx: 6, class: `box ${kind}` }), ...written);
}

/** From the top of the encoder to where the decoder reads it, or takes over its state. @param {Layout} layout */
function bridge(layout) {
  const [encoder, decoder] = layout.stacks;
  if (!encoder.used || !decoder.used) return null;
  const to = decoder.boxes.find((box) => box.cross) ?? decoder.boxes.find((box) => box.repeated);
  const out = boxOf(layout, "encoder", "out");
  const top = out ?? encoder.frame;
  if (!top) return null;
  if (layout.narrow) return null;
  if (!to) return null;
  const x = encoder.x + encoder.width + 8;
  const start = top.y - 9;
  const y = to.y + to.height - 14;
  const d = `M${top.x + top.width / 2} ${top.y}V${start}H${x}V${y}H${to.x}`;
  return draw("path", { d, class: "arrow bridge" });
}
