// What stands above the views: the form, the answer, and what there is before the first run.
import { choices, make, token } from "./a11y.js";
import { readsFiles, writes } from "./request.js";
import { example } from "./examples.js";
import { isFile } from "./source.js";
import { set, state } from "./state.js";

const LABELS = {
  translate: "Translation",
  generate: "Continuation",
  fill: "Filled",
  classify: "Label",
  tag: "Tags",
  answer: "Answer",
  caption: "Caption",
  transcribe: "Transcription",
};
/** @returns {any} the element of an id; all of them stand in index.html */
const at = (id) => document.getElementById(id);

/** @param {any[]} models @param {any} model the chosen one @param {boolean} isTyping a change would move the cursor */
export function fillForm(models, model, isTyping) {
  const given = state();
  for (const id of ["text", "context"]) {
    if (!isTyping && at(id).value !== given[id]) at(id).value = given[id];
  }
  at("context-field").hidden = model?.task !== "answer";
  const files = !isFile() && readsFiles(model);
  at("file-field").hidden = !files;
  at("text-field").hidden = files;
  at("file-name").textContent = files ? given.text : "";
  at("sketch-field").hidden = model?.input !== "image";
  at("file").accept = files ? (model.input === "video" ? "image/gif" : `${model.input}/*`) : "";
  at("model").replaceChildren(
    ...models.map((each) =>
      make(
        "option",
        { value: each.name, selected: each.name === model?.name },
        `${each.name} (${each.family})`,
      ),
    ),
  );
  at("beam").disabled = !writes(model);
  at("beam").replaceChildren(
    ...["", "1", "2", "4", "8"].map((size) =>
      make(
        "option",
        { value: size, selected: size === state().beam },
        size || (writes(model) ? `${model.beam} (default)` : "none"),
      ),
    ),
  );
  grow();
}

export function grow() {
  for (const area of document.querySelectorAll("textarea")) {
    area.style.height = "auto";
    area.style.height = `${Math.min(area.scrollHeight + 2, 160)}px`;
  }
}

/**
 * The answer of a run, the sentences that the text has, and what there is to say of its language.
 * @param {any} trace
 * @param {{ words: string, instead?: string } | null} notice
 * @param {{ at: number, sentences: string[] }} sentence
 */
export function showAnswer(trace, notice, sentence) {
  at("answer").hidden = !trace;
  at("asked").textContent = trace ? trace.meta.text : ""; // for paper, where the form is not
  at("forced").replaceChildren();
  at("notice").replaceChildren(...(notice ? [notice.words, " ", ...stays(notice)] : []));
  const { sentences } = sentence;
  at("sentences").replaceChildren(
    ...(sentences.length
      ? [
          choices(
            "Sentence",
            sentences.map((text, i) => [i, token(text), `sentence ${i + 1}: ${text}`]),
            sentence.at,
            (i) => set({ sentence: String(Number(i) + 1), prefix: "", query: "", key: "", frame: "" }),
          ),
        ]
      : []),
  );
  if (!trace) return;
  at("answer-label").textContent = `${LABELS[trace.meta.task] ?? "Output"}:`;
  at("answer-text").replaceChildren(...answerText(trace));
  if (state().prefix && !state().length) {
    at("forced").replaceChildren(
      make("button", { type: "button", onclick: () => set({ prefix: "" }) }, "Undo the forced words"),
    );
  }
}

/** @param {{ instead?: string }} notice */
const stays = ({ instead }) =>
  instead
    ? [
        make(
          "button",
          { type: "button", class: "plain", onclick: () => set({ model: instead, language: "keep" }) },
          `Use ${instead}`,
        ),
      ]
    : [];

/** The output; what was filled into a gap is marked. @param {any} trace */
function answerText(trace) {
  const chosen = trace.meta.task === "fill" ? (trace.meta.chosen ?? []) : [];
  const fillings = trace.steps.filter((/** @type {any} */ step) => step.id !== null);
  if (!chosen.length || !fillings.length) return [trace.output || "(nothing)"];
  const parts = trace.meta.text.split(/<mask>|\[MASK\]/);
  if (parts.length !== fillings.length + 1) return [trace.output];
  return parts.flatMap((/** @type {string} */ part, /** @type {number} */ i) => {
    const best = fillings[i]?.best.find((/** @type {any} */ each) => each.id === fillings[i].id);
    return best ? [part, make("mark", {}, best.shown)] : [part];
  });
}

/** What there is before the first run. @param {any} model @param {boolean} isRunning */
export function welcome(model, isRunning) {
  if (isRunning || !model) return make("div", { class: "welcome" });
  if (readsFiles(model)) {
    const kind = { image: "a picture", video: "a short film", audio: "a sound" }[model.input];
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
  const { text, context } = example(model);
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
    make("button", { type: "button", class: "choice", onclick: () => set({ text, context }) }, token(text)),
  );
}
