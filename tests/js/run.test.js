// A run as the page reads it: tensors from bytes, attention computed again, interventions in the address.
import assert from "node:assert/strict";
import { test } from "node:test";
import { EmbeddedRun, narrow } from "../../src/regard/server/web/js/embedded.js";
import { add, describe, read, toggle, write } from "../../src/regard/server/web/js/interventions.js";
import { encode, parse, readHeader } from "../../src/regard/server/web/js/safetensors.js";
import { Trace, recompute, traceOf } from "../../src/regard/server/web/js/trace.js";

const bytes = (array) => new Uint8Array(array.buffer);
const float = (shape, ...values) => ({ dtype: "F32", shape, bytes: bytes(Float32Array.from(values)) });

test("a safetensors file is read back as it was written", () => {
  const parts = new Map([
    ["odd", { dtype: "U8", shape: [3], bytes: Uint8Array.of(1, 2, 3) }], // the next begins at an odd place
    ["float", float([1, 2], 0.5, -1)],
    ["ids", { dtype: "I64", shape: [2], bytes: bytes(BigInt64Array.of(7n, -1n)) }],
    ["mask", { dtype: "BOOL", shape: [2], bytes: Uint8Array.of(0, 1) }],
  ]);
  const file = encode(parts, { about: "ü" });
  const tensors = parse(file.buffer);
  assert.deepEqual([...tensors.odd.data], [1, 2, 3]);
  assert.deepEqual([...tensors.float.data], [0.5, -1]);
  assert.deepEqual(tensors.float.shape, [1, 2]);
  assert.deepEqual([...tensors.ids.data], [7n, -1n]);
  assert.deepEqual([...tensors.mask.data], [0, 1]);
  assert.deepEqual(readHeader(file.buffer).metadata, { about: "ü" });
});

test("a row or a column is narrowed and keeps its dimension", () => {
  const part = float([2, 2, 3], ...Array.from({ length: 12 }, (_, i) => i));
  const values = ({ bytes: content }) => [
    ...new Float32Array(content.buffer, content.byteOffset, content.length / 4),
  ];
  assert.deepEqual(narrow(part, 1, 1).shape, [2, 1, 3]);
  assert.deepEqual(values(narrow(part, 1, 1)), [3, 4, 5, 9, 10, 11]);
  assert.deepEqual(narrow(part, 2, 0).shape, [2, 2, 1]);
  assert.deepEqual(values(narrow(part, 2, 0)), [0, 3, 6, 9]);
});

const where = "decoder.0.cross";

function embedded() {
  const parts = new Map([
    [`whole/${where}.query`, float([2, 1, 1], 1, 2)],
    [`whole/${where}.key`, float([1, 1, 1], 5)], // one group of keys for both heads
    [`whole/${where}.weights`, float([2, 1, 2], 0.25, 0.75, 1, 0)],
    [`look/weights/${where}/pieces`, float([3, 1, 2], 0.25, 0.75, 1, 0, 0.625, 0.375)],
    [`heads/${where}.entropy`, float([2], 0.8, 0)],
  ]);
  const content = {
    models: { kept: { text: "a b", context: "" } },
    trace: { id: "kept" },
    readings: { [`look/weights/${where}/pieces`]: [{ rows: ["of a head"] }, { rows: ["of the mean"] }] },
  };
  return new EmbeddedRun(content, encode(parts));
}

test("an exported page answers as the server does", async () => {
  const run = embedded();
  const tensors = async (query) =>
    parse(await (await run.respond(`/api/v1/trace/kept/tensors?${query}`)).arrayBuffer());
  assert.deepEqual([...(await tensors("name=*.weights&head=1"))[`${where}.weights`].data], [1, 0]);
  assert.deepEqual([...(await tensors(`name=${where}.key&head=1`))[`${where}.key`].data], [5]);
  assert.deepEqual([...(await tensors("name=*.weights&column=1"))[`${where}.weights`].data], [0.75, 0]);
  const trace = await run.respond("/api/v1/trace", { method: "POST", body: '{"source": "a b"}' });
  assert.deepEqual(await trace.json(), { id: "kept" });
  const reading = async (head) => {
    const response = run.respond(`/api/v1/trace/kept/reading?kind=weights&where=${where}&head=${head}`);
    const file = await response.arrayBuffer();
    return [[...parse(file).values.data], JSON.parse(readHeader(file).metadata["regard.reading"]).rows[0]];
  };
  assert.deepEqual(await reading(0), [[0.25, 0.75], "of a head"]);
  assert.deepEqual(await reading("mean"), [[0.625, 0.375], "of the mean"]);
});

test("an exported page refuses what it does not hold, with a code", async () => {
  const run = embedded();
  for (const [path, options] of [
    ["/api/v1/trace", { method: "POST", body: '{"source": "other"}' }],
    ["/api/v1/trace", { method: "POST", body: '{"source": "a b", "interventions": [{}]}' }],
    ["/api/v1/lessons", {}],
    ["/api/v1/trace/kept/reading?kind=rollout", {}],
  ]) {
    const response = run.respond(path, options);
    assert.equal(response.status, 400);
    assert.equal((await response.json()).code, "E_USAGE");
  }
});

/** softmax(q . k / sqrt(C)) over the visible keys, in the plainest way. */
function reference(q, k, visible, scale) {
  const scores = k.map((each) => scale * each.reduce((sum, value, c) => sum + value * q[c], 0));
  const powers = scores.map((score, j) => (visible[j] ? Math.exp(score) : 0));
  const sum = powers.reduce((a, b) => a + b, 0);
  return powers.map((power) => power / sum);
}

test("recomputed attention equals softmax(QK/sqrt(d)) over the visible keys", () => {
  const q = [0.5, -1, 2, 0.25];
  const k = [
    [1, 0, 1, 0],
    [-1, 2, 0.5, 1],
    [3, 3, 3, 3],
  ];
  const parts = {
    query: { data: Float64Array.from([9, 9, 9, 9, ...q]), shape: [2, 4] },
    key: { data: Float64Array.from(k.flat()), shape: [3, 4] },
    mask: { data: Uint8Array.of(1, 1, 1, 1, 1, 0), shape: [2, 3] },
    weights: { data: new Float32Array(6), shape: [2, 3] },
    scale: 0.5,
  };
  const computed = recompute(parts, 1);
  const expected = reference(q, k, [true, true, false], 0.5);
  computed.weights.forEach((each, j) => assert.ok(Math.abs(each - expected[j]) < 1e-15));
  assert.deepEqual(computed.visible, [true, true, false]);
  assert.equal(computed.weights[2], 0);
  assert.equal(computed.products[0], 2.5);
  const biased = recompute(
    { ...parts, bias: { data: Float32Array.of(0, 0, 0, 0, 50, 0), shape: [2, 3] } },
    1,
  );
  assert.ok(biased.weights[1] > 0.999);
  const equal = recompute({ ...parts, equal: true }, 1);
  assert.deepEqual(equal.weights, [0.5, 0.5, 0]);
});

test("large scores do not overflow, and a row that sees nothing has weight 0", () => {
  const parts = { weights: { data: new Float32Array(2), shape: [1, 2] }, scale: null };
  const scores = { data: Float32Array.of(5000, 4999), shape: [1, 2] };
  const { weights } = recompute({ ...parts, scores }, 0);
  assert.ok(Math.abs(weights[0] - 1 / (1 + Math.exp(-1))) < 1e-12);
  const mask = { data: Uint8Array.of(0, 0), shape: [1, 2] };
  assert.deepEqual(recompute({ ...parts, scores, mask }, 0).weights, [0, 0]);
});

const data = (id, meta = {}) => ({
  id,
  output: "",
  tensors: [
    { name: "encoder.0.self.weights", shape: [2, 3, 3] },
    { name: "decoder.1.cross.weights", shape: [4, 2, 3] },
  ],
  tokens: { source: { shown: ["s"] }, target: { shown: ["t"] } },
  meta,
  beam: [],
  vocabulary: {},
  steps: [],
  attention: "decoder.1.cross",
});

test("a trace knows its attentions, heads and sides", () => {
  const trace = new Trace(
    data("x", { interventions: [{ type: "uniform", where: "encoder.0.self", head: 1 }] }),
  );
  assert.deepEqual(trace.attentions, ["encoder.0.self", "decoder.1.cross"]);
  assert.equal(trace.heads("decoder.1.cross"), 4);
  assert.deepEqual(trace.sides("decoder.1.cross"), [trace.tokens.target, trace.tokens.source]);
  assert.deepEqual(trace.sides("encoder.0.self"), [trace.tokens.source, trace.tokens.source]);
  assert.equal(trace.changes("uniform", "encoder.0.self", 1).length, 1);
  assert.equal(trace.changes("uniform", "encoder.0.self", 0).length, 0);
  assert.equal(trace.changes("uniform", "decoder.1.cross").length, 0);
});

test("the scale follows the family and the interventions", () => {
  const parts = { query: { shape: [3, 16] }, mixed: {} };
  assert.equal(new Trace(data("a")).scale(where, parts), 0.25);
  assert.equal(new Trace(data("b", { family: "t5" })).scale(where, parts), 1);
  assert.equal(new Trace(data("c", { interventions: [{ type: "drop_scale" }] })).scale(where, parts), 1);
  assert.equal(new Trace(data("d")).scale(where, {}), null);
});

test("the same run is the same object; the oldest of many are forgotten", () => {
  const first = traceOf(data("first"));
  assert.equal(traceOf(data("first")), first);
  for (let i = 0; i < 8; i++) traceOf(data(`other ${i}`));
  assert.notEqual(traceOf(data("first")), first);
});

test("what was fetched is fetched once, unless it failed", async () => {
  const trace = new Trace(data("y"));
  let calls = 0;
  const get = () => trace.cached("key", async () => ++calls);
  assert.deepEqual(await Promise.all([get(), get()]), [1, 1]);
  const fail = () =>
    trace.cached("other", async () => {
      calls++;
      throw new Error("no");
    });
  await assert.rejects(fail());
  await assert.rejects(fail());
  assert.equal(calls, 3);
});

const offered = {
  types: ["zero_head", "uniform", "drop_positions", "unmask_future", "replace_token"],
  kinds: {
    zero_head: {
      fields: ["where", "head"],
      required: ["where", "head"],
      sides: "",
      words: "without head {head} of {where}",
    },
    uniform: {
      fields: ["where", "head"],
      required: [],
      sides: "",
      words: "with equal scores[ in head {head}][ of {where}]",
    },
    drop_positions: { fields: ["side"], required: [], sides: "stacks" },
    unmask_future: { fields: [], required: [], sides: "" },
    replace_token: {
      fields: ["side", "position", "text"],
      required: ["position", "text"],
      sides: "sides",
    },
  },
  stacks: ["encoder", "decoder"],
  sides: ["source", "target"],
  heads: { "encoder.0.self": 2, "decoder.1.cross": 4 },
};

test("interventions become a word of the address and come back", () => {
  const all = [
    { type: "zero_head", where: "decoder.1.cross", head: 3 },
    { type: "uniform" },
    { type: "uniform", head: 1 },
    { type: "drop_positions", side: "encoder" },
    { type: "unmask_future" },
    { type: "replace_token", side: "target", position: 2, text: "a;b:c %" },
  ];
  const word = write(offered, all);
  assert.equal(word.split(";").length, all.length);
  assert.deepEqual(read(offered, word), all);
  assert.equal(write(offered, [all[0]]), "zero_head:decoder.1.cross:3");
});

test("what a model does not have is left out", () => {
  for (const word of [
    "",
    "nonsense",
    "constructor",
    "drop_scale",
    "zero_head",
    "zero_head:decoder.1.cross",
    "zero_head:decoder.9.cross:0",
    "zero_head:decoder.1.cross:4",
    "zero_head:decoder.1.cross:x",
    "uniform::3", // the encoder has two heads
    "drop_positions:middle",
    "replace_token:source:1",
    "replace_token:source:1.5:x",
    "replace_token:middle:1:x",
  ]) {
    assert.deepEqual(read(offered, word), [], word);
  }
  const broken = read(offered, "replace_token:%ZZ:1:x"); // a part that cannot be decoded is not given
  assert.deepEqual(broken, [{ type: "replace_token", position: 1, text: "x" }]);
  assert.deepEqual(read(undefined, "unmask_future"), []);
});

test("an intervention is toggled, and another text for a token replaces the first", () => {
  const head = { type: "zero_head", where: "encoder.0.self", head: 0 };
  const on = toggle(offered, "unmask_future", head);
  assert.equal(on, "unmask_future;zero_head:encoder.0.self:0");
  assert.equal(toggle(offered, on, head), "unmask_future");
  const replace = (text) => ({ type: "replace_token", side: "source", position: 1, text });
  const once = add(offered, "", replace("x"));
  assert.equal(add(offered, once, replace("y")), "replace_token:source:1:y");
  assert.equal(add(offered, once, replace("x")), once);
});

test("an intervention is described in the words of its kind", () => {
  for (const [change, words] of [
    [{ type: "zero_head", where: "encoder.0.self", head: 0 }, "without head 0 of encoder.0.self"],
    [{ type: "uniform" }, "with equal scores"],
    [{ type: "uniform", head: 1 }, "with equal scores in head 1"],
    [{ type: "uniform", where: "x", head: 0 }, "with equal scores in head 0 of x"],
  ]) {
    assert.equal(describe(offered, change), words);
  }
});
