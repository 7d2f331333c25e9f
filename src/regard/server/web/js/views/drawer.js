// The arithmetic of one cell: the weight of one key for one query, computed again here from q and k.
import { make, scrollable, token } from "../a11y.js";
import { number, strips } from "../figures.js";
import { set } from "../state.js";
import { row } from "../trace.js";
import { numberEditor } from "./edit.js";

export const hint = (isScaled) =>
  make(
    "p",
    { class: "drawer empty quiet" },
    `Choose a cell or a key: its weight is computed again here, from ${isScaled ? "q and k" : "its score"}.`,
  );

export function drawer(selection, parts, computed, model) {
  const { rows, keys, query, key } = selection;
  const weight = parts.weights.data[query * parts.weights.shape[1] + key];
  const here = computed.weights[key];
  const close = { type: "button", "aria-label": "Close the arithmetic", onclick: () => set({ key: "" }) };
  const attributes = { class: "drawer", id: "drawer", "data-here": here, "data-model": weight };
  return make(
    "section",
    { ...attributes, "aria-label": "Arithmetic" },
    make(
      "div",
      { class: "drawer-head" },
      make("h3", {}, token(rows[query]), " → ", token(keys.shown[key])),
      make("button", close, "×"),
    ),
    parts.scale === null ? null : products(selection, parts),
    make("div", { class: "scroll" }, arithmetic(selection, parts, computed, here, weight)),
    editor(selection, parts, model),
  );
}

/** q and k of this cell can be edited. */
function editor({ where, head, query, key }, parts, model) {
  if (parts.scale === null) return null;
  return numberEditor(model, [
    { label: "q", name: `${where}.query`, head, position: query, values: row(parts.query, query) },
    { label: "k", name: `${where}.key`, head: parts.group, position: key, values: row(parts.key, key) },
  ]);
}

/** A line for each step: its name, its value, and why. */
function arithmetic(selection, parts, computed, here, model) {
  const { key } = selection;
  const isVisible = computed.visible[key];
  const apart = Math.abs(here - model);
  const lines = [
    [
      "mask",
      isVisible ? "seen" : "hidden",
      isVisible ? "the query may look at this key" : "the query may not look at this key, so its weight is 0",
    ],
    [
      "exp(score − largest)",
      number(computed.powers[key], 6),
      `the largest score is ${number(computed.highest, 6)}; without it exp could overflow`,
    ],
    ["sum", number(computed.sum, 6), "of these over all visible keys"],
    ["weight here", number(here, 8), "the quotient, in float64"],
    ["the model’s", number(model, 8), "in float32"],
    [
      "difference",
      apart.toExponential(1).replace("-", "−"),
      apart < 1e-5 ? "the same but for rounding" : "more than rounding",
    ],
  ];
  if (parts.scale !== null) {
    const width = parts.query.shape.at(-1);
    lines.unshift(
      ["q · k", number(computed.products[key], 6), `the sum of ${width} products`],
      ["score", number(computed.scores[key], 6), scoreWords(selection, parts)],
    );
  }
  const line = ([name, value, why]) =>
    make(
      "tr",
      {},
      make("th", { scope: "row" }, name),
      make("td", { class: "value" }, value),
      make("td", { class: "quiet" }, why),
    );
  return make("table", { class: "numbers" }, make("tbody", {}, ...lines.map(line)));
}

/** The factor of the products, as the equation has it if it is 1 / √d. */
export function scaleWords({ scale, query }) {
  const width = query.shape.at(-1);
  return Math.abs(scale - width ** -0.5) < 1e-9 ? `/ √${width}` : `× ${number(scale, 3)}`;
}

function scoreWords({ query, key }, parts) {
  if (parts.equal) return "whatever q · k is: all scores are made equal";
  const bias = parts.bias?.data[query * parts.weights.shape[1] + key];
  const scaled = parts.scale === 1 ? "q · k" : `q · k ${scaleWords(parts)}`;
  return bias === undefined ? scaled : `${scaled} + ${number(bias, 6)} for the distance`;
}

/** q, k and their products, number by number. */
function products(selection, parts) {
  const q = row(parts.query, selection.query);
  const k = row(parts.key, selection.key);
  const each = Float64Array.from(q, (value, c) => value * k[c]);
  const names = ["q", "k", "q × k"];
  const lines = [q, k, each].map((vector, i) => {
    const numbers = [...vector].map((value) => make("td", {}, number(value, 2)));
    return make("tr", {}, make("th", { scope: "row" }, names[i]), ...numbers);
  });
  const both = { data: Float64Array.from([...q, ...k]), shape: [2, q.length] };
  return [
    strips(both, names.slice(0, 2), { label: "numbers" }),
    strips({ data: each, shape: [1, q.length] }, names.slice(2), { label: "products" }),
    make(
      "details",
      {},
      make("summary", {}, `All ${q.length} products`),
      scrollable("Products", make("table", { class: "numbers" }, make("tbody", {}, ...lines))),
    ),
  ];
}
