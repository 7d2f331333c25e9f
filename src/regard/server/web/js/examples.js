// What a model is asked when the page opens without a text.

/** Sentences whose words change places in the translation. @type {Record<string, string>} */
const SENTENCES = {
  en: "I have never seen this house.",
  de: "Ich habe dieses Haus nie gesehen.",
  fr: "Je n’ai jamais vu cette maison.",
  es: "Nunca he visto esta casa.",
};
/** @type {Record<string, { text: string, context?: string }>} */
const OTHERS = {
  fill: { text: "He opened the <mask> and went out." },
  classify: { text: "I loved this film." },
  tag: { text: "Sarah works in London." },
  answer: { text: "Who lives in London?", context: "Sarah lives in London with her cat." },
  generate: { text: "The little girl" },
};
/** Of built-in models: a text that tells the task, a picture and a sound. @type {Record<string, { text: string }>} */
const OWN = {
  "two-tasks": { text: "translate English to German: I have never seen this house." },
  garments: { text: "sneaker.png" },
  "spoken-digits": { text: "four-nine-zero.flac" },
};
const SMALL = 1_000_000; // parameters of a model that knows few words

/**
 * A text for a model, and its context.
 * @param {{ name: string, task: string, source: string, parameters?: number } | undefined} model
 */
export function example(model) {
  const other = OWN[model?.name ?? ""] ?? OTHERS[model?.task ?? ""];
  if (other) return { context: "", ...other };
  const isSmall = model?.source === "en" && (model.parameters ?? 0) < SMALL;
  const text = isSmall ? "My sister has a small house." : (SENTENCES[model?.source ?? ""] ?? SENTENCES.en);
  return { text, context: "" };
}

/**
 * The first model that does what the first one does, in a language of the reader.
 * @template {{ task: string, source: string }} Model
 * @param {Model[]} models
 * @param {readonly string[]} languages as the browser names them
 * @returns {Model | undefined}
 */
export function forReader(models, languages) {
  for (const language of languages) {
    const code = language.toLowerCase().split("-")[0];
    const model = models.find((each) => each.task === models[0].task && each.source === code);
    if (model) return model;
  }
  return models[0];
}
