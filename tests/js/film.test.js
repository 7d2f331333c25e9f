// The film as a list of steps, and where its parts stand.
import assert from "node:assert/strict";
import { test } from "node:test";
import { example, forReader } from "../../src/regard/server/web/js/examples.js";
import { Trace } from "../../src/regard/server/web/js/trace.js";
import { caption } from "../../src/regard/server/web/js/views/film/captions.js";
import { layout } from "../../src/regard/server/web/js/views/film/layout.js";
import { chipsOf } from "../../src/regard/server/web/js/views/film/places.js";
import { chapters, plan, strokes } from "../../src/regard/server/web/js/views/film/plan.js";
import { distribution } from "../../src/regard/server/web/js/views/sampling.js";

const side = (...shown) => ({ ids: shown.map((_, i) => i), shown, words: shown.map((_, i) => i) });
const step = (shown) => ({ shown, id: 3, p: 0.5, best: [{ id: 3, shown, p: 0.5 }] });

/** A run of a translator with two encoder layers and one decoder layer; `decoder` alone is a GPT. */
function run({ encoder = 2, decoder = 1, prompt = 0, steps = ["der", "Hund", "</s>"] } = {}) {
  const [n, m, d] = [3, steps.length, 8];
  const tensors = [];
  const add = (name, ...shape) => tensors.push({ name, shape });
  const stack = (name, layers, length, hasCross) => {
    for (const part of ["tokens", "positions", "out"]) add(`${name}.embedding.${part}`, length, d);
    for (let i = 0; i < layers; i++) {
      add(`${name}.${i}.self.norm`, length, d);
      add(`${name}.${i}.self.weights`, 2, length, length);
      add(`${name}.${i}.after_self`, length, d);
      if (hasCross) add(`${name}.${i}.cross.weights`, 2, length, n);
      if (hasCross) add(`${name}.${i}.after_cross`, length, d);
      add(`${name}.${i}.feed_forward.hidden`, length, 16);
      add(`${name}.${i}.feed_forward.output`, length, d);
      add(`${name}.${i}.out`, length, d);
    }
    add(`${name}.out`, length, d);
  };
  if (encoder) stack("encoder", encoder, n, false);
  if (decoder) stack("decoder", decoder, m, encoder > 0);
  add("logits", m, 20);
  const tokens = decoder ? { target: side("<s>", ...steps.slice(0, -1)), output: side(...steps) } : {};
  if (encoder) tokens.source = side("the", "dog", "</s>");
  const config = { family: "transformer", norm: "pre" };
  const meta = {
    config,
    family: encoder && decoder ? "transformer" : encoder ? "bert" : "gpt",
    prompt,
    task: "",
  };
  const attention = decoder && encoder ? "decoder.0.cross" : null;
  return new Trace({
    id: "a",
    output: "",
    tensors,
    tokens,
    meta,
    beam: [],
    vocabulary: {},
    steps: steps.map(step),
    attention,
  });
}

test("the film goes up the encoder once, then up the decoder for each token, which is written and read", () => {
  const trace = run();
  const steps = plan(trace);
  const encoder = steps.filter((each) => each.side === "encoder");
  assert.deepEqual(
    encoder.map((each) => each.vectors || each.where || each.kind),
    [
      "tokens",
      "encoder.embedding.tokens",
      "encoder.embedding.out",
      ...["encoder.0.after_self", "encoder.0.out", "encoder.1.after_self", "encoder.1.out"],
    ],
  );
  assert.ok(encoder.every((each) => each.word === null && each.rows.join() === "0,3"));
  const second = steps.filter((each) => each.word === 1 && each.kind !== "end");
  assert.deepEqual(
    second.map((each) => each.where || each.kind),
    ["embedding", "positions", "decoder.0.self", "decoder.0.cross", "feed_forward", "output", "choose"],
  );
  assert.ok(second.every((each) => each.rows.join() === "1,2"));
  assert.deepEqual(
    chapters(steps).map((each) => each.text),
    ["Read", "der", "Hund", "</s>", "Done"],
  );
  const end = steps.at(-1);
  assert.deepEqual([end.kind, end.where, end.box, end.rows], ["end", "decoder.0.cross", "cross", [0, 3]]);
  for (const each of steps) {
    for (const name of [each.vectors, each.where && `${each.where}.weights`])
      assert.ok(!name || trace.has(name), name);
    assert.ok(caption(trace, each, []).length > 20, each.kind);
  }
});

test("a model without an encoder begins with the whole prompt; one without a decoder ends with an answer", () => {
  const gpt = plan(run({ encoder: 0, prompt: 2 }));
  assert.equal(gpt[0].side, "decoder");
  assert.deepEqual(gpt[0].rows, [0, 2]);
  assert.deepEqual([...new Set(gpt.map((each) => each.word))], [1, 2]);
  const bert = plan(run({ decoder: 0, steps: ["x"] }));
  assert.deepEqual(
    bert.slice(-3).map((each) => each.kind),
    ["output", "choose", "end"],
  );
});

test("each step has its tokens inside its box, on a wide and on a narrow page", () => {
  for (const given of [{}, { encoder: 0 }, { decoder: 0, steps: ["x"] }]) {
    const trace = run(given);
    for (const narrow of [false, true]) {
      const texts = new Map();
      for (const each of plan(trace)) {
        const map = layout(trace, {
          layers: { [each.side]: each.layer },
          film: true,
          narrow,
          active: each.side,
        });
        const box = map.stacks
          .find((stack) => stack.side === each.side)
          .boxes.find((one) => one.id === each.box);
        assert.ok(box, `${each.side} ${each.box}`);
        assert.ok(box.y >= 0 && box.y + box.height <= map.height && box.x + box.width <= map.width);
        const climbing = chipsOf(trace, map, each).filter(
          (chip) => chip.role === "climb" && chip.side === each.side,
        );
        if (!["tokens", "choose", "end"].includes(each.kind)) assert.ok(climbing.length, each.kind);
        for (const chip of chipsOf(trace, map, each)) {
          const earlier = texts.get(chip.id); // drawn once: the same id is the same text
          assert.ok(earlier === undefined || earlier === chip.text, `${chip.id}: ${earlier}, ${chip.text}`);
          texts.set(chip.id, chip.text);
        }
        for (const chip of climbing) {
          assert.ok(
            chip.x > box.x && chip.x < box.x + box.width && chip.y > box.y && chip.y < box.y + box.height,
          );
        }
      }
    }
  }
});

test("strokes are the weights of a head, or the mean of all", () => {
  const weights = { data: Float32Array.of(1, 0, 0.25, 0.75, 0.5, 0.5, 0.75, 0.25), shape: [2, 2, 2] };
  assert.deepEqual(strokes(weights, [1, 2], 0), [
    { query: 1, key: 0, weight: 0.25 },
    { query: 1, key: 1, weight: 0.75 },
  ]);
  assert.deepEqual(
    strokes(weights, [0, 2], -1).map((each) => each.weight),
    [0.75, 0.25, 0.5, 0.5],
  );
  assert.equal(strokes(weights, [0, 1], 0).length, 1); // a weight of 0 has no stroke
});

test("temperature and top-k change a distribution as they should", () => {
  const logits = [Math.log(1), Math.log(4), Math.log(2), Math.log(1)];
  assert.deepEqual(
    distribution(logits, 1, 0).map(({ id, p }) => [id, Math.round(1000 * p)]),
    [
      [1, 500],
      [2, 250],
      [0, 125],
      [3, 125],
    ],
  );
  const two = distribution(logits, 0.5, 2).map(({ p }) => p);
  assert.ok(Math.abs(two[0] - 16 / 20) < 1e-12 && two.length === 2);
});

test("the page opens with a sentence of a model that the reader can read", () => {
  const models = ["en", "de"].map((source) => ({ task: "translate", source, parameters: 1e7 }));
  assert.equal(forReader(models, ["de-AT", "en"]), models[1]);
  assert.equal(forReader(models, ["fr"]), models[0]);
  assert.equal(example(models[1]).text.split(" ")[0], "Ich");
  assert.match(example({ task: "fill", source: "en" }).text, /<mask>/);
});
