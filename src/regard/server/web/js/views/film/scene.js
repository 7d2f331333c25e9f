// One step of the film as SVG: tokens with the first numbers of their vectors, strokes of attention, probabilities.
// Movement is left to style sheets: where the reader wants none, the same step is simply there.
import { draw, following } from "../../a11y.js";
import { fixed } from "../../figures.js";
import { address } from "../../state.js";
import { row } from "../../trace.js";
import { tokensOf } from "./boxes.js";
import { HIGH, clipped, label, paintStrip, scaleOf, strip } from "./chips.js";
import { boxOf, slots } from "./layout.js";
import { chipsOf, rowsOf } from "./places.js";
import { strokes } from "./plan.js";

/** @import { Trace } from "../../trace.js" */
/** @import { Layout } from "./layout.js" */
/** @import { Chip } from "./places.js" */
/** @import { FilmStep } from "./plan.js" */

const BARS = 6;
const BAR = 22;

export class Scene {
  /**
   * @param {Trace} trace
   * @param {Layout} layout
   * @param {(leads: Record<string, string>) => void} go
   */
  constructor(trace, layout, go) {
    this.trace = trace;
    this.layout = layout;
    this.go = go;
    this.strokes = draw("g", { class: "strokes" });
    this.tokens = draw("g", { class: "chips" });
    this.panel = draw("g", { class: "panel" });
    /** @type {Map<string, SVGElement>} */
    this.chips = new Map();
  }

  /** The parts of the drawing, from the back to the front. */
  get parts() {
    return [this.strokes, this.panel, this.tokens];
  }

  /**
   * @param {FilmStep} step
   * @param {Record<string, { data: any, shape: number[] }>} tensors of this step
   * @param {{ head: number, moving: boolean }} how head -1: the mean
   */
  show(step, tensors, { head, moving }) {
    this.place(chipsOf(this.trace, this.layout, step), step, tensors[step.vectors]);
    this.strokes.replaceChildren(...this.links(step, tensors[`${step.where}.weights`], head));
    this.panel.replaceChildren(...this.probabilities(step), ...this.picture());
    if (step.kind === "context") this.tokens.append(this.context(tensors[step.vectors]));
    if (step.kind === "choose") this.walk(step, moving);
  }

  /** @param {Chip[]} chips @param {FilmStep} step @param {{ data: any, shape: number[] } | undefined} vectors */
  place(chips, step, vectors) {
    const wanted = new Set(chips.map((chip) => chip.id));
    for (const [id, element] of this.chips) {
      if (wanted.has(id)) continue;
      element.remove();
      this.chips.delete(id);
    }
    for (const each of this.tokens.querySelectorAll(".once")) each.remove();
    const largest = vectors ? scaleOf(vectors) : 1;
    for (const chip of chips) {
      const earlier = this.chips.get(chip.id);
      const element = earlier ?? this.chip(chip);
      if (!earlier) {
        this.chips.set(chip.id, element);
        element.style.transform = at(chip.start ?? [chip.x, chip.y]);
        this.tokens.append(element);
        element.getBoundingClientRect(); // the place it starts from
      }
      element.style.transform = at([chip.x, chip.y]);
      const climbs = chip.role === "climb" && chip.side === step.side;
      if (climbs && vectors && chip.index < vectors.shape[0])
        paintStrip(element, row(vectors, chip.index), largest);
      element.classList.toggle("old", climbs && chip.index < step.rows[0]);
    }
  }

  /** @param {Chip} chip */
  chip({ side, index, text, width, role, id }) {
    const leads = { view: "stream", side: tokensOf(side), query: String(index) };
    const wide = Math.max(4, width - 3);
    const content = this.patch(side, index, wide) ?? label(text, wide);
    const name = `${role === "key" ? "key " : ""}${text}, place ${index} of the ${side}`;
    const link = draw(
      "a",
      {
        href: address(leads),
        class: `chip ${role}`,
        "data-chip": id,
        "aria-label": name,
        tabindex: role === "rest" ? "0" : "-1",
        onclick: following(() => this.go(leads)),
      },
      draw("rect", {
        x: -wide / 2,
        y: -HIGH / 2,
        width: wide,
        height: HIGH,
        rx: Math.min(5, wide / 4),
        class: "chip-box",
      }),
      content,
      draw("title", {}, text),
    );
    if (role === "climb") link.append(strip(wide));
    return link;
  }

  /**
   * A patch of the picture or spectrogram, where the tokens are such.
   * @param {string} side @param {number} index @param {number} wide
   */
  patch(side, index, wide) {
    const input = side === "encoder" ? this.trace.meta.input : null;
    if (!input || index < input.first) return null;
    const columns = input.grid.at(-1);
    const rows = input.grid.at(-2);
    const place = index - input.first;
    const y = Math.floor(place / columns) % rows;
    const box = { x: -wide / 2, y: -HIGH / 2, width: wide, height: HIGH - 7 };
    const crop = `${place % columns} ${input.kind === "audio" ? rows - 1 - y : y} 1 1`;
    const image = draw("image", {
      href: input.image,
      width: columns,
      height: rows,
      preserveAspectRatio: "none",
      class: "pixels",
    });
    return draw("svg", { ...box, viewBox: crop, preserveAspectRatio: "none" }, image);
  }

  /** The whole picture or spectrogram, below the probabilities. */
  picture() {
    const { input } = this.trace.meta;
    const { panel, narrow } = this.layout;
    if (!input || !panel || narrow) return [];
    const y = panel.y + 34 + (BARS + 1) * BAR;
    const side = Math.min(150, panel.height - y);
    const size = input.kind === "audio" ? { width: 204, height: 60 } : { width: side, height: side };
    return [
      draw("image", {
        x: panel.x,
        y,
        ...size,
        href: input.image,
        preserveAspectRatio: "none",
        class: "pixels",
      }),
    ];
  }

  /** @param {FilmStep} step @param {{ data: any, shape: number[] } | undefined} weights @param {number} head */
  links(step, weights, head) {
    if (step.kind === "recurrent") return this.states(step);
    const box = boxOf(this.layout, step.side, step.box);
    if (!weights || !box) return [];
    const [queries, keys] = this.trace.sides(step.where);
    const rows = rowsOf(this.layout, box);
    const [above, below] = [queries, keys].map((each) => slots(this.layout, box, each.ids.length).x);
    const [y1, y2] = [rows.keys - HIGH / 2, rows.queries + HIGH / 2];
    const bend = (y1 - y2) * 0.5;
    return strokes(weights, step.rows, head).map(({ query, key, weight }) => {
      const leads = {
        view: "attention",
        where: step.where,
        head: String(head < 0 ? strongest(weights, query, key) : head),
        query: String(query),
        key: String(key),
      };
      const path = draw(
        "path",
        {
          d: `M${below[key]} ${y1}C${below[key]} ${y1 - bend} ${above[query]} ${y2 + bend} ${above[query]} ${y2}`,
          class: "stroke",
          pathLength: "1",
          "stroke-width": 0.8 + 4.2 * weight,
          "stroke-opacity": weight,
          "data-query": query,
          "data-key": key,
          "data-weight": weight,
          onclick: () => this.go(leads),
        },
        draw("title", {}, `${queries.shown[query]} reads ${keys.shown[key]}: ${fixed(weight, 3)}`),
      );
      return path;
    });
  }

  /** The states of a recurrent layer, one behind the other. @param {FilmStep} step */
  states(step) {
    const box = boxOf(this.layout, step.side, step.box);
    if (!box) return [];
    const { x } = slots(this.layout, box, this.trace.tokens[tokensOf(step.side)].ids.length);
    const y = box.y + (box.height + (this.layout.narrow ? 11 : 0)) / 2;
    const base = `${step.side}.${step.layer}`;
    const ways = [["forward", 1]];
    if (this.trace.has(`${base}.backward.hidden`)) ways.push(["backward", -1]);
    const last = step.rows[1] - 1;
    const first = step.side === "encoder" ? 0 : Math.max(0, step.rows[0] - 1);
    return ways.flatMap(([, sign]) =>
      Array.from({ length: last - first }, (_, i) => {
        const [from, to] = sign === 1 ? [first + i, first + i + 1] : [last - i, last - i - 1];
        const height = Number(sign) * -(HIGH / 2 + 2);
        const path = draw("path", {
          d: `M${x[from]} ${y + height}q${(x[to] - x[from]) / 2} ${height} ${x[to] - x[from]} 0`,
          class: "stroke state",
          pathLength: "1",
        });
        path.style.setProperty("--delay", String(i / Math.max(1, last - first)));
        return path;
      }),
    );
  }

  /** The vector that a recurrent decoder begins with. @param {{ data: any, shape: number[] } | undefined} vector */
  context(vector) {
    const box = boxOf(this.layout, "decoder", "cell");
    const out = boxOf(this.layout, "encoder", "out");
    const wide = 150;
    const chip = draw(
      "g",
      { class: "chip climb once" },
      draw("rect", { x: -wide / 2, y: -HIGH / 2, width: wide, height: HIGH, rx: 5, class: "chip-box" }),
      label(`${vector?.shape[1] ?? ""} numbers`, wide),
      strip(wide),
    );
    if (vector) paintStrip(chip, row(vector, 0), scaleOf(vector));
    if (!box) return chip;
    chip.style.transform = at([box.x + box.width / 2 + 30, box.y + box.height / 2]);
    const start = out
      ? [out.x + out.width / 2, out.y + 16]
      : [box.x + box.width / 2, this.layout.height - 20];
    chip.classList.add("arriving");
    chip.style.setProperty("--from", at(start));
    return chip;
  }

  /** The distribution of a step, as bars. @param {FilmStep} step */
  probabilities(step) {
    const { panel } = this.layout;
    if (!panel) return [];
    const { kind, word } = step;
    const writes = Boolean(this.trace.tokens.output);
    const title = writes ? (kind === "end" ? "What was written" : "Next token") : "The answer";
    const heading = draw("text", { x: panel.x, y: panel.y + 14, class: "stack-title" }, title);
    if (word === null || !["output", "choose", "end"].includes(kind)) return [heading];
    const { best, id } = this.trace.steps[word];
    const all =
      kind === "end" && writes
        ? this.written()
        : best.slice(0, BARS).map((each) => ({ ...each, word, chosen: each.id === id }));
    const room = Math.floor((panel.height - 20) / BAR);
    const chosen = all.find((each) => each.chosen);
    if (!chosen && id !== null && this.trace.steps[word].p !== null)
      all.push({ ...this.trace.steps[word], id, p: this.trace.steps[word].p ?? 0, word, chosen: true });
    return [heading, ...all.slice(0, room).map((each, i) => this.bar(each, i, kind))];
  }

  written() {
    const first = Math.max(0, (this.trace.meta.prompt || 1) - 1);
    return this.trace.steps
      .map((each, word) => ({ shown: each.shown, id: each.id, p: each.p ?? 0, word, chosen: true }))
      .slice(first);
  }

  /**
   * @param {{ shown: string, p: number, word: number, chosen: boolean }} entry @param {number} i
   * @param {string} kind
   */
  bar({ shown, p, word, chosen }, i, kind) {
    const panel = /** @type {NonNullable<Layout["panel"]>} */ (this.layout.panel);
    const leads = { view: "output", query: String(word) };
    const y = panel.y + 24 + i * BAR;
    const name = 74;
    const most = panel.width - name - 46;
    const isChosen = chosen && kind !== "output";
    const width = Math.max(1, p * most);
    return draw(
      "a",
      {
        href: address(leads),
        class: isChosen ? "probability chosen" : "probability",
        "data-p": p,
        "aria-label": `${shown}, p ${fixed(p, 3)}`,
        onclick: following(() => this.go(leads)),
      },
      draw("rect", { x: panel.x, y, width: panel.width, height: BAR - 2, class: "probability-back" }),
      draw(
        "text",
        { x: panel.x + name - 6, y: y + 14, "text-anchor": "end", class: "chip-text", "font-size": 12.5 },
        clipped(shown, 10),
      ),
      draw("rect", { x: panel.x + name, y: y + 3, width, height: BAR - 8, rx: 2, class: "probability-bar" }),
      draw(
        "text",
        { x: panel.x + name + width + 5, y: y + 14, class: "shape" },
        `${fixed(100 * p, p < 0.0995 ? 1 : 0)} %`,
      ),
    );
  }

  /**
   * The chosen token falls out of its bar and walks to the decoder's input, or into the gap.
   * @param {FilmStep} step @param {boolean} moving
   */
  walk(step, moving) {
    const { layout, trace } = this;
    const writes = step.side === "decoder";
    const box = boxOf(layout, step.side, "tokens");
    if (!box || !layout.panel || step.word === null || !(writes || trace.meta.head === "words")) return;
    const count = trace.tokens[tokensOf(step.side)].ids.length;
    const { x, width } = slots(layout, box, count);
    const { best, id, shown } = trace.steps[step.word];
    const text = writes ? shown : (best.find((each) => each.id === id)?.shown ?? "");
    const to = writes ? step.rows[1] : step.word;
    const isLast = to >= count;
    const wide = Math.max(34, width - 3);
    const chip = draw(
      "g",
      { class: "chip chosen once" },
      draw("rect", { x: -wide / 2, y: -HIGH / 2, width: wide, height: HIGH, rx: 5, class: "chip-box" }),
      label(text, wide),
    );
    const bar = Math.max(
      0,
      best.slice(0, BARS).findIndex((each) => each.id === id),
    );
    const right = layout.panel.x + layout.panel.width - 22;
    const start = [layout.panel.x + 50, layout.panel.y + 34 + bar * BAR];
    const floor = box.y + box.height / 2;
    const end = isLast ? [right - 40, start[1]] : [x[to], floor];
    chip.style.transform = at(end);
    this.tokens.append(chip);
    if (!moving) return;
    const pace = parseFloat(getComputedStyle(chip).getPropertyValue("--pace")) || 1000;
    const way = isLast ? [start, end] : [start, [right, start[1]], [right, floor], end];
    chip.animate(
      way.map((each) => ({ transform: at(each) })),
      { duration: 0.85 * pace, easing: "ease-in-out" },
    );
  }
}

/** @param {number[]} place */
const at = ([x, y]) => `translate(${x.toFixed(1)}px, ${y.toFixed(1)}px)`;

/**
 * The head that gives a key the most; a mean leads to it.
 * @param {{ data: any, shape: number[] }} weights @param {number} query @param {number} key
 */
function strongest({ data, shape: [heads, queries, keys] }, query, key) {
  const all = Array.from({ length: heads }, (_, h) => data[(h * queries + query) * keys + key]);
  return all.indexOf(Math.max(...all));
}
