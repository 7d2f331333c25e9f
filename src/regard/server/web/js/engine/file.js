// A page that is one file with a model inside.
import { answerWith, embeddedRun } from "../source.js";
import { Site } from "./site.js";

const inside = /** @type {any} */ (embeddedRun());

answerWith(
  new Site({
    models: async () => inside.content.models,
    model: async () => ({ description: inside.content.model, weights: inside.numbers.buffer }),
    lesson: async () => {
      throw new Error("The lessons are not in this file; start “regard explore” for them.");
    },
  }),
);
