// A page for teachers: a ready link to one step of some lessons, its question and its answer.
import { make } from "../a11y.js";
import { words } from "./figures.js";
import { arrived, link } from "./links.js";
import { shown } from "./numbers.js";

export const TEACHERS = "teachers"; // in the address, where other lessons have their name

/** @param {any[]} lessons @param {(lesson: any) => Promise<any>} computed */
export function teachers(lessons, computed) {
  const heading = make("h2", { tabindex: "-1" }, "For teachers: six questions for a class");
  arrived(heading);
  return [
    make("p", { class: "lesson-way" }, link("All lessons", { lesson: "", step: "0" })),
    heading,
    make(
      "p",
      {},
      "Each link opens one step with model and text as they are now. Ask, let the class vote, then show the number. ",
      "The answers are computed with the same model, so they fit what the class will see.",
    ),
    make(
      "ol",
      { class: "lessons" },
      ...lessons.filter((lesson) => lesson.in_class).map((lesson) => question(lesson, computed)),
    ),
  ];
}

function question(lesson, computed) {
  const step = lesson.in_class;
  const answer = make("div", {}, make("p", { class: "quiet" }, "…"));
  const open = async (event) => {
    if (!event.target.open || answer.dataset.ready) return;
    answer.dataset.ready = "yes";
    try {
      const { steps, missing } = await computed(lesson);
      answer.replaceChildren(...(missing ? [make("p", {}, missing)] : answerParts(steps[step - 1])));
    } catch (error) {
      delete answer.dataset.ready;
      answer.replaceChildren(make("p", { class: "complaint" }, error.message));
    }
  };
  return make(
    "li",
    {},
    link(words(`${lesson.title}, step ${step}`), { lesson: lesson.name, step: String(step) }),
    make("details", { class: "behind", ontoggle: open }, make("summary", {}, "Question and answer"), answer),
  );
}

function answerParts({ title, question: { text, kind, options, answer, digits, unit }, why }) {
  const truth = kind === "choice" ? options[answer] : `${shown(answer, digits)} ${unit}`;
  return [
    make("p", {}, make("b", {}, ...words(title)), ": ", ...words(text)),
    make("p", {}, "The answer: ", make("b", {}, ...words(truth)), ". ", ...words(why)),
  ];
}
