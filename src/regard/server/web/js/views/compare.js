// Two runs side by side: A is the run of the page, B has another text, model or change.
import * as api from "../api.js";
import { choices, live, make, roving, token } from "../a11y.js";
import { css, ink, reach, signed } from "../color.js";
import { SMALL, grid, number, picture, spoken } from "../figures.js";
import { chips, editor, fitting, sentence, words } from "../interventions.js";
import { number as numbered, set, state } from "../state.js";
import { chosen, pickers } from "./attention.js";

const WRITTEN = 12; // columns up to which the number stands in the cell

/** `page`: the models that there are, and how the page asks for runs. */
export async function render(trace, model, page) {
  const other = page.models.find((each) => each.name === state().other_model) ?? model;
  const title = make("h2", {}, "Compare two runs");
  const run = { model: other, text: state().other_text || state().text };
  let plain, second, comparison;
  try {
    plain = await page.traced(run, []);
    const changes = fitting(other, state().other_change);
    second = changes.length ? await page.traced(run, changes) : plain;
    comparison = await api.compare(trace.id, second.id, await step(trace, second));
  } catch (error) {
    if (/not kept/.test(error.message) || error.name === "AbortError") throw error;
    return [
      title,
      form(trace, model, other, plain, page),
      make("p", { role: "alert", class: "wrong" }, error.message),
    ];
  }
  live(sentence(comparison));
  return [
    title,
    form(trace, model, other, plain, page),
    result(trace, second, comparison),
    await attention(trace, second, comparison),
  ].flat();
}

/** The step that is looked at, if both runs have it; else the server takes the one that changed most. */
async function step(trace, second) {
  const step = numbered("query");
  if (step === null || (trace.tokens.target && state().where.startsWith("encoder"))) return null; // there it is a place of the source
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
        `${model.name}${(trace.meta.interventions ?? []).length ? ", changed as told above" : ", unchanged"}`,
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

function result(trace, second, comparison) {
  const numbers = comparison.comparison;
  return [
    make(
      "section",
      { "aria-label": "Result" },
      make("h3", {}, "What is different"),
      trace.id === second.id
        ? make(
            "p",
            { class: "quiet" },
            "B is the same run so far. Give it another text, another model, or a change.",
          )
        : null,
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
    const inside = make("span", { class: "chip-bar" });
    inside.style.width = `${(divergence / most) * 100}%`;
    const shown = trace.steps[i]?.shown ?? String(i);
    return [
      i,
      make(
        "span",
        { class: "chip", "data-divergence": divergence },
        token(shown),
        make("span", { class: "chip-track" }, inside),
      ),
      `step ${i}, ${shown}, KL ${number(divergence, 3)} nats`,
    ];
  });
  return make(
    "section",
    { "aria-label": "Next word" },
    make("h3", {}, "The next word in both"),
    make(
      "p",
      { class: "quiet" },
      `KL(A ‖ B), how far the distributions are apart: ${number(numbers.divergence, 4)} nats at this step. Steps at which both had read the same:`,
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
    return make(
      "section",
      { "aria-label": "Attention of both" },
      make("h3", {}, "Attention"),
      make("p", { class: "quiet" }, selection ? "B has no such attention." : "A has no attention."),
      selection ? pickers(trace, selection) : null,
    );
  }
  if (numbered("query") === null && comparison.comparison && selection.where.startsWith("decoder"))
    selection.query = comparison.comparison.step;
  const head = Math.min(selection.head, second.heads(where) - 1);
  const [one, two] = await Promise.all([
    weightsOf(trace, selection.where, selection.head),
    weightsOf(second, where, head),
  ]);
  const [queries, keys] = sideNames(selection.where).map((side) => comparison.pairs[side] ?? []);
  const back = (pairs, place) => pairs.find((pair) => pair[1] === place)?.[0];
  const there = (pairs, place) => pairs.find((pair) => pair[0] === place)?.[1] ?? null;
  const choose = (query, key) => set({ query: String(query), key: String(key) });
  const [otherQueries, otherKeys] = second.sides(where);
  const name = (at, number_) => `${spoken(at)}, head ${number_}`;
  return make(
    "section",
    { "aria-label": "Attention of both" },
    make("h3", {}, "Attention in both, and the difference"),
    make(
      "p",
      { class: "quiet" },
      "A cell chosen in one is chosen in all: places of the same pieces, or of others in their place.",
    ),
    pickers(trace, selection),
    make(
      "div",
      { class: "both-heads" },
      figure(
        "A",
        "first",
        name(selection.where, selection.head),
        matrix(
          one,
          selection.queries.shown,
          selection.keys.shown,
          selection.query,
          selection.key,
          `A: ${name(selection.where, selection.head)}`,
          choose,
        ),
      ),
      figure(
        "B",
        "second",
        name(where, head),
        matrix(
          two,
          otherQueries.shown,
          otherKeys.shown,
          there(queries, selection.query),
          selection.key === null ? null : there(keys, selection.key),
          `B: ${name(where, head)}`,
          (i, j) => {
            if (back(queries, i) !== undefined && back(keys, j) !== undefined)
              choose(back(queries, i), back(keys, j));
          },
        ),
      ),
      figure(
        "B − A",
        "",
        "the difference of the weights",
        difference(selection, one, two, queries, keys, choose),
      ),
    ),
  );
}

async function weightsOf(trace, where, head) {
  const tensors = await trace.tensors([`${where}.weights`, `${where}.mask`], { head });
  return { weights: tensors[`${where}.weights`], mask: tensors[`${where}.mask`] };
}

const figure = (badge, kind, words_, content) =>
  make(
    "figure",
    {},
    make("figcaption", {}, make("b", { class: `badge ${kind}` }, badge), ` ${words_}`),
    content,
  );

const matrix = ({ weights, mask }, queries, keys, query, key, label, choose) =>
  Math.max(...weights.shape) <= SMALL
    ? grid({ weights, mask, queries, keys, query, key, label, choose })
    : make(
        "div",
        { class: "large" },
        picture({ ...weights, kind: "share", label, row: query, rows: queries, columns: keys }),
      );

/** B - A where places of both stand for each other. */
function difference(selection, one, two, queries, keys, choose) {
  if (!queries.length || !keys.length) return make("p", { class: "quiet" }, "The two runs share no pieces.");
  const at = ({ weights }, i, j) => weights.data[i * weights.shape[1] + j];
  const data = Float32Array.from(
    queries.flatMap(([i, k]) => keys.map(([j, l]) => at(two, k, l) - at(one, i, j))),
  );
  const shape = [queries.length, keys.length];
  const [rows, columns] = [
    queries.map(([i]) => selection.queries.shown[i]),
    keys.map(([j]) => selection.keys.shown[j]),
  ];
  const label = "B − A: rows are queries, columns are keys";
  if (Math.max(...shape) > SMALL)
    return make("div", { class: "large" }, picture({ data, shape, label, rows, columns }));
  const most = Math.max(0.05, reach(data)); // a difference that is rounding alone has no strong colour
  const cells = rows.map((from, i) =>
    columns.map((to, j) => {
      const value = data[i * columns.length + j];
      const color = signed(value / most);
      const go = () => choose(queries[i][0], keys[j][0]);
      const cell = make(
        "td",
        {
          role: "gridcell",
          "data-difference": value,
          title: `${from} → ${to}: ${number(value, 4)}`,
          "aria-label": `query ${from}, key ${to}, difference ${number(value, 2)}`,
          "aria-selected": String(queries[i][0] === selection.query && keys[j][0] === selection.key),
          onclick: go,
          onkeydown: (event) => {
            if (event.key === "Enter" || event.key === " ") {
              event.preventDefault();
              go();
            }
          },
        },
        columns.length <= WRITTEN && Math.abs(value) >= 0.005
          ? make("span", { "aria-hidden": "true" }, value.toFixed(2).replace("-", "−").replace("0.", "."))
          : "",
      );
      cell.style.backgroundColor = css(color);
      cell.style.color = ink(color);
      return cell;
    }),
  );
  roving(
    cells,
    [
      Math.max(
        0,
        queries.findIndex(([i]) => i === selection.query),
      ),
      Math.max(
        0,
        keys.findIndex(([j]) => j === selection.key),
      ),
    ],
    (i, j) => live(cells[i][j].getAttribute("aria-label")),
  );
  return make(
    "div",
    { class: "scroll" },
    make(
      "table",
      { role: "grid", "aria-label": label, class: columns.length <= WRITTEN ? "heat wide" : "heat" },
      make(
        "thead",
        {},
        make(
          "tr",
          { role: "row" },
          make("td"),
          ...columns.map((text) => make("th", { scope: "col" }, make("span", {}, token(text)))),
        ),
      ),
      make(
        "tbody",
        {},
        ...cells.map((row, i) =>
          make(
            "tr",
            { role: "row" },
            make("th", { scope: "row", role: "rowheader" }, token(rows[i])),
            ...row,
          ),
        ),
      ),
    ),
  );
}
