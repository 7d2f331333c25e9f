// The weights of a model from a safetensors file, in float32. A file may hold them in float16.
import { readHeader } from "../safetensors.js";

/** @import { Tensor } from "./math.js" */

/** @type {Float32Array | null} */
let halves = null;

/** The number that each 16 bits of float16 mean: sign, 5 bits of exponent, 10 of fraction. */
function halfTable() {
  return (halves ??= Float32Array.from({ length: 1 << 16 }, (_, bits) => {
    const sign = bits & 0x8000 ? -1 : 1;
    const exponent = (bits >> 10) & 31;
    const fraction = bits & 1023;
    if (exponent === 31) return fraction ? NaN : sign * Infinity;
    return exponent
      ? sign * 2 ** (exponent - 15) * (1 + fraction / 1024)
      : (sign * 2 ** -14 * fraction) / 1024;
  }));
}

/** @param {ArrayBuffer} buffer a safetensors file @returns {Record<string, Tensor>} */
export function readWeights(buffer) {
  const { tensors, start } = readHeader(buffer);
  const numbers = Object.entries(tensors).map(
    ([
      name,
      {
        dtype,
        shape,
        data_offsets: [from, to],
      },
    ]) => {
      const bytes = buffer.slice(start + from, start + to); // a typed array begins at a multiple of its size
      if (dtype === "F32") return [name, { shape, data: new Float32Array(bytes) }];
      if (dtype !== "F16") throw new Error(`${name}: weights in ${dtype} cannot be read here.`);
      const table = halfTable();
      const bits = new Uint16Array(bytes);
      const data = new Float32Array(bits.length);
      for (let i = 0; i < data.length; i++) data[i] = table[bits[i]];
      return [name, { shape, data }];
    },
  );
  return Object.fromEntries(numbers);
}

/**
 * A description of a model with tensors in place of their names, `{"tensor": name}`.
 * @param {any} part
 * @param {Record<string, Tensor>} weights
 * @returns {any}
 */
export function withWeights(part, weights) {
  if (Array.isArray(part)) return part.map((each) => withWeights(each, weights));
  if (!part || typeof part !== "object") return part;
  if (typeof part.tensor === "string") return weights[part.tensor];
  return Object.fromEntries(Object.entries(part).map(([name, each]) => [name, withWeights(each, weights)]));
}
