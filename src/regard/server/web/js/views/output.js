// What the model said, how sure it was, what it might have said, and the search.
import { choices, draw, live, make, roving, token } from "../a11y.js";
import { bar, number } from "../figures.js";
import { kept } from "../source.js";
import { number as numbered, set } from "../state.js";

const FEW = 5;
const percent = (p) => (p >= 0.9995 ? "100 %" : p < 0.0005 ? "< 0.1 %" : `${(p * 100).toFixed(1)} %`);

export async function render(trace) {
  const writes = Boolean(trace.tokens.output);
  const prompt = Math.max(0, (trace.meta.prompt || 1) - 1); // places of a given text, where nothing was chosen
  const steps = trace.steps.map((step, place) => ({ ...step, place })).slice(writes ? prompt : 0);
  if (!steps.length) return make("p", {}, "This run recorded no output.");
  const query = numbered("query");
  const at = (
    steps.find((step) => step.place === query) ??
    steps.find((step) => step.id !== null) ??
    steps[0]
  ).place;
  return [
    make("h2", {}, writes ? "The output, piece by piece" : "What the model answers"),
    writes ? summary(steps) : null,
    make(
      "div",
      { class: "field" },
      make("span", { class: "label" }, "Place"),
      choices(
        "Place",
        steps.map((step) => [
          step.place,
          chip(step),
          `place ${step.place}, ${step.shown}${step.p === null ? "" : `, ${percent(step.p)}`}`,
        ]),
        at,
        (place) => set({ query: String(place) }),
      ),
    ),
    place(
      trace,
      steps.find((step) => step.place === at),
      writes,
      prompt,
    ),
    writes ? tree(trace, prompt) : null,
  ].filter(Boolean);
}

function chip(step) {
  const inside = make("span", { class: "chip-bar" });
  inside.style.width = `${(step.p ?? 0) * 100}%`;
  return make("span", { class: "chip" }, token(step.shown), make("span", { class: "chip-track" }, inside));
}

function summary(steps) {
  const log = steps.reduce((sum, step) => sum + Math.log(step.p), 0);
  return make(
    "p",
    { class: "quiet" },
    `log p = ${number(log, 3)} for ${steps.length} pieces; the surest is `,
    token(steps.reduce((a, b) => (a.p > b.p ? a : b)).shown),
    ", the least sure ",
    token(steps.reduce((a, b) => (a.p < b.p ? a : b)).shown),
    ".",
  );
}

/** The ids that lie before a place, as the address has them. */
const before = (trace, place, prompt) => trace.tokens.output.ids.slice(prompt, place);

function place(trace, step, writes, prompt) {
  const end = trace.tokens.output?.ids.at(-1);
  const rows = step.best.map((word) => {
    const chosen = trace.meta.many ? word.p >= 0.5 : word.id === step.id; // of many labels each is there or not for itself
    const ends = writes && trace.meta.finished !== false && word.id === end;
    return make(
      "tr",
      { class: chosen ? "here" : null },
      make(
        "th",
        { scope: "row" },
        writes && !kept && !chosen && !ends
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
  return make(
    "section",
    { "aria-label": "Alternatives" },
    make("h3", {}, "At the place of ", token(step.shown)),
    writes && !kept
      ? make("p", { class: "quiet" }, "Choose another word: the model says it here and goes on from there.")
      : null,
    make(
      "table",
      { class: "numbers words" },
      make(
        "thead",
        {},
        make(
          "tr",
          {},
          ...[trace.meta.labels?.length && !writes ? "Label" : "Word", "p", ""].map((t) =>
            make("th", { scope: "col" }, t),
          ),
        ),
      ),
      make("tbody", {}, ...rows),
    ),
  );
}

const WIDE = 136,
  HIGH = 30,
  TOP = 26;

/** The beam search: a column is a step, a box is a continuation that was looked at. */
function tree(trace, prompt) {
  const nodes = trace.beam;
  if (!nodes.length)
    return make("p", { class: "quiet" }, "Nothing was searched: the words were drawn, or given.");
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
  const boxes = nodes.map((node) => box(trace, nodes, node, place.get(node.number), prompt));
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
  return make(
    "section",
    { "aria-label": "Beam search" },
    make("h3", {}, "The search"),
    make(
      "p",
      { class: "quiet" },
      "Each step keeps the best beginnings. Strong boxes lead to the answer, dashed ones were dropped; double border: finished.",
      kept ? "" : " Choose one to go on from it.",
    ),
    make("div", { class: "scroll whole" }, svg),
  );
}

/** Columns as rows, with holes closed, so that the arrow keys walk as the eye does. */
function transposed(columns) {
  const most = Math.max(...columns.map((column) => column.length));
  return Array.from({ length: most }, (_, rank) => columns.map((column) => column[rank]).filter(Boolean));
}

function box(trace, nodes, node, [x, y], prompt) {
  const way = [];
  for (let at = node; at; at = nodes[at.parent]) way.unshift(at.token);
  const go = () =>
    set({
      prefix: (node.fate === "finished" ? way.slice(0, -1) : way).join(","),
      query: String(prompt + node.step),
    });
  const label = `step ${node.step}, ${node.shown}, log p ${number(node.log_p, 2)}, sum ${number(node.score, 2)}, ${node.best ? "on the way to the answer" : node.fate}`;
  const text = [...node.shown];
  const chosen = kept
    ? { role: "img" } // a file has no model to go on with
    : {
        role: "button",
        onclick: go,
        onkeydown: (event) => {
          if (event.key === "Enter" || event.key === " ") {
            event.preventDefault();
            go();
          }
        },
      };
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
    draw(
      "text",
      { x: WIDE - 28, y: 15, "text-anchor": "end", class: "score" },
      node.score.toFixed(1).replace("-", "−"),
    ),
  );
}
