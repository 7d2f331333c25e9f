// Two runs side by side: A is the run of the page, B has another text, model or change.
import * as api from "../api.js";
import { choices, live, make, quiet, section, token } from "../a11y.js";
import { reach, signed } from "../color.js";
import { SMALL, attentionFigure, chip, number, numberGrid, picture, spoken } from "../figures.js";
import { describe, read, write } from "../interventions.js";
import { number as numbered, set, state } from "../state.js";
import { chosen, labels, pickers } from "./selection.js";
import { term } from "./terms.js";
import { chips, editor, sentence, words } from "./what_if.js";

/** `page`: the models that there are, and how the page asks for runs. */
export async function render(trace, model, page) {
  const other = page.models.find((each) => each.name === state().other_model) ?? model;
  const title = make("h2", {}, "Compare two runs");
  const run = { model: other, text: state().other_text || state().text };
  let plain, second, comparison;
  try {
    plain = await page.traced(run, []);
    const changes = read(other.interventions, state().other_change);
    second = changes.length ? await page.traced(run, changes) : plain;
    comparison = await api.compare(trace.id, second.id, await stepInBoth(trace, second));
  } catch (error) {
    if (api.isExpired(error) || error.name === "AbortError") throw error;
    return [
      title,
      form(trace, model, other, plain, page),
      make("p", { role: "alert", class: "wrong" }, error.message),
    ];
  }
  if (trace.id === second.id)
    return [title, form(trace, model, other, plain, page), suggestions(trace, other)];
  live(sentence(comparison));
  return [
    title,
    form(trace, model, other, plain, page),
    result(trace, comparison),
    await attention(trace, second, comparison),
  ].flat();
}

/** The step that is looked at, if both runs have it; else the server takes the one that changed most. */
async function stepInBoth(trace, second) {
  const step = numbered("query");
  if (step === null || (trace.tokens.target && state().where.startsWith("encoder"))) {
    return null; // there it is a place of the source
  }
  const numbers = (await api.compare(trace.id, second.id)).comparison;
  return numbers && step < numbers.divergences.length ? step : null;
}

function form(trace, model, other, plain, page) {
  const text = make("input", {
    type: "text",
    id: "other-text",
    dir: "auto",
    spellcheck: "false",
    autocomplete: "off",
    placeholder: "the same text",
  });
  text.value = state().other_text;
  const choose = make(
    "select",
    {
      id: "other-model",
      onchange: (event) => set({ other_model: event.target.value, other_change: "", query: "", key: "" }),
    },
    ...page.models
      .filter((each) => each.task === model.task)
      .map((each) =>
        make("option", { value: each.name, selected: each === other }, `${each.name} (${each.family})`),
      ),
  );
  const can = plain && other.interventions?.types.length;
  return make(
    "div",
    { class: "runs" },
    make(
      "section",
      { class: "run", "aria-label": "Run A" },
      make("h3", {}, make("span", { class: "badge first" }, "A"), " the run above"),
      make("p", {}, token(state().text)),
      make(
        "p",
        { class: "quiet" },
        `${model.name}${(trace.meta.interventions ?? []).length ? ", changed as above" : ", unchanged"}`,
      ),
      make("p", {}, "→ ", make("bdi", { dir: "auto" }, trace.output || "(nothing)")),
    ),
    make(
      "section",
      { class: "run", "aria-label": "Run B" },
      make("h3", {}, make("span", { class: "badge second" }, "B"), " another"),
      make(
        "form",
        {
          class: "pickers",
          onsubmit: (event) => {
            event.preventDefault();
            set({ other_text: text.value === state().text ? "" : text.value, query: "", key: "" });
          },
        },
        make("div", { class: "field grow" }, make("label", { for: "other-text" }, "Text of B"), text),
        make("div", { class: "field" }, make("label", { for: "other-model" }, "Model of B"), choose),
        make("button", { type: "submit" }, "Compare"),
      ),
      can
        ? make(
            "details",
            { class: "what-if", open: Boolean(state().other_change) },
            make("summary", {}, "What if, in B …"),
            editor(other, plain, "other_change"),
          )
        : null,
      can ? chips(other, "other_change") : null,
    ),
  );
}

/** B is the same run so far: what it could be instead. */
function suggestions(trace, other) {
  const offered = other.interventions;
  const selection = chosen(trace);
  const { where, head } = selection ?? {};
  const changes = [
    { type: "zero_head", where, head },
    { type: "uniform", where, head },
    { type: "drop_positions" },
    { type: "unmask_future" },
  ].filter(({ type }) => offered?.types.includes(type));
  const button = (change) =>
    make(
      "button",
      { type: "button", class: "choice", onclick: () => set({ other_change: write(offered, [change]) }) },
      `B ${describe(offered, change)}`,
    );
  return section(
    "Suggestions",
    "What should be different in B?",
    quiet("Give B another text, another model or a change above, or begin with one of these:"),
    make("div", { class: "choices" }, ...changes.map(button)),
  );
}

function result(trace, comparison) {
  const numbers = comparison.comparison;
  return [
    make(
      "section",
      { "aria-label": "Result" },
      make("h3", {}, "What is different"),
      make("p", { class: "result", id: "compared" }, sentence(comparison)),
      make(
        "p",
        { class: "difference" },
        ...comparison.words.flatMap(({ kind, shown }) => [
          make({ same: "span", gone: "del", new: "ins" }[kind], {}, make("bdi", { dir: "auto" }, shown)),
          " ",
        ]),
      ),
      comparison.words.some(({ kind }) => kind !== "same")
        ? make("p", { class: "quiet" }, "Struck out: only A says it. Underlined: only B says it.")
        : null,
    ),
    numbers ? distributions(trace, numbers) : make("p", { class: "quiet" }, comparison.reason),
  ];
}

function distributions(trace, numbers) {
  const most = Math.max(...numbers.divergences, 1e-9);
  const steps = numbers.divergences.map((divergence, i) => {
    const shown = trace.steps[i]?.shown ?? String(i);
    return [
      i,
      chip(divergence / most, token(shown), { "data-divergence": divergence }),
      `step ${i}, ${shown}, KL ${number(divergence, 3)} nats`,
    ];
  });
  return make(
    "section",
    { "aria-label": "Next word" },
    make("h3", {}, "The next word in both"),
    quiet(
      term("KL divergence", "KL(A ‖ B)"),
      `, how far the distributions are apart: ${number(numbers.divergence, 4)} `,
      term("nat", "nats"),
      " at this step. ",
      "Steps at which both had read the same:",
    ),
    choices("Step", steps, numbers.step, (i) => set({ query: String(i) })),
    words(numbers, "in A", "in B"),
  );
}

// Attention of both

/** The attention of B that is most like one of A: the same, else the last of its kind. */
function like(second, where) {
  if (second.attentions.includes(where)) return where;
  const [side, kind] = [where.split(".")[0], where.split(".").at(-1)];
  return second.attentions.filter((each) => each.startsWith(side) && each.endsWith(kind)).at(-1) ?? null;
}

const sideNames = (where) =>
  where.endsWith("cross")
    ? ["target", "source"]
    : where.startsWith("encoder")
      ? ["source", "source"]
      : ["target", "target"];

async function attention(trace, second, comparison) {
  const selection = chosen(trace);
  const where = selection && like(second, selection.where);
  if (!where) {
    const reason = selection ? "B has no such attention." : "A has no attention.";
    const others = selection ? pickers(trace, selection) : null;
    return section("Attention of both", "Attention", quiet(reason), others);
  }
  if (numbered("query") === null && comparison.comparison && selection.where.startsWith("decoder")) {
    selection.query = comparison.comparison.step;
  }
  const head = Math.min(selection.head, second.heads(where) - 1);
  const [one, two] = await Promise.all([
    weightsOf(trace, selection.where, selection.head),
    weightsOf(second, where, head),
  ]);
  const [queries, keys] = sideNames(selection.where).map((side) => comparison.pairs[side] ?? []);
  return section(
    "Attention of both",
    "Attention in both, and the difference",
    quiet("Choosing a cell marks the same place in all three."),
    pickers(trace, selection),
    make(
      "div",
      { class: "both-heads" },
      figureOfA(selection, one),
      figureOfB(selection, two, second.sides(where), `${spoken(where)}, head ${head}`, queries, keys),
      figure("B − A", "", "the difference of the weights", difference(selection, one, two, queries, keys)),
    ),
  );
}

const choose = (query, key) => set({ query: String(query), key: String(key) });

function figureOfA({ where, head, rows, keys, query, key }, weights) {
  const name = `${spoken(where)}, head ${head}`;
  const texts = { queries: rows, keys: keys.shown };
  const content = attentionFigure({ ...weights, ...texts, query, key, label: `A: ${name}`, choose });
  return figure("A", "first", name, content);
}

/** `queries` and `keys`: pairs of places of A and B that stand for each other. */
function figureOfB({ query, key }, weights, [rows, columns], name, queries, keys) {
  const there = (pairs, place) => pairs.find((pair) => pair[0] === place)?.[1] ?? null;
  const back = (pairs, place) => pairs.find((pair) => pair[1] === place)?.[0];
  const content = attentionFigure({
    ...weights,
    queries: labels(rows),
    keys: columns.shown,
    query: there(queries, query),
    key: key === null ? null : there(keys, key),
    label: `B: ${name}`,
    choose: (i, j) => {
      const [a, b] = [back(queries, i), back(keys, j)];
      if (a !== undefined && b !== undefined) choose(a, b);
    },
  });
  return figure("B", "second", name, content);
}

async function weightsOf(trace, where, head) {
  const tensors = await trace.tensors([`${where}.weights`, `${where}.mask`], { head });
  return { weights: tensors[`${where}.weights`], mask: tensors[`${where}.mask`] };
}

const figure = (badge, kind, name, content) =>
  make(
    "figure",
    {},
    make("figcaption", {}, make("b", { class: `badge ${kind}` }, badge), ` ${name}`),
    content,
  );

/** B - A where places of both stand for each other. */
function difference(selection, one, two, queries, keys) {
  if (!queries.length || !keys.length) return quiet("The two runs share no tokens.");
  const at = ({ weights }, i, j) => weights.data[i * weights.shape[1] + j];
  const data = Float32Array.from(
    queries.flatMap(([i, k]) => keys.map(([j, l]) => at(two, k, l) - at(one, i, j))),
  );
  const shape = [queries.length, keys.length];
  const rows = queries.map(([i]) => selection.rows[i]);
  const columns = keys.map(([j]) => selection.keys.shown[j]);
  const label = "B − A: rows are queries, columns are keys";
  if (Math.max(...shape) > SMALL) {
    return make("div", { class: "large" }, picture({ data, shape, label, rows, columns }));
  }
  const most = Math.max(0.05, reach(data)); // a difference that is rounding alone has no strong colour
  const show = (value) => ({
    color: signed(value / most),
    text: Math.abs(value) < 0.005 ? "" : value.toFixed(2).replace("-", "−").replace("0.", "."),
    words: `difference ${number(value, 2)}`,
  });
  return numberGrid({
    data,
    rows,
    columns,
    row: queries.findIndex(([i]) => i === selection.query),
    column: keys.findIndex(([j]) => j === selection.key),
    label,
    show,
    choose: (i, j) => choose(queries[i][0], keys[j][0]),
    attributes: (value) => ({ "data-difference": value }),
  });
}
