// Drawings that several views share: matrices as tables, as pictures, as strips.
import { choosable, live, make, quiet, roving, token } from "./a11y.js";
import { css, ink, reach, share, signed } from "./color.js";

const matrices = new WeakMap();
const keepMatrix = (element, label, rows, columns, data, width) => {
  matrices.set(element, { label, rows, columns, data, width });
  return element;
};
/** The numbers that a figure shows: {label, rows, columns, data, width}. */
export function matrixOf(figure) {
  for (const each of [figure, ...figure.querySelectorAll("*")])
    if (matrices.has(each)) return matrices.get(each);
  return null;
}

export const SMALL = 40; // tokens on a side up to which each cell is an element
const MAX_WRITTEN = 12; // columns up to which the number stands in the cell

export const number = (value, digits = 4) => {
  if (value === null || value === undefined) return "–";
  if (!Number.isFinite(value)) return String(value);
  const size = Math.abs(value);
  if (size !== 0 && (size < 10 ** -digits || size >= 1e6)) return value.toExponential(2).replaceAll("-", "−");
  return value.toFixed(digits).replace("-", "−");
};

/** A colour on an element, with text that can be read on it. */
export function paint(element, color) {
  element.style.backgroundColor = css(color);
  element.style.color = ink(color);
  return element;
}

/**
 * @typedef {object} Grid what all tables of coloured cells have
 * @property {string[]} rows
 * @property {string[]} columns
 * @property {number | null} [row] the one that is chosen
 * @property {number | null} [column]
 * @property {[number, number]} [start] the cell that the Tab key reaches
 * @property {string} label
 * @property {string} [name] of the style
 * @property {(i: number, j: number) => void} choose
 */

/**
 * A table of coloured cells with names, each of which can be chosen. A cell without a colour is masked.
 * @param {Grid & { cell: (i: number, j: number) => Record<string, any> }} options
 */
export function heatmap({
  rows,
  columns,
  row = null,
  column = null,
  start = [row ?? 0, column ?? 0],
  label,
  cell,
  choose,
  name = "heat",
}) {
  const cells = rows.map((_, i) =>
    columns.map((__, j) => {
      const { color, content, ...attributes } = cell(i, j);
      const settings = { role: "gridcell", ...choosable(() => choose(i, j)), ...attributes };
      const td = make("td", { class: color ? null : "masked", ...settings }, content);
      return color ? paint(td, color) : td;
    }),
  );
  roving(cells, start, (i, j) => live(cells[i][j].getAttribute("aria-label")));
  const head = columns.map((text, j) =>
    make("th", { scope: "col", class: j === column ? "here" : null }, make("span", {}, token(text))),
  );
  const body = rows.map((text, i) =>
    make(
      "tr",
      { role: "row", class: i === row ? "here" : null },
      make("th", { scope: "row", role: "rowheader", title: text }, token(text)),
      ...cells[i],
    ),
  );
  return make(
    "table",
    { role: "grid", "aria-label": label, class: name },
    make("thead", {}, make("tr", { role: "row" }, make("td"), ...head)),
    make("tbody", {}, ...body),
  );
}

/**
 * Numbers as a heatmap; `show(value, i, j)`: {color, text, words}, the number in the cell and in words.
 * @param {Grid & {
 *   data: ArrayLike<number>,
 *   show: (value: number, i: number, j: number) => { color: any, text: string, words: string },
 *   attributes: (value: number, i: number, j: number) => Record<string, any>,
 * }} options
 */
export function numberGrid({ data, rows, columns, label, show, attributes, ...rest }) {
  const width = columns.length;
  const isWide = width <= MAX_WRITTEN;
  const cell = (i, j) => {
    const value = data[i * width + j];
    const { color, text, words } = show(value, i, j);
    return {
      color,
      content: isWide ? make("span", { "aria-hidden": "true" }, text) : "",
      "aria-label": `query ${rows[i]}, key ${columns[j]}, ${words}`,
      "aria-selected": String(i === rest.row && j === rest.column),
      title: `${rows[i]} → ${columns[j]}: ${number(value, 4)}`,
      ...attributes(value, i, j),
    };
  };
  const table = heatmap({ rows, columns, label, cell, name: isWide ? "heat wide" : "heat", ...rest });
  keepMatrix(table, label, rows, columns, data, width);
  return make("div", { class: "scroll" }, table);
}

/** The colours of shares, from 0 to 1. */
export function legend() {
  const colors = make("span", { class: "legend-colors", "aria-hidden": "true" });
  colors.style.background = `linear-gradient(90deg, ${[0, 0.25, 0.5, 0.75, 1].map((x) => css(share(x))).join(", ")})`;
  return make("p", { class: "quiet" }, "0 ", colors, " 1");
}

/** A number with fixed digits and a true minus; never -0. */
export const fixed = (value, digits) =>
  value
    .toFixed(digits)
    .replace(/^-(?=0\.?0*$)/, "")
    .replace("-", "−");

/**
 * @typedef {object} AttentionOptions
 * @property {any} weights
 * @property {any} [mask]
 * @property {string[]} queries
 * @property {string[]} keys
 * @property {number | null} query
 * @property {number | null} key
 * @property {string} label
 * @property {number} [most] the largest number, for the colours
 * @property {string} [unit]
 * @property {(i: number, j: number) => void} choose
 */

/** Attention weights as a grid. @param {AttentionOptions} options */
export function grid({ weights, mask, queries, keys, query, key, choose, label, most = 1, unit = "weight" }) {
  const [height, width] = weights.shape.slice(-2);
  const show = (value, i, j) => {
    if (mask && !mask.data[i * width + j]) return { color: null, text: "", words: "masked, weight 0" };
    const text = value < 0.005 ? "" : value.toFixed(2).replace(/^0/, "");
    return { color: share(value / most), text, words: `${unit} ${value.toFixed(2)}` };
  };
  return numberGrid({
    data: weights.data,
    rows: queries.slice(0, height),
    columns: keys.slice(0, width),
    row: query,
    column: key,
    label,
    show,
    choose,
    attributes: (value, i, j) => ({ "data-value": value, "data-query": i, "data-key": j }),
  });
}

/** Attention weights as a grid, or as a picture if there are many. @param {AttentionOptions} options */
export function attentionFigure({ weights, queries, keys, query, label, most = 1, ...rest }) {
  if (Math.max(...weights.shape) <= SMALL)
    return grid({ weights, queries, keys, query, label, most, ...rest });
  const image = { ...weights, kind: "share", scale: most, label, row: query, rows: queries, columns: keys };
  return make("div", { class: "large" }, picture(image));
}

/** Some rows and columns of a matrix. */
export function cut({ data, shape }, rows, columns) {
  const width = shape.at(-1);
  if (rows.length === shape.at(-2) && columns.length === width) return { data, shape };
  const values = new data.constructor(rows.length * columns.length);
  rows.forEach((row, i) =>
    columns.forEach((column, j) => {
      values[i * columns.length + j] = data[row * width + column];
    }),
  );
  return { data: values, shape: [rows.length, columns.length] };
}

/** A matrix as a picture, one dot for a number, enlarged without smoothing. */
export function picture({
  data,
  shape,
  kind = "signed",
  label,
  scale = null,
  row = null,
  least = 1,
  rows = null,
  columns = null,
}) {
  const [height, width] = shape.slice(-2);
  const most = scale ?? (kind === "signed" ? reach(data) : kind === "bytes" ? 255 : 1);
  const canvas = make("canvas", { width, height, role: "img", "aria-label": label, class: "picture" });
  const pen = canvas.getContext("2d");
  const image = pen.createImageData(width, height);
  for (let at = 0; at < width * height; at++) {
    const [r, g, b] = kind === "signed" ? signed(data[at] / most) : share(data[at] / most);
    image.data.set([r, g, b, 255], at * 4);
  }
  pen.putImageData(image, 0, 0);
  canvas.style.aspectRatio = `${width} / ${Math.max(height, least)}`;
  if (rows) keepMatrix(canvas, label, rows, columns, data, width);
  if (row === null) return canvas;
  const mark = make("span", { class: "mark", "aria-hidden": "true" });
  mark.style.top = `${(row / height) * 100}%`;
  mark.style.height = `${100 / height}%`;
  return make("div", { class: "marked" }, canvas, mark);
}

/** Vectors of words as rows of colour, each beside its word. */
export function strips(tensor, names, { chosen = null, label, most = 64 }) {
  const width = tensor.shape.at(-1);
  const scale = reach(tensor.data);
  const strip = (name, i) => {
    const data = tensor.data.subarray(i * width, (i + 1) * width);
    const range = `from ${number(Math.min(...data), 2)} to ${number(Math.max(...data), 2)}`;
    return make(
      "div",
      { class: i === chosen ? "strip here" : "strip" },
      make("span", { class: "strip-name" }, token(name)),
      picture({ data, shape: [1, width], scale, label: `${label} of ${name}: ${width} numbers ${range}` }),
    );
  };
  const rest = names.length > most ? quiet(`and ${names.length - most} more`) : null;
  const all = make("div", { class: "strips" }, ...names.slice(0, most).map(strip), rest);
  const channels = Array.from({ length: width }, (_, channel) => String(channel));
  return keepMatrix(all, label, names, channels, tensor.data, width);
}

/** A share as a bar with its number. */
export function bar(value, text, kind = "") {
  const inside = make("span", { class: `bar-inside ${kind}` });
  inside.style.width = `${Math.max(0, Math.min(1, value)) * 100}%`;
  return make(
    "span",
    { class: "bar" },
    make("span", { class: "bar-track", "aria-hidden": "true" }, inside),
    make("span", { class: "bar-text" }, text),
  );
}

/** A signed number, -1 to 1, as a bar from the middle: to the right above 0. */
export function signedBar(value, text) {
  const inside = make("span", { class: value < 0 ? "bar-inside less" : "bar-inside" });
  const length = Math.min(1, Math.abs(value)) * 50;
  inside.style.width = `${length}%`;
  inside.style.marginInlineStart = `${value < 0 ? 50 - length : 50}%`;
  return make(
    "span",
    { class: "bar signed" },
    make("span", { class: "bar-track", "aria-hidden": "true" }, inside),
    make("span", { class: "bar-text" }, text),
  );
}

/** A word over a bar, 0 to 1. */
export function chip(value, content, settings = {}) {
  const inside = make("span", { class: "chip-bar" });
  inside.style.width = `${value * 100}%`;
  return make("span", { class: "chip", ...settings }, content, make("span", { class: "chip-track" }, inside));
}

/** `decoder.1.cross` in words. */
export function spoken(where) {
  const [side, layer, kind] = where.split(".");
  return kind
    ? `${side[0].toUpperCase()}${side.slice(1)}, layer ${layer}, ${kind}-attention`
    : "Decoder, attention to the source";
}
