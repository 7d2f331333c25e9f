// A matrix with labels as CSV and as plain values.

/**
 * @typedef {object} Matrix
 * @property {string} label
 * @property {string[]} rows
 * @property {string[]} columns
 * @property {ArrayLike<number>} data
 * @property {number} width of a row of the data
 */

/** Spreadsheets read a text that begins so as a formula. @param {string} text */
const harmless = (text) => (/^[=+\-@\t\r]/.test(text) ? `'${text}` : text);
/** @param {string} text */
const quote = (text) => `"${harmless(text).replaceAll('"', '""')}"`;

/** @param {Matrix} matrix */
export function plain({ label, rows, columns, data, width }) {
  const all = Array.from(data);
  const values = rows.map((_, i) => all.slice(i * width, i * width + columns.length));
  return { label, rows, columns, values };
}

/** @param {Matrix} matrix */
export function csv(matrix) {
  const head = ["", ...matrix.columns].map(quote);
  const body = plain(matrix).values.map((row, i) => [quote(matrix.rows[i]), ...row]);
  return [head, ...body].map((line) => `${line.join(",")}\r\n`).join("");
}
