// The picture or the spectrogram that was read, with the weights of attention laid over its patches.
import { choosable, draw, make, quiet, section, table, token } from "../a11y.js";
import { number, spoken } from "../figures.js";
import { set } from "../state.js";
import { row } from "../trace.js";
import { chosen, none, pickers } from "./selection.js";

const WIDE = 360; // pixels of the large figure
const SMALL = 120;
const STRONGEST = 5;

/** The words that were written and their rows in the target, without start and end. @param {any} trace */
function written(trace) {
  if (!trace.tokens.output) return [];
  const prompt = trace.meta.prompt ?? 0;
  return trace.tokens.output.shown
    .map((/** @type {string} */ text, /** @type {number} */ at) => ({ text, at }))
    .slice(prompt);
}

/**
 * The picture with a share of each position laid over it; class tokens have no place in it.
 * @param {any} trace
 * @param {ArrayLike<number>} shares of all positions
 * @param {{ size?: number, label: string, at?: number | null, choose?: ((place: number) => void) | null }} how
 */
export function overlay(trace, shares, { size = WIDE, label, at = null, choose = null }) {
  const { image, first, grid, kind } = trace.meta.input;
  const [rows, columns] = kind === "video" ? [grid[1], grid[0] * grid[2]] : grid;
  const values = Array.from(shares).slice(first);
  const low = Math.min(...values);
  const range = Math.max(...values) - low || 1;
  const height = kind === "audio" ? size / 2.5 : (size * rows) / columns;
  const [wide, high] = [size / columns, height / rows];
  const cells = values.map((value, place) => {
    const [x, y] = cell(place, grid, kind);
    const title = `${trace.tokens.source.shown[first + place]}: ${number(value, 4)}`;
    const settings = choose ? { ...choosable(() => choose(first + place)), class: "choosable" } : {};
    return draw(
      "rect",
      {
        x: x * wide,
        y: y * high,
        width: wide,
        height: high,
        fill: "var(--overlay)",
        "fill-opacity": (0.8 * (value - low)) / range,
        stroke: first + place === at ? "var(--mark)" : "none",
        "stroke-width": 2,
        ...settings,
      },
      draw("title", {}, title),
    );
  });
  const best = values.indexOf(Math.max(...values));
  const bestPlace = trace.tokens.source.shown[first + best];
  const name = values[best] ? `${label}; the strongest: ${bestPlace}, ${number(values[best], 3)}` : label;
  return draw(
    "svg",
    {
      viewBox: `0 0 ${size} ${height}`,
      width: size,
      height,
      role: "img",
      "aria-label": name,
      class: "overlay",
    },
    draw("image", { href: image, width: size, height, preserveAspectRatio: "none", class: "pixels" }),
    ...cells,
  );
}

/**
 * Column and row of a position; low tones are below, the frames of a film stand side by side.
 * @param {number} place
 * @param {number[]} grid
 * @param {string} kind
 */
function cell(place, grid, kind) {
  if (kind === "audio") return [place % grid[1], grid[0] - 1 - Math.floor(place / grid[1])];
  if (kind === "image") return [place % grid[1], Math.floor(place / grid[1])];
  const [, rows, columns] = grid;
  const time = Math.floor(place / (rows * columns));
  const rest = place % (rows * columns);
  return [time * columns + (rest % columns), Math.floor(rest / columns)];
}

/** @param {any} trace */
export async function render(trace) {
  const selection = chosen(trace);
  if (!trace.meta.input) return make("section", {}, make("h2", {}, "This model reads text"));
  if (!selection) return none(trace);
  const parts = await trace.head(selection.where, selection.head);
  const weights = row(parts.weights, selection.query);
  const isEncoder = selection.where.startsWith("encoder");
  const looks = isEncoder || selection.where.endsWith("cross");
  const name = selection.rows[selection.query];
  const what = { image: "picture", video: "film", audio: "sound" }[trace.meta.input.kind];
  return [
    make("h2", {}, `Where the model looks in the ${what}`),
    make("div", { class: "pickers" }, pickers(trace, selection)),
    looks
      ? section(
          "Weights on the picture",
          [`Head ${selection.head}: what `, token(name), " looks at"],
          quiet(
            isEncoder
              ? "Choose a place to see where its query looks. The colour goes from the smallest weight to the largest."
              : "The colour goes from the smallest weight of this written word to the largest.",
          ),
          make(
            "div",
            { class: "words-on-picture" },
            seen(trace),
            overlay(trace, weights, {
              label: `Weights of head ${selection.head} for ${name}`,
              at: isEncoder ? selection.query : null,
              choose: isEncoder ? (place) => set({ query: String(place) }) : null,
            }),
          ),
          classButtons(trace, selection),
          strongest(trace, weights),
        )
      : quiet("This attention looks at written words: choose one of the encoder or a cross-attention."),
    await rollout(trace, selection),
    await words(trace),
  ].filter(Boolean);
}

/** The picture as the model saw it, without weights. @param {any} trace */
const seen = (trace) =>
  overlay(trace, new Float64Array(trace.tokens.source.ids.length), { label: "What the model reads" });

/** Class tokens have no place in the picture: buttons. @param {any} trace @param {any} selection */
function classButtons(trace, { where, query }) {
  const { first } = trace.meta.input;
  if (!first || !where.startsWith("encoder")) return null;
  const button = (/** @type {number} */ place) =>
    make(
      "button",
      {
        type: "button",
        "aria-pressed": String(place === query),
        onclick: () => set({ query: String(place) }),
      },
      `Query ${trace.tokens.source.shown[place]}`,
    );
  return make("div", { class: "choices" }, ...Array.from({ length: first }, (_, place) => button(place)));
}

/** The places with the largest weights. @param {any} trace @param {ArrayLike<number>} weights */
function strongest(trace, weights) {
  const order = Array.from(weights, (_, place) => place)
    .sort((a, b) => weights[b] - weights[a])
    .slice(0, STRONGEST);
  const line = (/** @type {number} */ place) =>
    make(
      "tr",
      {},
      make("th", { scope: "row" }, trace.tokens.source.shown[place]),
      make("td", {}, number(weights[place], 4)),
    );
  return table(["Place", "Weight"], order.map(line));
}

/**
 * Attention through all layers: of the class token, of all places, or of a written word.
 * @param {any} trace
 * @param {any} selection
 */
async function rollout(trace, { query, queries }) {
  const reading = await trace.reading({ kind: "rollout" }).catch(() => null);
  if (!reading) return null;
  const { first } = trace.meta.input;
  const isText = Boolean(trace.tokens.output);
  const count = reading.values.shape[0];
  const shares =
    isText || first ? row(reading.values, isText ? Math.min(query, count - 1) : 0) : mean(reading.values);
  const whose = isText ? labelOf(queries, query) : first ? "the class token" : "the mean of all places";
  return section(
    "Rollout on the picture",
    ["Rollout: what reaches ", token(whose), " through all layers"],
    quiet(
      "The weights of all layers multiplied, with half a share for the residual stream (Abnar and Zuidema 2020).",
    ),
    overlay(trace, shares, { label: `Rollout of ${whose}` }),
  );
}

/** The mean of all rows. @param {any} matrix */
function mean(matrix) {
  const [rows, columns] = matrix.shape;
  return Float64Array.from({ length: columns }, (_, j) => {
    let sum = 0;
    for (let i = 0; i < rows; i++) sum += matrix.data[i * columns + j];
    return sum / rows;
  });
}

const labelOf = (/** @type {any} */ side, /** @type {number} */ at) => (side.labels ?? side.shown)[at] ?? "";

/** Each written word with the place that it looked at: the mean of the heads of one layer. @param {any} trace */
async function words(trace) {
  const crosses = trace.attentions.filter((/** @type {string} */ each) => each.endsWith("cross"));
  if (!crosses.length) return null;
  const where = crosses[Math.max(0, crosses.length - 2)];
  const all = (await trace.tensors([`${where}.weights`]))[`${where}.weights`];
  const [heads, , places] = all.shape;
  const figures = written(trace).map(({ text, at }) => {
    const shares = new Float64Array(places);
    for (let head = 0; head < heads; head++) {
      for (let j = 0; j < places; j++) {
        shares[j] += all.data[(head * all.shape[1] + at) * places + j] / heads;
      }
    }
    return make(
      "figure",
      {},
      overlay(trace, shares, { size: SMALL, label: `where ${text} looked` }),
      make("figcaption", {}, token(text), times(trace, shares)),
    );
  });
  return section(
    "Words and where they looked",
    "Each written word and where it looked",
    quiet(`The mean of the ${heads} heads of ${spoken(where)}.`),
    make("div", { class: "words-on-picture" }, ...figures),
  );
}

/** The time of a spoken word: where its weights are centred. @param {any} trace @param {ArrayLike<number>} shares */
function times(trace, shares) {
  const { seconds, grid, kind } = trace.meta.input;
  if (kind !== "audio") return null;
  const columns = grid.at(-1);
  let [total, sum] = [0, 0];
  Array.from(shares).forEach((share, place) => {
    total += share;
    sum += share * ((place % columns) + 0.5);
  });
  return make("span", { class: "quiet" }, ` ${number((sum / total / columns) * seconds, 2)} s`);
}
