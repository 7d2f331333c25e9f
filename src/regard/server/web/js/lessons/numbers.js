// Numbers and formulas of the lessons: read as people type them, written as people read them.

/** A number as a person writes it. @param {number | boolean | null | undefined} value */
export function shown(value, digits = 3) {
  if (value === null || value === undefined) return "–";
  if (typeof value === "boolean") return String(value);
  const isTiny = digits > 3 && value !== 0 && Math.abs(value) < 0.5 * 10 ** -digits;
  if (isTiny) return value.toExponential(0).replaceAll("-", "−");
  const options = { minimumFractionDigits: digits, maximumFractionDigits: digits };
  return value.toLocaleString("en-US", options).replace("-", "−");
}

/**
 * A number as people type it: 0.5, 0,5, −3, 32 768, 32,768, 1e6. null: it is none.
 * @param {string} text
 * @param {number} digits after the point; 0: points and commas separate thousands
 */
export function readNumber(text, digits) {
  let given = text
    .trim()
    .replaceAll("−", "-")
    .replaceAll(/[\s\u00a0\u202f'’%]/g, "");
  if (digits === 0) given = given.replaceAll(/[.,](?=\d{3}(\D|$))/g, "");
  given = given.replace(",", ".");
  return /^[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?$/i.test(given) ? Number(given) : null;
}

/**
 * Round numbers between two: 0.1, 0.2, 0.5, 1, 2 ... apart, or powers of ten.
 * @param {number} low
 * @param {number} high
 * @param {boolean} isLog
 */
export function ticks(low, high, isLog) {
  if (!isLog) {
    const rough = (high - low) / 4;
    const power = 10 ** Math.floor(Math.log10(rough));
    const round = power * ([1, 2, 5].find((factor) => factor * power >= rough) ?? 10);
    const first = Math.ceil(low / round - 1e-9);
    return Array.from({ length: Math.floor(high / round + 1e-9) - first + 1 }, (_, i) => (first + i) * round);
  }
  const first = Math.ceil(Math.log10(Math.max(low, 1e-9)) - 1e-9);
  const last = Math.floor(Math.log10(high) + 1e-9);
  const step = Math.max(1, Math.ceil((last - first) / 5));
  const length = Math.max(0, Math.floor((last - first) / step) + 1);
  return Array.from({ length }, (_, i) => 10 ** (first + i * step));
}

/**
 * Where numbers lie on an axis, 0 to 1, and its ticks.
 * @param {number} low
 * @param {number} high
 * @param {boolean} isLog
 */
export function axis(low, high, isLog) {
  const scale = (/** @type {number} */ value) => (isLog ? Math.log10(Math.max(value, 1e-9)) : value);
  const [from, to] = [scale(low), scale(high)];
  return {
    at: (/** @type {number} */ value) => (to === from ? 0.5 : (scale(value) - from) / (to - from)),
    ticks: ticks(low, high, isLog),
  };
}

/** A number beside an axis. @param {number} value */
export const short = (value) =>
  Math.abs(value) >= 1e5
    ? value.toExponential(0).replace("e+", "e")
    : String(Number(value.toPrecision(6))).replace("-", "−");

const LOW_SIGNS = "ᵢⱼₖₜ₀₁₂₃₄₅₆₇₈₉₋";
const LOW_LETTERS = "ijkt0123456789−";
const HIGH_SIGNS = "ᵀⁿˣᵐ¹²";
const HIGH_LETTERS = "Tn×m12";
const SIGNS = new RegExp(
  `([${LOW_SIGNS}]+)|([${HIGH_SIGNS}]+)|_([A-Za-z]+)|\\^\\(([^()]*)\\)|\\^([\\w.−ᵢⱼ₁₂]+)`,
  "g",
);

/** @param {string} signs @param {string} from @param {string} to */
const letters = (signs, from, to) => [...signs].map((sign) => to[[...from].indexOf(sign)] ?? sign).join("");

/**
 * A formula in parts: plain text, subscripts and superscripts. Fonts draw the signs for these too small to be read.
 * @param {string} text
 * @returns {["" | "sub" | "sup", string][]}
 */
export function formulaParts(text) {
  /** @type {["" | "sub" | "sup", string][]} */
  const parts = [];
  let end = 0;
  for (const match of text.matchAll(SIGNS)) {
    const [whole, low, high, letter, inside, power] = match;
    parts.push(["", text.slice(end, match.index)]);
    if (low) parts.push(["sub", letters(low, LOW_SIGNS, LOW_LETTERS)]);
    else if (letter) parts.push(["sub", letter]);
    else if (high) parts.push(["sup", letters(high, HIGH_SIGNS, HIGH_LETTERS)]);
    else parts.push(["sup", letters(inside ?? power, LOW_SIGNS, LOW_LETTERS)]);
    end = match.index + whole.length;
  }
  return [...parts, /** @type {["", string]} */ (["", text.slice(end)])].filter(([, part]) => part !== "");
}
