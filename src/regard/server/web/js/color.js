// Colours of numbers. Shares run from the paper's colour to a dark blue (light page) or a bright yellow (dark
// page); signed numbers run from blue over the paper to orange. Lightness alone shows the order.

/** @typedef {[number, number, number]} Color red, green, blue: 0 to 255 */

/** @type {Record<string, Color[]>} */
const SHARE = {
  light: [
    [250, 250, 246],
    [196, 214, 234],
    [108, 152, 202],
    [42, 88, 150],
    [14, 36, 82],
  ],
  dark: [
    [26, 30, 38],
    [38, 62, 104],
    [76, 112, 140],
    [160, 168, 110],
    [253, 226, 92],
  ],
};
/** @type {Record<string, Color[]>} */
const SIGNED = {
  light: [
    [20, 82, 160],
    [140, 182, 222],
    [248, 248, 244],
    [240, 176, 120],
    [176, 74, 10],
  ],
  dark: [
    [110, 176, 250],
    [48, 84, 132],
    [26, 30, 38],
    [138, 80, 34],
    [255, 170, 90],
  ],
};

/**
 * Linear interpolation between stops at equal distances, of 0 to 1.
 * @param {Color[]} stops
 * @param {number} at
 * @returns {Color}
 */
function interpolate(stops, at) {
  const place = Math.min(1, Math.max(0, Number.isFinite(at) ? at : 0)) * (stops.length - 1);
  const low = Math.min(stops.length - 2, Math.floor(place));
  const channel = (/** @type {number} */ i) =>
    Math.round(stops[low][i] + (stops[low + 1][i] - stops[low][i]) * (place - low));
  return [channel(0), channel(1), channel(2)];
}

/** @type {MediaQueryList | undefined} */
let query;
const darkScheme = () => (query ??= matchMedia("(prefers-color-scheme: dark)"));
const scheme = () => (darkScheme().matches ? "dark" : "light");

/** @param {() => void} listener */
export const onScheme = (listener) => darkScheme().addEventListener("change", listener);

/** A share, 0 to 1. @param {number} value */
export const share = (value, mode = scheme()) => interpolate(SHARE[mode], value);

/** A signed number, -1 to 1. @param {number} value */
export const signed = (value, mode = scheme()) => interpolate(SIGNED[mode], (value + 1) / 2);

/** @param {Color} color */
export const css = ([r, g, b]) => `rgb(${r} ${g} ${b})`;

/** The colour of text that can be read on a colour: relative luminance decides. @param {Color} color */
export function ink(color) {
  const [r, g, b] = color.map((c) =>
    c / 255 <= 0.04045 ? c / 255 / 12.92 : ((c / 255 + 0.055) / 1.055) ** 2.4,
  );
  return 0.2126 * r + 0.7152 * g + 0.0722 * b > 0.18 ? "#000" : "#fff";
}

/** The largest absolute value, so that colours can be scaled by it. @param {Iterable<number>} data */
export function reach(data) {
  let most = 0;
  for (const each of data) if (Number.isFinite(each)) most = Math.max(most, Math.abs(each));
  return most || 1;
}
