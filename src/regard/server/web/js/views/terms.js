// Words of the field, explained where they stand: a button that opens a short text.
import { make } from "../a11y.js";

/** The texts are those of docs/glossary.md; tests/test_attribution.py compares them. @type {Record<string, string>} */
export const TERMS = {
  logit: "one number per token of the vocabulary, before the softmax",
  "residual stream": "the running sum that every sub-layer adds to",
  "logit lens": "the output layer applied to the residual stream after each layer",
  rollout: "attention weights multiplied through all layers",
  "gradient x input": "an embedding times the gradient of a log-probability, summed over its numbers",
  "direct logit attribution": "a logit as the sum of what each part of the model adds to it",
  "KL divergence": "how far one distribution is from another: sum of p (log p - log q), 0 if they are equal",
  nat: "a unit of information: 1 nat is 1.44 bits, log of e instead of log of 2",
  entropy: "- sum p log2 p in bits: 0 for a head that looks at one key, log2 n for n keys alike",
  "pre-norm": "layer norm before each sub-layer, or after each sum (the paper)",
  "log p":
    "log of a probability: 0 is certain, -0.69 is one half, -4.6 is 1 %; of a text the sum of its tokens",
};

/**
 * A word with its explanation: `term("nat", "nats")`.
 * @param {string} name
 * @param {string} text
 */
export function term(name, text = name) {
  const note = make("span", { class: "term-note", role: "note", hidden: true }, ` (${TERMS[name]})`);
  const button = make(
    "button",
    {
      type: "button",
      class: "term",
      "aria-expanded": "false",
      title: TERMS[name],
      onclick: () => {
        note.hidden = !note.hidden;
        button.setAttribute("aria-expanded", String(!note.hidden));
      },
    },
    text,
  );
  return make("span", {}, button, note);
}
