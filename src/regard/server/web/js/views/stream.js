// One place of the text through all layers: what each part adds to its vector, and what could be read off it.
import { choices, live, make, roving, select, token } from "../a11y.js";
import { css, ink, share } from "../color.js";
import { SMALL, bar, number, strips } from "../figures.js";
import { number as numbered, set, state } from "../state.js";
import { link } from "./attention.js";

const STRONGEST = 8; // neurons of a layer
const LIT = 12; // tokens of a long text
const PARTS = { self: "self-attention", cross: "cross-attention", feed_forward: "feed-forward" };
const GATES = {
  input: "how much of the new enters",
  forget: "how much of the memory stays",
  output: "how much of the memory is shown",
  reset: "how much of the old the new sees",
  update: "how much of the old stays",
};

export async function render(trace) {
  const sides = ["target", "source"].filter((side) => trace.tokens[side]);
  const side = sides.includes(state().side) ? state().side : sides[0];
  const stack = side === "source" ? "encoder" : "decoder";
  const pieces = trace.tokens[side];
  const query = numbered("query");
  const place = query !== null && query < pieces.ids.length ? query : Math.min(1, pieces.ids.length - 1);
  const context = { trace, stack, side, pieces, place };
  const residual = trace.has(`${stack}.embedding.out`);
  return [
    make("h2", {}, residual ? "One place through all layers" : "One step of the recurrent network"),
    make(
      "div",
      { class: "pickers" },
      sides.length > 1
        ? make(
            "div",
            { class: "field" },
            make("span", { class: "label" }, "Side"),
            choices(
              "Side",
              [
                ["source", "What is read"],
                ["target", "What is written"],
              ],
              side,
              (id) => set({ side: id, query: "", neuron: "" }),
            ),
          )
        : null,
      placePicker(context),
    ),
    ...(residual ? await stream(context) : await recurrent(context)),
  ].filter(Boolean);
}

function placePicker({ pieces, place }) {
  const texts = pieces.shown;
  const choose = (query) => set({ query: String(query) });
  if (texts.length > SMALL)
    return select(
      "Place",
      texts.map((text, i) => [String(i), `${i} ${text}`]),
      String(place),
      choose,
    );
  return make(
    "div",
    { class: "field" },
    make("span", { class: "label" }, "Place"),
    choices(
      "Place",
      texts.map((text, i) => [i, token(text), `place ${i}, ${text}`]),
      place,
      choose,
    ),
  );
}

/** Names with one * each, of which the run has some. */
const present = (trace, patterns) =>
  patterns.filter((pattern) => {
    const [before, after] = pattern.split("*");
    return after === undefined
      ? trace.has(pattern)
      : [...trace.shapes.keys()].some((name) => name.startsWith(before) && name.endsWith(after));
  });

// A Transformer

async function stream(context) {
  const { trace, stack, place } = context;
  const names = [
    "*.out",
    "*.output",
    "*.norm",
    "*.sum",
    "*.after_self",
    "*.after_cross",
    "*.feed_forward.hidden",
    "out",
  ].map((end) => `${stack}.${end}`);
  const tensors = await trace.tensors(present(trace, names), { row: place });
  const steps = walk(trace, stack, tensors);
  return [
    make(
      "p",
      { class: "quiet" },
      "A place keeps one vector, the residual stream. Each sub-layer reads it and adds something to it.",
    ),
    make("div", { class: "split" }, added(context, tensors, steps), norms(tensors, steps, stack)),
    vectors(context, tensors, steps),
    await neurons(
      context,
      tensors,
      (layer) => `${stack}.${layer}.feed_forward.hidden`,
      "The strongest neurons of the feed-forward layers",
      "Each neuron of a feed-forward layer answers to some pattern. Choose one to see which places light it.",
    ),
    await lens(context),
  ];
}

/** The sub-layers in their order: what each read, what it added, and the stream behind it. */
function walk(trace, stack, tensors) {
  const steps = [];
  let before = `${stack}.embedding.out`;
  for (let layer = 0; trace.has(`${stack}.${layer}.out`); layer++) {
    for (const part of Object.keys(PARTS)) {
      const base = `${stack}.${layer}.${part}`;
      if (!tensors[`${base}.output`]) continue;
      const after = part === "feed_forward" ? `${stack}.${layer}.out` : `${stack}.${layer}.after_${part}`;
      const pre = Boolean(tensors[`${base}.norm`]);
      const around = pre ? [before, `${base}.norm`] : tensors[`${base}.sum`] ? [`${base}.sum`, after] : null;
      steps.push({ layer, part, before, output: `${base}.output`, after, norm: around });
      before = after;
    }
  }
  if (tensors[`${stack}.out`] && steps.some((each) => each.norm?.[1].endsWith(".norm"))) {
    steps.push({ layer: "", part: "last", before, after: `${stack}.out`, norm: [before, `${stack}.out`] });
  }
  return steps;
}

const fixed = (value, digits) =>
  value
    .toFixed(digits)
    .replace(/^-(?=0\.?0*$)/, "")
    .replace("-", "−");
const size = (tensor) => Math.sqrt(tensor.data.reduce((sum, each) => sum + each * each, 0));
const spoken = (step) => (step.part === "last" ? "last norm" : `${step.layer} ${PARTS[step.part]}`);

function table(label, columns, rows, caption) {
  return make(
    "div",
    { class: "scroll", tabindex: "0", role: "region", "aria-label": label },
    make(
      "table",
      { class: "numbers" },
      caption ?? "",
      make("thead", {}, make("tr", {}, ...columns.map((text) => make("th", { scope: "col" }, text)))),
      make("tbody", {}, ...rows),
    ),
  );
}

function added({ pieces, place }, tensors, steps) {
  const additions = steps.filter((step) => step.output);
  const shares = additions.map((step) => size(tensors[step.output]) / size(tensors[step.before]));
  const most = Math.max(1, ...shares);
  const rows = additions.map((step, i) =>
    make(
      "tr",
      {},
      make("th", { scope: "row" }, spoken(step)),
      make("td", { "data-share": shares[i] }, bar(shares[i] / most, fixed(shares[i], 2))),
      make("td", {}, fixed(size(tensors[step.output]), 2)),
      make("td", {}, fixed(size(tensors[step.before]), 2)),
    ),
  );
  const strongest = additions[shares.indexOf(Math.max(...shares))];
  return make(
    "section",
    { "aria-label": "What was added" },
    make("h3", {}, "What each sub-layer added to ", token(pieces.shown[place])),
    make(
      "p",
      { class: "quiet" },
      `Lengths of vectors: what was added, the stream before, and the one divided by the other. Most was added by ${PARTS[strongest.part]} of layer ${strongest.layer}.`,
    ),
    table("What each sub-layer added", ["Sub-layer", "added / stream", "‖added‖", "‖stream‖"], rows),
  );
}

function vectors({ trace, stack }, tensors, steps) {
  const names = [`${stack}.embedding.out`, ...steps.map((step) => step.after)];
  const labels = [
    "start",
    ...steps.map((step) =>
      step.part === "last" ? "norm" : `${step.layer} + ${step.part === "feed_forward" ? "feed" : step.part}`,
    ),
  ];
  const width = trace.shapes.get(names[0]).at(-1);
  const data = new Float32Array(names.length * width);
  names.forEach((name, i) => data.set(tensors[name].data, i * width));
  return make(
    "section",
    { "aria-label": "The stream" },
    make("h3", {}, "The stream, from below to above"),
    make(
      "p",
      { class: "quiet" },
      `The ${width} numbers of this place behind each sub-layer: blue below zero, orange above.`,
    ),
    strips({ data, shape: [names.length, width] }, labels, { label: "stream", most: 200 }),
  );
}

function moments({ data }) {
  const mean = data.reduce((sum, each) => sum + each, 0) / data.length;
  return { mean, variance: data.reduce((sum, each) => sum + (each - mean) ** 2, 0) / data.length };
}

function norms(tensors, steps, stack) {
  const normed = steps.filter((step) => step.norm && step.norm.every((name) => tensors[name]));
  if (!normed.length) return null;
  const pre = normed.some((step) => step.norm[1].endsWith(".norm"));
  const rows = normed.map((step) => {
    const [before, after] = step.norm.map((name) => moments(tensors[name]));
    return make(
      "tr",
      {},
      make("th", { scope: "row" }, spoken(step)),
      ...[before.mean, before.variance, after.mean, after.variance].map((each) =>
        make("td", { "data-value": each }, fixed(each, 3)),
      ),
    );
  });
  return make(
    "section",
    { "aria-label": "Layer norm" },
    make("h3", {}, "Layer norm, before and after"),
    make(
      "p",
      { class: "quiet" },
      pre
        ? `Pre-norm: the ${stack} normalises what a sub-layer reads, and leaves the stream itself as it is.`
        : `Post-norm: the ${stack} normalises the sum of the stream and what was added.`,
      " After it come a learned factor and shift for each number, so that mean and variance need not be 0 and 1.",
    ),
    table("Means and variances", ["Norm of", "mean", "variance", "mean after", "var. after"], rows),
  );
}

/** The largest numbers of a hidden layer, and one of them at all places. */
async function neurons({ trace, pieces, place }, tensors, name, title, words) {
  const layers = [];
  for (let layer = 0; tensors[name(layer)]; layer++) {
    const { data } = tensors[name(layer)];
    layers.push(
      [...data.keys()]
        .filter((each) => data[each] !== 0)
        .sort((a, b) => Math.abs(data[b]) - Math.abs(data[a]))
        .slice(0, STRONGEST),
    );
  }
  if (!layers.length) return null;
  const [, l, n] = /^(\d{1,4})\.(\d{1,7})$/.exec(state().neuron) ?? [];
  const chosen = layers[l] && n < tensors[name(l)].data.length ? [Number(l), Number(n)] : null;
  const rows = layers.map((best, layer) => {
    const { data } = tensors[name(layer)];
    const most = Math.abs(data[best[0]] ?? 1);
    if (!best.length) return make("p", { class: "quiet" }, `layer ${layer}: all neurons are silent here`);
    return make(
      "div",
      { class: "neuron-row" },
      make("span", { class: "label" }, `layer ${layer}`),
      choices(
        `Neurons of layer ${layer}`,
        best.map((each) => [
          `${layer}.${each}`,
          neuron(each, data[each], most),
          `neuron ${each} of layer ${layer}, ${fixed(data[each], 2)}`,
        ]),
        state().neuron,
        (id) => set({ neuron: state().neuron === id ? "" : id }),
      ),
    );
  });
  return make(
    "section",
    { "aria-label": "Neurons" },
    make("h3", {}, title),
    make("p", { class: "quiet" }, words),
    ...rows,
    chosen ? await lit(trace, name(chosen[0]), chosen, pieces, place) : null,
  );
}

function neuron(id, value, most) {
  const inside = make("span", { class: "chip-bar" });
  inside.style.width = `${(Math.abs(value) / most) * 100}%`;
  return make(
    "span",
    { class: "chip" },
    make("span", {}, `${id} `, make("span", { class: "neuron-value" }, fixed(value, 2))),
    make("span", { class: "chip-track" }, inside),
  );
}

async function lit(trace, name, [layer, id], pieces, place) {
  const { data } = (await trace.tensors([name], { column: id }))[name];
  let order = [...data.keys()];
  if (order.length > SMALL) order = order.sort((a, b) => data[b] - data[a]).slice(0, LIT);
  const most = Math.max(...data.map(Math.abs)) || 1;
  const buttons = order.map((i) =>
    make(
      "button",
      {
        type: "button",
        class: "word",
        "aria-label": `go to place ${i}, ${pieces.shown[i]}`,
        onclick: () => set({ query: String(i) }),
      },
      token(pieces.shown[i]),
    ),
  );
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
  const strongest = data.indexOf(Math.max(...data));
  return make(
    "section",
    { class: "drawer", id: "neuron", "aria-label": "One neuron" },
    make(
      "div",
      { class: "drawer-head" },
      make("h3", {}, `Neuron ${id} of layer ${layer}`),
      make(
        "button",
        { type: "button", "aria-label": "Close the neuron", onclick: () => set({ neuron: "" }) },
        "×",
      ),
    ),
    make(
      "p",
      {},
      "Strongest at ",
      token(pieces.shown[strongest]),
      `, place ${strongest}: ${fixed(data[strongest], 3)}.`,
      order.length < data.length ? ` The ${LIT} strongest of ${data.length} places:` : "",
    ),
    table("Places that light the neuron", ["Place", "activation"], rows),
  );
}

/** What the output layer would say if the stream ended at each depth. */
async function lens(context) {
  const { trace, stack, side, pieces, place } = context;
  const section = (...content) =>
    make("section", { "aria-label": "Logit lens" }, make("h3", {}, "Logit lens"), ...content);
  const reader = trace.tokens.target ? "target" : "source";
  if (!trace.has("lens.ids")) {
    return section(
      make(
        "p",
        { class: "quiet" },
        trace.has("logits") && trace.meta.head && trace.meta.head !== "words"
          ? "This model’s stream becomes labels, not words, so there are no words to read off it."
          : "It was left out for a text this long.",
      ),
    );
  }
  if (side !== reader)
    return section(
      make(
        "p",
        { class: "quiet" },
        "Only what is written becomes words. ",
        link({ side: reader, query: "" }, "Look at that side"),
        ".",
      ),
    );
  const tensors = await trace.tensors(["lens.ids", "lens.probabilities"]);
  const [depths, places, count] = tensors["lens.ids"].shape;
  const at = (depth, i, k) => (depth * places + i) * count + k;
  const word = (depth, i, k = 0) => {
    const text = trace.vocabulary[tensors["lens.ids"].data[at(depth, i, k)]] ?? "";
    return text.trim() || "␣";
  };
  const p = (depth, i, k = 0) => tensors["lens.probabilities"].data[at(depth, i, k)];
  const names = Array.from({ length: depths }, (_, depth) => (depth ? `layer ${depth - 1}` : "embedding"));
  const first = Math.max(0, Math.min(places - SMALL, place - SMALL / 2)); // a window of a long text
  const columns = Array.from({ length: Math.min(places, SMALL) }, (_, i) => first + i);
  const cells = names.map((name, depth) =>
    columns.map((i) => {
      const color = share(p(depth, i));
      const cell = make(
        "td",
        {
          role: "gridcell",
          "data-p": p(depth, i),
          "aria-selected": String(i === place),
          onclick: () => set({ query: String(i) }),
          "aria-label": `${name}, place ${i}, ${pieces.shown[i]}: ${word(depth, i)}, probability ${p(depth, i).toFixed(2)}`,
          title: `${word(depth, i)}: ${p(depth, i).toFixed(4)}`,
          onkeydown: (event) => {
            if (event.key === "Enter" || event.key === " ") {
              event.preventDefault();
              set({ query: String(i) });
            }
          },
        },
        token(word(depth, i)),
      );
      cell.style.backgroundColor = css(color);
      cell.style.color = ink(color);
      return cell;
    }),
  );
  roving(cells, [depths - 1, columns.indexOf(place)], (i, j) => live(cells[i][j].getAttribute("aria-label")));
  const head = make(
    "tr",
    { role: "row" },
    make("td"),
    ...columns.map((i) =>
      make("th", { scope: "col", class: i === place ? "here" : null }, token(pieces.shown[i])),
    ),
  );
  const best = names.map((name, depth) =>
    make(
      "tr",
      {},
      make("th", { scope: "row" }, name),
      ...Array.from({ length: count }, (_, k) =>
        make("td", {}, token(word(depth, place, k)), ` ${p(depth, place, k).toFixed(2)}`),
      ),
    ),
  );
  return section(
    make(
      "p",
      { class: "quiet" },
      `What the output layer would say if the ${stack} ended behind each layer: the best word${stack === "decoder" ? " to come next" : ""} at each place, the stronger the more probable. Only the last layer was trained to be read so.`,
    ),
    make(
      "div",
      { class: "scroll" },
      make(
        "table",
        { role: "grid", class: "heat lens", "aria-label": "Logit lens: rows are layers, columns are places" },
        make("thead", {}, head),
        make(
          "tbody",
          {},
          ...cells.map((row, depth) =>
            make(
              "tr",
              { role: "row" },
              make("th", { scope: "row", role: "rowheader" }, names[depth]),
              ...row,
            ),
          ),
        ),
      ),
    ),
    make("h4", {}, `The ${count} best at `, token(pieces.shown[place])),
    table(
      "The best words behind each layer",
      ["Behind", ...Array.from({ length: count }, (_, k) => `${k + 1}.`)],
      best,
    ),
  );
}

// A recurrent network

async function recurrent(view) {
  const { trace, stack, place, pieces } = view;
  const ways = [];
  for (let layer = 0; trace.has(`${stack}.${layer}.hidden`); layer++) {
    const directions = stack === "encoder" ? ["forward.", "backward."] : [""];
    for (const way of directions) if (trace.has(`${stack}.${layer}.${way}hidden`)) ways.push([layer, way]);
  }
  const parts = [...Object.keys(GATES), "candidate", "memory", "hidden"];
  const names = [
    ...ways.flatMap(([layer, way]) => parts.map((part) => `${stack}.${layer}.${way}${part}`)),
    ...ways.map(([layer]) => `${stack}.${layer}.hidden`),
    `${stack}.cross.context`,
  ];
  const tensors = await trace.tensors([...new Set(names)], { row: place });
  const context = tensors[`${stack}.cross.context`];
  return [
    make(
      "p",
      { class: "quiet" },
      "A recurrent network has no residual stream, no layer norm and no logit lens: at each step its gates decide what of the old state stays and what of the new word enters.",
    ),
    make(
      "section",
      { "aria-label": "Gates" },
      make("h3", {}, "The gates at ", token(pieces.shown[place])),
      gates(stack, ways, tensors),
    ),
    make(
      "section",
      { "aria-label": "States" },
      make("h3", {}, "The states behind this step"),
      states(stack, ways, tensors, context),
      context
        ? make(
            "p",
            { class: "quiet" },
            "The context is what attention brought from the source. ",
            link({ view: "attention", where: "decoder.cross", head: "0" }, "How it was mixed"),
            ".",
          )
        : null,
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

const wayName = ([layer, way]) => `layer ${layer}${way ? `, reading ${way.slice(0, -1)}s` : ""}`;
const mean = ({ data }) => data.reduce((sum, each) => sum + each, 0) / data.length;

function gates(stack, ways, tensors) {
  const rows = ways.flatMap((way) =>
    Object.entries(GATES)
      .filter(([gate]) => tensors[`${stack}.${way[0]}.${way[1]}${gate}`])
      .map(([gate, words]) => {
        const value = mean(tensors[`${stack}.${way[0]}.${way[1]}${gate}`]);
        return make(
          "tr",
          {},
          make("th", { scope: "row" }, `${wayName(way)}: ${gate}`),
          make("td", { "data-gate": value }, bar(value, number(value, 3))),
          make("td", { class: "quiet" }, words),
        );
      }),
  );
  return table("Gates of this step", ["Gate", "mean, 0 shut to 1 open", ""], rows);
}

function states(stack, ways, tensors, context) {
  const shown = ways
    .flatMap((way) =>
      ["candidate", "memory", "hidden"].map((part) => [
        `${wayName(way)}: ${part}`,
        tensors[`${stack}.${way[0]}.${way[1]}${part}`],
      ]),
    )
    .filter(([, tensor]) => tensor);
  if (context) shown.push(["context", context]);
  return make(
    "div",
    { class: "three" },
    ...shown.map(([label, tensor]) =>
      make(
        "figure",
        {},
        make("figcaption", {}, make("b", {}, label), ` length ${number(size(tensor), 2)}`),
        strips(tensor, [""], { label }),
      ),
    ),
  );
}
