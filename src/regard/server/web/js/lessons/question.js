// The question of a step: a prediction first, then the number and why.
import { live, make } from "../a11y.js";
import { figure, plain, words } from "./figures.js";
import { readNumber, shown } from "./numbers.js";
import { answerOf, isAnswered, keep, mark } from "./progress.js";

const drafts = new Map(); // what is being typed

/** @type {ResizeObserver | undefined} */
let sizes;

/** What is wider than its room can be scrolled with the keyboard too. */
export function reachable(home) {
  sizes ??= new ResizeObserver((entries) => entries.forEach(({ target }) => markScrollable(target)));
  for (const area of home.querySelectorAll(".scroll")) {
    markScrollable(area);
    sizes.observe(area); // what is drawn before it is laid out overflows later
  }
}

function markScrollable(area) {
  if (area.scrollWidth <= area.clientWidth && area.scrollHeight <= area.clientHeight) return;
  const name = area.closest("figure")?.querySelector("figcaption")?.textContent ?? "figure";
  for (const [key, value] of Object.entries({ tabindex: "0", role: "region", "aria-label": name }))
    area.setAttribute(key, value);
}

/** The question of a step; `result` gets the answer. */
export function question(lesson, i, result) {
  const task = lesson.steps[i].question;
  const given = (answer) => {
    if (isAnswered(lesson, i)) return;
    keep(lesson, i, answer);
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
  const name = `${lesson.key} ${i}`;
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
export function reveal(lesson, i, result) {
  const { question: task, why, after, then } = lesson.steps[i];
  const answer = answerOf(lesson, i);
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
