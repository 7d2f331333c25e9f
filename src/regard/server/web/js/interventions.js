// Interventions in the address: `zero_head:decoder.1.cross:3;drop_positions`. The server says which kinds a
// model has, and their fields.

/**
 * @typedef {object} Kind
 * @property {string[]} fields in the order of the address
 * @property {string[]} required
 * @property {"stacks" | "sides" | ""} sides which list of the model the field `side` is of
 * @property {string} words that describe an intervention
 * @property {string} label
 * @property {string} about
 *
 * @typedef {object} Interventions what a model offers
 * @property {string[]} types
 * @property {Record<string, Kind>} kinds
 * @property {Record<string, number>} heads of each attention
 * @property {string[]} stacks encoder, decoder
 * @property {string[]} sides source, target
 *
 * @typedef {object} Change one intervention
 * @property {string} type
 * @property {string} [where]
 * @property {number} [head]
 * @property {string} [side]
 * @property {number} [position]
 * @property {string} [text]
 * @property {string} [name] of a tensor
 * @property {number} [column]
 * @property {number} [value]
 */

const NUMBERS = ["head", "position", "column", "value"];

/** @param {string} text */
function decodePart(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return "";
  }
}

/**
 * An intervention of texts, as the address and forms have them.
 * @param {Kind} kind
 * @param {string} type
 * @param {(field: string, index: number) => string | undefined} value
 * @returns {Change}
 */
export function changeOf(kind, type, value) {
  const given = kind.fields.map((field, i) => /** @type {const} */ ([field, value(field, i) ?? ""]));
  const fields = given
    .filter(([, text]) => text !== "")
    .map(([field, text]) => [field, NUMBERS.includes(field) ? Number(text) : text]);
  return { type, ...Object.fromEntries(fields) };
}

/**
 * The interventions of an address that the model has: a link to another model may have others.
 * @param {Interventions | undefined} offered
 * @param {string} word
 * @returns {Change[]}
 */
export function read(offered, word) {
  if (!offered) return [];
  return word
    .split(";")
    .map((each) => each.split(":").map(decodePart))
    .filter(([type]) => offered.types.includes(type))
    .map(([type, ...values]) => changeOf(offered.kinds[type], type, (_, i) => values[i]))
    .filter((change) => fits(offered, change));
}

/** What the field `side` may be. @param {Interventions} offered @param {Kind} kind */
export const sidesOf = (offered, kind) => (kind.sides ? offered[kind.sides] : []);

/**
 * Whether a model has what an intervention names.
 * @param {Interventions} offered
 * @param {Change} change
 */
function fits(offered, change) {
  const { where, head, side, position, column, value } = change;
  const { heads } = offered;
  const kind = offered.kinds[change.type];
  const least = () => Math.min(...(where === undefined ? Object.values(heads) : [heads[where]]));
  return (
    kind.required.every((field) => /** @type {Record<string, unknown>} */ (change)[field] !== undefined) &&
    (where === undefined || Object.hasOwn(heads, where)) &&
    (head === undefined || (Number.isInteger(head) && head < least())) &&
    (side === undefined || sidesOf(offered, kind).includes(side)) &&
    (position === undefined || Number.isInteger(position)) &&
    (column === undefined || Number.isInteger(column)) &&
    (value === undefined || Number.isFinite(value))
  );
}

/**
 * @param {Interventions} offered
 * @param {Change[]} changes
 */
export const write = ({ kinds }, changes) =>
  changes
    .map((each) => {
      const values = /** @type {Record<string, string | number>} */ (each);
      const parts = kinds[each.type].fields.map((field) => encodeURIComponent(values[field] ?? ""));
      return [each.type, ...parts].join(":").replace(/:+$/, "");
    })
    .join(";");

/**
 * Add an intervention, or remove it if it is there.
 * @param {Interventions} offered
 * @param {string} word
 * @param {Change} change
 */
export function toggle(offered, word, change) {
  const written = write(offered, [change]);
  const all = read(offered, word);
  const others = all.filter((each) => write(offered, [each]) !== written);
  return write(offered, others.length < all.length ? others : [...others, change]);
}

/**
 * Add an intervention; another text for the same token, or value of the same number, replaces the earlier one.
 * @param {Interventions} offered
 * @param {string} word
 * @param {Change} change
 */
export function add(offered, word, change) {
  const place = (/** @type {Change} */ { type, side, name, head, position, column }) =>
    [type, side, name, head, position, column].join(":");
  const same = (/** @type {Change} */ each) =>
    write(offered, [each]) === write(offered, [change]) ||
    ((change.text ?? change.value) !== undefined && place(each) === place(change));
  return write(offered, [...read(offered, word).filter((each) => !same(each)), change]);
}

/**
 * For people, in the words of the kind: "{head}" is a field, "[...]" is left out if its field is.
 * @param {Interventions} offered
 * @param {Change} change
 */
export function describe({ kinds }, change) {
  const values = /** @type {Record<string, unknown>} */ (change);
  const parts = /\[([^\]{]*)\{(\w+)\}([^\]]*)\]|\{(\w+)\}/g;
  return kinds[change.type].words.replaceAll(parts, (_, before = "", optional, after = "", field) => {
    const value = values[optional ?? field];
    return value === undefined ? "" : `${before}${value}${after}`;
  });
}
