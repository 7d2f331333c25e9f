// What the page computes without a browser.
import assert from "node:assert/strict";
import { readdirSync } from "node:fs";
import { test } from "node:test";
import { ApiError, isExpired, isRefused } from "../../src/regard/server/web/js/api.js";
import { ink, reach, share, signed } from "../../src/regard/server/web/js/color.js";
import { csv, plain } from "../../src/regard/server/web/js/csv.js";
import { cut, fixed, number } from "../../src/regard/server/web/js/figures.js";
import {
  axis,
  formulaParts,
  readNumber,
  shown,
  ticks,
} from "../../src/regard/server/web/js/lessons/numbers.js";
import { decode, encode } from "../../src/regard/server/web/js/state.js";

test("modules touch no document at import", async () => {
  const folder = new URL("../../src/regard/server/web/js/", import.meta.url);
  const files = readdirSync(folder, { recursive: true }).map(String);
  const programs = [
    "main.js",
    "docs.js",
    ...["start", "page", "file", "file_page"].map((name) => `engine/${name}.js`),
  ];
  const modules = files.filter((name) => name.endsWith(".js") && !programs.includes(name));
  assert.ok(modules.length > 20);
  for (const name of modules) await import(new URL(name, folder).href);
});

test("colours begin at the paper, end at the strongest, and stay in range", () => {
  assert.deepEqual(share(0, "light"), [250, 250, 246]);
  assert.deepEqual(share(1, "light"), [14, 36, 82]);
  assert.deepEqual(share(7, "light"), share(1, "light"));
  assert.deepEqual(share(NaN, "dark"), share(0, "dark"));
  assert.deepEqual(signed(0, "light"), [248, 248, 244]);
  assert.deepEqual(share(0.125, "light"), [223, 232, 240]); // half way between the first two stops
});

test("the strength of a share grows with its value in both schemes", () => {
  const luminance = ([r, g, b]) => 0.2126 * r + 0.7152 * g + 0.0722 * b;
  for (const [mode, sign] of [
    ["light", -1],
    ["dark", 1],
  ]) {
    for (let i = 0; i < 50; i++) {
      assert.ok(sign * (luminance(share((i + 1) / 50, mode)) - luminance(share(i / 50, mode))) >= 0);
    }
  }
});

test("text on a colour has a contrast of at least 4.5 (WCAG AA)", () => {
  const channel = (c) => (c / 255 <= 0.04045 ? c / 255 / 12.92 : ((c / 255 + 0.055) / 1.055) ** 2.4);
  const luminance = (rgb) => rgb.map(channel).reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
  for (const mode of ["light", "dark"]) {
    for (let i = 0; i <= 100; i++) {
      for (const color of [share(i / 100, mode), signed(i / 50 - 1, mode)]) {
        const text = ink(color) === "#000" ? 0 : 1;
        const [low, high] = [text, luminance(color)].sort((a, b) => a - b);
        assert.ok((high + 0.05) / (low + 0.05) >= 4.5, `${mode} ${color}`);
      }
    }
  }
});

test("the reach of numbers is their largest absolute value, never 0", () => {
  assert.equal(reach([1, -3, NaN, Infinity]), 3);
  assert.equal(reach([0, 0]), 1);
});

test("numbers are written with a true minus, and small ones with an exponent", () => {
  assert.equal(number(-0.5, 2), "−0.50");
  assert.equal(number(0.00001, 3), "1.00e−5");
  assert.equal(number(0, 3), "0.000");
  assert.equal(number(null), "–");
  assert.equal(fixed(-0.001, 2), "0.00");
  assert.equal(fixed(-1, 1), "−1.0");
});

test("a matrix is cut to rows and columns", () => {
  const matrix = { data: Float32Array.of(1, 2, 3, 4, 5, 6), shape: [2, 3] };
  assert.deepEqual(cut(matrix, [1], [0, 2]), { data: Float32Array.of(4, 6), shape: [1, 2] });
  assert.equal(cut(matrix, [0, 1], [0, 1, 2]).data, matrix.data);
});

test("CSV quotes texts and disarms formulas", () => {
  const matrix = { label: "x", rows: ["=1+1", 'a"b'], columns: ["k"], data: [0.5, 1, 2, 3], width: 2 };
  assert.equal(csv(matrix), '"","k"\r\n"\'=1+1",0.5\r\n"a""b",2\r\n');
  assert.deepEqual(plain(matrix).values, [[0.5], [2]]);
});

test("a state becomes an address and comes back", () => {
  const initial = { view: "attention", text: "", head: "0", query: "" };
  const states = [
    initial,
    { ...initial, text: "a & b = ü\n#?", head: "3" },
    { ...initial, view: "heads", query: "12" },
  ];
  for (const each of states) assert.deepEqual({ ...decode(encode(each, initial), initial) }, each);
  assert.equal(encode(initial, initial), "");
  assert.equal(encode({ ...initial, head: 3 }, initial), "head=3");
});

test("an address with unknown names is read without them", () => {
  const state = decode("?head=2&nonsense=1&__proto__=x");
  assert.equal(state.head, "2");
  assert.equal(state.view, "film");
  assert.ok(!("nonsense" in state));
  assert.ok(Object.isFrozen(state));
});

test("an expired trace is recognised by its code, whatever the sentence says", () => {
  assert.ok(isExpired(new ApiError(410, { error: "any words", code: "trace_expired" })));
  assert.ok(!isExpired(new ApiError(400, { error: "this trace is no longer cached", code: "E_USAGE" })));
  assert.ok(!isExpired(new Error("trace_expired")));
  assert.ok(isRefused(new ApiError(400, {})) && !isRefused(new ApiError(410, {})));
  assert.match(new ApiError(502, {}).message, /502/);
});

test("typed numbers are read as people write them", () => {
  for (const [text, digits, value] of [
    ["0.5", 2, 0.5],
    ["0,5", 2, 0.5],
    ["−3", 0, -3],
    ["32 768", 0, 32768],
    ["32,768", 0, 32768],
    ["32.768", 0, 32768],
    ["1e6", 0, 1e6],
    [".25", 2, 0.25],
    ["50 %", 0, 50],
    ["1.234", 3, 1.234],
  ]) {
    assert.equal(readNumber(text, digits), value, text);
  }
  for (const text of ["", "x", "1.2.3", "--1", "e5", "1e", "NaN", "Infinity"]) {
    assert.equal(readNumber(text, 2), null, text);
  }
});

test("numbers of lessons are shown with their digits", () => {
  assert.equal(shown(1234.5678, 2), "1,234.57");
  assert.equal(shown(-2, 0), "−2");
  assert.equal(shown(0.00001, 4), "1e−5");
  assert.equal(shown(null), "–");
  assert.equal(shown(true), "true");
});

test("ticks are round, inside the axis, and few", () => {
  assert.deepEqual(ticks(0, 1, false), [0, 0.5, 1]);
  assert.deepEqual(ticks(0, 10, false), [0, 5, 10]);
  assert.deepEqual(ticks(1, 1000, true), [1, 10, 100, 1000]);
  for (let i = 0; i < 200; i++) {
    const low = Math.sin(i) * 10 ** (i % 5);
    const high = low + 10 ** ((i % 7) - 3);
    const all = ticks(low, high, false);
    assert.ok(all.length >= 1 && all.length <= 6, `${low} ${high}: ${all}`);
    assert.ok(all.every((each) => each >= low - 1e-6 * (high - low) && each <= high + 1e-6 * (high - low)));
  }
});

test("an axis maps its ends to 0 and 1", () => {
  for (const isLog of [false, true]) {
    const { at } = axis(2, 200, isLog);
    assert.equal(at(2), 0);
    assert.equal(at(200), 1);
  }
  assert.ok(Math.abs(axis(1, 100, true).at(10) - 0.5) < 1e-12);
  assert.equal(axis(1, 1, false).at(1), 0.5);
});

test("formulas are divided into text, subscripts and superscripts", () => {
  assert.deepEqual(formulaParts("qᵢ kⱼᵀ / d_model"), [
    ["", "q"],
    ["sub", "i"],
    ["", " k"],
    ["sub", "j"],
    ["sup", "T"],
    ["", " / d"],
    ["sub", "model"],
  ]);
  assert.deepEqual(formulaParts("10^(2i/d)"), [
    ["", "10"],
    ["sup", "2i/d"],
  ]);
  assert.deepEqual(formulaParts("plain"), [["", "plain"]]);
});
