// One head of one attention, step by step: Q, K, V -> products -> scale -> mask -> softmax -> weighted sum.
import { choices, make, roving, select, token } from "../a11y.js";
import { SMALL, bar, grid, number, picture, spoken, strips } from "../figures.js";
import { toggled } from "../interventions.js";
import { address, number as numbered, set, state } from "../state.js";
import { recompute, row } from "../trace.js";

const TOP = 12; // keys of a long row that are told one by one

/** The attention, head, query and key that the address means, or the nearest there are. */
export function chosen(trace) {
  const all = trace.attentions;
  const usual = all.filter((each) => each.endsWith("cross")).at(-1) ?? all.at(-1);
  const where = all.includes(state().where) ? state().where : usual;
  if (!where) return null;
  const [queries, keys] = trace.sides(where);
  const within = (name, size, other) => {
    const index = numbered(name);
    return index !== null && index < size ? index : other;
  };
  return {
    where,
    queries,
    keys,
    head: within("head", trace.heads(where), 0),
    query: within("query", queries.ids.length, Math.min(1, queries.ids.length - 1)),
    key: within("key", keys.ids.length, null),
  };
}

export const none = (trace) =>
  make(
    "section",
    {},
    make("h2", {}, "No attention in this model"),
    make(
      "p",
      {},
      trace.meta.family === "rnn"
        ? "A recurrent network reads word by word into one state of fixed size; whatever the writer knows of the source went through it. Attention was made to end this."
        : "This run recorded no attention weights.",
    ),
  );

export function pickers(trace, selection) {
  const heads = Array.from({ length: trace.heads(selection.where) }, (_, head) => [
    head,
    String(head),
    `head ${head}`,
  ]);
  return make(
    "div",
    { class: "pickers" },
    select(
      "Attention",
      trace.attentions.map((each) => [each, spoken(each)]),
      selection.where,
      (where) => set({ where, query: "", key: "", head: "0" }),
    ),
    make(
      "div",
      { class: "field" },
      make("span", { class: "label" }, "Head"),
      choices("Head", heads, selection.head, (head) => set({ head: String(head) })),
    ),
  );
}

/** Switch the head that is looked at off, or on again. */
function switcher(trace, selection, model) {
  if (!model?.interventions?.types.includes("zero_head")) return null;
  const off = trace.changes("zero_head", selection.where, selection.head).length > 0;
  return make(
    "button",
    {
      type: "button",
      class: off ? "switch off" : "switch",
      onclick: () =>
        set({
          change: toggled(state().change, {
            type: "zero_head",
            where: selection.where,
            head: selection.head,
          }),
        }),
    },
    off ? `Switch head ${selection.head} on again` : `Switch head ${selection.head} off`,
  );
}

export async function render(trace, model) {
  const selection = chosen(trace);
  if (!selection) return none(trace);
  const parts = await trace.head(selection.where, selection.head);
  const computed = recompute(parts, selection.query);
  return [
    make("h2", {}, "Attention, step by step"),
    make("div", { class: "pickers" }, pickers(trace, selection), switcher(trace, selection, model)),
    make(
      "p",
      { class: "equation" },
      parts.scale === null
        ? "a = softmax(score(s, h)),  context = Σ a h"
        : "Attention(Q, K, V) = softmax(QKᵀ / √d) V",
    ),
    make(
      "div",
      { class: "split uneven" },
      matrix(selection, parts),
      selection.key === null ? hint() : drawer(selection, parts, computed),
    ),
    queryPicker(selection),
    steps(selection, parts, computed),
    parts.scale === null ? null : vectors(selection, parts),
    parts.scale === null ? null : mixing(selection, parts, computed),
    make("p", { class: "quiet" }, "Attention tells where a head looked, not why the model said a word."),
  ].filter(Boolean);
}

function matrix(selection, parts) {
  const [height, width] = parts.weights.shape;
  const small = Math.max(height, width) <= SMALL;
  const label = `Weights of head ${selection.head}: rows are queries, columns are keys`;
  const figure = small
    ? grid({
        weights: parts.weights,
        mask: parts.mask,
        queries: selection.queries.shown,
        keys: selection.keys.shown,
        query: selection.query,
        key: selection.key,
        label,
        choose: (query, key) => set({ query: String(query), key: String(key) }),
      })
    : make(
        "div",
        { class: "large", onclick: pointed },
        picture({
          ...parts.weights,
          kind: "share",
          label,
          row: selection.query,
          rows: selection.queries.shown,
          columns: selection.keys.shown,
        }),
      );
  function pointed(event) {
    const { left, top, width: wide, height: high } = event.currentTarget.getBoundingClientRect();
    const place = (at, size, count) =>
      String(Math.max(0, Math.min(count - 1, Math.floor((at / size) * count))));
    set({ query: place(event.clientY - top, high, height), key: place(event.clientX - left, wide, width) });
  }
  return make(
    "section",
    { "aria-label": "Weights" },
    make("h3", {}, "Who looks at whom"),
    make(
      "p",
      { class: "quiet" },
      small
        ? "Each row is a query and sums to 1. Choose a cell to see its arithmetic."
        : "Each row is a query and sums to 1. Choose a place in it, or a query below.",
    ),
    figure,
  );
}

const hint = () =>
  make(
    "p",
    { class: "drawer empty quiet" },
    "Choose a cell or a key: its weight is computed again here, from q and k.",
  );

function queryPicker(selection) {
  const texts = selection.queries.shown;
  const choose = (query) => set({ query: String(query) });
  if (texts.length > SMALL)
    return select(
      "Query",
      texts.map((text, i) => [String(i), `${i} ${text}`]),
      String(selection.query),
      choose,
    );
  return make(
    "div",
    { class: "field" },
    make("span", { class: "label" }, "Query"),
    choices(
      "Query",
      texts.map((text, i) => [i, token(text), `query ${text}, place ${i}`]),
      selection.query,
      choose,
    ),
  );
}

/** One query's row, a column for each step. */
function steps(selection, parts, computed) {
  const scaled = parts.scale !== null;
  const order = computed.weights.map((_, j) => j);
  const long = order.length > SMALL;
  if (long) order.sort((a, b) => computed.weights[b] - computed.weights[a]).splice(TOP);
  const names = new Map(
    order.map((j) => [
      j,
      make(
        "button",
        {
          type: "button",
          class: "word",
          "aria-label": `arithmetic of key ${selection.keys.shown[j]}, place ${j}`,
          onclick: () => set({ query: String(selection.query), key: String(j) }),
        },
        token(selection.keys.shown[j]),
        long ? make("span", { class: "quiet" }, ` ${j}`) : "",
      ),
    ]),
  );
  roving(order.map((j) => [names.get(j)]));
  const scale = parts.equal ? "made equal" : `× ${number(parts.scale, 3)}${parts.bias ? " + bias" : ""}`;
  const columns = ["Key", ...(scaled ? ["q·k", scale] : ["score"]), "mask", "exp(e − max)", "weight"];
  const rows = order.map((j) =>
    make(
      "tr",
      { class: computed.visible[j] ? (j === selection.key ? "here" : null) : "masked" },
      make("th", { scope: "row" }, names.get(j)),
      scaled ? make("td", {}, number(computed.products[j], 3)) : null,
      make("td", {}, number(computed.scores[j], 3)),
      make("td", {}, computed.visible[j] ? "seen" : "hidden"),
      make("td", {}, computed.visible[j] ? number(computed.powers[j], 4) : "0"),
      make("td", {}, bar(computed.weights[j], number(computed.weights[j], 4))),
    ),
  );
  const shown = order.reduce((sum, j) => sum + computed.weights[j], 0);
  const rest = long
    ? make(
        "tr",
        {},
        make("th", { scope: "row" }, `${computed.weights.length - order.length} others`),
        ...columns.slice(2).map(() => make("td")),
        make("td", {}, bar(1 - shown, number(1 - shown, 4))),
      )
    : null;
  return make(
    "section",
    { "aria-label": "Steps" },
    make("h3", {}, "What ", token(selection.queries.shown[selection.query]), " computes"),
    make(
      "div",
      { class: "scroll", tabindex: "0", role: "region", "aria-label": "Steps of the query" },
      make(
        "table",
        { class: "numbers" },
        make("thead", {}, make("tr", {}, ...columns.map((text) => make("th", { scope: "col" }, text)))),
        make("tbody", {}, ...rows, rest ?? ""),
        make(
          "tfoot",
          {},
          make(
            "tr",
            {},
            make("th", { scope: "row" }, "Sum"),
            ...columns.slice(3).map(() => make("td")),
            make("td", {}, number(computed.sum, 4)),
            make(
              "td",
              {},
              number(
                computed.weights.reduce((a, b) => a + b, 0),
                4,
              ),
            ),
          ),
        ),
      ),
    ),
  );
}

function vectors(selection, parts) {
  const one = (name, tensor, names, place, words) =>
    make(
      "figure",
      {},
      make("figcaption", {}, make("b", {}, name), ` ${words}`),
      strips(tensor, names, { chosen: place, label: name, most: 24 }),
    );
  return make(
    "section",
    { "aria-label": "Queries, keys and values" },
    make("h3", {}, "Q, K and V of this head"),
    make(
      "p",
      { class: "quiet" },
      `Each word has three vectors of ${parts.query.shape.at(-1)} numbers: blue below zero, orange above.`,
    ),
    make(
      "div",
      { class: "three" },
      one("Q", parts.query, selection.queries.shown, selection.query, "what a word looks for"),
      one("K", parts.key, selection.keys.shown, selection.key, "what it can be found by"),
      one("V", parts.value, selection.keys.shown, selection.key, "what it gives"),
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
  const theirs = row(parts.mixed, selection.query);
  const apart = Math.max(...z.map((each, c) => Math.abs(each - theirs[c])));
  return make(
    "section",
    { "aria-label": "Weighted sum" },
    make("h3", {}, "The weighted sum of the values"),
    strips({ data: Float64Array.from([...z, ...theirs]), shape: [2, width] }, ["here", "model"], {
      label: "Σ a v",
    }),
    make(
      "p",
      { class: "quiet" },
      `Σ a v for `,
      token(selection.queries.shown[selection.query]),
      parts.off
        ? "; this head is switched off, so the model goes on with zeros in its place."
        : `; the model’s own differs by at most ${number(apart, 7)}. All heads side by side then go through W_O.`,
    ),
  );
}

function drawer(selection, parts, computed) {
  const { query, key } = selection;
  const model = parts.weights.data[query * parts.weights.shape[1] + key];
  const again = computed.weights[key];
  const line = (name, value, why) =>
    make(
      "tr",
      {},
      make("th", { scope: "row" }, name),
      make("td", { class: "value" }, value),
      make("td", { class: "quiet" }, why),
    );
  const seen = computed.visible[key];
  const lines =
    parts.scale === null
      ? []
      : [
          line("q · k", number(computed.products[key], 6), `the sum of ${parts.query.shape.at(-1)} products`),
          line("e", number(computed.scores[key], 6), scoreWords(selection, parts)),
        ];
  lines.push(
    line(
      "mask",
      seen ? "seen" : "hidden",
      seen ? "the query may look at this key" : "the query may not look at this key, so its weight is 0",
    ),
    line(
      "exp(e − max)",
      number(computed.powers[key], 6),
      `max = ${number(computed.highest, 6)}, so that nothing overflows`,
    ),
    line("sum", number(computed.sum, 6), "of these over all visible keys"),
    line("weight here", number(again, 8), "the quotient, in float64"),
    line("the model’s", number(model, 8), "in float32"),
    line(
      "difference",
      Math.abs(again - model)
        .toExponential(1)
        .replace("-", "−"),
      Math.abs(again - model) < 1e-5 ? "the same but for rounding" : "more than rounding",
    ),
  );
  return make(
    "section",
    { class: "drawer", id: "drawer", "aria-label": "Arithmetic", "data-here": again, "data-model": model },
    make(
      "div",
      { class: "drawer-head" },
      make("h3", {}, token(selection.queries.shown[query]), " → ", token(selection.keys.shown[key])),
      make(
        "button",
        { type: "button", "aria-label": "Close the arithmetic", onclick: () => set({ key: "" }) },
        "×",
      ),
    ),
    parts.scale === null ? null : products(selection, parts),
    make("div", { class: "scroll" }, make("table", { class: "numbers" }, make("tbody", {}, ...lines))),
  );
}

function scoreWords(selection, parts) {
  if (parts.equal) return "whatever q · k is: all scores are made equal";
  const bias = parts.bias?.data[selection.query * parts.weights.shape[1] + selection.key];
  if (bias !== undefined) return `q · k × ${number(parts.scale, 6)} + ${number(bias, 6)} for the distance`;
  return `q · k × ${number(parts.scale, 6)}${parts.scale === 1 ? "" : ` (1 / √${parts.query.shape.at(-1)})`}`;
}

function products(selection, parts) {
  const q = row(parts.query, selection.query),
    k = row(parts.key, selection.key);
  const each = Float64Array.from(q, (value, c) => value * k[c]);
  const names = ["q", "k", "q × k"];
  const listed = [q, k, each].map((vector, i) =>
    make(
      "tr",
      {},
      make("th", { scope: "row" }, names[i]),
      ...[...vector].map((value) => make("td", {}, number(value, 2))),
    ),
  );
  return [
    strips({ data: Float64Array.from([...q, ...k]), shape: [2, q.length] }, names.slice(0, 2), {
      label: "numbers",
    }),
    strips({ data: each, shape: [1, q.length] }, names.slice(2), { label: "products" }),
    make(
      "details",
      {},
      make("summary", {}, `All ${q.length} products`),
      make(
        "div",
        { class: "scroll", tabindex: "0", role: "region", "aria-label": "Products" },
        make("table", { class: "numbers" }, make("tbody", {}, ...listed)),
      ),
    ),
  ];
}

export const link = (changes, ...content) =>
  make(
    "a",
    {
      href: address(changes),
      onclick: (event) => {
        if (event.ctrlKey || event.metaKey || event.shiftKey) return;
        event.preventDefault();
        set(changes);
      },
    },
    ...content,
  );
