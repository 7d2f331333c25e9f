// The largest numbers of hidden layers at one place, and one of them at all places.
import { choices, make, quiet, roving, scrollable, section, table, token } from "../a11y.js";
import { SMALL, bar, chip, fixed } from "../figures.js";
import { set, state } from "../state.js";

const STRONGEST = 8; // neurons of a layer
const LIT = 12; // tokens of a long text

/** `name(layer)`: the tensor of a layer's neurons. */
export async function neurons({ trace, tokens, place }, tensors, name, title, words) {
  const rows = [];
  for (let layer = 0; tensors[name(layer)]; layer++) rows.push(strongest(tensors[name(layer)].data, layer));
  if (!rows.length) return null;
  const [, layer, id] = /^(\d{1,4})\.(\d{1,7})$/.exec(state().neuron) ?? [];
  const isThere = Number(id) < tensors[name(layer)]?.data.length;
  const one = isThere ? await neuron(trace, name(layer), [layer, Number(id)], tokens, place) : null;
  return section("Neurons", title, quiet(words), ...rows, one);
}

function strongest(data, layer) {
  const best = [...data.keys()]
    .filter((each) => data[each] !== 0)
    .sort((a, b) => Math.abs(data[b]) - Math.abs(data[a]))
    .slice(0, STRONGEST);
  if (!best.length) return quiet(`layer ${layer}: all neurons are silent here`);
  const most = Math.abs(data[best[0]]);
  const entries = best.map((each) => {
    const value = make("span", { class: "neuron-value" }, fixed(data[each], 2));
    const content = chip(Math.abs(data[each]) / most, make("span", {}, `${each} `, value));
    return [`${layer}.${each}`, content, `neuron ${each} of layer ${layer}, ${fixed(data[each], 2)}`];
  });
  return make(
    "div",
    { class: "neuron-row" },
    make("span", { class: "label" }, `layer ${layer}`),
    choices(`Neurons of layer ${layer}`, entries, state().neuron, (id) =>
      set({ neuron: state().neuron === id ? "" : id }),
    ),
  );
}

async function neuron(trace, name, [layer, id], tokens, place) {
  const { data } = (await trace.tensors([name], { column: id }))[name];
  let order = [...data.keys()];
  if (order.length > SMALL) order = order.sort((a, b) => data[b] - data[a]).slice(0, LIT);
  const most = Math.max(...data.map(Math.abs)) || 1;
  const buttons = order.map((i) => {
    const label = `go to place ${i}, ${tokens.shown[i]}`;
    const go = () => set({ query: String(i) });
    const settings = { type: "button", class: "word", "aria-label": label, onclick: go };
    return make("button", settings, token(tokens.shown[i]));
  });
  roving(
    buttons.map((each) => [each]),
    [Math.max(0, order.indexOf(place)), 0],
  );
  const rows = order.map((i, at) =>
    make(
      "tr",
      { class: i === place ? "here" : null },
      make("th", { scope: "row" }, buttons[at]),
      make("td", { "data-lit": data[i] }, bar(Math.abs(data[i]) / most, fixed(data[i], 3))),
    ),
  );
  const top = data.indexOf(Math.max(...data));
  const close = { type: "button", "aria-label": "Close the neuron", onclick: () => set({ neuron: "" }) };
  return make(
    "section",
    { class: "drawer", id: "neuron", "aria-label": "One neuron" },
    make(
      "div",
      { class: "drawer-head" },
      make("h3", {}, `Neuron ${id} of layer ${layer}`),
      make("button", close, "×"),
    ),
    make(
      "p",
      {},
      "Strongest at ",
      token(tokens.shown[top]),
      `, place ${top}: ${fixed(data[top], 3)}.`,
      order.length < data.length ? ` The ${LIT} strongest of ${data.length} places:` : "",
    ),
    scrollable("Places that light the neuron", table(["Place", "activation"], rows)),
  );
}
