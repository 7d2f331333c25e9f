// Drawings that several views share: matrices as tables, as pictures, as strips.
import { live, make, roving, token } from "./a11y.js";
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

export const SMALL = 40; // pieces on a side up to which each cell is an element
const WRITTEN = 12; // columns up to which the number stands in the cell

export const number = (value, digits = 4) => {
  if (value === null || value === undefined) return "–";
  if (!Number.isFinite(value)) return String(value);
  const size = Math.abs(value);
  if (size !== 0 && (size < 10 ** -digits || size >= 1e6)) return value.toExponential(2).replaceAll("-", "−");
  return value.toFixed(digits).replace("-", "−");
};

/** Attention weights as a grid: each cell is a button with a name. */
export function grid({ weights, mask, queries, keys, query, key, choose, label, most = 1, unit = "weight" }) {
  const [height, width] = weights.shape.slice(-2);
  const head = make(
    "tr",
    {},
    make("td"),
    ...keys.map((text, j) =>
      make("th", { scope: "col", class: j === key ? "here" : null }, make("span", {}, token(text))),
    ),
  );
  const cells = [];
  const body = queries.slice(0, height).map((text, i) => {
    cells.push(keys.slice(0, width).map((to, j) => cell(i, j, text, to)));
    return make(
      "tr",
      { role: "row", class: i === query ? "here" : null },
      make("th", { scope: "row", role: "rowheader" }, token(text)),
      ...cells[i],
    );
  });

  function cell(i, j, from, to) {
    const value = weights.data[i * width + j];
    const hidden = mask && !mask.data[i * width + j];
    const color = share(value / most);
    const td = make(
      "td",
      {
        role: "gridcell",
        "data-value": value,
        "data-query": i,
        "data-key": j,
        class: hidden ? "masked" : null,
        "aria-label": `query ${from}, key ${to}, ${hidden ? "masked, weight 0" : `${unit} ${value.toFixed(2)}`}`,
        "aria-selected": String(i === query && j === key),
        title: `${from} → ${to}: ${value.toFixed(4)}`,
        onclick: () => choose(i, j),
        onkeydown: (event) => {
          if (event.key !== "Enter" && event.key !== " ") return;
          event.preventDefault();
          choose(i, j);
        },
      },
      width <= WRITTEN
        ? make(
            "span",
            { "aria-hidden": "true" },
            hidden || value < 0.005 ? "" : value.toFixed(2).replace(/^0/, ""),
          )
        : "",
    );
    if (!hidden) {
      td.style.backgroundColor = css(color);
      td.style.color = ink(color);
    }
    return td;
  }

  roving(cells, [query ?? 0, key ?? 0], (i, j) => live(cells[i][j].getAttribute("aria-label")));
  const table = make(
    "table",
    { role: "grid", "aria-label": label, class: width <= WRITTEN ? "heat wide" : "heat" },
    make("thead", {}, head),
    make("tbody", {}, ...body),
  );
  head.setAttribute("role", "row");
  keepMatrix(table, label, queries.slice(0, height), keys.slice(0, width), weights.data, width);
  return make("div", { class: "scroll" }, table);
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
  const rows = names
    .slice(0, most)
    .map((name, i) =>
      make(
        "div",
        { class: i === chosen ? "strip here" : "strip" },
        make("span", { class: "strip-name" }, token(name)),
        picture({
          data: tensor.data.subarray(i * width, (i + 1) * width),
          shape: [1, width],
          scale,
          label: `${label} of ${name}: ${width} numbers from ${number(Math.min(...tensor.data.subarray(i * width, (i + 1) * width)), 2)} to ${number(Math.max(...tensor.data.subarray(i * width, (i + 1) * width)), 2)}`,
        }),
      ),
    );
  const rest = names.length > most ? [make("p", { class: "quiet" }, `and ${names.length - most} more`)] : [];
  const all = make("div", { class: "strips" }, ...rows, ...rest);
  return keepMatrix(
    all,
    label,
    names,
    Array.from({ length: width }, (_, channel) => String(channel)),
    tensor.data,
    width,
  );
}

/** A share as a bar with its number. */
export function bar(value, text) {
  const inside = make("span", { class: "bar-inside" });
  inside.style.width = `${Math.max(0, Math.min(1, value)) * 100}%`;
  return make(
    "span",
    { class: "bar" },
    make("span", { class: "bar-track", "aria-hidden": "true" }, inside),
    make("span", { class: "bar-text" }, text),
  );
}

/** `decoder.1.cross` in words. */
export function spoken(where) {
  const [side, layer, kind] = where.split(".");
  return kind
    ? `${side[0].toUpperCase()}${side.slice(1)}, layer ${layer}, ${kind}-attention`
    : "Decoder, attention to the source";
}

export const shortly = (where) =>
  where
    .replace(/^encoder/, "enc")
    .replace(/^decoder/, "dec")
    .replaceAll(".", " ");
