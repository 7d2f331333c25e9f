// The logit lens: what the output layer would say if the stream ended at each depth.
import { make, quiet, scrollable, section, table, token } from "../a11y.js";
import { share } from "../color.js";
import { SMALL, heatmap } from "../figures.js";
import { set } from "../state.js";
import { link } from "./selection.js";
import { term } from "./terms.js";

const lensSection = (...content) => section("Logit lens", "Logit lens", ...content);

export async function lens({ trace, stack, side, tokens, place }) {
  const written = trace.tokens.target ? "target" : "source";
  if (!trace.has("lens.ids")) {
    const labels = trace.has("logits") && trace.meta.head && trace.meta.head !== "words";
    return lensSection(
      quiet(
        labels
          ? "This model’s stream becomes labels, not words, so there are no words to read off it."
          : "It was left out for a text this long.",
      ),
    );
  }
  if (side !== written) {
    const there = link({ side: written, query: "" }, "Look at that side");
    return lensSection(quiet("Only what is written becomes words. ", there, "."));
  }
  const { names, best, count } = await words(trace);
  const tied = trace.meta.config?.tie_embeddings;
  const places = tokens.ids.length;
  const first = Math.max(0, Math.min(places - SMALL, place - SMALL / 2)); // a window of a long text
  const columns = Array.from({ length: Math.min(places, SMALL) }, (_, i) => first + i);
  const cell = (depth, j) => {
    const [text, p] = best(depth, columns[j]);
    const where = `${names[depth]}, place ${columns[j]}, ${tokens.shown[columns[j]]}`;
    return {
      color: share(p),
      content: token(text),
      "data-p": p,
      "aria-selected": String(columns[j] === place),
      "aria-label": `${where}: ${text}, probability ${p.toFixed(2)}`,
      title: `${text}: ${p.toFixed(4)}`,
    };
  };
  const column = columns.indexOf(place);
  const map = heatmap({
    rows: names,
    columns: columns.map((i) => tokens.shown[i]),
    column,
    start: [names.length - 1, column],
    label: "Logit lens: rows are layers, columns are places",
    cell,
    choose: (_, j) => set({ query: String(columns[j]) }),
    name: "heat lens",
  });
  const numbers = Array.from({ length: count }, (_, k) => k);
  const rows = names.map((name, depth) => {
    const cells = numbers.map((k) => {
      const [text, p] = best(depth, place, k);
      return make("td", {}, token(text), ` ${p.toFixed(2)}`);
    });
    return make("tr", {}, make("th", { scope: "row" }, name), ...cells);
  });
  return lensSection(
    quiet(
      term("logit lens", "What the output layer would say"),
      ` if the ${stack} ended behind each layer: the best word`,
      `${stack === "decoder" ? " to come next" : ""} at each place, the stronger the more probable. `,
      "Only the last layer was trained to be read so.",
      tied ? " Input and output share one table of embeddings, so an embedding first predicts itself." : "",
    ),
    make("div", { class: "scroll" }, map),
    make("h4", {}, `The ${count} best at `, token(tokens.shown[place])),
    scrollable(
      "The best words behind each layer",
      table(["Behind", ...numbers.map((k) => `${k + 1}.`)], rows),
    ),
  );
}

/** The names of the depths, how many words each place has, and `best(depth, place, k)`: a word and its probability. */
async function words(trace) {
  const { "lens.ids": ids, "lens.probabilities": probabilities } = await trace.tensors([
    "lens.ids",
    "lens.probabilities",
  ]);
  const [depths, places, count] = ids.shape;
  const best = (depth, place, k = 0) => {
    const at = (depth * places + place) * count + k;
    return [(trace.vocabulary[ids.data[at]] ?? "").trim() || "␣", probabilities.data[at]];
  };
  const names = Array.from({ length: depths }, (_, depth) => (depth ? `layer ${depth - 1}` : "embedding"));
  return { names, best, count };
}
