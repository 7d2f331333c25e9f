// A run that is written into the page itself (an exported file), answered as the server would answer.
import { bytesPerNumber, encode, readHeader } from "./safetensors.js";

/** @import { Part } from "./safetensors.js" */
/**
 * @typedef {object} Content what stands in the file beside the numbers
 * @property {{ kept: { text: string, context: string } } & Record<string, unknown>} models
 * @property {Record<string, unknown>} trace
 * @property {Record<string, object[]>} readings
 */

const ALONE = "This page is a file with one run in it. For another, start “regard explore”.";
const LEFT_OUT = "This page was written without these numbers, because the text is long.";
const HEADS = "heads/";

/** @param {BodyInit} content @param {number} status */
const respond = (content, status = 200) => new Response(content, { status });
/** @param {unknown} content */
const json = (content) => respond(JSON.stringify(content));
/** @param {string} message */
const refuse = (message) => respond(JSON.stringify({ error: message, code: "E_USAGE" }), 400);

/**
 * One row or column of a tensor, which keeps its dimension with the size 1.
 * @param {Part} part
 * @param {number} dimension
 * @param {number} index
 * @returns {Part}
 */
export function narrow({ dtype, shape, bytes }, dimension, index) {
  const inner = shape.slice(dimension + 1).reduce((a, b) => a * b, bytesPerNumber(dtype));
  const outer = shape.slice(0, dimension).reduce((a, b) => a * b, 1);
  const result = new Uint8Array(outer * inner);
  for (let i = 0; i < outer; i++) {
    const from = (i * shape[dimension] + index) * inner;
    result.set(bytes.subarray(from, from + inner), i * inner);
  }
  return { dtype, shape: shape.with(dimension, 1), bytes: result };
}

export class EmbeddedRun {
  /**
   * @param {Content} content
   * @param {Uint8Array} file a safetensors file
   */
  constructor(content, file) {
    this.content = content;
    const { tensors, start } = readHeader(/** @type {ArrayBuffer} */ (file.buffer));
    this.header = tensors;
    this.numbers = file.subarray(start);
  }

  /**
   * As fetch.
   * @param {string} path
   * @param {{ method?: string, body?: string }} options
   */
  respond(path, { method = "GET", body = "{}" } = {}) {
    const [route, search] = path.split("?");
    const query = new URLSearchParams(search);
    try {
      switch (`${method} ${route}`) {
        case "GET /api/v1/models":
          return json(this.content.models);
        case "POST /api/v1/trace":
          return this.isSame(JSON.parse(body)) ? json(this.content.trace) : refuse(ALONE);
        case "GET /api/v1/trace/kept/tensors":
          return respond(encode(this.tensors(query)));
        case "GET /api/v1/trace/kept/reading":
          return this.reading(query);
        default:
          return refuse(ALONE);
      }
    } catch (error) {
      return refuse(/** @type {Error} */ (error).message);
    }
  }

  /** @param {Record<string, any>} request */
  isSame({ source, context, prefix, interventions, decode }) {
    const { text, context: other } = this.content.models.kept;
    return (
      source === text && (context ?? "") === other && !prefix?.length && !interventions?.length && !decode
    );
  }

  /**
   * One tensor, or a slice along its first dimension.
   * @param {string} name
   * @param {number | null} slice
   * @returns {Part}
   */
  part(name, slice = null) {
    const entry = this.header[name];
    if (!entry) throw new Error(LEFT_OUT);
    const { dtype, shape } = entry;
    const bytes = this.numbers.subarray(...entry.data_offsets);
    if (slice === null) return { dtype, shape, bytes };
    const size = bytes.length / shape[0];
    return { dtype, shape: shape.slice(1), bytes: bytes.subarray(slice * size, (slice + 1) * size) };
  }

  /** @param {string} folder */
  namesIn(folder) {
    return Object.keys(this.header)
      .filter((name) => name.startsWith(folder))
      .map((name) => name.slice(folder.length));
  }

  /** @param {URLSearchParams} query */
  tensors(query) {
    const folder = query.has("pool") ? "pooled/" : "whole/";
    const selected = new Map();
    for (const pattern of query.getAll("name")) {
      const [before, after] = pattern.split("*"); // the page asks with one * at most
      for (const name of this.namesIn(folder)) {
        const matches =
          after === undefined ? name === pattern : name.startsWith(before) && name.endsWith(after);
        if (!matches) continue;
        const head = query.has("head") ? this.sliceOfHead(name, Number(query.get("head"))) : null;
        let part = this.part(folder + name, head);
        if (query.has("row")) part = narrow(part, part.shape.length - 2, Number(query.get("row")));
        if (query.has("column")) part = narrow(part, part.shape.length - 1, Number(query.get("column")));
        selected.set(name, part);
      }
    }
    return selected;
  }

  /**
   * Keys and values may serve a group of heads each.
   * @param {string} name
   * @param {number} head
   */
  sliceOfHead(name, head) {
    const { shape } = this.header[`whole/${name}`];
    if (shape.length !== 3) return null;
    const queries = this.header[`whole/${name.replace(/\.[^.]*$/, "")}.query`];
    const heads = queries?.shape.length === 3 ? queries.shape[0] : shape[0];
    return Math.floor((head * shape[0]) / heads);
  }

  /** @param {URLSearchParams} query */
  reading(query) {
    const kind = query.get("kind");
    if (kind === "heads") {
      return respond(encode(new Map(this.namesIn(HEADS).map((name) => [name, this.part(HEADS + name)]))));
    }
    const where = kind === "rollout" ? "" : (query.get("where") ?? "");
    const name = `look/${kind}/${where}/${query.get("words") === "true" ? "words" : "pieces"}`;
    const head = query.get("head") ?? "mean";
    const about = this.content.readings[name];
    if (!this.header[name] && about && head !== "mean") {
      // of a long text the plain weights are here, and no reading of them
      return this.matrix(this.part(`whole/${where}.weights`, Number(head)), about[0]);
    }
    const last = this.part(name).shape[0] - 1;
    const slice = head === "mean" ? last : Number(head);
    return this.matrix(this.part(name, slice), about[head === "mean" ? 1 : 0]);
  }

  /** @param {Part} values @param {object} about */
  matrix(values, about) {
    return respond(encode(new Map([["values", values]]), { "regard.reading": JSON.stringify(about) }));
  }
}
