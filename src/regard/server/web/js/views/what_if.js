// What if: a form that adds interventions to the address, and what they did.
import { make, quiet, table, token } from "../a11y.js";
import { bar, spoken } from "../figures.js";
import { add, changeOf, describe, read, sidesOf, write } from "../interventions.js";
import { set, state } from "../state.js";

const drafts = {}; // what stands in a form, by its name in the address
let open = false;

/** What has been changed, each with a button that takes it back. */
export function chips(model, name) {
  const offered = model?.interventions;
  const changes = read(offered, state()[name]);
  if (!changes.length) return null;
  const chip = (change) => {
    const remove = () =>
      set({
        [name]: write(
          offered,
          changes.filter((each) => each !== change),
        ),
      });
    const settings = {
      type: "button",
      "aria-label": `Take back: ${describe(offered, change)}`,
      onclick: remove,
    };
    return make("li", { class: "change" }, token(describe(offered, change)), make("button", settings, "×"));
  };
  return make("ul", { class: "changes", "aria-label": "Changes" }, ...changes.map(chip));
}

/** The tokens that can be replaced, in groups; for a language model the prompt is the source. */
function tokenGroups(plain) {
  const { source, target } = plain.tokens;
  const prompt = source ? 0 : plain.meta.prompt;
  const entries = (side, texts) => texts.map((text, i) => [`${side}:${i}`, `${i} ${text}`]);
  const input = entries("source", (source ?? target).shown).slice(0, source ? undefined : prompt);
  const output = entries("target", target?.shown ?? []).slice(source ? 1 : prompt);
  return [
    ["What is read", input],
    ["What is written", output],
  ].filter(([, texts]) => texts.length);
}

/** A form that adds an intervention to the address. `plain`: the run without any, whose tokens are the choice. */
export const editor = (model, plain, name) => new Editor(model.interventions, plain, name).form;

class Editor {
  constructor(offered, plain, name) {
    this.offered = offered;
    this.plain = plain;
    this.name = name;
    this.draft = drafts[name] ??= {};
    if (!offered.types.includes(this.draft.type)) this.draft.type = offered.types[0];
    this.form = make("form", {
      class: "what-if-form",
      onsubmit: (event) => {
        event.preventDefault();
        this.submit();
      },
    });
    this.redraw();
  }

  get kind() {
    return this.offered.kinds[this.draft.type];
  }

  submit() {
    const change = changeOf(this.kind, this.draft.type, (field) => this.draft[field]);
    const missing = this.kind.required.find((field) => change[field] === undefined);
    if (missing) return this.form.querySelector(`[name=${missing}]`)?.focus();
    this.draft.text = this.draft.value = "";
    return set({ [this.name]: add(this.offered, state()[this.name], change) });
  }

  redraw(focus = null) {
    const types = this.offered.types.map((type) => [type, this.offered.kinds[type].label]);
    this.form.replaceChildren(
      this.pick("type", "Change", types),
      ...this.kind.fields.map((field) => this.control(field)).filter(Boolean),
      make("button", { type: "submit" }, "Change it"),
      quiet(this.kind.about),
    );
    if (focus) this.form.querySelector(`[name=${focus}]`)?.focus();
  }

  control(field) {
    switch (field) {
      case "where":
        return this.attention();
      case "name":
        return this.tensor();
      case "head":
        return this.kind.fields.includes("name") ? this.headOfTensor() : this.head();
      case "side":
        return this.kind.fields.includes("position") ? null : this.side(); // the choice of a token includes it
      case "position":
        return this.kind.fields.includes("name") ? this.row() : this.token();
      case "column":
        return this.numeric("column", "Number", { min: 0, max: this.shape.at(-1) - 1, step: 1 });
      case "value":
        return this.numeric("value", "Value", { step: "any" });
      case "operation":
        return this.pick("operation", "Is", [
          ["set", "set to it"],
          ["add", "raised by it"],
        ]);
      default:
        return this.text();
    }
  }

  attention() {
    const names = Object.keys(this.offered.heads);
    const entries = names.map((each) => [each, spoken(each)]);
    const shown = names.includes(state().where) ? state().where : this.plain.defaultAttention;
    return this.pick("where", "In", ...optional(this.kind, "where", "all attentions", entries, shown));
  }

  head() {
    const { heads } = this.offered;
    const { where } = this.draft;
    const count = where ? heads[where] : Math.min(...Object.values(heads));
    const entries = Array.from({ length: count }, (_, i) => [String(i), String(i)]);
    const shown = state().where === where ? state().head : "0";
    return this.pick("head", "Head", ...optional(this.kind, "head", "all", entries, shown));
  }

  /** The tensors that the model computes one from another; others are derived from these. */
  tensor() {
    const names = [...this.plain.shapes.keys()].filter((each) => !/^lens\.|\.value_norms$/.test(each));
    return this.pick(
      "name",
      "Tensor",
      names.map((each) => [each, each]),
      names.find((each) => each.endsWith(".out")),
    );
  }

  get shape() {
    return this.plain.shapes.get(this.draft.name) ?? [1];
  }

  headOfTensor() {
    if (this.shape.length < 3) {
      this.draft.head = "";
      return null;
    }
    const entries = Array.from({ length: this.shape[0] }, (_, i) => [String(i), String(i)]);
    return this.pick("head", "Head", ...optional(this.kind, "head", "all", entries));
  }

  /** A position of a tensor: a token of its side. */
  row() {
    const { source, target } = this.plain.tokens;
    const texts = (this.draft.name.startsWith("encoder") ? source : (target ?? source)).shown;
    const count = this.shape.at(-2) ?? 1;
    const entries = Array.from({ length: count }, (_, i) => [String(i), `${i} ${texts[i] ?? ""}`]);
    return this.pick("position", "Place", ...optional(this.kind, "position", "all places", entries));
  }

  numeric(field, label, limits) {
    const input = make("input", {
      type: "number",
      ...limits,
      required: true,
      value: this.draft[field] ?? "",
      oninput: () => {
        this.draft[field] = input.value;
      },
    });
    return this.labelled(field, label, input);
  }

  side() {
    const entries = sidesOf(this.offered, this.kind).map((each) => [each, `in the ${each}`]);
    if (entries.length > 1) {
      return this.pick("side", "Where", ...optional(this.kind, "side", "everywhere", entries));
    }
    this.draft.side = "";
    return null;
  }

  token() {
    const { draft } = this;
    const groups = tokenGroups(this.plain);
    const values = groups.flatMap(([, entries]) => entries.map(([value]) => value));
    const current = () => `${draft.side}:${draft.position}`;
    const choose = (value) => {
      [draft.side, draft.position] = value.split(":");
    };
    if (!values.includes(current())) choose(values[0]);
    const options = groups.map(([label, entries]) =>
      make("optgroup", { label }, ...entries.map((entry) => option(entry, current()))),
    );
    const settings = { onchange: (event) => choose(event.target.value) };
    return this.labelled("position", "Token", make("select", settings, ...options));
  }

  text() {
    const settings = { type: "text", dir: "auto", spellcheck: "false", autocomplete: "off", size: "12" };
    const input = make("input", {
      ...settings,
      value: this.draft.text ?? "",
      oninput: () => {
        this.draft.text = input.value;
      },
    });
    return this.labelled("text", this.kind.fields.includes("name") ? "Other text" : "becomes", input);
  }

  /** A list of choices; the draft keeps its own, if it is among them. */
  pick(field, label, entries, initial = "") {
    const { draft } = this;
    const isThere = (value) => entries.some(([entry]) => entry === value);
    if (!isThere(draft[field])) draft[field] = isThere(initial) ? initial : entries[0][0];
    const settings = {
      onchange: (event) => {
        draft[field] = event.target.value;
        this.redraw(field);
      },
    };
    const options = entries.map((entry) => option(entry, draft[field]));
    return this.labelled(field, label, make("select", settings, ...options));
  }

  labelled(field, label, control) {
    control.id = `${this.name}-${field}`;
    control.setAttribute("name", field);
    return make("div", { class: "field" }, make("label", { for: control.id }, label), control);
  }
}

const option = ([value, text], current) => make("option", { value, selected: value === current }, text);

/** The entries of a field and the first choice; a field that may be left out begins with all. */
const optional = (kind, name, all, entries, first = "") =>
  kind.required.includes(name) ? [entries, first] : [[["", all], ...entries], ""];

/** The panel above the views. */
export function panel(model, plain, result) {
  if (!plain || !model?.interventions?.types.length) return [];
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
  if (!read(model.interventions, state().change).length) return [box];
  const undo = { type: "button", onclick: () => set({ change: "" }) };
  return [
    box,
    make(
      "div",
      { class: "what-if-result" },
      chips(model, "change"),
      result ? make("p", { id: "what-if-result", class: "result" }, sentence(result)) : null,
      make("button", undo, "Undo the changes"),
    ),
  ];
}

/** The sentence of a comparison: an arrow is not to be broken between two lines. */
export const sentence = (result) => result.sentence.replaceAll(" -> ", " → ");

const share = (p) => (p < 0.0005 ? "< 0.001" : p.toFixed(3));
const change = (before, after) => `${after >= before ? "+" : "−"}${Math.abs(after - before).toFixed(3)}`;

/** The best words of both runs at one step, each with its probability before and after. */
export function words(comparison, before = "before", after = "after") {
  const isMost = comparison.divergence >= Math.max(...comparison.divergences);
  const place = isMost ? "where the runs differ most" : "at this step";
  const pair = (p, kind) => make("td", { "data-share": p }, bar(p, share(p), kind));
  const apart = (each) => Math.abs(each.after - each.before);
  const rows = [...comparison.choices]
    .sort((a, b) => apart(b) - apart(a))
    .map((each) =>
      make(
        "tr",
        {},
        make("th", { scope: "row" }, token(each.text)),
        pair(each.before, "first"),
        pair(each.after, "second"),
        make("td", {}, change(each.before, each.after)),
      ),
    );
  const caption = comparison.behind
    ? ["After ", token(comparison.behind), `, ${place}`]
    : [`${place[0].toUpperCase()}${place.slice(1)}`];
  const columns = ["Next", `p ${before}`, `p ${after}`, "change"];
  return make("div", { class: "scroll" }, table(columns, rows, { caption, kind: "both" }));
}
