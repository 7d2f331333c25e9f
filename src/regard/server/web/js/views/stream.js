// One place of the text through all layers: what each part adds to its vector, and what could be read off it.
import { field, make, quiet, scrollable, section, table, token } from "../a11y.js";
import { bar, fixed, strips } from "../figures.js";
import { number as numbered, state } from "../state.js";
import { numberEditor } from "./edit.js";
import { lens } from "./lens.js";
import { neurons } from "./neurons.js";
import { norm, recurrent } from "./recurrent.js";
import { sidePicker, tokenPicker } from "./selection.js";
import { term } from "./terms.js";

const PARTS = { self: "self-attention", cross: "cross-attention", feed_forward: "feed-forward" };
const READ = ["*.out", "*.output", "*.norm", "*.sum", "*.after_self", "*.after_cross"];

export async function render(trace, model) {
  const sides = ["target", "source"].filter((side) => trace.tokens[side]);
  const side = sides.includes(state().side) ? state().side : sides[0];
  const stack = side === "source" ? "encoder" : "decoder";
  const tokens = trace.tokens[side];
  const query = numbered("query");
  const isThere = query !== null && query < tokens.ids.length;
  const place = isThere ? query : Math.floor(tokens.ids.length / 2);
  const context = { trace, model, stack, side, tokens, place };
  const isResidual = trace.has(`${stack}.embedding.out`);
  const picker = sidePicker(sides, side, { query: "", neuron: "" });
  return [
    make("h2", {}, isResidual ? "One place through all layers" : "One step of the recurrent network"),
    make(
      "div",
      { class: "pickers" },
      picker && field("Side", picker),
      tokenPicker("Place", tokens.shown, place, (text, i) => `place ${i}, ${text}`),
    ),
    ...(isResidual ? await residual(context) : await recurrent(context)),
  ].filter(Boolean);
}

/** Names with one * each, of which the run has some. */
const present = (trace, patterns) =>
  patterns.filter((pattern) => {
    const [before, after] = pattern.split("*");
    return after === undefined
      ? trace.has(pattern)
      : [...trace.shapes.keys()].some((name) => name.startsWith(before) && name.endsWith(after));
  });

async function residual(context) {
  const { trace, stack, place } = context;
  const names = [...READ, "*.feed_forward.hidden", "out"].map((end) => `${stack}.${end}`);
  const tensors = await trace.tensors(present(trace, names), { row: place });
  const steps = subLayers(trace, stack, tensors);
  return [
    quiet(
      "A place keeps one vector, the ",
      term("residual stream"),
      ". Each sub-layer reads it and adds something to it.",
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
function subLayers(trace, stack, tensors) {
  const steps = [];
  let before = `${stack}.embedding.out`;
  for (let layer = 0; trace.has(`${stack}.${layer}.out`); layer++) {
    for (const part of Object.keys(PARTS)) {
      const base = `${stack}.${layer}.${part}`;
      if (!tensors[`${base}.output`]) continue;
      const after = part === "feed_forward" ? `${stack}.${layer}.out` : `${stack}.${layer}.after_${part}`;
      const isPre = Boolean(tensors[`${base}.norm`]);
      const isPost = Boolean(tensors[`${base}.sum`]);
      const around = isPre ? [before, `${base}.norm`] : isPost ? [`${base}.sum`, after] : null;
      steps.push({ layer, part, before, output: `${base}.output`, after, norm: around });
      before = after;
    }
  }
  if (tensors[`${stack}.out`] && steps.some((each) => each.norm?.[1].endsWith(".norm"))) {
    steps.push({ layer: "", part: "last", before, after: `${stack}.out`, norm: [before, `${stack}.out`] });
  }
  return steps;
}

const nameOf = (step) => (step.part === "last" ? "last norm" : `${step.layer} ${PARTS[step.part]}`);

function added({ tokens, place }, tensors, steps) {
  const additions = steps.filter((step) => step.output);
  const shares = additions.map((step) => norm(tensors[step.output]) / norm(tensors[step.before]));
  const most = Math.max(1, ...shares);
  const rows = additions.map((step, i) =>
    make(
      "tr",
      {},
      make("th", { scope: "row" }, nameOf(step)),
      make("td", { "data-share": shares[i] }, bar(shares[i] / most, fixed(shares[i], 2))),
      make("td", {}, fixed(norm(tensors[step.output]), 2)),
      make("td", {}, fixed(norm(tensors[step.before]), 2)),
    ),
  );
  const strongest = additions[shares.indexOf(Math.max(...shares))];
  return section(
    "What was added",
    ["What each sub-layer added to ", token(tokens.shown[place])],
    quiet(
      "Lengths of vectors: what was added, the stream before, and their ratio. ",
      `Most was added by ${PARTS[strongest.part]} of layer ${strongest.layer}.`,
    ),
    scrollable(
      "What each sub-layer added",
      table(["Sub-layer", "added / stream", "‖added‖", "‖stream‖"], rows),
    ),
  );
}

function vectors({ trace, model, stack, place }, tensors, steps) {
  const names = [`${stack}.embedding.out`, ...steps.map((step) => step.after)];
  const labels = steps.map(({ layer, part }) =>
    part === "last" ? "norm" : `${layer} + ${part === "feed_forward" ? "feed" : part}`,
  );
  const width = trace.shapes.get(names[0]).at(-1);
  const data = new Float32Array(names.length * width);
  names.forEach((name, i) => data.set(tensors[name].data, i * width));
  return section(
    "The stream",
    "The stream, from below to above",
    quiet(`The ${width} numbers of this place behind each sub-layer: blue below zero, orange above.`),
    strips({ data, shape: [names.length, width] }, ["start", ...labels], { label: "stream", most: 200 }),
    numberEditor(model, editable(tensors, steps, names[0], place)),
  );
}

/** The start of the stream, what each sub-layer adds, and the stream after it. */
function editable(tensors, steps, start, position) {
  const row = (label, name) => ({ label, name, position, values: tensors[name].data });
  const rest = steps.flatMap((step) => [
    ...(step.output ? [row(`what ${nameOf(step)} adds`, step.output)] : []),
    row(`the stream after ${nameOf(step)}`, step.after),
  ]);
  return [row("the start", start), ...rest];
}

function moments({ data }) {
  const mean = data.reduce((sum, each) => sum + each, 0) / data.length;
  return [mean, data.reduce((sum, each) => sum + (each - mean) ** 2, 0) / data.length];
}

function norms(tensors, steps, stack) {
  const normed = steps.filter((step) => step.norm && step.norm.every((name) => tensors[name]));
  if (!normed.length) return null;
  const isPre = normed.some((step) => step.norm[1].endsWith(".norm"));
  const rows = normed.map((step) => {
    const values = step.norm.flatMap((name) => moments(tensors[name]));
    const cells = values.map((each) => make("td", { "data-value": each }, fixed(each, 3)));
    return make("tr", {}, make("th", { scope: "row" }, nameOf(step)), ...cells);
  });
  return section(
    "Layer norm",
    "Layer norm, before and after",
    quiet(
      term("pre-norm", isPre ? "Pre-norm" : "Post-norm"),
      isPre
        ? `: the ${stack} normalises what a sub-layer reads, and leaves the stream itself as it is.`
        : `: the ${stack} normalises the sum of the stream and what was added.`,
      " After it come a learned factor and shift for each number, so that mean and variance need not be 0 and 1.",
    ),
    scrollable(
      "Means and variances",
      table(["Norm of", "mean", "variance", "mean after", "var. after"], rows),
    ),
  );
}
