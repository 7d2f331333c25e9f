// The page: a text is traced, and one view of the trace is shown.
import * as api from "./api.js";
import { live, tabs } from "./a11y.js";
import {
  bodyOf,
  hintsOf,
  isExample,
  languageName,
  readsFiles,
  sentenceOf,
  setEmptied,
  takeExample,
  takeExampleFile,
} from "./request.js";
import { onScheme } from "./color.js";
import { forReader } from "./examples.js";
import { exporter } from "./export.js";
import { isLost, listenToFiles } from "./files.js";
import { fillForm, grow, showAnswer, welcome } from "./form.js";
import { read } from "./interventions.js";
import * as lessons from "./lessons/lessons.js";
import { lessonLink } from "./lessons/links.js";
import { hasServer, isFile, isSaved } from "./source.js";
import { followHistory, listen, note, set, state } from "./state.js";
import { traceOf } from "./trace.js";
import * as attention from "./views/attention.js";
import * as compare from "./views/compare.js";
import * as film from "./views/film.js";
import * as heads from "./views/heads.js";
import * as input from "./views/input.js";
import * as map from "./views/map.js";
import * as output from "./views/output.js";
import * as picture from "./views/picture.js";
import * as stream from "./views/stream.js";
import { panel as whatIf } from "./views/what_if.js";
import * as why from "./views/why.js";

const VIEWS = {
  film,
  lessons,
  picture,
  input,
  map,
  attention,
  heads,
  stream,
  output,
  why,
  compare,
};
const TABS = [
  ["film", "Film"],
  ["lessons", "Lessons"],
  ["picture", "Picture"],
  ["input", "Input"],
  ["map", "Map"],
  ["attention", "Attention"],
  ["heads", "Heads"],
  ["stream", "Stream"],
  ["output", "Output"],
  ["why", "Why"],
  ["compare", "Compare"],
];
/** The views of this run: a file has no model to run, a text no picture. */
const here = () =>
  TABS.filter(
    ([id]) =>
      !(isFile() && id === "compare") && !(isSaved() && id === "lessons") && (id !== "why" || hasServer()),
  ).filter(([id]) => id !== "picture" || trace?.meta.input);
const ASKING = [
  ...["text", "context", "sentence", "model", "language", "beam", "prefix", "change"],
  ...["sample", "temperature", "top_k", "length", "seed"],
]; // a change of these is another run
/** What does not hold for another model. */
const ANOTHER = {
  ...{ where: "", head: "0", query: "", key: "", prefix: "", beam: "", change: "", neuron: "", sentence: "" },
  ...{ strokes: "", frame: "", sample: "", temperature: "", top_k: "", length: "", seed: "", language: "" },
};
const WAIT = 350; // milliseconds without a key
/** @returns {any} the element of an id; all of them stand in index.html */
const at = (id) => document.getElementById(id);

let about = { models: [], settings: {} }; // what the server has
let trace = null;
let plain = null; // the same run without changes
let change = null; // how the two differ
let running = null;
let drawn = 0;
/** @type {ReturnType<typeof setTimeout> | 0} */
let waiting = 0; // a timer, while a person types
let wrong = ""; // what there is to say of the run
/** @type {{ source: string, words: string, instead?: string } | null} */
let notice = null; // about the language of a text
let sentence = { text: "", at: 0, sentences: [] }; // the one that was run
let expired = 0; // how often the server no longer had a run, one after the other

const model = () => about.models.find((each) => each.name === state().model) ?? about.models[0];

async function traced(body, interventions, signal) {
  return traceOf(await api.trace(interventions.length ? { ...body, interventions } : body, signal));
}

/** What views know beyond the run: the models, and how to run them. */
const page = () => ({
  models: about.models,
  settings: about.settings,
  traced: (other, changes) => traced(bodyOf(other.model, other.text, false), changes),
});

async function run() {
  running?.abort();
  const controller = (running = new AbortController());
  if (takeExample(model()) || (await takeExampleFile(model(), controller.signal)))
    fillForm(about.models, model(), false);
  if (controller.signal.aborted) return;
  const { text } = state();
  if (!text.trim() || (!isFile() && readsFiles(model()) && isLost(text))) {
    trace = plain = change = null;
    wrong = "";
    status("");
    document.body.removeAttribute("aria-busy");
    return show();
  }
  const slow = setTimeout(() => status("The model is at work …"), 150);
  document.body.setAttribute("aria-busy", "true");
  try {
    const hints = await hintsOf(model(), text, controller.signal);
    if (changesModel(text, hints)) return;
    sentence = sentenceOf(hints, text);
    wrong = await runs(sentence.text, controller.signal);
    clearTimeout(slow);
    status("");
    const sizes = Object.values(trace.tokens).map((side) => side.ids.length);
    live(
      `${/[.!?…]$/.test(trace.output) ? trace.output : `${trace.output}.`} ${sizes.join(" and ")} tokens.`,
    );
    await arrived();
  } catch (error) {
    if (error.name === "AbortError") return;
    status("");
    trouble((wrong = error.message));
    if (!error.status) return; // a server that does not answer: what was there can still be read
    trace = plain = change = null;
    await arrived();
  } finally {
    clearTimeout(slow);
    if (controller === running) document.body.removeAttribute("aria-busy");
  }
}

/** The run as it is, then with its changes; a change that the model refuses is reported and left out. */
async function runs(text, signal) {
  const changes = isFile() ? [] : read(model()?.interventions, state().change);
  const body = bodyOf(model(), text, true);
  const first = await traced(body, [], signal);
  let second = first;
  let comparison = null;
  let failed = "";
  try {
    if (changes.length) second = await traced(body, changes, signal);
    if (changes.length) comparison = await api.compare(first.id, second.id, null, signal);
  } catch (error) {
    if (!error.status) throw error;
    failed = error.message;
  }
  [trace, plain, change] = [comparison ? second : first, first, comparison];
  return failed;
}

/** A text in another language goes to the model that reads it, and the page says so. */
function changesModel(text, hints) {
  const { name } = model();
  if (notice?.source !== text) notice = null;
  if (!hints?.language || state().language === "keep") return false;
  const language = languageName(hints.language);
  const [reader] = hints.readers;
  if (!reader) notice = { source: text, words: `This looks like ${language}; ${name} does not read it.` };
  if (!reader) return false;
  notice = { source: text, words: `The text is ${language}: ${reader} reads it.`, instead: name };
  set({ ...ANOTHER, model: reader });
  return true;
}

const choose = (view) => set({ view });
const status = (text) => {
  at("status").textContent = text;
};
const trouble = (text) => {
  at("trouble").textContent = text;
};

async function show() {
  const number = ++drawn;
  const { view } = state();
  const chosen = VIEWS[view] && (view !== "picture" || trace?.meta.input) ? view : "film";
  tabs(at("tabs"), here(), chosen, choose);
  at("panel").setAttribute("aria-labelledby", `tab-${chosen}`);
  showAnswer(trace, notice, sentence);
  let content;
  try {
    content =
      trace || chosen === "lessons"
        ? await VIEWS[chosen].render(trace, model(), page())
        : welcome(model(), document.body.hasAttribute("aria-busy") && !wrong);
  } catch (error) {
    if (api.isExpired(error) && number === drawn && expired++ < 1) return run();
    if (number === drawn) trouble(error.message);
    return;
  }
  if (number !== drawn) return;
  const back = focused();
  const help = isSaved() ? null : lessonLink(chosen);
  at("panel").replaceChildren(...[content, help ?? []].flat());
  at("panel").dataset.view = chosen;
  aside();
  expired = 0;
  back?.();
}

/** What stands around the view of a run. */
function aside() {
  at("what-if").replaceChildren(...(isFile() ? [] : whatIf(model(), plain, change)));
  at("exports").replaceChildren(...exporter(at("panel"), trace, about.settings));
  trouble(wrong);
}

/** A run is there. A lesson needs none and is drawn already: what a person has done in it stays. */
async function arrived() {
  if (state().view !== "lessons") return show();
  tabs(at("tabs"), here(), "lessons", choose);
  showAnswer(trace, notice, sentence);
  aside();
}

/** A view that is drawn anew keeps the place of the keyboard: what has the same name gets it back. */
function focused() {
  const active = document.activeElement;
  const home = ["panel", "what-if"].map(at).find((each) => active && each.contains(active));
  if (!home) return null;
  const name = active.getAttribute("aria-label") ?? active.id;
  const attribute = active.hasAttribute("aria-label") ? "aria-label" : "id";
  return () =>
    [...home.querySelectorAll(`[${attribute}]`)]
      .find((each) => each.getAttribute(attribute) === name)
      ?.focus();
}

function listenToForm() {
  const typed = () => {
    waiting = 0;
    const before = state();
    const written = { text: at("text").value, context: at("context").value };
    setEmptied(!written.text);
    if (written.text === before.text && written.context === before.context) return;
    set({
      ...written,
      ...{ prefix: "", query: "", key: "", sentence: "", frame: "", length: "", language: "" },
    });
  };
  for (const id of ["text", "context"]) {
    at(id).addEventListener("input", () => {
      clearTimeout(waiting);
      waiting = setTimeout(typed, WAIT);
      grow();
    });
    at(id).addEventListener("keydown", (event) => {
      if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
        event.preventDefault();
        at("ask").requestSubmit();
      }
    });
  }
  const taken = (text) => {
    set({ text, query: "", key: "", prefix: "", frame: "" });
  };
  listenToFiles(() => (readsFiles(model()) ? model().input : null), taken, trouble);
  at("ask").addEventListener("submit", (event) => {
    event.preventDefault();
    clearTimeout(waiting);
    waiting = 0;
    const { text, context } = state();
    if (readsFiles(model())) begin();
    else if (at("text").value === text && at("context").value === context) begin();
    else typed();
  });
  at("model").addEventListener("change", (/** @type {any} */ event) => {
    const other = about.models.find((each) => each.name === event.target.value);
    const keeps = other.input === model().input && !isExample(model());
    set({ ...ANOTHER, model: other.name, language: "keep", ...(keeps ? {} : { text: "", context: "" }) });
  });
  at("beam").addEventListener("change", (/** @type {any} */ event) =>
    set({ beam: event.target.value, prefix: "" }),
  );
  addEventListener("keydown", (/** @type {any} */ event) => {
    film.onKey(event);
    if (!["[", "]"].includes(event.key) || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.target.closest("textarea, input, select")) return;
    const shown = here();
    const place = shown.findIndex(([id]) => id === state().view) + (event.key === "]" ? 1 : -1);
    if (shown[place]) set({ view: shown[place][0] });
  });
}

/** Ask which models there are, if that is not known yet, and run. */
async function begin() {
  try {
    if (!about.models.length) about = await api.models();
    for (const { interventions } of about.models) {
      if (interventions) interventions.kinds = about.settings.interventions;
    }
  } catch (error) {
    return trouble((wrong = error.message));
  }
  if (!state().model && !state().text && !isFile()) {
    const first = forReader(about.models, navigator.languages);
    if (first && first !== about.models[0]) note({ model: first.name });
  }
  fillForm(about.models, model(), waiting !== 0);
  if (state().view === "lessons") show(); // which need no run
  return run();
}

listen((now, before) => {
  fillForm(about.models, model(), waiting !== 0);
  const other = ASKING.some((name) => now[name] !== before[name]);
  const isLate = !trace && before.view === "lessons" && now.view !== "lessons"; // which need no run
  if (!other || now.view === "lessons") show();
  if (other || isLate) run();
});
document.body.classList.toggle("kept", isFile());
at("text").readOnly = at("context").readOnly = isFile();
followHistory();
onScheme(show);
listenToForm();
show();
begin();
