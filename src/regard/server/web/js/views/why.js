// Why a word: its logit as a sum over the parts of the model, what heads propose, and gradient x input.
import { isRefused } from "../api.js";
import { choices, field, make, quiet, scrollable, section, select, table, token } from "../a11y.js";
import { chip, fixed, number, signedBar, spoken } from "../figures.js";
import { number as numbered, set, state } from "../state.js";
import { term } from "./terms.js";
import { link } from "./selection.js";

const HEADS = 8; // heads that are listed with what they propose
const RECURRENT =
  "A recurrent network has no residual stream: its logits are no sum over layers and heads. The gradient it has.";
const NONE = "none"; // no second word: the logit itself

export async function render(trace) {
  const place = placeOf(trace);
  const step = trace.steps[place];
  if (!step) return make("p", {}, "This run recorded no output.");
  const { word, against } = pair(step);
  const query = { step: place, token: word.id, ...(against ? { against: against.id } : {}) };
  const hasStream = ["encoder", "decoder"].some((stack) => trace.has(`${stack}.embedding.out`));
  const [parts, gradient] = await Promise.all([
    hasStream ? reading(trace, { kind: "contributions", ...query }) : { refused: RECURRENT },
    reading(trace, { kind: "gradient", ...query }),
  ]);
  return [
    make("h2", {}, "Why this word?"),
    pickers(trace, step, place, word, against),
    question(trace, word, against),
    ...(parts.refused ? [quiet(parts.refused)] : sums(parts, place)),
    ...(gradient.refused ? [quiet(gradient.refused)] : inputs(trace, gradient, place, against)),
  ];
}

/** A reading, or why there is none. */
async function reading(trace, query) {
  try {
    return await trace.reading(query);
  } catch (error) {
    if (!isRefused(error)) throw error;
    return { refused: error.message };
  }
}

/** The places at which something was chosen; of a given text there are others before. */
function placesOf(trace) {
  const prompt = trace.tokens.output ? Math.max(0, (trace.meta.prompt || 1) - 1) : 0;
  return trace.steps.map((step, place) => ({ step, place })).filter(({ place }) => place >= prompt);
}

function placeOf(trace) {
  const places = placesOf(trace);
  const query = numbered("query");
  const chosen = places.find(({ place }) => place === query);
  return (chosen ?? places.find(({ step }) => step.id !== null) ?? places[0])?.place;
}

/** The word that is explained, and the one it is compared with: by default the most probable other one. */
function pair(step) {
  const made = { id: step.id, shown: step.shown, p: step.p };
  const all =
    step.best.some(({ id }) => id === step.id) || step.id === null ? step.best : [made, ...step.best];
  const of = (name) => all.find(({ id }) => id === numbered(name));
  const word = of("word") ?? all.find(({ id }) => id === step.id) ?? all[0];
  if (state().against === NONE) return { word, against: null, all };
  const others = all.filter(({ id }) => id !== word.id);
  const against = of("against");
  return { word, against: (against?.id === word.id ? null : against) ?? others[0] ?? null, all };
}

function pickers(trace, step, place, word, against) {
  const steps = placesOf(trace).map(({ step: each, place: i }) => [
    i,
    chip(each.p ?? 0, token(each.shown)),
    `place ${i}, ${each.shown}`,
  ]);
  const entries = pair(step).all.map(({ id, shown, p }) => [String(id), `${shown} (${number(p, 3)})`]);
  const others = entries.filter(([id]) => id !== String(word.id));
  const none = [NONE, "nothing: the logit itself"];
  const clear = { word: "", against: "" };
  return make(
    "div",
    { class: "pickers" },
    field(
      "Place",
      choices("Place", steps, place, (i) => set({ query: String(i), ...clear })),
    ),
    select("Word", entries, String(word.id), (id) => set({ word: id })),
    select("Compared with", [...others, none], against ? String(against.id) : NONE, (id) =>
      set({ against: id }),
    ),
  );
}

/** What the parts add up to, in words; labels of which several may hold have no common scale. */
function question(trace, word, against) {
  if (!against) return quiet("The ", term("logit"), " of ", token(word.shown), ", as a sum of parts.");
  const ratio = word.p / against.p;
  const times = fixed(ratio >= 1 ? ratio : 1 / ratio, 1);
  const compared =
    times === "1.0" ? " is as probable as " : ` is ${times} times as ${ratio >= 1 ? "" : "im"}probable as `;
  const equation = ` is log(${number(word.p, 3)} / ${number(against.p, 3)}) = ${signed(Math.log(ratio))}`;
  return make(
    "p",
    {},
    token(word.shown),
    trace.meta.many ? " and " : compared,
    token(against.shown),
    ": the difference of their ",
    term("logit", "logits"),
    `${trace.meta.many ? "" : equation}. Which parts of the model made it?`,
  );
}

// The sum

/** `decoder.2.cross.norm.bias` -> `decoder.2.cross`; `decoder.embedding.tokens` -> `decoder.embedding`. */
const subLayer = (name) =>
  name
    .split(".")
    .slice(0, /^\w+\.\d/.test(name) ? 3 : 2)
    .join(".");

/** A part in words. */
function called(name) {
  const [side, layer, kind] = name.split(".");
  if (layer === "embedding") return "Embedding";
  if (kind === "feed_forward") return `Layer ${layer}, feed-forward`;
  if (kind) return `Layer ${layer}, ${kind}-attention`;
  return side === "output"
    ? "Output bias"
    : side === "head"
      ? "Bias of the task head"
      : "Bias of the last norm";
}

function sums(result, place) {
  const names = [...new Set(result.parts.map(({ name }) => subLayer(name)))];
  const rows = names.map((name) => {
    const parts = result.parts.filter((part) => subLayer(part.name) === name);
    return { name, parts, value: parts.reduce((sum, { value }) => sum + value, 0) };
  });
  const most = Math.max(...rows.map(({ value }) => Math.abs(value)), 1e-9);
  const lines = rows.map(({ name, parts, value }) => {
    const heads = parts.filter(({ head }) => head !== null);
    const largest = Math.max(...heads.map((head) => Math.abs(head.value)), 1e-9);
    return make(
      "tr",
      {},
      make("th", { scope: "row" }, called(name)),
      make("td", { "data-part": name, "data-share": value }, signedBar(value / most, signed(value))),
      make(
        "td",
        { class: "shares" },
        heads.map((head) => headLink(head, place, largest)),
      ),
    );
  });
  const all = rows.reduce((sum, { value }) => sum + value, 0);
  const foot = make(
    "tr",
    {},
    make("th", { scope: "row" }, "Sum"),
    make("td", { "data-total": result.total }, signed(result.total)),
    make(
      "td",
      {},
      Math.abs(result.rest) < 1e-3 ? "" : `the parts: ${signed(all)}; the rest is a change made by hand`,
    ),
  );
  return [
    section(
      "Parts",
      "What each part adds",
      quiet(
        "Every part adds a vector to the ",
        term("residual stream"),
        "; its share is what that vector alone adds to the logits. ",
        "What a part does by way of later parts counts as theirs. ",
        "Choose a head to see where it looks.",
      ),
      scrollable("What each part adds", table(["Part", "share", "its heads"], lines, { foot })),
    ),
    proposals(result, place),
  ].filter(Boolean);
}

const signed = (value) => (value >= 0 ? "+" : "") + fixed(value, 2);

/** A head with its share, as a link to its attention. */
function headLink({ name, head, value }, place, largest) {
  const goes = {
    view: "attention",
    where: name,
    head: String(head),
    query: name.startsWith("decoder") ? String(place) : "",
  };
  const text = make("span", {}, `${head}: ${signed(value)}`);
  const inside = link(goes, chip(Math.abs(value) / largest, text));
  inside.setAttribute("aria-label", `${spoken(name)}, head ${head}: ${signed(value)}, see where it looks`);
  inside.className = value < 0 ? "share less" : "share";
  return inside;
}

function proposals(result, place) {
  const heads = result.parts.filter(({ head }) => head !== null);
  const strongest = heads.sort((a, b) => Math.abs(b.value) - Math.abs(a.value)).slice(0, HEADS);
  if (!strongest.some((each) => each.proposals.length)) return null;
  const most = Math.max(...strongest.map(({ value }) => Math.abs(value)), 1e-9);
  const rows = strongest.map((each) =>
    make(
      "tr",
      {},
      make(
        "th",
        { scope: "row" },
        link(
          { view: "attention", where: each.name, head: String(each.head), query: String(place) },
          `${called(each.name)}, head ${each.head}`,
        ),
      ),
      make("td", {}, signedBar(each.value / most, signed(each.value))),
      make("td", { class: "shares" }, ...each.proposals.flatMap(([text]) => [token(text), " "])),
    ),
  );
  return section(
    "Proposals",
    "What the heads propose",
    quiet(
      "concat(heads) W_O is a sum: each head adds a vector of its own. These are the words whose logits it ",
      "raises most, read with the output layer. The heads with the largest shares:",
    ),
    scrollable("What the heads propose", table(["Head", "share", "proposes"], rows)),
  );
}

// Gradient x input

function inputs(trace, gradient, place, against) {
  const sides = ["source", "target"].filter((side) => gradient[side]);
  const lists = sides.map((side) => {
    const data = [...gradient[side].data].slice(0, side === "target" ? place + 1 : undefined);
    const most = Math.max(...data.map(Math.abs), 1e-9);
    const rows = data.map((value, i) =>
      make(
        "tr",
        {},
        make("th", { scope: "row" }, token(trace.tokens[side].shown[i])),
        make("td", { "data-gradient": value }, signedBar(value / most, signed(value))),
      ),
    );
    const title = side === "source" ? "What was read" : "What was written";
    return make(
      "section",
      { "aria-label": title },
      scrollable(title, table([title, term("gradient x input", "gradient × input")], rows)),
    );
  });
  return [
    section(
      "Gradient x input",
      "Which words it came from",
      quiet(
        "For each token its embedding times the gradient of ",
        against ? "log p of the word minus log p of the other" : "log p of the word",
        ": what a small change of the embedding’s length would do. Above 0: the token speaks for the word.",
      ),
      make("div", { class: sides.length > 1 ? "split" : "" }, ...lists),
    ),
  ];
}
