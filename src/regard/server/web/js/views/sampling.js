// How the next token is chosen: its probabilities as temperature and top-k change them, and another draw.
import { make, quiet, section, table, token } from "../a11y.js";
import { FIRST_WORDS, writes } from "../request.js";
import { bar } from "../figures.js";
import { isFile } from "../source.js";
import { set, state } from "../state.js";

const LISTED = 8;
const MOST = 50; // of top-k
const SEEDS = 1_000_000;

/**
 * softmax(logits / temperature) over the `topK` largest, best first; 0 keeps all.
 * @param {ArrayLike<number>} logits
 * @param {number} temperature above 0
 * @param {number} topK
 * @param {number} [listed]
 * @returns {{ id: number, p: number }[]}
 */
export function distribution(logits, temperature, topK, listed = LISTED) {
  const order = Array.from(logits, (_, id) => id).sort((a, b) => logits[b] - logits[a]);
  const kept = topK ? order.slice(0, topK) : order;
  const largest = logits[kept[0]];
  const powers = kept.map((id) => Math.exp((logits[id] - largest) / temperature));
  const sum = powers.reduce((a, b) => a + b, 0);
  return kept.slice(0, listed).map((id, i) => ({ id, p: powers[i] / sum }));
}

/**
 * The controls and the probabilities at a step of the output; null where nothing is written.
 * @param {any} trace
 * @param {number} place
 */
export async function sampling(trace, place) {
  if (isFile() || !writes({ task: trace.meta.task }) || !trace.has("logits") || !trace.steps[place])
    return null;
  const { logits } = await trace.tensors(["logits"], { row: place });
  const decode = trace.meta.decode ?? {};
  const chosen = {
    temperature: Number(state().temperature || decode.temperature || 1),
    topK: Number(state().top_k || decode.top_k || 0),
  };
  const shown = make("div");
  const names = new Map(trace.steps[place].best.map((/** @type {any} */ each) => [each.id, each.shown]));
  const name = (/** @type {number} */ id) => names.get(id) ?? trace.vocabulary[id] ?? `token ${id}`;
  const update = () => {
    const rows = distribution(logits.data, chosen.temperature, chosen.topK).map(({ id, p }) =>
      make(
        "tr",
        { class: id === trace.steps[place].id ? "here" : null },
        make("th", { scope: "row" }, token(name(id))),
        make("td", { "data-sampled": p }, bar(p, `${(100 * p).toFixed(1)} %`)),
      ),
    );
    shown.replaceChildren(table(["Token", "p"], rows, { kind: "words" }));
  };
  update();
  const behind = place ? ["after ", token(trace.steps[place - 1].shown)] : ["at the beginning"];
  return section(
    "Sampling",
    ["How the next token is chosen"],
    quiet("p = softmax(logits / temperature), over the top-k tokens: here ", ...behind, "."),
    make(
      "div",
      { class: "sampling" },
      make(
        "div",
        { class: "sampling-controls" },
        slider("Temperature", [0.1, 2, 0.1], chosen.temperature, (value) => {
          chosen.temperature = value;
          update();
        }),
        slider("Top-k (0: all)", [0, MOST, 1], chosen.topK, (value) => {
          chosen.topK = value;
          update();
        }),
        buttons(trace, chosen),
      ),
      shown,
    ),
  );
}

/**
 * @param {string} name
 * @param {number[]} range lowest, highest, step
 * @param {number} value
 * @param {(value: number) => void} change
 */
function slider(name, [min, max, step], value, change) {
  const id = `slider-${name.split(" ")[0].toLowerCase()}`;
  const output = make("output", { for: id }, String(value));
  const moved = (/** @type {any} */ event) => {
    output.textContent = event.target.value;
    change(Number(event.target.value));
  };
  const input = make("input", { type: "range", id, min, max, step, value, oninput: moved });
  return make("div", { class: "slider" }, make("label", { for: id }, name), input, output);
}

/** @param {any} trace @param {{ temperature: number, topK: number }} chosen */
function buttons(trace, chosen) {
  const isText = trace.meta.task === "generate";
  const settings = () => ({
    sample: "1",
    temperature: String(chosen.temperature),
    top_k: String(chosen.topK),
    seed: String(Math.floor(Math.random() * SEEDS)),
    beam: "",
  });
  const button = (/** @type {string} */ text, /** @type {() => any} */ changes) =>
    make("button", { type: "button", onclick: () => set({ query: "", frame: "", ...changes() }) }, text);
  const { length, prefix, sample } = state();
  const given = Math.max(0, (trace.meta.prompt || 1) - 1);
  const written = trace.tokens.output.ids.slice(given);
  const isOpen = trace.meta.finished === false;
  const one = () => ({ ...settings(), prefix: (isOpen ? written : []).join(","), length: "1" });
  const isChanged = sample || prefix || length;
  const reset = { sample: "", temperature: "", top_k: "", seed: "", prefix: "", length: "" };
  return make(
    "div",
    { class: "choices" },
    button(isText || state().sample ? "Draw again" : "Draw at random", () => ({
      ...settings(),
      prefix: "",
      length: length === "1" ? "" : length,
    })),
    button(isOpen ? "One more word" : "Word by word", one),
    isText ? lengthField(settings) : null,
    isChanged ? button(isText ? "Start again" : "Search again", () => reset) : null,
  );
}

/** @param {() => Record<string, string>} settings */
function lengthField(settings) {
  const { length } = state();
  const value = length && length !== "1" ? length : String(FIRST_WORDS);
  const change = (/** @type {any} */ event) =>
    set({ ...settings(), length: event.target.value, prefix: "", query: "", frame: "" });
  return make(
    "label",
    { class: "check" },
    "Length",
    make("input", { type: "number", min: "1", max: "100", value, class: "length", onchange: change }),
  );
}
