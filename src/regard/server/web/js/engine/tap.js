// A tap receives the tensors of one run by name, may replace them, and records them, as in models/recorder.py.

/** @import { AnyTensor } from "./math.js" */
/** @typedef {{ names: RegExp[], edit: (x: any) => AnyTensor }} Edit of the tensors of some names */

/** @param {string} pattern with `*` for anything */
export const matcher = (pattern) =>
  new RegExp(
    `^${pattern
      .split("*")
      .map((part) => part.replace(/[.]/g, "\\."))
      .join(".*")}$`,
  );

export class Tap {
  /**
   * @param {Edit[]} edits
   * @param {Map<string, AnyTensor> | null} tensors where they are recorded
   */
  constructor(edits = [], tensors = null, path = "", step = -1) {
    this.edits = edits;
    this.tensors = tensors;
    this.path = path;
    this.step = step;
  }

  /** The same tap with the prefix `name.` before all names. @param {string} name */
  within(name) {
    return new Tap(this.edits, this.tensors, `${this.path}${name}.`, this.step);
  }

  /**
   * The same tap at one step of a recurrence; the steps become the rows of one tensor.
   * @param {number} step
   */
  at(step) {
    return new Tap(this.edits, this.tensors, this.path, step);
  }

  /** @template {AnyTensor} T @param {string} name @param {T} x @returns {T} */
  see(name, x) {
    const full = this.path + name;
    let edited = x;
    for (const { names, edit } of this.edits) {
      if (names.some((pattern) => pattern.test(full))) edited = /** @type {T} */ (edit(edited));
    }
    if (this.tensors) this.record(full, edited);
    return edited;
  }

  /** @param {string} name @param {AnyTensor} x */
  record(name, x) {
    if (this.step < 0) {
      this.tensors?.set(name, x);
      return;
    }
    const steps = /** @type {any} */ (this.tensors?.get(name)) ?? { steps: [] };
    steps.steps[this.step] = x;
    this.tensors?.set(name, steps);
  }
}

/**
 * The steps of recurrences as one tensor each: T of [...,D] -> [...,T,D].
 * @param {Map<string, any>} tensors
 */
export function stackSteps(tensors) {
  for (const [name, { steps }] of tensors) {
    if (!steps) continue;
    const shape = steps[0].shape;
    const width = shape[shape.length - 1];
    const data = new Float32Array(width * steps.length); // before the last dimension there is one row
    steps.forEach((/** @type {any} */ x, /** @type {number} */ t) => data.set(x.data, t * width));
    tensors.set(name, { shape: [...shape.slice(0, -1), steps.length, width], data });
  }
}

/** @param {Tap | null} tap @param {string} name */
export const within = (tap, name) => tap && tap.within(name);

/** @template {AnyTensor} T @param {Tap | null} tap @param {string} name @param {T} x @returns {T} */
export const tapped = (tap, name, x) => (tap ? tap.see(name, x) : x);
