// Interventions as edits of tensors and as other tokens, as in interpret/interventions.py.
import { matcher } from "./tap.js";

/** @import { AnyTensor, Mask, Tensor } from "./math.js" */
/** @import { Edit } from "./tap.js" */
/** @import { Tokenizer } from "./tokenizer.js" */
/**
 * @typedef {{ type: string, where?: string, head?: number, side?: string, position?: number, text?: string }} Change
 */
/** @typedef {{ side: string, position: number, text: string }} Replacement */

/** @param {AnyTensor} x */
const zeros = ({ shape, data }) => ({ shape, data: new Float32Array(data.length) });
/** @param {AnyTensor} x */
const ones = ({ shape, data }) => ({ shape, data: new Float32Array(data.length).fill(1) });

/** [H,...] with zeros in one head, or in all. @param {Tensor} x @param {number | undefined} head */
function zeroed(x, head) {
  if (head === undefined) return zeros(x);
  const size = x.data.length / x.shape[0];
  const data = x.data.slice();
  data.fill(0, head * size, (head + 1) * size);
  return { shape: x.shape, data };
}

/** A key that one query sees is seen by all: [T,S]. @param {Mask} mask */
function anyQuery({ shape, data }) {
  const keys = shape[1];
  const seen = Array.from({ length: keys }, (_, s) =>
    data.some((value, at) => value && at % keys === s) ? 1 : 0,
  );
  return { shape, data: data.map((_, at) => seen[at % keys]) };
}

/** @param {string[]} names @param {(x: any) => AnyTensor} edit @returns {Edit} */
const editOf = (names, edit) => ({ names: names.map(matcher), edit });

/** @type {Record<string, (change: Change, heads: string[], stacks: string[], scale: number) => Edit[]>} */
const EDITS = {
  zero_head({ where = "", head }) {
    if (where === "decoder.cross") return [editOf(["decoder.cross.context"], zeros)];
    return [editOf([`${where}.mixed`], (x) => zeroed(x, head))];
  },
  uniform({ where, head }, heads) {
    const names = where === undefined ? heads : [where];
    const one = names.includes("decoder.cross") ? undefined : head; // Bahdanau's attention has no heads
    return [
      editOf(
        names.map((name) => `${name}.scores`),
        (x) => zeroed(x, one),
      ),
    ];
  },
  drop_scale({ where }, heads, _stacks, scale) {
    const names = where === undefined ? heads : [where];
    const grown = (/** @type {Tensor} */ { shape, data }) => ({
      shape,
      data: data.map((value) => value / scale),
    });
    return [
      editOf(
        names.map((name) => `${name}.scores`),
        grown,
      ),
    ];
  },
  drop_positions({ side }, _heads, stacks) {
    const sides = side === undefined ? stacks : [side];
    const still = ["embedding.positions", "positions.bias", "positions.sine"];
    return [
      editOf(
        sides.flatMap((each) => still.map((name) => `${each}.${name}`)),
        zeros,
      ),
      editOf(
        sides.map((each) => `${each}.positions.cosine`),
        ones,
      ),
    ];
  },
  unmask_future: () => [editOf(["decoder.*.self.mask"], anyQuery)],
};

/**
 * @param {Change[]} changes
 * @param {{ types: string[], heads: Record<string, number>, stacks: string[] }} offered by the model
 * @param {number} scale of the scores
 * @returns {{ edits: Edit[], replacements: Replacement[] }}
 */
export function editsOf(changes, offered, scale) {
  const refused = changes.find(({ type, where, head }) => {
    const exists = where === undefined || where in offered.heads;
    const most = where === undefined ? Math.min(...Object.values(offered.heads)) : offered.heads[where];
    return !offered.types.includes(type) || !exists || (head !== undefined && !(head >= 0 && head < most));
  });
  if (refused) throw new Error(`This model cannot be changed by ${JSON.stringify(refused)}.`);
  const isToken = (/** @type {Change} */ { type }) => type === "replace_token";
  return {
    edits: changes
      .filter((each) => !isToken(each))
      .flatMap((each) => EDITS[each.type](each, Object.keys(offered.heads), offered.stacks, scale)),
    replacements: changes.filter(isToken).map(({ side = "source", position = 0, text = "" }) => ({
      side,
      position,
      text,
    })),
  };
}

/**
 * For people: "without head 3 of decoder.1.cross".
 * @param {Change[]} changes @param {Record<string, { words: string }>} kinds
 */
export function describe(changes, kinds) {
  const fill = (/** @type {any} */ change) =>
    kinds[change.type].words.replace(
      /\[([^\]{]*)\{(\w+)\}([^\]]*)\]|\{(\w+)\}/g,
      (_, before, name, after, bare) => {
        const value = change[name ?? bare];
        return value === undefined ? "" : `${before ?? ""}${value}${after ?? ""}`;
      },
    );
  return changes.map(fill).join(", ");
}

/**
 * From the last position to the first, because several tokens may replace one.
 * @param {Tokenizer} tokenizer
 * @param {number[]} ids
 * @param {Replacement[]} replacements
 * @param {string} side
 */
export function replaceTokens(tokenizer, ids, replacements, side) {
  const specials = tokenizer.specials();
  const here = replacements.filter((each) => each.side === side);
  for (const { position, text } of here.sort((one, other) => other.position - one.position)) {
    if (position >= ids.length) {
      throw new Error(`position = ${position}: the ${side} has ${ids.length} tokens, from 0 on`);
    }
    const special = specials.get(text);
    const instead = special === undefined ? tokenizer.encode(text) : [special];
    ids = [...ids.slice(0, position), ...instead, ...ids.slice(position + 1)];
  }
  return ids;
}
