// Lessons: each step asks for a prediction, then shows the number, and names the function that computed it.
import * as api from "../api.js";
import { choices, live, make, token } from "../a11y.js";
import { address, number, set, state } from "../state.js";
import { figure, plain, words } from "./figures.js";
import { readNumber, shown } from "./numbers.js";

const answers = new Map(); // what was predicted, by lesson and step; null: shown without a guess
const drafts = new Map(); // what is being typed
const requests = new Map(); // lessons by what they were asked with
let list = null;
let arriving = false; // the next step that is drawn gets the keyboard

export async function render(_, model) {
  const tab = document.getElementById("tab-lessons");
  if (tab) tab.parentElement.scrollLeft = tab.parentElement.scrollWidth; // on a narrow screen it is the last
  if (!model) return make("p", { class: "quiet" }, "The lessons are on their way …");
  list ??= api.lessons().catch((error) => {
    list = null;
    throw error;
  });
  const { lessons } = await list;
  const lesson = lessons.find((each) => each.name === state().lesson);
  if (!lesson) return overview(lessons);
  return page(await computed(lesson, model), lessons);
}

/** A lesson is computed once for a model, a text and sizes: going to and fro changes no number. */
function computed(lesson, model) {
  const { text, n, d } = state();
  const query = { model: model.name };
  if (lesson.uses.includes("text") && text.trim()) query.text = text.slice(0, 2000); // more than any lesson reads
  if (lesson.uses.includes("sizes")) Object.assign(query, n && { n }, d && { d });
  const key = JSON.stringify([lesson.name, query]);
  if (!requests.has(key)) {
    const status = document.getElementById("status");
    const slow = setTimeout(() => {
      status.textContent = "The lesson is being computed …";
    }, 150);
    const answer = api.lesson(lesson.name, query).then((response) => ({ ...response, key }));
    requests.set(
      key,
      answer
        .catch((error) => {
          requests.delete(key);
          throw error;
        })
        .finally(() => {
          clearTimeout(slow);
          status.textContent = "";
        }),
    );
  }
  return requests.get(key);
}

const link = (text, changes, settings = {}) =>
  make(
    "a",
    {
      ...settings,
      href: address(changes),
      onclick: (event) => {
        if (event.ctrlKey || event.metaKey || event.shiftKey) return;
        event.preventDefault();
        arriving = true;
        set(changes);
      },
    },
    text,
  );

function overview(lessons) {
  const first = make("h2", { tabindex: "-1" }, "Lessons");
  arrived(first);
  return [
    first,
    make(
      "p",
      {},
      "From a mixture of three words to a whole Transformer. ",
      "Each step asks what you expect before it shows the number. ",
      "A wrong guess costs nothing, and it is often the one that is remembered.",
    ),
    make(
      "ol",
      { class: "lessons" },
      ...lessons.map((lesson) =>
        make(
          "li",
          {},
          link(words(lesson.title), { lesson: lesson.name, step: "0" }),
          make("p", { class: "quiet" }, ...words(lesson.about)),
        ),
      ),
    ),
  ];
}

function page(lesson, lessons) {
  const place = lessons.findIndex((other) => other.name === lesson.name);
  const count = lesson.steps.length;
  const at = Math.min(number("step") ?? 0, Math.max(0, count - 1));
  const next = lessons[place + 1];
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
    count
      ? choices(
          "Step",
          lesson.steps.map((step, i) => [
            i,
            mark(lesson, i),
            `step ${i + 1}: ${step.title}${answers.has(id(lesson, i)) ? ", answered" : ""}`,
          ]),
          at,
          (step) => go({ step: String(step) }),
        )
      : null,
    count ? drawn(lesson, at) : null,
    make(
      "p",
      { class: "lesson-turn" },
      at > 0 ? make("button", { type: "button", onclick: () => go({ step: String(at - 1) }) }, "Back") : null,
      at < count - 1
        ? make(
            "button",
            { type: "button", class: "main", onclick: () => go({ step: String(at + 1) }) },
            "Next step",
          )
        : next
          ? make(
              "button",
              { type: "button", class: "main", onclick: () => go({ lesson: next.name, step: "0" }) },
              "Next lesson: ",
              ...words(next.title),
            )
          : null,
    ),
  ].filter(Boolean);
}

const id = (lesson, i) => `${lesson.key} ${i}`;
const mark = (lesson, i) => (answers.has(id(lesson, i)) ? `${i + 1} ✓` : String(i + 1));

function go(changes) {
  arriving = true;
  set(changes);
}

/** After the page has taken in what was drawn, the keyboard stands at its heading. */
function arrived(heading) {
  if (!arriving) return;
  arriving = false;
  setTimeout(() => heading.focus(), 0);
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
    ...step.text.map((text) => make("p", {}, ...words(text))),
    make("div", { class: "figures" }, ...step.before.map(figure)),
    question(lesson, i, result),
    result,
    make(
      "p",
      { class: "made-by quiet" },
      "Computed by ",
      ...step.functions.flatMap((name, k) => [k ? ", " : "", make("code", {}, name)]),
    ),
  );
  if (answers.has(id(lesson, i))) reveal(lesson, i, result);
  setTimeout(() => reachable(section), 0);
  return section;
}

/** What is wider than its room can be scrolled with the keyboard too. */
function reachable(home) {
  for (const area of home.querySelectorAll(".scroll")) {
    if (area.scrollWidth <= area.clientWidth && area.scrollHeight <= area.clientHeight) continue;
    const name = area.closest("figure")?.querySelector("figcaption")?.textContent ?? "figure";
    for (const [key, value] of Object.entries({ tabindex: "0", role: "region", "aria-label": name }))
      area.setAttribute(key, value);
  }
}

function question(lesson, i, result) {
  const task = lesson.steps[i].question;
  const given = (answer) => {
    if (answers.has(id(lesson, i))) return;
    answers.set(id(lesson, i), answer);
    live(reveal(lesson, i, result));
    reachable(result);
    if (!document.activeElement?.checkVisibility()) result.querySelector(".verdict").focus(); // its button is gone
    document.querySelector("#panel [role=group][aria-label=Step] [aria-pressed=true]").textContent = mark(
      lesson,
      i,
    );
  };
  const skip = make("button", { type: "button", class: "plain", onclick: () => given(null) }, "Just show me");
  const prompt = make(
    "p",
    { class: "asked", id: "asked-here" },
    make("span", { class: "label" }, "Your prediction "),
    ...words(task.text),
  );
  const inside =
    task.kind === "choice"
      ? make(
          "div",
          { role: "group", "aria-labelledby": "asked-here", class: "options" },
          ...task.options.map((text, k) =>
            make(
              "button",
              { type: "button", class: "option", "data-option": k, onclick: () => given(k) },
              make("bdi", { dir: "auto" }, ...words(text)),
            ),
          ),
          skip,
        )
      : typed(lesson, i, task, given, skip);
  return make("div", { class: "question" }, prompt, inside);
}

function typed(lesson, i, task, given, skip) {
  const name = id(lesson, i);
  const field = make("input", {
    type: "text",
    inputmode: "decimal",
    id: "prediction",
    "aria-labelledby": "asked-here",
    autocomplete: "off",
    size: 12,
    value: drafts.get(name) ?? "",
    oninput: (event) => drafts.set(name, event.target.value),
  });
  const complaint = make("span", { class: "complaint", role: "alert" });
  return make(
    "form",
    {
      class: "options",
      onsubmit: (event) => {
        event.preventDefault();
        const value = readNumber(field.value, task.digits);
        complaint.textContent = value === null ? "Type a number, such as 0.5." : "";
        if (value !== null) given(value);
      },
    },
    field,
    task.unit ? make("span", {}, task.unit) : null,
    make("button", { type: "submit", class: "main" }, "Answer"),
    skip,
    complaint,
  );
}

/** The true value, whether the prediction fits, why, and what there is to see. What is said is returned. */
function reveal(lesson, i, result) {
  const { question: task, why, after, then } = lesson.steps[i];
  const answer = answers.get(id(lesson, i));
  const fits =
    task.kind === "choice"
      ? answer === task.answer
      : answer !== null && Math.abs(answer - task.answer) <= task.tolerance * (1 + 1e-9);
  const truth =
    task.kind === "choice"
      ? task.options[task.answer]
      : shown(task.answer, task.digits) + (task.unit ? ` ${task.unit}` : "");
  const verdict =
    answer === null
      ? ""
      : fits
        ? "That fits. "
        : task.kind === "choice"
          ? "Not this one. "
          : `You said ${String(answer).replace("-", "−")}. `;
  result.replaceChildren(
    make(
      "p",
      { tabindex: "-1", class: answer === null ? "verdict" : fits ? "verdict fits" : "verdict off" },
      verdict ? make("b", {}, `${fits ? "✓" : "✗"} ${verdict}`) : null,
      "The answer: ",
      make("b", { class: "truth", "data-value": task.answer }, make("bdi", { dir: "auto" }, ...words(truth))),
      ".",
    ),
    make("p", {}, ...words(why)),
    make("div", { class: "figures" }, ...after.map(figure)),
    ...then.map((text) => make("p", {}, ...words(text))),
  );
  for (const button of result.parentElement.querySelectorAll(".options button")) mute(button, task, answer);
  for (const field of result.parentElement.querySelectorAll("#prediction")) field.readOnly = true;
  return `${verdict}The answer: ${truth}. ${plain(why)}`;
}

/** What was chosen stays to be seen, and cannot be chosen again. */
function mute(button, task, answer) {
  if (!button.dataset.option) {
    button.hidden = true;
    return;
  }
  const place = Number(button.dataset.option);
  button.setAttribute("aria-disabled", "true");
  button.setAttribute("aria-pressed", String(place === answer));
  button.classList.toggle("true", place === task.answer);
}
