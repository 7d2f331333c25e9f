// Colours of numbers. Shares run from the paper's colour to a dark blue (light page) or a bright yellow (dark
// page); signed numbers run from blue over the paper to orange. Lightness alone tells the order.

const dark = matchMedia("(prefers-color-scheme: dark)");
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

function between(stops, at) {
  const place = Math.min(1, Math.max(0, Number.isFinite(at) ? at : 0)) * (stops.length - 1);
  const low = Math.min(stops.length - 2, Math.floor(place));
  return stops[low].map((value, i) => Math.round(value + (stops[low + 1][i] - value) * (place - low)));
}

const scheme = () => (dark.matches ? "dark" : "light");
export const onScheme = (listener) => dark.addEventListener("change", listener);
/** A share, 0 to 1. */
export const share = (value) => between(SHARE[scheme()], value);
/** A signed number, -1 to 1. */
export const signed = (value) => between(SIGNED[scheme()], (value + 1) / 2);
export const css = ([r, g, b]) => `rgb(${r} ${g} ${b})`;
/** What can be read on a colour: relative luminance decides. */
export function ink(rgb) {
  const [r, g, b] = rgb.map((c) =>
    c / 255 <= 0.04045 ? c / 255 / 12.92 : ((c / 255 + 0.055) / 1.055) ** 2.4,
  );
  return 0.2126 * r + 0.7152 * g + 0.0722 * b > 0.18 ? "#000" : "#fff";
}

/** The largest absolute value, so that colours can be scaled by it. */
export function reach(data) {
  let most = 0;
  for (const each of data) if (Number.isFinite(each)) most = Math.max(most, Math.abs(each));
  return most || 1;
}
