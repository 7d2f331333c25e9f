// Lessons: each step asks for a prediction, then shows the number, and names the function that computed it.
import * as api from "../api.js";
import { choices, make, token } from "../a11y.js";
import { readsFiles } from "../request.js";
import { number, set, state } from "../state.js";
import { figure, words } from "./figures.js";
import { arrived, go, link } from "./links.js";
import { overview } from "./overview.js";
import { countSteps, isAnswered, mark } from "./progress.js";
import { question, reachable, reveal } from "./question.js";
import { TEACHERS, teachers } from "./teachers.js";

const requests = new Map(); // lessons by what they were asked with
let list = null;

export async function render(_, chosen, { models }) {
  const model = readsFiles(chosen) ? (models.find((each) => !readsFiles(each)) ?? chosen) : chosen;
  if (!model) return make("p", { class: "quiet" }, "The lessons are on their way …");
  list ??= api.lessons().catch((error) => {
    list = null;
    throw error;
  });
  const { lessons } = await list;
  if (state().lesson === TEACHERS) return teachers(lessons, (lesson) => slowly(computed(lesson, model)));
  const lesson = lessons.find((each) => each.name === state().lesson);
  if (!lesson) return overview(lessons);
  return page(await soon(lesson, model, lessons), lessons);
}

/** The first step is shown as soon as it is there, while the others are computed. */
async function soon(lesson, model, lessons) {
  const { query, key } = requestOf(lesson, model);
  if ((number("step") ?? 0) > 1 || requests.has(key)) return slowly(computed(lesson, model));
  const first = await slowly(api.lesson(lesson.name, { ...query, first: "true" }));
  const next = lessons[lessons.findIndex((each) => each.name === lesson.name) + 1];
  computed(lesson, model).then(
    (whole) => followed(whole, next),
    () => {}, // the next step asks again, and says what is wrong
  );
  return { ...first, key, isWhole: false };
}

/** The steps that were on their way are there: the row of steps and the button for the next one. */
function followed(lesson, next) {
  /** @type {HTMLElement | null} */
  const before = document.querySelector("#panel [role=group][aria-label=Step]");
  if (before?.dataset.key !== lesson.key || before.children.length > 1) return; // the person is elsewhere
  countSteps(lesson.name, lesson.steps.length);
  before.replaceWith(row(lesson, 0));
  document.querySelector("#panel .lesson-turn").replaceWith(turns(lesson, 0, next));
}

/** What a lesson is asked with. */
function requestOf(lesson, model) {
  const { text, n, d } = state();
  const query = { model: model.name };
  const isOwn = !state().model || state().model === model.name; // not the name of a picture
  const uses = (/** @type {string} */ what) => lesson.uses.includes(what);
  if (uses("text") && isOwn && text.trim()) query.text = text.slice(0, 2000); // more than any lesson reads
  if (uses("sizes")) Object.assign(query, n && { n }, d && { d });
  return { query, key: JSON.stringify([lesson.name, query]) };
}

/** A lesson is computed once for a model, a text and sizes: going to and fro changes no number. */
function computed(lesson, model) {
  const { query, key } = requestOf(lesson, model);
  if (!requests.has(key)) {
    const answer = api.lesson(lesson.name, query).then((response) => ({ ...response, key, isWhole: true }));
    requests.set(
      key,
      answer.catch((error) => {
        requests.delete(key);
        throw error;
      }),
    );
  }
  return requests.get(key);
}

/** What takes a while is announced. */
function slowly(answer) {
  const status = document.getElementById("status");
  const slow = setTimeout(() => {
    status.textContent = "The lesson is being computed …";
  }, 150);
  return answer.finally(() => {
    clearTimeout(slow);
    status.textContent = "";
  });
}

function page(lesson, lessons) {
  const place = lessons.findIndex((other) => other.name === lesson.name);
  const count = lesson.steps.length;
  const at = Math.max(0, Math.min((number("step") ?? 1) - 1, count - 1));
  if (count && lesson.isWhole) countSteps(lesson.name, count);
  return [
    make(
      "p",
      { class: "lesson-way" },
      link("All lessons", { lesson: "", step: "0" }),
      ` · lesson ${place + 1} of ${lessons.length}`,
    ),
    make("h2", {}, ...words(lesson.title)),
    lesson.uses.includes("text") && !lesson.missing
      ? make(
          "p",
          { class: "quiet" },
          "The sentence: ",
          token(lesson.text),
          state().text.trim() ? null : " Type your own above.",
        )
      : null,
    lesson.uses.includes("sizes") ? sizes(lesson) : null,
    lesson.missing ? missing(lesson) : null,
    count ? row(lesson, at) : null,
    count ? drawn(lesson, at) : null,
    turns(lesson, at, lessons[place + 1]),
  ].filter(Boolean);
}

/** The steps of the lesson, one of them chosen. */
function row(lesson, at) {
  const group = choices(
    "Step",
    lesson.steps.map((step, i) => [
      i,
      mark(lesson, i),
      `step ${i + 1}: ${step.title}${isAnswered(lesson, i) ? ", answered" : ""}`,
    ]),
    at,
    (step) => go({ step: String(step + 1) }),
  );
  group.dataset.key = lesson.key;
  return group;
}

/** Back, and on to the next step or lesson. */
function turns(lesson, at, next) {
  const count = lesson.steps.length;
  const button = (settings, changes, ...text) =>
    make("button", { type: "button", ...settings, onclick: () => go(changes) }, ...text);
  const main = { class: "main" };
  const on = () => {
    if (at < count - 1) return button(main, { step: String(at + 2) }, "Next step");
    if (lesson.steps.length && !lesson.isWhole)
      return make("span", { class: "quiet" }, "More steps follow …");
    if (!next) return null;
    return button(main, { lesson: next.name, step: "0" }, "Next lesson: ", ...words(next.title));
  };
  const back = at > 0 ? button({}, { step: String(at) }, "Back") : null;
  return make("p", { class: "lesson-turn" }, back, on());
}

function missing(lesson) {
  const heading = make("p", { class: "drawer", tabindex: "-1" }, lesson.missing);
  arrived(heading);
  return heading;
}

function sizes(lesson) {
  const field = (name, label, value) =>
    make(
      "div",
      { class: "field" },
      make("label", { for: `size-${name}` }, label),
      make("input", {
        id: `size-${name}`,
        name,
        type: "number",
        min: "2",
        value,
        required: true,
        inputmode: "numeric",
      }),
    );
  return make(
    "form",
    {
      class: "sizes",
      onsubmit: (event) => {
        event.preventDefault();
        const given = new FormData(event.target);
        set({ n: String(given.get("n")), d: String(given.get("d")) });
      },
    },
    field("n", "Words n", lesson.n),
    field("d", "Width d", lesson.d),
    make("button", { type: "submit" }, "Use these sizes"),
  );
}

/** Paragraphs and figures before the question, in the order of the document. */
function introduction({ text, before }) {
  const figures = (above) =>
    make("div", { class: "figures" }, ...before.filter(({ place }) => place === above).map(figure));
  return [figures(0), ...text.flatMap((part, i) => [make("p", {}, ...words(part)), figures(i + 1)])];
}

function drawn(lesson, i) {
  const step = lesson.steps[i];
  const heading = make("h3", { tabindex: "-1", id: "step-title" }, ...words(step.title));
  arrived(heading);
  const result = make("div");
  const section = make(
    "section",
    { class: "step", "aria-labelledby": "step-title" },
    heading,
    step.claim
      ? make(
          "blockquote",
          { class: "claim" },
          make("span", { class: "label" }, "A common claim: "),
          ...words(step.claim),
        )
      : null,
    ...introduction(step),
    question(lesson, i, result),
    result,
    make(
      "p",
      { class: "made-by quiet" },
      "Computed by ",
      ...step.functions.flatMap((name, k) => [k ? ", " : "", make("code", {}, name)]),
    ),
  );
  if (isAnswered(lesson, i)) reveal(lesson, i, result);
  setTimeout(() => reachable(section), 0);
  return section;
}
