// One step of a recurrent network: its gates and its states.
import { make, quiet, scrollable, section, table, token } from "../a11y.js";
import { bar, number, strips } from "../figures.js";
import { neurons } from "./neurons.js";
import { link } from "./selection.js";

const GATES = {
  input: "how much of the new enters",
  forget: "how much of the memory stays",
  output: "how much of the memory is shown",
  reset: "how much of the old the new sees",
  update: "how much of the old stays",
};
const STATES = ["candidate", "memory", "hidden"];

/** The length of a vector. */
export const norm = ({ data }) => Math.sqrt(data.reduce((sum, each) => sum + each * each, 0));
const mean = ({ data }) => data.reduce((sum, each) => sum + each, 0) / data.length;

export async function recurrent(view) {
  const { trace, stack, place, tokens } = view;
  const cells = cellsOf(trace, stack);
  const names = [
    ...cells.flatMap(({ path }) => [...Object.keys(GATES), ...STATES].map((part) => path + part)),
    ...cells.map(({ layer }) => `${stack}.${layer}.hidden`),
    `${stack}.cross.context`,
  ];
  const tensors = await trace.tensors([...new Set(names)], { row: place });
  const context = tensors[`${stack}.cross.context`];
  const how = link({ view: "attention", where: "decoder.cross", head: "0" }, "How it was mixed");
  return [
    quiet(
      "A recurrent network has no residual stream, no layer norm and no logit lens: at each step its gates ",
      "decide what of the old state stays and what of the new word enters.",
    ),
    section("Gates", ["The gates at ", token(tokens.shown[place])], gates(cells, tensors)),
    section(
      "States",
      "The states behind this step",
      states(cells, tensors, context),
      context ? quiet("The context is what attention brought from the source. ", how, ".") : null,
    ),
    await neurons(
      view,
      tensors,
      (layer) => `${stack}.${layer}.hidden`,
      "The strongest numbers of the hidden state",
      "Choose one to see at which places it is strong.",
    ),
  ];
}

/** The cells of a stack: of an encoder, one for each layer and direction. */
function cellsOf(trace, stack) {
  const cells = [];
  for (let layer = 0; trace.has(`${stack}.${layer}.hidden`); layer++) {
    for (const direction of stack === "encoder" ? ["forward", "backward"] : [""]) {
      const path = direction ? `${stack}.${layer}.${direction}.` : `${stack}.${layer}.`;
      const name = `layer ${layer}${direction ? `, reading ${direction}s` : ""}`;
      if (trace.has(`${path}hidden`)) cells.push({ layer, path, name });
    }
  }
  return cells;
}

function gates(cells, tensors) {
  const all = cells.flatMap((cell) =>
    Object.entries(GATES).map(([gate, words]) => ({ ...cell, gate, words })),
  );
  const rows = all
    .filter(({ path, gate }) => tensors[path + gate])
    .map(({ path, name, gate, words }) => {
      const value = mean(tensors[path + gate]);
      return make(
        "tr",
        {},
        make("th", { scope: "row" }, `${name}: ${gate}`),
        make("td", { "data-gate": value }, bar(value, number(value, 3))),
        make("td", { class: "quiet" }, words),
      );
    });
  return scrollable("Gates of this step", table(["Gate", "mean, 0 shut to 1 open", ""], rows));
}

function states(cells, tensors, context) {
  const shown = cells.flatMap(({ path, name }) =>
    STATES.map((part) => [`${name}: ${part}`, tensors[path + part]]),
  );
  const figure = ([label, tensor]) =>
    make(
      "figure",
      {},
      make("figcaption", {}, make("b", {}, label), ` length ${number(norm(tensor), 2)}`),
      strips(tensor, [""], { label }),
    );
  const all = [...shown, ["context", context]].filter(([, tensor]) => tensor);
  return make("div", { class: "three" }, ...all.map(figure));
}
