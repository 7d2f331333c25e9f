// Figure 1 of the paper, drawn from the model's own settings. Each box leads to where its numbers are.
import { draw, make, quiet, select } from "../a11y.js";
import { set, state } from "../state.js";
import { isPreNorm, layerCount, stacksOf } from "./film/boxes.js";
import { figure1 } from "./film/figure1.js";
import { layout } from "./film/layout.js";

export async function render(trace, model) {
  const config = trace.meta.config;
  const counts = stacksOf(trace).map((side) => layerCount(trace, side));
  const layers = Math.max(1, ...counts);
  const layer = Math.min(Number(state().where.split(".")[1]) || 0, layers - 1);
  const byLayer = trace.attentions.find((name) => /\.\d+\./.test(name)); // an RNN's layers have none
  const map = layout(trace, { layers: { encoder: layer, decoder: layer } });
  return [
    make("h2", {}, "The model as a map"),
    quiet(facts(trace, config, model)),
    layers > 1 && byLayer
      ? select(
          "Layer (counted from 0)",
          Array.from({ length: layers }, (_, i) => [String(i), String(i)]),
          String(layer),
          (id) => set({ where: trace.attentions.find((name) => name.split(".")[1] === id) ?? byLayer }),
        )
      : null,
    make(
      "div",
      { class: "scroll whole" },
      draw(
        "svg",
        {
          viewBox: `0 0 ${map.width} ${map.height}`,
          width: map.width,
          class: "map",
          role: "group",
          "aria-label": `Map of a ${config.family}`,
        },
        ...figure1(map),
      ),
    ),
    quiet(
      "Read from below: what comes in at the bottom leaves at the top. Beside each arrow stands the shape of ",
      "what goes along it. Choose a box to see its numbers.",
    ),
  ].filter(Boolean);
}

function facts(trace, config, model) {
  const parts = [`${config.family}: width ${config.width}`];
  if (!["rnn", "bahdanau"].includes(config.family))
    parts.push(
      `${config.heads} heads of ${config.head_width ?? config.width / config.heads}`,
      `feed-forward ${config.feed_forward}`,
      `${isPreNorm(trace) ? "pre" : "post"}-norm`,
      `${config.positions} positions`,
    );
  else parts.push(config.cell.toUpperCase());
  for (const [name, words] of Object.entries({ vocabulary: "tokens", parameters: "parameters" })) {
    if (model?.[name]) parts.push(`${model[name].toLocaleString("en")} ${words}`); // a file does not have them
  }
  return parts.join(", ");
}
