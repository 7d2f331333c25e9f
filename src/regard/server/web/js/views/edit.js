// A form beside numbers: set one of them, and the run is computed again with it.
import { make } from "../a11y.js";
import { number } from "../figures.js";
import { add } from "../interventions.js";
import { isFile } from "../source.js";
import { set, state } from "../state.js";

/**
 * @typedef {object} Row numbers that can be edited
 * @property {string} label
 * @property {string} name of the tensor
 * @property {number} [head]
 * @property {number} position
 * @property {ArrayLike<number>} values
 */

const draft = { label: "", column: 0 }; // what stands in the form, while views are drawn anew

/** @param {any} model @param {Row[]} rows */
export function numberEditor(model, rows) {
  const offered = model?.interventions;
  if (isFile() || !offered?.types.includes("edit") || !rows.length) return null;
  const of = () => rows.find(({ label }) => label === draft.label) ?? rows[0];
  const current = () => number(of().values[Math.min(draft.column, of().values.length - 1)], 4);
  const which = make(
    "select",
    {
      id: "edit-row",
      onchange: () => {
        draft.label = which.value;
        update();
      },
    },
    ...rows.map(({ label }) => make("option", { value: label, selected: label === of().label }, label)),
  );
  const column = make("input", {
    id: "edit-column",
    type: "number",
    min: 0,
    step: 1,
    required: true,
    value: draft.column,
    oninput: () => {
      draft.column = Number(column.value);
      update();
    },
  });
  const value = make("input", { id: "edit-value", type: "number", step: "any", required: true });
  const now = make("span", { class: "quiet", id: "edit-now" });
  const update = () => {
    column.max = String(of().values.length - 1);
    now.textContent = draft.column < of().values.length ? `now ${current()}` : "";
  };
  update();
  const submit = (event) => {
    event.preventDefault();
    const { name, head, position } = of();
    const change = { type: "edit", name, ...(head === undefined ? {} : { head }), position };
    const edit = { ...change, column: draft.column, value: Number(value.value) };
    set({ change: add(offered, state().change, edit) });
  };
  const labelled = (control, text) =>
    make("div", { class: "field" }, make("label", { for: control.id }, text), control);
  return make(
    "details",
    { class: "edit-number" },
    make("summary", {}, "Edit a number"),
    make(
      "form",
      { onsubmit: submit },
      labelled(which, "In"),
      labelled(column, "Number"),
      now,
      labelled(value, "Set to"),
      make("button", { type: "submit" }, "Run with it"),
    ),
  );
}
