// Greedy and beam search of one source, and the tree of all candidates, as in generation/search.py.
import { logSumExp, top } from "./math.js";

/** @import { Tap } from "./tap.js" */
/**
 * @typedef {object} Options fields of [decode]
 * @property {number} beam
 * @property {number} length_penalty
 * @property {"power" | "wu"} penalty_form
 * @property {boolean | "never"} early_stopping
 * @property {number} min_length
 * @property {number | null} max_length
 * @property {number} no_repeat_ngram
 * @property {number} repetition_penalty
 * @property {boolean} sample
 * @property {number} temperature
 * @property {number} top_k
 * @property {number} top_p
 * @property {number} seed
 */
/**
 * @typedef {object} Special token ids that generation needs
 * @property {number} start
 * @property {number} end
 * @property {number[]} ends
 * @property {number[]} suppressed
 * @property {number[][]} bad_words
 * @property {number[]} begin_suppressed
 * @property {number | null} forced_bos
 * @property {number | null} forced_eos
 * @property {number | null} max_length
 * @property {number} min_length
 * @property {boolean} renormalize
 */
/** @typedef {{ tokens: number[], logP: number[], score: number, finished: boolean }} Hypothesis */
/** @typedef {{ tokens: number[], logP: number[], total: number, cache: any, node: number }} Beam */
/**
 * @typedef {{ total: number, logP: number, token: number, beam: number, closes: boolean, node: number }} Candidate
 */

const EXTRA_LENGTH = 50; // the paper's limit: source length + 50

/**
 * What a request means: limits, forced tokens and the text before the first token.
 * @param {any} model @param {number[]} source @param {Options} options @param {Special} special
 * @param {number[]} prefix @param {number | null} longest what the decoder reads at most
 */
export function activate(model, source, options, special, prefix, longest) {
  const forcedStart = special.forced_bos;
  if (prefix.length && forcedStart !== null && prefix[0] !== forcedStart) prefix = [forcedStart, ...prefix];
  const readable =
    longest !== null && model.readsPrompts ? Math.max(1, longest - source.length + 1) : longest;
  const usual =
    special.max_length === null
      ? source.length + EXTRA_LENGTH
      : Math.max(1, special.max_length - source.length);
  let limit = prefix.length + (options.max_length ?? usual);
  if (readable !== null) limit = Math.min(limit, Math.max(readable, prefix.length + 1));
  /** @type {Map<number, number>} */
  const forced = new Map();
  if (special.forced_eos !== null) forced.set(limit - 1, special.forced_eos);
  if (forcedStart !== null) forced.set(0, forcedStart);
  prefix.forEach((token, i) => forced.set(i, token));
  return {
    limit,
    forced,
    prefix: prefix.length,
    least: Math.max(options.min_length, special.min_length - source.length),
    context: model.readsPrompts ? source : [special.start],
    ends: [...new Set([special.end, ...special.ends])],
  };
}

/**
 * Tokens that may not follow get -Infinity, in place; what is forced gets 0.
 * @param {Float32Array} logits @param {any} active @param {number[]} tokens @param {Options} options
 * @param {Special} special
 */
export function processLogits(logits, active, tokens, options, special) {
  const all = [...active.context, ...tokens];
  for (const token of special.suppressed) logits[token] = -Infinity;
  const size = options.no_repeat_ngram;
  for (let i = 0; size && i + size <= all.length; i++) {
    const same = all.slice(all.length - size + 1).every((token, j) => all[i + j] === token);
    if (same) logits[all[i + size - 1]] = -Infinity;
  }
  for (const words of special.bad_words) {
    const before = words.slice(0, -1);
    const last = all.slice(all.length - before.length);
    if (before.length <= all.length && before.every((token, j) => last[j] === token)) {
      logits[words[before.length]] = -Infinity;
    }
  }
  if (tokens.length === Math.max(special.forced_bos === null ? 0 : 1, active.prefix)) {
    for (const token of special.begin_suppressed) logits[token] = -Infinity;
  }
  if (tokens.length < active.least) for (const token of active.ends) logits[token] = -Infinity;
  const only = active.forced.get(tokens.length);
  if (only === undefined) return false;
  logits.fill(-Infinity);
  logits[only] = 0;
  return true;
}

/**
 * Earlier tokens score lower: score * penalty if it is negative, else score / penalty.
 * @param {Float32Array} values @param {number[]} tokens @param {number} penalty
 */
export function penalised(values, tokens, penalty) {
  const out = values.slice();
  for (const token of new Set(tokens))
    out[token] = values[token] < 0 ? values[token] * penalty : values[token] / penalty;
  return out;
}

/**
 * length^alpha, or ((5 + length) / 6)^alpha  (Wu et al. 2016, equation 14).
 * @param {Options} options @param {number} length
 */
export const lengthPenalty = (options, length) =>
  (options.penalty_form === "wu" ? (5 + length) / 6 : Math.max(length, 1)) ** options.length_penalty;

export class BeamSearch {
  /**
   * @param {any} model @param {any} active @param {Options} options @param {Special} special
   * @param {Tap | null} tap
   */
  constructor(model, active, options, special, tap) {
    this.model = model;
    this.active = active;
    this.options = options;
    this.special = special;
    this.tap = tap;
    /** @type {any[]} */
    this.nodes = []; // of the tree: every candidate of every step
    /** @type {Hypothesis[]} */
    this.hypotheses = [];
    this.steps = 0;
  }

  /** The best hypothesis. @param {any} sample @returns {Hypothesis} */
  run(sample) {
    const cache = this.model.start(sample, this.special.start, this.tap);
    /** @type {Beam[]} */
    let beams = [{ tokens: [], logP: [], total: 0, cache, node: -1 }];
    for (;;) {
      const fed = beams.map((beam) => {
        const token = beam.tokens.length ? beam.tokens[beam.tokens.length - 1] : beam.cache.first;
        return this.model.step(beam.cache, token, this.tap);
      });
      const candidates = this.candidates(
        beams,
        fed.map(({ logits }) => logits),
      );
      const next = this.choose(candidates);
      this.observe(candidates, next, beams);
      this.collect(candidates, beams);
      if (!next.length && !this.hypotheses.length)
        this.finish(beams[0].tokens, beams[0].logP, beams[0].total);
      beams = next.map(({ token, logP, total, beam, node }) => ({
        tokens: [...beams[beam].tokens, token],
        logP: [...beams[beam].logP, logP],
        total,
        cache: fed[beam].cache,
        node,
      }));
      this.steps++;
      if (this.isDone(next[0]?.total ?? -Infinity)) return this.hypotheses[0];
    }
  }

  /**
   * The best continuations: at most K end with each end token, so K beams can always go on.
   * @param {Beam[]} beams @param {Float32Array[]} rows logits @returns {Candidate[]}
   */
  candidates(beams, rows) {
    const { options, active, special } = this;
    const width = (1 + active.ends.length) * options.beam;
    const all = beams.flatMap((beam, number) => {
      const logits = rows[number];
      const z = logSumExp(logits);
      const shift = processLogits(logits, active, beam.tokens, options, special) ? 0 : z;
      const [penalty, several] = [options.repetition_penalty, options.beam > 1];
      const seen = [...active.context, ...beam.tokens];
      let ranking = several && penalty !== 1 ? logits.map((value) => value - shift) : logits;
      if (penalty !== 1) ranking = penalised(ranking, seen, penalty);
      const usual = several && penalty !== 1 ? 0 : shift;
      const norm = special.renormalize ? logSumExp(ranking) : usual;
      return top(ranking, Math.min(width, ranking.length)).map((token) => ({
        total: Math.fround(beam.total + Math.fround(ranking[token] - norm)),
        logP: logits[token] - (ranking === logits ? norm : shift),
        token,
        beam: number,
        closes: false,
        node: -1,
      }));
    });
    const best = top(
      all.map(({ total }) => total),
      Math.min(width, all.length),
    ).map((i) => all[i]);
    best.forEach((each, place) => {
      const over = active.ends.includes(each.token) || active.limit <= this.steps + 1;
      each.closes = over && each.total > -Infinity && place < options.beam; // only the K best count
    });
    return best;
  }

  /** The candidates that go on. @param {Candidate[]} candidates */
  choose(candidates) {
    const { options, active } = this;
    const open = candidates.filter(({ token, total }) => !active.ends.includes(token) && total > -Infinity);
    return open.slice(0, options.beam);
  }

  /**
   * The tree: every candidate and what became of it.
   * @param {Candidate[]} candidates @param {Candidate[]} next @param {Beam[]} beams
   */
  observe(candidates, next, beams) {
    const { nodes } = this;
    for (const each of candidates) {
      if (each.total === -Infinity) continue;
      each.node = nodes.length;
      nodes.push({
        number: nodes.length,
        step: this.steps,
        parent: beams[each.beam].node,
        token: each.token,
        log_p: each.logP,
        score: each.total,
        fate: each.closes ? "finished" : next.includes(each) ? "kept" : "pruned",
      });
    }
  }

  /** Candidates that end become hypotheses. @param {Candidate[]} candidates @param {Beam[]} beams */
  collect(candidates, beams) {
    for (const { closes, token, logP, total, beam } of candidates) {
      if (closes) this.finish([...beams[beam].tokens, token], [...beams[beam].logP, logP], total);
    }
  }

  /** @param {number[]} tokens @param {number[]} logP @param {number} total */
  finish(tokens, logP, total) {
    const { options, active } = this;
    const every = [...this.hypotheses, hypothesis(tokens, logP, total, active, options)];
    this.hypotheses = every.sort((one, other) => other.score - one.score).slice(0, options.beam);
  }

  /** Whether no better hypothesis can follow. @param {number} best the score of the best beam */
  isDone(best) {
    const { options, active } = this;
    if (this.steps >= active.limit || best === -Infinity) return true;
    if (this.hypotheses.length < options.beam) return false;
    if (options.early_stopping === true || options.beam === 1) return true;
    const until =
      options.early_stopping === "never" && options.length_penalty > 0 ? active.limit : this.steps;
    const worst = this.hypotheses[this.hypotheses.length - 1].score;
    return best / lengthPenalty(options, until - active.prefix) <= worst;
  }
}

/**
 * @param {number[]} tokens @param {number[]} logP @param {number} total @param {any} active
 * @param {Options} options @returns {Hypothesis}
 */
export function hypothesis(tokens, logP, total, active, options) {
  const finished = tokens.length > 0 && active.ends.includes(tokens[tokens.length - 1]);
  return {
    tokens: finished ? tokens.slice(0, -1) : tokens,
    logP,
    score: total / lengthPenalty(options, tokens.length - active.prefix),
    finished,
  };
}

/**
 * The nodes with their texts; `best` marks those on the path to the output, its end token included.
 * @param {any[]} nodes @param {number[]} output @param {(token: number) => string} textOf
 */
export function withPath(nodes, output, textOf) {
  const path = new Set();
  let parent = -1;
  for (const [step, token] of output.entries()) {
    const node = nodes.find((each) => each.step === step && each.parent === parent && each.token === token);
    if (!node) break;
    path.add((parent = node.number));
  }
  return nodes.map((node) => ({ ...node, text: textOf(node.token), best: path.has(node.number) }));
}
