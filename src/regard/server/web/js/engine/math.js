// The arithmetic of a model on tensors: numbers in rows and their shape. Sums are in float64, results in float32.
// Shapes: T queries, S keys, D width, H heads, C channels of a head, V vocabulary.

/** @typedef {{ shape: number[], data: Float32Array | Uint8Array | BigInt64Array }} AnyTensor */
/** @typedef {{ shape: number[], data: Float32Array }} Tensor */
/** @typedef {{ shape: number[], data: Uint8Array }} Mask */

/** @param {number[]} shape */
export const sizeOf = (shape) => shape.reduce((a, b) => a * b, 1);

/** @param {number[]} shape @param {Float32Array} [data] @returns {Tensor} */
export const tensor = (shape, data = new Float32Array(sizeOf(shape))) => ({ shape, data });

/** @param {Tensor} x @param {(value: number, index: number) => number} f @returns {Tensor} */
export const map = ({ shape, data }, f) => ({ shape, data: data.map(f) });

/** @param {Tensor} x @param {Tensor} y */
export const add = (x, y) => map(x, (value, i) => value + y.data[i]);

/** One row of the last dimension. @param {Tensor} x @param {number} row */
export function rowOf({ shape, data }, row) {
  const width = shape[shape.length - 1];
  return data.subarray(row * width, (row + 1) * width);
}

/** Rows of a table: [V,D] -> [T,D]. @param {Tensor} table @param {number[]} ids */
export function lookUp(table, ids) {
  const width = table.shape[1];
  const out = tensor([ids.length, width]);
  ids.forEach((id, t) => out.data.set(rowOf(table, id), t * width));
  return out;
}

/**
 * x . y of two vectors of the length n that begin at a and b, in four sums that do not wait for one another.
 * @param {Float32Array} x @param {number} a @param {Float32Array} y @param {number} b @param {number} n
 */
function dot(x, a, y, b, n) {
  let [s0, s1, s2, s3] = [0, 0, 0, 0];
  let i = 0;
  for (; i + 3 < n; i += 4) {
    s0 += x[a + i] * y[b + i];
    s1 += x[a + i + 1] * y[b + i + 1];
    s2 += x[a + i + 2] * y[b + i + 2];
    s3 += x[a + i + 3] * y[b + i + 3];
  }
  for (; i < n; i++) s0 += x[a + i] * y[b + i];
  return s0 + s1 + (s2 + s3);
}

/**
 * y = x W^T + b: [T,K], W [N,K] -> [T,N]. Four rows of W at a time, which are read once for all rows of x.
 * @param {Tensor} x
 * @param {{ weight: Tensor, bias?: Tensor | null }} layer
 */
export function linear(x, { weight, bias }) {
  const [count, inner] = weight.shape;
  const rows = x.data.length / inner;
  const out = tensor([...x.shape.slice(0, -1), count]);
  const [xs, w, y] = [x.data, weight.data, out.data];
  const whole = count - (count % 4);
  for (let n = 0; n < whole; n += 4) {
    const [a, b, c, d] = [n * inner, (n + 1) * inner, (n + 2) * inner, (n + 3) * inner];
    for (let t = 0; t < rows; t++) {
      const from = t * inner;
      let [s0, s1, s2, s3] = [0, 0, 0, 0];
      for (let i = 0; i < inner; i++) {
        const value = xs[from + i];
        s0 += value * w[a + i];
        s1 += value * w[b + i];
        s2 += value * w[c + i];
        s3 += value * w[d + i];
      }
      const at = t * count + n;
      [y[at], y[at + 1], y[at + 2], y[at + 3]] = [s0, s1, s2, s3];
    }
  }
  for (let n = whole; n < count; n++) {
    for (let t = 0; t < rows; t++) y[t * count + n] = dot(xs, t * inner, w, n * inner, inner);
  }
  if (bias) for (let at = 0; at < y.length; at++) y[at] += bias.data[at % count];
  return out;
}

/**
 * Layer norm g (x - mean) / sqrt(variance + epsilon) + b, RMS norm g x / sqrt(mean of x^2 + epsilon), or none.
 * @param {Tensor} x
 * @param {{ kind: string, weight: Tensor, bias?: Tensor, epsilon: number, factor?: number } | null} part
 */
export function norm(x, part) {
  if (!part) return x;
  const width = x.shape[x.shape.length - 1];
  const out = tensor(x.shape);
  for (let at = 0; at < x.data.length; at += width) {
    let mean = 0;
    if (part.kind === "layer") {
      for (let i = 0; i < width; i++) mean += x.data[at + i];
      mean /= width;
    }
    let variance = 0;
    for (let i = 0; i < width; i++) variance += (x.data[at + i] - mean) ** 2;
    const scale = (part.factor ?? 1) / Math.sqrt(variance / width + part.epsilon);
    for (let i = 0; i < width; i++) {
      out.data[at + i] = (x.data[at + i] - mean) * scale * part.weight.data[i] + (part.bias?.data[i] ?? 0);
    }
  }
  return out;
}

/** [T,H*C] -> [H,T,C]. @param {Tensor} x @param {number} heads */
export function splitHeads({ shape, data }, heads) {
  const [rows, width] = shape;
  const channels = width / heads;
  const out = tensor([heads, rows, channels]);
  for (let t = 0; t < rows; t++) {
    for (let h = 0; h < heads; h++) {
      const from = t * width + h * channels;
      out.data.set(data.subarray(from, from + channels), (h * rows + t) * channels);
    }
  }
  return out;
}

/** [H,T,C] -> [T,H*C]. @param {Tensor} x */
export function joinHeads({ shape, data }) {
  const [heads, rows, channels] = shape;
  const out = tensor([rows, heads * channels]);
  for (let h = 0; h < heads; h++) {
    for (let t = 0; t < rows; t++) {
      const from = (h * rows + t) * channels;
      out.data.set(data.subarray(from, from + channels), (t * heads + h) * channels);
    }
  }
  return out;
}

/**
 * Keys or values that several heads share, repeated for each: [G,S,C] -> [H,S,C].
 * @param {Tensor} x @param {number} heads
 */
export function repeatHeads(x, heads) {
  const [groups, rows, channels] = x.shape;
  if (groups === heads) return x;
  const out = tensor([heads, rows, channels]);
  for (let h = 0; h < heads; h++) {
    const group = Math.floor((h * groups) / heads) * rows * channels;
    out.data.set(x.data.subarray(group, group + rows * channels), h * rows * channels);
  }
  return out;
}

/**
 * More rows behind those of each head: [G,S,C], [G,T,C] -> [G,S+T,C].
 * @param {Tensor | null} x @param {Tensor} y
 */
export function appendRows(x, y) {
  if (!x) return y;
  const [heads, before, channels] = x.shape;
  const after = y.shape[1];
  const out = tensor([heads, before + after, channels]);
  for (let h = 0; h < heads; h++) {
    const at = h * (before + after) * channels;
    out.data.set(x.data.subarray(h * before * channels, (h + 1) * before * channels), at);
    out.data.set(y.data.subarray(h * after * channels, (h + 1) * after * channels), at + before * channels);
  }
  return out;
}

/**
 * scale q k^T + bias: [H,T,C], [H,S,C] -> [H,T,S].
 * @param {Tensor} q @param {Tensor} k @param {number} scale @param {Tensor | null} bias
 */
export function scores(q, k, scale, bias) {
  const [heads, queries, channels] = q.shape;
  const keys = k.shape[1];
  const out = tensor([heads, queries, keys]);
  let at = 0;
  for (let h = 0; h < heads; h++) {
    for (let t = 0; t < queries; t++) {
      for (let s = 0; s < keys; s++, at++) {
        const product = dot(
          q.data,
          (h * queries + t) * channels,
          k.data,
          (h * keys + s) * channels,
          channels,
        );
        out.data[at] = product * scale + (bias ? bias.data[at] : 0);
      }
    }
  }
  return out;
}

/** softmax of numbers, in place. @param {Float32Array | Float64Array} values */
export function softmax(values) {
  let highest = -Infinity;
  for (const value of values) if (value > highest) highest = value;
  let sum = 0;
  for (let i = 0; i < values.length; i++) sum += values[i] = Math.exp(values[i] - highest);
  for (let i = 0; i < values.length; i++) values[i] /= sum;
  return values;
}

/**
 * softmax over the visible keys; a query that sees none gets zeros: [H,T,S], mask [T,S] -> [H,T,S].
 * @param {Tensor} products @param {Mask} mask
 */
export function maskedSoftmax(products, mask) {
  const [, queries, keys] = products.shape;
  const out = tensor(products.shape);
  for (let row = 0; row < products.data.length / keys; row++) {
    const visible = (row % queries) * keys;
    const values = Float64Array.from(rowOf(products, row), (value, s) =>
      mask.data[visible + s] ? value : -Infinity,
    );
    if (values.some((value) => value > -Infinity)) out.data.set(softmax(values), row * keys);
  }
  return out;
}

/** a v: [H,T,S], [H,S,C] -> [H,T,C]. @param {Tensor} a @param {Tensor} v */
export function mix(a, v) {
  const [heads, queries, keys] = a.shape;
  const channels = v.shape[2];
  const out = tensor([heads, queries, channels]);
  const sums = new Float64Array(channels);
  for (let row = 0; row < heads * queries; row++) {
    const head = Math.floor(row / queries);
    sums.fill(0);
    for (let s = 0; s < keys; s++) {
      const weight = a.data[row * keys + s];
      const at = (head * keys + s) * channels;
      if (weight) for (let c = 0; c < channels; c++) sums[c] += weight * v.data[at + c];
    }
    out.data.set(sums, row * channels);
  }
  return out;
}

/**
 * erf, by its series for small numbers and the continued fraction of erfc for large ones.
 * @param {number} x
 */
export function erf(x) {
  const z = Math.abs(x);
  if (z > 6) return Math.sign(x);
  if (z < 2.5) {
    let term = z;
    let sum = z;
    for (let n = 1; Math.abs(term) > 1e-17 * Math.abs(sum); n++) {
      term *= (-z * z) / n;
      sum += term / (2 * n + 1);
    }
    return (Math.sign(x) * 2 * sum) / Math.sqrt(Math.PI);
  }
  let fraction = z;
  for (let n = 60; n > 0; n--) fraction = z + n / 2 / fraction;
  return Math.sign(x) * (1 - Math.exp(-z * z) / (fraction * Math.sqrt(Math.PI)));
}

/** @param {number} x */
export const sigmoid = (x) => 1 / (1 + Math.exp(-x));

/** @type {Record<string, (x: number) => number>} */
export const ACTIVATIONS = {
  relu: (x) => (x > 0 ? x : 0),
  gelu: (x) => 0.5 * x * (1 + erf(x / Math.SQRT2)),
  gelu_tanh: (x) => 0.5 * x * (1 + Math.tanh(Math.sqrt(2 / Math.PI) * (x + 0.044715 * x ** 3))),
  swish: (x) => x * sigmoid(x),
  tanh: Math.tanh,
};

/** The indices of the largest numbers, best first. @param {ArrayLike<number>} values @param {number} count */
export function top(values, count) {
  /** @type {number[]} */
  const best = [];
  for (let i = 0; i < values.length; i++) {
    if (best.length === count && !(values[i] > values[best[count - 1]])) continue;
    let place = best.length;
    while (place > 0 && values[i] > values[best[place - 1]]) place--;
    best.splice(place, 0, i);
    if (best.length > count) best.pop();
  }
  return best;
}

/** log sum_i exp(z_i). @param {ArrayLike<number>} values */
export function logSumExp(values) {
  let highest = -Infinity;
  for (let i = 0; i < values.length; i++) if (values[i] > highest) highest = values[i];
  let sum = 0;
  for (let i = 0; i < values.length; i++) sum += Math.exp(values[i] - highest);
  return highest + Math.log(sum);
}
