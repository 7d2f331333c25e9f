// The list of all lessons, what was answered so far, and words that views use.
import { make } from "../a11y.js";
import { set } from "../state.js";
import { words } from "./figures.js";
import { arrived, link } from "./links.js";
import { forget, progressOf } from "./progress.js";
import { TEACHERS } from "./teachers.js";

const WORDS = [
  ["nat", "A unit of information, as a bit is: −log p with the natural logarithm. 1 nat is about 1.44 bits."],
  [
    "KL divergence",
    "How different two distributions p and q are: Σ p log(p / q), in nats. 0: they are equal.",
  ],
  [
    "entropy",
    "How evenly weights or probabilities are spread: −Σ p log p. 0: all on one; log n: the same for each of n.",
  ],
  [
    "logits",
    "Numbers before the softmax, one for each word of the vocabulary. Only their differences count.",
  ],
  [
    "logit lens",
    "The last layer applied to the vectors between lower layers: what the model would say if it stopped there.",
  ],
  [
    "rollout",
    "The weights of all layers multiplied: how much of a word of the input can have reached a place.",
  ],
  [
    "residual stream",
    "The vector of a word from the embedding to the top. Attention and feed-forward add to it and never replace it.",
  ],
  [
    "pre-norm, post-norm",
    "Whether a layer norm stands before each part of a layer, or after the sum as in the paper.",
  ],
  ["perplexity", "e to the power of the loss: among how many equally likely words the model hesitates."],
  ["token", "What a model reads: a word, a part of one, or a sign. Lesson 2 is about them."],
];

export function overview(lessons) {
  const heading = make("h2", { tabindex: "-1" }, "Lessons");
  arrived(heading);
  const list = make("ol", { class: "lessons" }, ...lessons.map(entry));
  const hasProgress = lessons.some((lesson) => progressOf(lesson.name));
  const clear = () => {
    forget();
    set({ lesson: "" });
    for (const each of list.querySelectorAll(".done")) each.remove();
    button.remove();
  };
  const button = make("button", { type: "button", class: "plain", onclick: clear }, "Forget my answers");
  return [
    heading,
    make(
      "p",
      {},
      "From the networks before attention to BERT and GPT. ",
      "Each step asks what you expect before it shows the number. ",
      "A wrong guess costs nothing, and it is often the one that is remembered.",
    ),
    list,
    make(
      "p",
      { class: "lesson-turn" },
      link("For teachers: six questions for a class", { lesson: TEACHERS, step: "0" }),
      hasProgress ? button : null,
    ),
    make(
      "details",
      { class: "behind glossary" },
      make("summary", {}, "Words that the views use"),
      make("dl", {}, ...WORDS.flatMap(([word, text]) => [make("dt", {}, word), make("dd", {}, text)])),
    ),
  ];
}

function entry(lesson) {
  const progress = progressOf(lesson.name);
  return make(
    "li",
    {},
    link(words(lesson.title), { lesson: lesson.name, step: "0" }),
    make("p", { class: "quiet" }, ...words(lesson.about)),
    progress ? make("p", { class: "quiet done" }, `✓ ${progress}`) : null,
  );
}
