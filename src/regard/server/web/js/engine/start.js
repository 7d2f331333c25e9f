// A static site: its models, lessons and lists are files beside the page.
import { answerWith } from "../source.js";
import { Site } from "./site.js";

/** @param {string} path below the folder of the page */
async function file(path) {
  const response = await fetch(new URL(`data/${path}`, document.baseURI));
  if (!response.ok) throw new Error(`The site has no file ${path} (status ${response.status}).`);
  return response;
}

answerWith(
  new Site({
    models: async () => (await file("models.json")).json(),
    model: async (name) => {
      const [description, weights] = await Promise.all([
        file(`models/${name}.json`).then((response) => response.json()),
        file(`models/${name}.safetensors`).then((response) => response.arrayBuffer()),
      ]);
      return { description, weights };
    },
    lesson: async (name) =>
      (await file(name ? `lessons/${encodeURIComponent(name)}.json` : "lessons.json")).json(),
  }),
);
