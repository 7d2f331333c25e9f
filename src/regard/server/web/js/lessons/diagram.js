// Boxes and arrows: a network over the words of a sentence, heads laid side by side, years on a line.
import { draw, make } from "../a11y.js";
import { formulaParts } from "./numbers.js";

const [ACROSS, DOWN] = [112, 66]; // between places of the grid
const [LETTER, LINE, MARGIN] = [7.6, 17, 12];

/** @typedef {{name: string, lines: string[], kind: string, x: number, y: number, w: number, h: number}} Box */

/** A box of the document, [name, text, kind, x, y]; " // " in its text is a new line. @returns {Box} */
function boxOf([name, text, kind, x, y]) {
  const lines = String(text).split(" // ");
  const w = Math.max(40, Math.max(...lines.map((line) => line.length)) * LETTER + 16);
  return { name, lines, kind, x: Number(x) * ACROSS, y: Number(y) * DOWN, w, h: lines.length * LINE + 12 };
}

/**
 * A diagram: `boxes` of [name, text, kind, x, y], `arrows` of [from, to, text, weight].
 * @param {{caption: string, boxes: any[], arrows: any[]}} data
 */
export function diagram({ caption, boxes, arrows }) {
  const placed = boxes.map(boxOf);
  const byName = new Map(placed.map((box) => [box.name, box]));
  const left = Math.min(...placed.map((box) => box.x - box.w / 2)) - MARGIN;
  const top = Math.min(...placed.map((box) => box.y - box.h / 2)) - MARGIN;
  const wide = Math.max(...placed.map((box) => box.x + box.w / 2)) + MARGIN - left;
  const high = Math.max(...placed.map((box) => box.y + box.h / 2)) + MARGIN - top;
  const joined = arrows.map(([from, to, ...rest]) => [byName.get(from), byName.get(to), ...rest]);
  return [
    make(
      "div",
      { class: "scroll whole" },
      draw(
        "svg",
        {
          viewBox: `${left} ${top} ${wide} ${high}`,
          width: wide,
          height: high,
          class: "diagram",
          role: "img",
          "aria-label": `${caption}; below it in words`,
        },
        ...joined.map(([from, to, text, weight]) => arrow(from, to, text, weight)),
        ...placed.map(drawnBox),
        ...joined.map(([from, to, text]) => arrowText(from, to, text)),
      ),
    ),
    inWords(joined),
  ];
}

function drawnBox({ lines, kind, x, y, w, h }) {
  const first = y - ((lines.length - 1) * LINE) / 2 + 5;
  return draw(
    "g",
    { class: `part ${kind}` },
    kind === "word" || kind === "note"
      ? null
      : draw("rect", { x: x - w / 2, y: y - h / 2, width: w, height: h, rx: 6 }),
    ...lines.map((line, i) =>
      draw("text", { x, y: first + i * LINE, "text-anchor": "middle" }, ...formula(line)),
    ),
  );
}

/** Subscripts and superscripts, as spans that are lowered or raised. */
function formula(text) {
  let height = 0;
  return formulaParts(text).map(([kind, part]) => {
    const level = kind === "sub" ? 4 : kind === "sup" ? -5 : 0;
    const span = draw("tspan", { dy: level - height, class: kind || null }, part);
    height = level;
    return span;
  });
}

/** Where a line from the middle of a box towards a point leaves the box. */
function border({ x, y, w, h }, [tx, ty]) {
  const [dx, dy] = [tx - x, ty - y];
  const scale = Math.min(w / 2 / Math.max(Math.abs(dx), 1e-6), h / 2 / Math.max(Math.abs(dy), 1e-6));
  return [x + dx * scale, y + dy * scale];
}

function arrow(from, to, _, weight) {
  const [x1, y1] = border(from, [to.x, to.y]);
  const [x2, y2] = border(to, [from.x, from.y]);
  const isWeight = weight !== undefined && weight !== "";
  const width = isWeight ? 0.6 + 7 * Number(weight) : 1.6;
  const turn = (Math.atan2(y2 - y1, x2 - x1) * 180) / Math.PI;
  const head = `M0 0l-9 -4.5v9z`;
  return draw(
    "g",
    { class: isWeight ? "way weight" : "way" },
    draw("line", { x1, y1, x2, y2, "stroke-width": width }),
    isWeight ? null : draw("path", { d: head, transform: `translate(${x2} ${y2}) rotate(${turn})` }),
  );
}

function arrowText(from, to, text) {
  if (!text) return null;
  const [x1, y1] = border(from, [to.x, to.y]);
  const [x2, y2] = border(to, [from.x, from.y]);
  const at = { x: (x1 + x2) / 2, y: (y1 + y2) / 2 + 4, "text-anchor": "middle", class: "way-text" };
  return draw("text", at, ...formula(String(text)));
}

const inWords = (arrows) =>
  make(
    "details",
    { class: "behind" },
    make("summary", {}, "The figure in words"),
    make(
      "ul",
      {},
      ...arrows.map(([from, to, text, weight]) =>
        make(
          "li",
          {},
          `${from.lines.join(", ")} → ${to.lines.join(", ")}${text ? `: ${text}` : ""}`,
          weight === undefined || weight === "" || text ? "" : `: ${Number(weight).toFixed(2)}`,
        ),
      ),
    ),
  );
