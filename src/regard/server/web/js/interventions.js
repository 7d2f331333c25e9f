// What if: changes to a run. In the address they are one word: `zero_head:decoder.1.cross:3;drop_positions`.
import { make, token } from "./a11y.js";
import { spoken } from "./figures.js";
import { set, state } from "./state.js";

const FIELDS = {
  zero_head: ["where", "head"],
  uniform: ["where", "head"],
  drop_scale: ["where"],
  drop_positions: ["side"],
  unmask_future: [],
  replace_token: ["side", "position", "text"],
};
const NUMBERS = ["head", "position"];
const NAMES = {
  zero_head: "Switch a head off",
  uniform: "Uniform attention in a head",
  drop_scale: "Leave the scale 1/√d out",
  drop_positions: "Leave the positions out",
  unmask_future: "Unmask the future",
  replace_token: "Read another piece",
};
const WHY = {
  zero_head: "What the head mixed becomes zero; all other heads go on.",
  uniform: "All scores become equal, so that every visible key has the same weight.",
  drop_scale: "The products of q and k are not divided by √d: the softmax becomes sharper.",
  drop_positions: "Nothing tells the order of the words any more.",
  unmask_future:
    "Each place sees the places after it too, in the run that is shown. While the words were chosen there were none yet.",
  replace_token: "Another text stands in the place of one piece; <mask> and <unk> can be written too.",
};

/** The changes of a word of the address; what is none is left out. */
export function read(word) {
  const entries = word
    .split(";")
    .map((each) => each.split(":").map(decoded))
    .filter(([type]) => Object.hasOwn(FIELDS, type));
  return entries.map(([type, ...values]) => {
    const change = { type };
    FIELDS[type].forEach((field, i) => {
      if (values[i]) change[field] = NUMBERS.includes(field) ? Number(values[i]) : values[i];
    });
    return change;
  });
}

function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return "";
  }
}

export const write = (changes) =>
  changes
    .map((each) =>
      [each.type, ...FIELDS[each.type].map((field) => encodeURIComponent(each[field] ?? ""))]
        .join(":")
        .replace(/:+$/, ""),
    )
    .join(";");

/** The changes that this model has something for: a link to another model may have others. */
export function fitting(model, word) {
  const has = model?.interventions;
  if (!has) return [];
  return read(word).filter(
    ({ type, where, head, side, position, text }) =>
      has.types.includes(type) &&
      (where === undefined ? type !== "zero_head" : Object.hasOwn(has.heads, where)) &&
      (head === undefined
        ? type !== "zero_head"
        : Number.isInteger(head) &&
          head < Math.min(...(where ? [has.heads[where]] : Object.values(has.heads)))) &&
      (type !== "drop_positions" || side === undefined || has.stacks.includes(side)) &&
      (type !== "replace_token" || (has.sides.includes(side) && Number.isInteger(position) && Boolean(text))),
  );
}

/** Add a change, or take it away if it is there. */
export function toggled(word, change) {
  const written = write([change]);
  const others = read(word).filter((each) => write([each]) !== written);
  return write(others.length < read(word).length ? others : [...others, change]);
}

const short = ({ type, where, head, side, position, text }) =>
  ({
    zero_head: `head ${head} of ${where} off`,
    uniform: `${head === undefined ? "all heads" : `head ${head}`}${where ? ` of ${where}` : ""} alike`,
    drop_scale: `no scale${where ? ` in ${where}` : ""}`,
    drop_positions: `no positions${side ? ` in the ${side}` : ""}`,
    unmask_future: "future unmasked",
    replace_token: `${side} piece ${position} → ${text}`,
  })[type];

/** What has been changed, each with a button that takes it back. */
export function chips(model, name) {
  const changes = fitting(model, state()[name]);
  if (!changes.length) return null;
  const remove = (change) => set({ [name]: write(changes.filter((each) => each !== change)) });
  return make(
    "ul",
    { class: "changes", "aria-label": "Changes" },
    ...changes.map((change) =>
      make(
        "li",
        { class: "change" },
        token(short(change)),
        make(
          "button",
          { type: "button", "aria-label": `Take back: ${short(change)}`, onclick: () => remove(change) },
          "×",
        ),
      ),
    ),
  );
}

const drafts = {};

function labelled(name, field, label, control) {
  control.id = `${name}-${field}`;
  control.setAttribute("name", field);
  return make("div", { class: "field" }, make("label", { for: control.id }, label), control);
}

/** The change that a draft of the form describes. */
function changeOf(draft) {
  const change = { type: draft.type };
  for (const field of FIELDS[draft.type]) {
    const value = draft[field] ?? "";
    if (value !== "") change[field] = NUMBERS.includes(field) ? Number(value) : value;
  }
  return change;
}

/** The pieces of the unchanged run that can be replaced, in groups; for a language model the prompt is the source. */
function pieceGroups(plain) {
  const { source, target } = plain.tokens;
  const prompt = source ? 0 : plain.meta.prompt;
  const input = (source ?? target).shown
    .slice(0, source ? undefined : prompt)
    .map((text, i) => [`source:${i}`, `${i} ${text}`]);
  const output = (target?.shown ?? [])
    .map((text, i) => [`target:${i}`, `${i} ${text}`])
    .slice(source ? 1 : prompt);
  return [
    ["What is read", input],
    ["What is written", output],
  ].filter(([, entries]) => entries.length);
}

/** A form that adds a change to the word `name` of the address. `plain` is the run without changes: its pieces are the choice. */
export function editor(model, plain, name) {
  const has = model?.interventions;
  const form = make("form", {
    class: "what-if-form",
    onsubmit: (event) => {
      event.preventDefault();
      add();
    },
  });
  const draft = (drafts[name] ??= {});
  if (!has?.types.includes(draft.type)) draft.type = has?.types[0];
  redraw();
  return form;

  function add() {
    const added = changeOf(draft);
    if (added.type === "replace_token" && !added.text) return form.querySelector("input").focus();
    const rest = read(state()[name]).filter(
      (each) =>
        write([each]) !== write([added]) &&
        !(
          added.type === "replace_token" &&
          each.type === added.type &&
          each.side === added.side &&
          each.position === added.position
        ),
    );
    draft.text = "";
    return set({ [name]: write([...rest, added]) });
  }

  function redraw(focus = null) {
    form.replaceChildren(
      pick(
        "type",
        "Change",
        has.types.map((type) => [type, NAMES[type]]),
      ),
      ...fields(),
      make("button", { type: "submit" }, "Change it"),
      make("p", { class: "quiet" }, WHY[draft.type]),
    );
    if (focus) form.querySelector(`[name=${focus}]`)?.focus();
  }

  function fields() {
    switch (draft.type) {
      case "zero_head":
      case "uniform":
        return attention(draft.type === "uniform");
      case "drop_scale":
        return [where(true)];
      case "drop_positions":
        return has.stacks.length > 1
          ? [
              pick("side", "Where", [
                ["", "everywhere"],
                ...has.stacks.map((each) => [each, `in the ${each}`]),
              ]),
            ]
          : ((draft.side = ""), []);
      case "replace_token":
        return [piece(), written()];
      default:
        return [];
    }
  }

  function where(all) {
    const names = Object.keys(has.heads);
    const looked = names.includes(state().where)
      ? state().where
      : (names.filter((each) => each.endsWith("cross")).at(-1) ?? names.at(-1));
    if (!names.includes(draft.where) && !(all && draft.where === "")) draft.where = all ? "" : looked;
    return pick("where", "In", [
      ...(all ? [["", "all attentions"]] : []),
      ...names.map((each) => [each, spoken(each)]),
    ]);
  }

  function attention(all) {
    const place = where(all);
    const count = draft.where ? has.heads[draft.where] : Math.min(...Object.values(has.heads));
    const looked = Number(state().head) < count && state().where === draft.where ? state().head : "0";
    if (!(Number(draft.head || "x") < count) && !(all && draft.head === "")) draft.head = all ? "" : looked;
    return [
      place,
      pick("head", "Head", [
        ...(all ? [["", "all"]] : []),
        ...Array.from({ length: count }, (_, i) => [String(i), String(i)]),
      ]),
    ];
  }

  function piece() {
    const groups = pieceGroups(plain);
    const values = groups.flatMap(([, entries]) => entries.map(([value]) => value));
    if (!values.includes(`${draft.side}:${draft.position}`))
      [draft.side, draft.position] = values[0].split(":");
    const options = (entries) =>
      entries.map(([value, text]) =>
        make("option", { value, selected: value === `${draft.side}:${draft.position}` }, text),
      );
    return labelled(
      name,
      "position",
      "Piece",
      make(
        "select",
        {
          onchange: (event) => {
            [draft.side, draft.position] = event.target.value.split(":");
          },
        },
        ...groups.map(([label, entries]) => make("optgroup", { label }, ...options(entries))),
      ),
    );
  }

  function written() {
    const input = make("input", {
      type: "text",
      dir: "auto",
      spellcheck: "false",
      autocomplete: "off",
      size: "12",
      oninput: () => {
        draft.text = input.value;
      },
    });
    input.value = draft.text ?? "";
    return labelled(name, "text", "becomes", input);
  }

  function pick(field, label, entries) {
    if (!entries.some(([value]) => value === (draft[field] ?? ""))) draft[field] = entries[0][0];
    return labelled(
      name,
      field,
      label,
      make(
        "select",
        {
          onchange: (event) => {
            draft[field] = event.target.value;
            redraw(field);
          },
        },
        ...entries.map(([value, text]) =>
          make("option", { value, selected: value === (draft[field] ?? "") }, text),
        ),
      ),
    );
  }
}

let open = false;

/** The panel above the views. */
export function panel(model, plain, result) {
  if (!plain || !model?.interventions?.types.length) return [];
  const changed = fitting(model, state().change);
  const box = make(
    "details",
    {
      class: "what-if",
      open,
      ontoggle: () => {
        ({ open } = box);
      },
    },
    make("summary", {}, "What if …"),
    editor(model, plain, "change"),
    result?.comparison ? words(result.comparison) : null,
  );
  if (!changed.length) return [box];
  return [
    box,
    make(
      "div",
      { class: "what-if-told" },
      chips(model, "change"),
      result ? make("p", { id: "what-if-told", class: "result" }, sentence(result)) : null,
      make("button", { type: "button", onclick: () => set({ change: "" }) }, "Undo the changes"),
    ),
  ];
}

const share = (p) => (p < 0.0005 ? "< 0.001" : p.toFixed(3));

/** The sentence of a comparison: an arrow is not to be broken between two lines. */
export const sentence = (result) => result.sentence.replaceAll(" -> ", " → ");

/** The best words of both runs at one step, each with its probability before and after. */
export function words(comparison, before = "before", after = "after") {
  const most =
    comparison.divergence >= Math.max(...comparison.divergences)
      ? "where the runs differ most"
      : "at this step";
  return make(
    "div",
    { class: "scroll" },
    make(
      "table",
      { class: "numbers both" },
      make(
        "caption",
        {},
        comparison.behind
          ? ["After ", token(comparison.behind), `, ${most}`]
          : `${most[0].toUpperCase()}${most.slice(1)}`,
      ),
      make(
        "thead",
        {},
        make(
          "tr",
          {},
          ...["Next", `p ${before}`, `p ${after}`, "change"].map((text) =>
            make("th", { scope: "col" }, text),
          ),
        ),
      ),
      make(
        "tbody",
        {},
        ...comparison.choices.map((each) =>
          make(
            "tr",
            {},
            make("th", { scope: "row" }, token(each.text)),
            pair(each.before, "first"),
            pair(each.after, "second"),
            make(
              "td",
              {},
              `${each.after >= each.before ? "+" : "−"}${Math.abs(each.after - each.before).toFixed(3)}`,
            ),
          ),
        ),
      ),
    ),
  );
}

function pair(p, kind) {
  const inside = make("span", { class: `bar-inside ${kind}` });
  inside.style.width = `${Math.max(0, Math.min(1, p)) * 100}%`;
  return make(
    "td",
    { "data-share": p },
    make(
      "span",
      { class: "bar" },
      make("span", { class: "bar-track", "aria-hidden": "true" }, inside),
      make("span", { class: "bar-text" }, share(p)),
    ),
  );
}
