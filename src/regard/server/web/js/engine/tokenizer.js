// Text to token ids and back: the byte-level tokenizers that Regard trains, BPE and unigram, as in
// inputs/text/byte_level.py.

/**
 * @typedef {object} Content of a tokenizer
 * @property {"BPE" | "Unigram"} model
 * @property {string[]} names of the ids, in the byte alphabet
 * @property {string[]} merges two tokens with a space between, in their order
 * @property {boolean} ignore_merges
 * @property {number[]} scores of a unigram model
 * @property {boolean} whole the model gets each text without pre-tokenization
 * @property {number[]} added ids that are no bytes
 * @property {number[]} placeholders
 * @property {number} start
 * @property {number} end
 * @property {number | null} mask
 * @property {number | null} unknown
 * @property {number[]} sentinels
 * @property {number[]} suppressed
 * @property {number} separators
 * @property {boolean} adds_start
 */

// White space of Unicode as the patterns of the tokenizer have it, and as Python's str.strip has it.
const SPACE = "\\t-\\r \\x85\\xa0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000";
const PYTHON_SPACE = `${SPACE}\\x1c-\\x1f`;
const CHUNK = new RegExp(`[${SPACE}]*[^${SPACE}]+|[${SPACE}]+`, "gu");
const PIECE = new RegExp(
  `'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^${SPACE}\\p{L}\\p{N}]+|[${SPACE}]+(?![^${SPACE}])|[${SPACE}]+`,
  "gu",
);
const TOKEN = /(⟦[0-9]{1,3}⟧)/u;
const WORD = new RegExp(`[${PYTHON_SPACE}]*[^${PYTHON_SPACE}]+(?:[${PYTHON_SPACE}]+$)?`, "gu");
const AROUND = new RegExp(`^[${PYTHON_SPACE}]+|[${PYTHON_SPACE}]+$`, "gu");

/** Python's split() and isspace(). */
export const SPACES = new RegExp(`[${PYTHON_SPACE}]+`, "u");
const LEADING = new RegExp(`^[${PYTHON_SPACE}]+`, "u");

/** Python's strip(). @param {string} text */
export const strip = (text) => text.replace(AROUND, "");

/** The character for each byte: itself where printable, else one from U+0100 on. */
const ALPHABET = (() => {
  let next = 0x100;
  const printable = (/** @type {number} */ byte) =>
    (byte > 0x20 && byte < 0x7f) || (byte > 0xa0 && byte !== 0xad);
  return Array.from({ length: 256 }, (_, byte) => String.fromCharCode(printable(byte) ? byte : next++));
})();
const BYTE_OF = new Map(ALPHABET.map((sign, byte) => [sign, byte]));

const encoder = new TextEncoder();
const decoder = new TextDecoder("utf-8", { ignoreBOM: true });
const strict = new TextDecoder("utf-8", { ignoreBOM: true, fatal: true });

/** Lone surrogates, which UTF-8 cannot hold, as U+FFFD. @param {string} text */
export const wellFormed = (text) => decoder.decode(encoder.encode(text));

/**
 * Whole characters, and bytes that belong to none: [text or byte, number of bytes].
 * @param {Uint8Array} bytes @returns {[string | number, number][]}
 */
function characters(bytes) {
  /** @type {[string | number, number][]} */
  const out = [];
  for (let at = 0; at < bytes.length;) {
    const size = bytes[at] < 0x80 ? 1 : bytes[at] < 0xe0 ? 2 : bytes[at] < 0xf0 ? 3 : 4;
    let text = null;
    try {
      if (bytes[at] < 0x80 || bytes[at] >= 0xc2) text = strict.decode(bytes.subarray(at, at + size));
    } catch {
      // no whole character begins here
    }
    out.push(text === null ? [bytes[at], 1] : [text, size]);
    at += text === null ? 1 : size;
  }
  return out;
}

/** @param {Uint8Array[]} parts */
function concat(parts) {
  const out = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0));
  let at = 0;
  for (const part of parts) {
    out.set(part, at);
    at += part.length;
  }
  return out;
}

const NO_BYTES = new Uint8Array();

export class Tokenizer {
  /** @param {Content} content */
  constructor(content) {
    this.content = content;
    this.size = content.names.length;
    const added = new Set(content.added); // no text is encoded as one of these
    this.ids = new Map(content.names.flatMap((name, id) => (added.has(id) ? [] : [[name, id]])));
    this.ranks = new Map(content.merges.map((pair, rank) => [pair, rank]));
    const bytes = (/** @type {string} */ name) =>
      Uint8Array.from(name, (sign) => /** @type {number} */ (BYTE_OF.get(sign)));
    /** @type {(Uint8Array | null)[]} */
    this.bytes = content.names.map((name, id) => (added.has(id) ? null : bytes(name)));
    for (const id of content.placeholders) this.bytes[id] = encoder.encode(content.names[id]);
    this.longest = content.names.reduce((most, name) => Math.max(most, name.length), 0);
  }

  /** Token ids of a text, without special tokens. @param {string} text @returns {number[]} */
  encode(text) {
    return this.encodeInside(this.content.whole || !text ? text : ` ${text}`);
  }

  /**
   * Token ids of a text that continues another one: no space is put in front.
   * @param {string} text @returns {number[]}
   */
  encodeInside(text) {
    text = wellFormed(text);
    if (this.content.whole) return this.modelIds(text);
    const { placeholders, names } = this.content;
    return (text.match(CHUNK) ?? []).flatMap((chunk) => {
      if (!placeholders.length || !chunk.includes("⟦")) return this.pieces(chunk);
      return chunk.split(TOKEN).flatMap((part) => {
        const id = placeholders.find((each) => names[each] === part);
        return id === undefined ? this.pieces(part) : [id];
      });
    });
  }

  /** @param {string} chunk */
  pieces(chunk) {
    return (chunk.match(PIECE) ?? []).flatMap((piece) => this.modelIds(piece));
  }

  /** @param {string} text */
  modelIds(text) {
    const spelled = Array.from(encoder.encode(text), (byte) => ALPHABET[byte]);
    return this.content.model === "BPE" ? this.merge(spelled) : this.likeliest(spelled.join(""));
  }

  /**
   * Byte-pair encoding: the pair with the earliest merge is joined, again and again.
   * @param {string[]} parts
   */
  merge(parts) {
    const whole = this.ids.get(parts.join(""));
    if (this.content.ignore_merges && whole !== undefined) return [whole];
    for (;;) {
      let [best, place] = [Infinity, -1];
      for (let i = 0; i + 1 < parts.length; i++) {
        const rank = this.ranks.get(`${parts[i]} ${parts[i + 1]}`) ?? Infinity;
        if (rank < best) [best, place] = [rank, i];
      }
      if (place < 0) return parts.map((part) => /** @type {number} */ (this.ids.get(part)));
      parts.splice(place, 2, parts[place] + parts[place + 1]);
    }
  }

  /** The tokens of the largest sum of log probabilities (Viterbi). @param {string} spelled */
  likeliest(spelled) {
    const best = [{ score: 0, from: 0, id: 0 }];
    for (let from = 0; from < spelled.length; from++) {
      for (let to = from + 1; to <= Math.min(spelled.length, from + this.longest); to++) {
        const id = this.ids.get(spelled.slice(from, to));
        if (id === undefined) continue;
        const score = best[from].score + this.content.scores[id];
        if (!best[to] || score > best[to].score) best[to] = { score, from, id };
      }
    }
    const ids = [];
    for (let at = spelled.length; at > 0; at = best[at].from) ids.unshift(best[at].id);
    return ids;
  }

  /**
   * Token ids, and the span of each in the text, in UTF-16 units, without the white space in front.
   * @param {string} text
   */
  spans(text) {
    const clean = wellFormed(text);
    const ids = this.encode(clean);
    /** @type {number[]} */
    const begins = []; // of the character of each byte, in the text
    /** @type {number[]} */
    const ends = [];
    let unit = 0;
    for (const sign of clean) {
      for (const _ of encoder.encode(sign)) {
        begins.push(unit);
        ends.push(unit + sign.length);
      }
      unit += sign.length;
    }
    let position = this.content.whole ? 0 : -1; // the space that `encode` puts in front
    const spans = ids.map((id) => {
      const after = position + (this.bytes[id]?.length ?? 0);
      const [from, to] = [Math.max(position, 0), after];
      position = after;
      if (from >= to) return [0, 0];
      const inside = clean.slice(begins[from], ends[to - 1]);
      return [ends[to - 1] - inside.replace(LEADING, "").length, ends[to - 1]];
    });
    return { ids, spans };
  }

  /** Text without special tokens; broken UTF-8 gives U+FFFD. @param {number[]} ids */
  decode(ids) {
    const text = decoder.decode(concat(ids.map((id) => this.bytes[id] ?? NO_BYTES)));
    return !this.content.whole && text.startsWith(" ") ? text.slice(1) : text;
  }

  /** Readable text of a token; bytes of an incomplete character are shown as `<0xE2>`. @param {number} id */
  text(id) {
    if (!(id >= 0 && id < this.size)) return `<id ${id}>`;
    const bytes = this.bytes[id];
    if (!bytes) return this.content.names[id];
    return characters(bytes)
      .map(([sign]) =>
        typeof sign === "string" ? sign : `<0x${sign.toString(16).toUpperCase().padStart(2, "0")}>`,
      )
      .join("");
  }

  /** For each id the number of its word in the text, or -1 if it belongs to no word. @param {number[]} ids */
  words(ids) {
    const contents = ids.map((id) => this.bytes[id] ?? NO_BYTES);
    const signs = characters(concat(contents));
    const text = signs.map(([sign]) => (typeof sign === "string" ? sign : "\ufffd")).join("");
    const sizes = signs.flatMap(([sign, size]) =>
      typeof sign === "string" && sign.length === 2 ? [size, 0] : [size],
    );
    const first = strip(text) ? 0 : -1;
    /** @type {number[]} */
    const ofByte = [];
    let unit = 0;
    (text.match(WORD) ?? [text]).forEach((word, number) => {
      for (const end = unit + word.length; unit < end; unit++) {
        for (let i = 0; i < sizes[unit]; i++) ofByte.push(first + number);
      }
    });
    let at = 0;
    return contents.map((content) => {
      const word = content.length && at < ofByte.length ? ofByte[at] : -1;
      at += content.length;
      return word;
    });
  }

  /** Ids by name, for replacements: `<mask>`, `<unk>`, `</s>`. */
  specials() {
    const { suppressed, end, sentinels } = this.content;
    return new Map([...suppressed, end, ...sentinels].map((id) => [this.text(id), id]));
  }
}
