// A token on the map: its text, and the first numbers of its vector as colours.
import { draw } from "../../a11y.js";
import { css, signed } from "../../color.js";
import { row } from "../../trace.js";

const CELLS = 8; // numbers of a vector that are shown
export const HIGH = 26; // of a token

/**
 * What a full colour means: twice the root mean square of the numbers shown.
 * @param {{ data: any, shape: number[] }} tensor
 */
export function scaleOf(tensor) {
  const all = Array.from({ length: tensor.shape[0] }, (_, i) => [
    ...row(/** @type {any} */ (tensor), i).slice(0, CELLS),
  ]).flat();
  return 2 * Math.sqrt(all.reduce((sum, each) => sum + each * each, 0) / all.length) || 1;
}

/** @param {string} text @param {number} most */
export function clipped(text, most) {
  const [all, end] = [[...text], most < 4 ? "" : "…"];
  return all.length > most ? all.slice(0, most - end.length).join("") + end : text;
}

/**
 * A word in its token: smaller where it is long, shortened where that is not enough.
 * @param {string} text @param {number} wide
 */
export function label(text, wide) {
  if (wide < 12) return draw("g");
  const size = Math.min(12.5, Math.max(8.5, (wide - 4) / (0.6 * [...text].length)));
  const most = Math.max(1, Math.floor((wide - 2) / (0.54 * size)));
  return draw(
    "text",
    { y: 1, "text-anchor": "middle", class: "chip-text", "font-size": size },
    clipped(text, most),
  );
}

/** @param {number} wide */
export function strip(wide) {
  const each = (wide - 6) / CELLS;
  const cells = Array.from({ length: each > 0 ? CELLS : 0 }, (_, i) =>
    draw("rect", { x: -wide / 2 + 3 + i * each, y: HIGH / 2 - 7, width: each, height: 5, fill: "none" }),
  );
  return draw("g", { class: "strip-cells" }, ...cells);
}

/** @param {Element} chip @param {ArrayLike<number>} vector @param {number} largest */
export function paintStrip(chip, vector, largest) {
  const cells = [...chip.querySelectorAll(".strip-cells rect")];
  cells.forEach((cell, i) => {
    cell.setAttribute("fill", css(signed(vector[i] / largest)));
    cell.setAttribute("data-value", String(vector[i]));
  });
}
