// The safetensors format: 8 bytes with the header's length, the header as JSON, then the numbers.

/**
 * @template [Data=Float32Array]
 * @typedef {{ data: Data, shape: number[] }} Tensor
 */
/** @typedef {{ dtype: string, shape: number[], bytes: Uint8Array }} Part a tensor as it stands in a file */
/** @typedef {{ dtype: string, shape: number[], data_offsets: [number, number] }} Entry */

const METADATA = "__metadata__";
/** @type {Record<string, any>} */
const ARRAYS = { F32: Float32Array, U8: Uint8Array, BOOL: Uint8Array, I64: BigInt64Array };

/** @param {string} dtype */
export const bytesPerNumber = (dtype) => ARRAYS[dtype].BYTES_PER_ELEMENT;

/**
 * The header of a file: its tensors by name, its metadata, and where the numbers begin.
 * @param {ArrayBuffer} buffer
 * @returns {{ tensors: Record<string, Entry>, metadata: Record<string, string>, start: number }}
 */
export function readHeader(buffer) {
  const length = Number(new DataView(buffer).getBigUint64(0, true));
  const header = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 8, length)));
  const { [METADATA]: metadata = {}, ...tensors } = header;
  return { tensors, metadata, start: 8 + length };
}

/**
 * All tensors of a file. A slice is copied, because a typed array must begin at a multiple of its size.
 * @param {ArrayBuffer} buffer
 * @returns {Record<string, Tensor<any>>}
 */
export function parse(buffer) {
  const { tensors, start } = readHeader(buffer);
  return Object.fromEntries(
    Object.entries(tensors).map(
      ([
        name,
        {
          dtype,
          shape,
          data_offsets: [from, to],
        },
      ]) => [name, { shape, data: new ARRAYS[dtype](buffer.slice(start + from, start + to)) }],
    ),
  );
}

/**
 * A file of some parts.
 * @param {Map<string, Part>} parts
 * @param {Record<string, string>} metadata
 */
export function encode(parts, metadata = {}) {
  /** @type {Record<string, unknown>} */
  const header = { [METADATA]: metadata };
  let end = 0;
  for (const [name, { dtype, shape, bytes }] of parts) {
    header[name] = { dtype, shape, data_offsets: [end, (end += bytes.length)] };
  }
  const text = new TextEncoder().encode(JSON.stringify(header));
  const file = new Uint8Array(8 + text.length + end);
  new DataView(file.buffer).setBigUint64(0, BigInt(text.length), true);
  file.set(text, 8);
  let at = 8 + text.length;
  for (const { bytes } of parts.values()) {
    file.set(bytes, at);
    at += bytes.length;
  }
  return file;
}
