// The page: a text is traced, and one view of the trace is shown.
import * as api from "./api.js";
import { live, make, tabs, token } from "./a11y.js";
import { onScheme } from "./color.js";
import { exporter } from "./export.js";
import { isLost, listenToFiles, sourceOf } from "./files.js";
import { read } from "./interventions.js";
import * as lessons from "./lessons/lessons.js";
import { isFile } from "./source.js";
import { followHistory, listen, set, state } from "./state.js";
import { traceOf } from "./trace.js";
import * as attention from "./views/attention.js";
import * as compare from "./views/compare.js";
import * as heads from "./views/heads.js";
import * as input from "./views/input.js";
import * as map from "./views/map.js";
import * as output from "./views/output.js";
import * as picture from "./views/picture.js";
import * as stream from "./views/stream.js";
import { panel as whatIf } from "./views/what_if.js";

const VIEWS = {
  picture,
  input,
  map,
  attention,
  heads,
  stream,
  output,
  compare,
  lessons,
};
const TABS = [
  ["picture", "Picture"],
  ["input", "Input"],
  ["map", "Map"],
  ["attention", "Attention"],
  ["heads", "Heads"],
  ["stream", "Stream"],
  ["output", "Output"],
  ["compare", "Compare"],
  ["lessons", "Lessons"],
];
/** The views of this run: a file has no model to run, a text no picture. */
const here = () =>
  TABS.filter(([id]) => !isFile() || !["compare", "lessons"].includes(id)).filter(
    ([id]) => id !== "picture" || trace?.meta.input,
  );
const ASKING = ["text", "context", "model", "beam", "prefix", "change"]; // a change of these is another run
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
let expired = 0; // how often the server no longer had a run, one after the other

/** Whether a model reads files instead of text. */
const readsFiles = (chosen) => (chosen?.input ?? "text") !== "text";
const model = () => about.models.find((each) => each.name === state().model) ?? about.models[0];

/** What the server is asked for: the run of the page, or another with some of it changed. */
function request(chosen = model(), text = state().text) {
  const { context, beam, prefix } = state();
  const body = { model: chosen?.name ?? "", source: readsFiles(chosen) ? sourceOf(text) : text };
  if (context && chosen?.task === "answer") body.context = context;
  if (/^\d+$/.test(beam)) body.decode = { beam: Number(beam) };
  if (/^\d+(,\d+)*$/.test(prefix) && chosen === model()) body.prefix = prefix.split(",").map(Number);
  return body;
}

async function traced(body, interventions, signal) {
  return traceOf(await api.trace(interventions.length ? { ...body, interventions } : body, signal));
}

/** What views know beyond the run: the models, and how to run them. */
const page = () => ({
  models: about.models,
  settings: about.settings,
  traced: (other, changes) => traced(request(other.model, other.text), changes),
});

async function run() {
  running?.abort();
  const controller = (running = new AbortController());
  if (!state().text.trim() || (!isFile() && readsFiles(model()) && isLost(state().text))) {
    trace = plain = change = null;
    wrong = "";
    status("");
    document.body.removeAttribute("aria-busy");
    return show();
  }
  const slow = setTimeout(() => status("The model is at work …"), 150);
  document.body.setAttribute("aria-busy", "true");
  try {
    wrong = await runs(controller.signal);
    clearTimeout(slow);
    status("");
    const sizes = Object.values(trace.tokens).map((side) => side.ids.length);
    live(`Traced: ${trace.output}. ${sizes.join(" and ")} tokens.`);
    await show();
  } catch (error) {
    if (error.name === "AbortError") return;
    status("");
    trouble((wrong = error.message));
    if (!error.status) return; // a server that does not answer: what was there can still be read
    trace = plain = change = null;
    await show();
  } finally {
    clearTimeout(slow);
    if (controller === running) document.body.removeAttribute("aria-busy");
  }
}

/** The run as it is, then with its changes; a change that the model refuses is reported and left out. */
async function runs(signal) {
  const changes = isFile() ? [] : read(model()?.interventions, state().change);
  const first = await traced(request(), [], signal);
  let second = first;
  let comparison = null;
  let failed = "";
  try {
    if (changes.length) second = await traced(request(), changes, signal);
    if (changes.length) comparison = await api.compare(first.id, second.id, null, signal);
  } catch (error) {
    if (!error.status) throw error;
    failed = error.message;
  }
  [trace, plain, change] = [comparison ? second : first, first, comparison];
  return failed;
}

const status = (text) => {
  at("status").textContent = text;
};
const trouble = (text) => {
  at("trouble").textContent = text;
};

async function show() {
  const number = ++drawn;
  const { view } = state();
  const usual = trace?.meta.input ? "picture" : "attention";
  const chosen = VIEWS[view] && (view !== "picture" || trace?.meta.input) ? view : usual;
  tabs(at("tabs"), here(), chosen, (id) => set({ view: id }));
  at("panel").setAttribute("aria-labelledby", `tab-${chosen}`);
  answer();
  let content;
  try {
    content = trace || chosen === "lessons" ? await VIEWS[chosen].render(trace, model(), page()) : welcome();
  } catch (error) {
    if (api.isExpired(error) && number === drawn && expired++ < 1) return run();
    if (number === drawn) trouble(error.message);
    return;
  }
  if (number !== drawn) return;
  const back = focused();
  at("what-if").replaceChildren(...(isFile() ? [] : whatIf(model(), plain, change)));
  at("panel").replaceChildren(...[content].flat());
  at("panel").dataset.view = chosen;
  at("exports").replaceChildren(...exporter(at("panel"), trace, about.settings));
  trouble(wrong);
  expired = 0;
  back?.();
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

function answer() {
  at("answer").hidden = !trace;
  at("asked").textContent = trace ? state().text : ""; // for paper, where the form is not
  at("forced").replaceChildren();
  if (!trace) return;
  const labels = {
    translate: "Translation",
    generate: "Continuation",
    fill: "Filled",
    classify: "Label",
    tag: "Tags",
    answer: "Answer",
    caption: "Caption",
    transcribe: "Transcription",
  };
  at("answer-label").textContent = `${labels[trace.meta.task] ?? "Output"}:`;
  at("answer-text").textContent = trace.output || "(nothing)";
  if (state().prefix) {
    at("forced").replaceChildren(
      make("button", { type: "button", onclick: () => set({ prefix: "" }) }, "Undo the forced words"),
    );
  }
}

function welcome() {
  const chosen = model();
  if (readsFiles(chosen)) {
    const kind = { image: "a picture", video: "a short film", audio: "a sound" }[chosen.input];
    return make(
      "section",
      { class: "welcome" },
      make("h2", {}, `Choose ${kind} above, or drop one here`),
      make(
        "p",
        {},
        "The model reads it, and every number on the way can be looked at. Nothing leaves this machine.",
      ),
    );
  }
  const examples = {
    fill: ["The <mask> is old."],
    answer: ["Who sleeps?"],
  }[chosen?.task] ?? ["I see the small house.", "The old man has a dog."];
  return make(
    "section",
    { class: "welcome" },
    make("h2", {}, "Type a sentence above"),
    make(
      "p",
      {},
      "The model reads it, and every number it computes on the way can be looked at here. ",
      "Nothing leaves this machine.",
    ),
    make(
      "div",
      { class: "choices" },
      ...examples.map((text) =>
        make(
          "button",
          {
            type: "button",
            class: "choice",
            onclick: () => {
              at("text").value = text;
              set({ text });
            },
          },
          token(text),
        ),
      ),
    ),
  );
}

function fillForm() {
  const chosen = model();
  const { text, context, beam } = state();
  for (const [id, content] of [
    ["text", text],
    ["context", context],
  ]) {
    if (!waiting && at(id).value !== content) at(id).value = content; // a change moves the cursor
  }
  at("context-field").hidden = chosen?.task !== "answer";
  const files = !isFile() && readsFiles(chosen);
  at("file-field").hidden = !files;
  at("text-field").hidden = files;
  at("file-name").textContent = files && state().text !== at("file").files?.[0]?.name ? state().text : "";
  at("sketch-field").hidden = chosen?.input !== "image";
  at("file").accept = files ? (chosen.input === "video" ? "image/gif" : `${chosen.input}/*`) : "";
  at("model").replaceChildren(
    ...about.models.map((each) =>
      make(
        "option",
        { value: each.name, selected: each.name === chosen?.name },
        `${each.name} (${each.family})`,
      ),
    ),
  );
  const writes = ["translate", "generate", "caption", "transcribe"].includes(chosen?.task);
  at("beam").disabled = !writes;
  at("beam").replaceChildren(
    ...["", "1", "2", "4", "8"].map((size) =>
      make(
        "option",
        { value: size, selected: size === beam },
        size || (writes ? `${chosen.beam} (model default)` : "none"),
      ),
    ),
  );
  grow();
}

function grow() {
  for (const area of document.querySelectorAll("textarea")) {
    area.style.height = "auto";
    area.style.height = `${Math.min(area.scrollHeight + 2, 160)}px`;
  }
}

function listenToForm() {
  const typed = () => {
    waiting = 0;
    const changes = { text: at("text").value, context: at("context").value, prefix: "", query: "", key: "" };
    if (changes.text !== state().text || changes.context !== state().context) set(changes);
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
    const view = state().view === "attention" ? "picture" : state().view; // where the file itself is seen
    set({ text, view, query: "", key: "", prefix: "" });
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
  at("model").addEventListener("change", (/** @type {any} */ event) =>
    set({
      model: event.target.value,
      where: "",
      head: "0",
      query: "",
      key: "",
      prefix: "",
      beam: "",
      change: "",
      neuron: "",
      ...(readsFiles(about.models.find((each) => each.name === event.target.value)) !== readsFiles(model())
        ? { text: "" }
        : {}),
    }),
  );
  at("beam").addEventListener("change", (/** @type {any} */ event) =>
    set({ beam: event.target.value, prefix: "" }),
  );
  addEventListener("keydown", (/** @type {any} */ event) => {
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
  fillForm();
  if (state().view === "lessons") show(); // which need no run
  return run();
}

listen((now, before) => {
  fillForm();
  const other = ASKING.some((name) => now[name] !== before[name]);
  if (!other || now.view === "lessons") show();
  if (other) run();
});
document.querySelector("nav").before(make("section", { id: "what-if", "aria-label": "What if" }));
document.body.classList.toggle("kept", isFile());
at("text").readOnly = at("context").readOnly = isFile();
followHistory();
onScheme(show);
listenToForm();
show();
begin();
