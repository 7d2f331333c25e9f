// What the model said, how sure it was, what it might have said, and the search.
import {
  choices,
  choosable,
  draw,
  field,
  live,
  make,
  quiet,
  roving,
  section,
  table,
  token,
} from "../a11y.js";
import { bar, chip, fixed, number } from "../figures.js";
import { hasServer, isFile } from "../source.js";
import { number as numbered, set } from "../state.js";
import { sampling } from "./sampling.js";
import { link } from "./selection.js";
import { term } from "./terms.js";

const NAMES =
  "B- begins a name and I- goes on with it: PER a person, LOC a place, ORG an organisation. O is no name.";
const percent = (p) => (p >= 0.9995 ? "100 %" : p < 0.0005 ? "< 0.1 %" : `${(p * 100).toFixed(1)} %`);

export async function render(trace) {
  const writes = Boolean(trace.tokens.output);
  const prompt = Math.max(0, (trace.meta.prompt || 1) - 1); // places of a given text, where nothing was chosen
  const steps = trace.steps.map((step, place) => ({ ...step, place })).slice(writes ? prompt : 0);
  if (!steps.length) return make("p", {}, "This run recorded no output.");
  const query = numbered("query");
  const at = (
    steps.find((step) => step.place === query) ??
    steps.find((step) => trace.meta.task === "tag" && step.best[0]?.shown !== "O") ??
    steps.find((step) => step.id !== null) ??
    steps[0]
  ).place;
  return [
    make("h2", {}, writes ? "The output, token by token" : "What the model answers"),
    writes ? summary(steps) : filled(trace),
    trace.meta.task === "tag" && trace.meta.labels?.includes("B-PER") ? quiet(NAMES) : null,
    field(
      "Place",
      choices(
        "Place",
        steps.map((step) => [
          step.place,
          chip(step.p ?? 0, token(step.shown)),
          `place ${step.place}, ${step.shown}${step.p === null ? "" : `, ${percent(step.p)}`}`,
        ]),
        at,
        (place) => set({ query: String(place) }),
      ),
    ),
    alternatives(
      trace,
      steps.find((step) => step.place === at),
      writes,
      prompt,
    ),
    writes ? await sampling(trace, at) : null,
    writes ? tree(trace, prompt) : null,
  ].filter(Boolean);
}

function summary(steps) {
  const log = steps.reduce((sum, step) => sum + Math.log(step.p), 0);
  return quiet(
    term("log p"),
    ` = ${number(log, 3)} for ${steps.length} tokens, ${number(log / steps.length, 3)} a token `,
    "(0 is certain); the surest is ",
    token(steps.reduce((a, b) => (a.p > b.p ? a : b)).shown),
    ", the least sure ",
    token(steps.reduce((a, b) => (a.p < b.p ? a : b)).shown),
    ".",
  );
}

/** The text with what a masked language model put into its gaps. */
function filled(trace) {
  const { source } = trace.tokens;
  if (trace.meta.task !== "fill" || !trace.steps.some(({ id }) => id !== null)) return null;
  const parts = trace.steps.map(({ id, best }, place) => {
    if (id === null) return source.words[place] < 0 ? null : token(source.shown[place]);
    return make("mark", {}, token(best.find((each) => each.id === id)?.shown ?? ""));
  });
  const shown = parts.filter((part) => part !== null);
  return make("p", {}, "Filled in: ", ...shown.flatMap((part) => [part, " "]));
}

/** The ids that lie before a place, as the address has them. */
const before = (trace, place, prompt) => trace.tokens.output.ids.slice(prompt, place);

function alternatives(trace, step, writes, prompt) {
  const end = trace.tokens.output?.ids.at(-1);
  const isListed = step.id === null || step.best.some(({ id }) => id === step.id); // a drawn word may be improbable
  const words = isListed ? step.best : [...step.best, { id: step.id, shown: step.shown, p: step.p }];
  const rows = words.map((word) => {
    const chosen = trace.meta.many ? word.p >= 0.5 : word.id === step.id; // many: each label for itself
    const ends = writes && trace.meta.finished !== false && word.id === end;
    return make(
      "tr",
      { class: chosen ? "here" : null },
      make(
        "th",
        { scope: "row" },
        writes && !isFile() && !chosen && !ends
          ? make(
              "button",
              {
                type: "button",
                class: "word",
                "aria-label": `say ${word.shown} here and go on, ${percent(word.p)}`,
                onclick: () =>
                  set({
                    prefix: [...before(trace, step.place, prompt), word.id].join(","),
                    query: String(step.place),
                  }),
              },
              token(word.shown),
            )
          : token(word.shown),
      ),
      make("td", { "data-p": word.p }, bar(word.p, percent(word.p))),
      make("td", { class: "quiet" }, chosen ? "said" : ends ? "would end here" : ""),
    );
  });
  const first = trace.meta.labels?.length && !writes ? "Label" : "Word";
  const hint = "Choose another word: the model says it here and goes on from there.";
  return section(
    "Alternatives",
    ["At the place of ", token(step.shown)],
    writes && !isFile() ? quiet(hint) : null,
    table([first, "p", ""], rows, { kind: "words" }),
    !hasServer() ? null : make("p", {}, link({ view: "why", query: String(step.place) }, "Why this one?")),
  );
}

const WIDE = 136;
const HIGH = 30;
const TOP = 26;

/** The beam search: a column is a step, a box is a continuation that was looked at. */
function tree(trace, prompt) {
  const nodes = trace.beam;
  if (!nodes.length) return quiet("Nothing was searched: the words were sampled, or given.");
  const columns = [];
  for (const node of nodes) (columns[node.step] ??= []).push(node);
  const place = new Map();
  columns.forEach((column, step) =>
    [...column]
      .sort((a, b) => b.best - a.best || b.score - a.score)
      .forEach((node, rank) => place.set(node.number, [step * WIDE + 4, rank * HIGH + TOP])),
  );
  const height = Math.max(...columns.map((column) => column.length)) * HIGH + TOP + 4;
  const edges = nodes
    .filter((node) => node.parent >= 0 && place.has(node.parent))
    .map((node) => {
      const [x, y] = place.get(node.number),
        [px, py] = place.get(node.parent);
      const from = px + WIDE - 24;
      return draw("path", {
        class: node.best ? "edge best" : "edge",
        d: `M${from} ${py + 11}C${from + 12} ${py + 11} ${x - 12} ${y + 11} ${x} ${y + 11}`,
      });
    });
  const boxes = nodes.map((node) => nodeBox(trace, nodes, node, place.get(node.number), prompt));
  const shown = columns.map((column) =>
    [...column]
      .sort((a, b) => place.get(a.number)[1] - place.get(b.number)[1])
      .map((node) => boxes[node.number]),
  );
  roving(transposed(shown), [0, 0], () => {});
  for (const box of boxes) box.addEventListener("focus", () => live(box.getAttribute("aria-label")));
  const svg = draw(
    "svg",
    {
      width: columns.length * WIDE,
      height,
      class: "tree",
      role: "group",
      "aria-label": `Beam search: ${nodes.length} continuations in ${columns.length} steps`,
    },
    ...columns.map((_, step) => draw("text", { x: step * WIDE + 4, y: 14, class: "axis" }, `step ${step}`)),
    ...edges,
    ...boxes,
  );
  return section(
    "Beam search",
    "The search",
    quiet(
      "Each step keeps the best beginnings. Strong boxes lead to the answer, dashed ones were pruned; ",
      `double border: finished.${isFile() ? "" : " Choose one to go on from it."}`,
    ),
    make("div", { class: "scroll whole" }, svg),
  );
}

/** Columns as rows, with holes closed, so that the arrow keys walk as the eye does. */
function transposed(columns) {
  const most = Math.max(...columns.map((column) => column.length));
  return Array.from({ length: most }, (_, rank) => columns.map((column) => column[rank]).filter(Boolean));
}

function nodeBox(trace, nodes, node, [x, y], prompt) {
  const way = [];
  for (let at = node; at; at = nodes[at.parent]) way.unshift(at.token);
  const go = () =>
    set({
      prefix: (node.fate === "finished" ? way.slice(0, -1) : way).join(","),
      query: String(prompt + node.step),
    });
  const sums = `log p ${number(node.log_p, 2)}, sum ${number(node.score, 2)}`;
  const fate = node.best ? "on the way to the answer" : node.fate;
  const label = `step ${node.step}, ${node.shown}, ${sums}, ${fate}`;
  const text = [...node.shown];
  const chosen = isFile() ? { role: "img" } : { role: "button", ...choosable(go) }; // a file has no model
  return draw(
    "g",
    {
      class: `node ${node.fate}${node.best ? " best" : ""}`,
      transform: `translate(${x} ${y})`,
      "aria-label": label,
      ...chosen,
    },
    draw("title", {}, label),
    draw("rect", { width: WIDE - 24, height: 22, rx: 4 }),
    draw("text", { x: 6, y: 15 }, text.length > 9 ? `${text.slice(0, 8).join("")}…` : node.shown),
    draw("text", { x: WIDE - 28, y: 15, "text-anchor": "end", class: "score" }, fixed(node.score, 1)),
  );
}
