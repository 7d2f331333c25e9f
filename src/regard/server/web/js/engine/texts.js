// Texts for display, and which tokens belong to a word, as in interpret/activations.py.

/** @import { Tokens } from "./run.js" */

// eslint-disable-next-line no-control-regex
const CONTROL = /[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff]/gu;

/**
 * A text for display: symbols for control characters, and for white space that stands alone.
 * @param {string} text
 */
export function visible(text) {
  const bare = text.replace(/^ +| +$/g, "") || (text ? "\u2423" : "");
  return bare.replace(CONTROL, (sign) => {
    if (sign === "\n") return "\u21b5"; // common fonts have this arrow, and not the symbol of a line feed
    const code = sign.charCodeAt(0);
    return code < 0x20 ? String.fromCharCode(0x2400 + code) : code === 0x7f ? "\u2421" : "\ufffd";
  });
}

/** Runs of byte tokens (`<0xD7><0xA9>`) that form whole characters, as these. @param {string} text */
export const mergeBytes = (text) =>
  text.replace(/(?:<0x[0-9A-F]{2}>)+/g, (run) => {
    const bytes = Uint8Array.from(run.match(/[0-9A-F]{2}(?=>)/g) ?? [], (pair) => parseInt(pair, 16));
    try {
      return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
    } catch {
      return run;
    }
  });

/**
 * The token positions of each word, in order; a token of no word is a group of its own.
 * @param {Tokens} tokens @returns {number[][]}
 */
export function groupsOf({ words }) {
  /** @type {Map<string, number[]>} */
  const groups = new Map();
  words.forEach((word, place) => {
    const key = word >= 0 ? `word ${word}` : `token ${place}`;
    groups.set(key, [...(groups.get(key) ?? []), place]);
  });
  return [...groups.values()];
}

/** The text of each group; WordPiece continuations lose their `##`. @param {Tokens} tokens */
export const groupTexts = (tokens) =>
  groupsOf(tokens).map(([first, ...rest]) => {
    const parts = rest.map((place) => tokens.texts[place].replace(/^##(?=.)/, ""));
    return visible(mergeBytes([tokens.texts[first], ...parts].join("")));
  });
