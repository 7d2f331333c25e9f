// One head of one attention, step by step: Q, K, V -> products -> scale -> mask -> softmax -> weighted sum.
import { make, quiet, roving, scrollable, section, table, token } from "../a11y.js";
import { SMALL, bar, grid, number, picture, spoken, strips } from "../figures.js";
import { toggle } from "../interventions.js";
import { set, state } from "../state.js";
import { recompute, row } from "../trace.js";
import { drawer, hint, scaleWords } from "./drawer.js";
import { chosen, none, pickers, tokenPicker } from "./selection.js";

const TOP = 12; // keys of a long row that are listed one by one

/** Switch the head that is looked at off, or on again. */
function switcher(trace, { where, head }, model) {
  const offered = model?.interventions;
  if (!offered?.types.includes("zero_head")) return null;
  const off = trace.changes("zero_head", where, head).length > 0;
  const change = () => set({ change: toggle(offered, state().change, { type: "zero_head", where, head }) });
  const settings = { type: "button", class: off ? "switch off" : "switch", onclick: change };
  return make("button", settings, off ? `Switch head ${head} on again` : `Switch head ${head} off`);
}

export async function render(trace, model) {
  const selection = chosen(trace);
  if (!selection) return none(trace);
  const parts = await trace.head(selection.where, selection.head);
  const computed = recompute(parts, selection.query);
  const isScaled = parts.scale !== null;
  return [
    make("h2", {}, "Attention, step by step"),
    make("div", { class: "pickers" }, pickers(trace, selection), switcher(trace, selection, model)),
    make(
      "p",
      { class: "equation" },
      isScaled ? "Attention(Q, K, V) = softmax(QKᵀ / √d) V" : "a = softmax(score(s, h)),  context = Σ a h",
    ),
    make(
      "div",
      { class: "split uneven" },
      matrix(selection, parts),
      selection.key === null ? hint(isScaled) : drawer(selection, parts, computed, model),
    ),
    tokenPicker("Query", selection.rows, selection.query, (text, i) => `query ${text}, place ${i}`),
    steps(selection, parts, computed),
    isScaled ? vectors(selection, parts) : null,
    isScaled ? mixing(selection, parts, computed) : null,
    quiet("Attention shows where a head looked, not why the model chose a word."),
  ].filter(Boolean);
}

function matrix(selection, parts) {
  const [height, width] = parts.weights.shape;
  const isSmall = Math.max(height, width) <= SMALL;
  const { rows, keys, query, key } = selection;
  const label = `${spoken(selection.where)}, head ${selection.head}: rows are queries, columns are keys`;
  const pointed = (event) => {
    const { left, top, width: wide, height: high } = event.currentTarget.getBoundingClientRect();
    const place = (at, size, count) =>
      String(Math.max(0, Math.min(count - 1, Math.floor((at / size) * count))));
    set({
      query: place(event.clientY - top, high, height),
      key: place(event.clientX - left, wide, width),
    });
  };
  const choose = (i, j) => set({ query: String(i), key: String(j) });
  const texts = { queries: rows, keys: keys.shown };
  const image = { kind: "share", label, row: query, rows, columns: keys.shown };
  return make(
    "section",
    { "aria-label": "Weights" },
    make("h3", {}, "Who looks at whom"),
    quiet(
      "Each row is a query and sums to 1. ",
      isSmall ? "Choose a cell to see its arithmetic." : "Choose a place in it, or a query below.",
    ),
    isSmall
      ? grid({ weights: parts.weights, mask: parts.mask, ...texts, query, key, label, choose })
      : make("div", { class: "large", onclick: pointed }, picture({ ...parts.weights, ...image })),
  );
}

/** One query's row, a column for each step. */
function steps(selection, parts, computed) {
  const isScaled = parts.scale !== null;
  const order = computed.weights.map((_, j) => j);
  const isLong = order.length > SMALL;
  if (isLong) order.sort((a, b) => computed.weights[b] - computed.weights[a]).splice(TOP);
  const names = order.map((j) => keyButton(selection, j, isLong));
  roving(names.map((each) => [each]));
  const scale = () => (parts.equal ? "made equal" : `${scaleWords(parts)}${parts.bias ? " + bias" : ""}`);
  const before = isScaled ? ["q·k", `score: ${scale()}`] : ["score"];
  const columns = ["Key", ...before, "mask", "exp(score − largest)", "weight"];
  const line = (j, i) => {
    const isVisible = computed.visible[j];
    return make(
      "tr",
      { class: isVisible ? (j === selection.key ? "here" : null) : "masked" },
      make("th", { scope: "row" }, names[i]),
      isScaled ? make("td", {}, number(computed.products[j], 3)) : null,
      make("td", {}, number(computed.scores[j], 3)),
      make("td", {}, isVisible ? "seen" : "hidden"),
      make("td", {}, isVisible ? number(computed.powers[j], 4) : "0"),
      make("td", {}, bar(computed.weights[j], number(computed.weights[j], 4))),
    );
  };
  const rows = order.map(line);
  if (isLong) {
    const others = 1 - order.reduce((sum, j) => sum + computed.weights[j], 0);
    const head = make("th", { scope: "row" }, `${computed.weights.length - order.length} others`);
    const empty = columns.slice(2).map(() => make("td"));
    rows.push(make("tr", {}, head, ...empty, make("td", {}, bar(others, number(others, 4)))));
  }
  const total = computed.weights.reduce((a, b) => a + b, 0);
  const foot = make(
    "tr",
    {},
    make("th", { scope: "row" }, "Sum"),
    ...columns.slice(3).map(() => make("td")),
    make("td", {}, number(computed.sum, 4)),
    make("td", {}, number(total, 4)),
  );
  return section(
    "Steps",
    ["What ", token(selection.rows[selection.query]), " computes"],
    scrollable("Steps of the query", table(columns, rows, { foot })),
  );
}

function keyButton({ keys, query }, j, isLong) {
  const settings = {
    type: "button",
    class: "word",
    "aria-label": `arithmetic of key ${keys.shown[j]}, place ${j}`,
    onclick: () => set({ query: String(query), key: String(j) }),
  };
  const place = isLong ? make("span", { class: "quiet" }, ` ${j}`) : "";
  return make("button", settings, token(keys.shown[j]), place);
}

function vectors({ queries, keys, query, key }, parts) {
  const figure = (name, tensor, side, at, words) =>
    make(
      "figure",
      {},
      make("figcaption", {}, make("b", {}, name), ` ${words}`),
      strips(tensor, side.shown, { chosen: at, label: name, most: 24 }),
    );
  const width = parts.query.shape.at(-1);
  return section(
    "Queries, keys and values",
    "Q, K and V of this head",
    quiet(`Each word has three vectors of ${width} numbers: blue below zero, orange above.`),
    make(
      "div",
      { class: "three" },
      figure("Q", parts.query, queries, query, "what a word looks for"),
      figure("K", parts.key, keys, key, "what it can be found by"),
      figure("V", parts.value, keys, key, "what it gives"),
    ),
  );
}

/** z = sum_j a_j v_j, again here in float64. */
function mixing(selection, parts, computed) {
  const width = parts.value.shape.at(-1);
  const z = new Float64Array(width);
  computed.weights.forEach((weight, j) =>
    row(parts.value, j).forEach((v, c) => {
      z[c] += weight * v;
    }),
  );
  const model = row(parts.mixed, selection.query);
  const apart = Math.max(...z.map((each, c) => Math.abs(each - model[c])));
  const both = { data: Float64Array.from([...z, ...model]), shape: [2, width] };
  return section(
    "Weighted sum",
    "The weighted sum of the values",
    strips(both, ["here", "model"], { label: "Σ a v" }),
    quiet(
      "Σ a v for ",
      token(selection.rows[selection.query]),
      parts.off
        ? "; this head is switched off, so the model goes on with zeros in its place."
        : `; the model’s differs by at most ${number(apart, 7)}. ` +
            "All heads side by side then go through W_O.",
    ),
  );
}
