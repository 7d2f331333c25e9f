// What several views share: the attention, head, query and key that the address means, and their controls.
import { choices, field, following, make, select, token } from "../a11y.js";
import { SMALL, spoken } from "../figures.js";
import { address, number as numbered, set, state } from "../state.js";

/** The texts of an attention's rows: of a decoder, what each position has read and what it writes. */
export const labels = (side) => side.labels ?? side.shown;

/** The attention, head, query and key of the address, or those that `regard explain` shows. */
export function chosen(trace) {
  const where = trace.attentions.includes(state().where) ? state().where : trace.defaultAttention;
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
    rows: labels(queries),
    head: within("head", trace.heads(where), 0),
    query: within("query", queries.ids.length, Math.floor(queries.ids.length / 2)),
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
        ? "A recurrent network reads word by word into one state of fixed size; all that the decoder knows " +
            "of the source went through it. Attention was invented to end this."
        : "This run recorded no attention weights.",
    ),
  );

export function pickers(trace, selection) {
  const heads = Array.from({ length: trace.heads(selection.where) }, (_, head) => [
    head,
    String(head),
    `head ${head}`,
  ]);
  const attentions = trace.attentions.map((each) => [each, spoken(each)]);
  const go = (where) => set({ where, query: "", key: "", head: "0" });
  return make(
    "div",
    { class: "pickers" },
    select("Attention", attentions, selection.where, go),
    field(
      "Head",
      choices("Head", heads, selection.head, (head) => set({ head: String(head) })),
    ),
  );
}

/** One of the tokens: buttons for few, a list for many. */
export function tokenPicker(name, texts, at, spell) {
  const choose = (query) => set({ query: String(query) });
  if (texts.length > SMALL) {
    const entries = texts.map((text, i) => [String(i), `${i} ${text}`]);
    return select(name, entries, String(at), choose);
  }
  const entries = texts.map((text, i) => [i, token(text), spell(text, i)]);
  return field(name, choices(name, entries, at, choose));
}

/** What is read or what is written. */
export const sidePicker = (sides, side, changes = {}) =>
  sides.length < 2
    ? null
    : choices(
        "Side",
        [
          ["source", "What is read"],
          ["target", "What is written"],
        ],
        side,
        (id) => set({ side: id, ...changes }),
      );

/** A link to another state of the page. */
export const link = (changes, ...content) =>
  make("a", { href: address(changes), onclick: following(() => set(changes)) }, ...content);
