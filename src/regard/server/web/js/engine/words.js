// The words of a text for taggers, split as in corpora of tagged words; the rules are those of tasks/tagger.py.

import { SPACES } from "./tokenizer.js";

/** @type {Record<string, string>} */
const SAME = {
  "-": "-",
  "\u2010": "-",
  "\u2011": "-",
  "'": "'",
  "\u2019": "'",
  ".": ".",
  ",": ",",
  ":": ":",
};
const HAN = /[\u3005\u3007\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\u{20000}-\u{3ffff}]/u;
const ENDING = /(?:n['\u2019]t|['\u2019](?:s|m|d|re|ve|ll))$/i;
// Over the kinds of characters. The first alternative takes all it can: "U.S." is not "U." and "S.".
const WORD = new RegExp(
  [
    "(?<!\\.)(?=((?:w[mj]*\\.){2,}))\\1(?![wd])",
    "[wd](?:[wdmj]|['-](?=[wd])|(?<=d)[.,:](?=d))*",
    "c[mj]*",
    "\\.\\.+|--+",
    "[s'.,:-][mj]*(?:(?<=j)s[mj]*)*",
    "[mj]+",
  ].join("|"),
  "g",
);

/**
 * w letter, d digit, c Chinese, m mark, j joiner, white space, ' - . , : themselves, s any other.
 * @param {string} sign
 */
function kind(sign) {
  if (SPACES.test(sign)) return " ";
  if (SAME[sign]) return SAME[sign];
  if (HAN.test(sign)) return "c";
  if (sign === "\u200d") return "j";
  if (/[\p{M}\p{Cf}\u{1F3FB}-\u{1F3FF}]/u.test(sign)) return "m";
  return /\p{Nd}/u.test(sign) ? "d" : /[\p{L}\p{N}\p{Pc}]/u.test(sign) ? "w" : "s";
}

/** @param {string} text @returns {string[]} */
export function findWords(text) {
  const signs = [...text];
  const kinds = signs.map(kind).join("");
  return [...kinds.matchAll(WORD)].flatMap(({ 0: { length }, index = 0 }) => {
    const word = signs.slice(index, index + length).join("");
    const ending = word.match(ENDING)?.[0] ?? "";
    return ending && ending.length < word.length ? [word.slice(0, -ending.length), ending] : [word];
  });
}
