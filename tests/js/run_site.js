// Ask the engine of a static site without a browser: `node run_site.js SITE REQUESTS OUT`. REQUESTS is a list of
// { path, body }; in a path, {N} is the id of the trace that answer N is. Answer N is written to OUT/N.
import { readFile, writeFile } from "node:fs/promises";
import { Site } from "../../src/regard/server/web/js/engine/site.js";

const [folder, requests, out] = process.argv.slice(2);
const read = (name) => readFile(`${folder}/data/${name}`);
const site = new Site({
  models: async () => JSON.parse(await read("models.json")),
  model: async (name) => {
    const file = await read(`models/${name}.safetensors`);
    const weights = file.buffer.slice(file.byteOffset, file.byteOffset + file.byteLength);
    return { description: JSON.parse(await read(`models/${name}.json`)), weights };
  },
  lesson: async (name) => JSON.parse(await read(name ? `lessons/${name}.json` : "lessons.json")),
});

const ids = [];
for (const [number, { path, body }] of JSON.parse(await readFile(requests)).entries()) {
  const address = path.replace(/\{(\d+)\}/g, (_, earlier) => encodeURIComponent(ids[earlier]));
  const response = await site.respond(address, body && { method: "POST", body: JSON.stringify(body) });
  const content = new Uint8Array(await response.arrayBuffer());
  await writeFile(`${out}/${number}`, content);
  if (path === "/api/v1/trace" && response.ok) ids[number] = JSON.parse(new TextDecoder().decode(content)).id;
}
