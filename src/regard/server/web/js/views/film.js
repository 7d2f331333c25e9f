// A run as a film on the map of Figure 1: tokens climb, attention draws its weights, probabilities rise, a token
// falls out and walks to the decoder's input. Each place of it opens the view with its numbers.
import { draw, inSight, live, make, select } from "../a11y.js";
import { note, number, set, state } from "../state.js";
import { caption } from "./film/captions.js";
import { figure1 } from "./film/figure1.js";
import { boxOf, layout } from "./film/layout.js";
import { chapters, plan, strokes, words } from "./film/plan.js";
import { Scene } from "./film/scene.js";
import { sampling } from "./sampling.js";

const TIME = 1500; // milliseconds of a step at speed 1
const SPEEDS = ["0.25", "0.5", "1", "2", "4"];
const NARROW = 700; // pixels
const SEEN = 360; // of the height of the map on a narrow page
const last = { id: "", at: 0, playing: true, speed: "1" };

const wantsStill = () => matchMedia("(prefers-reduced-motion: reduce)").matches;

export async function render(trace) {
  const film = new Film(trace);
  playing?.pause();
  playing = film;
  await film.begin();
  return film.elements();
}

/** @type {Film | null} */
let playing = null;

/** Keys of the whole page: Space plays and pauses, the arrows step. @param {KeyboardEvent} event */
export function onKey(event) {
  const target = /** @type {Element} */ (event.target);
  if (!playing?.svg.isConnected || event.ctrlKey || event.metaKey || event.altKey) return;
  if (target.closest("textarea, input, select, [role=tablist], summary")) return;
  if (event.key === " " && target.closest("button, a")) return;
  const act = {
    " ": () => playing?.toggle(),
    ArrowRight: () => playing?.go(1),
    ArrowLeft: () => playing?.go(-1),
  }[event.key];
  if (!act) return;
  event.preventDefault();
  act();
}

class Film {
  constructor(trace) {
    this.trace = trace;
    this.steps = plan(trace);
    const isNew = last.id !== trace.id;
    const frame = number("frame");
    const linked = isNew && !last.id && frame ? Math.min(frame, this.steps.length) - 1 : null;
    const begin = state().length === "1" ? chapters(this.steps).at(-2)?.at : 0; // one more word: only that one
    this.at = isNew ? (linked ?? begin ?? 0) : last.at;
    this.isPlaying = (isNew ? linked === null : last.playing) && !wantsStill();
    last.id = trace.id;
    this.shown = 0;
    this.svg = draw("svg", { class: "film-map", role: "group", "aria-label": "The model and the run in it" });
    this.camera = draw("g", { class: "camera" });
    this.svg.append(this.camera);
    this.text = make("p", { class: "film-caption" });
    this.choice = make("div");
    this.stage = make("div", { class: "film-stage" }, this.text, this.svg);
    this.controls();
  }

  controls() {
    const button = (/** @type {string} */ name, /** @type {string} */ sign, /** @type {() => void} */ act) =>
      make(
        "button",
        { type: "button", "aria-label": name, title: name, class: "film-button", onclick: act },
        sign,
      );
    this.play = button("Play", "▶", () => this.toggle());
    this.range = make("input", {
      type: "range",
      min: "1",
      max: String(this.steps.length),
      "aria-label": "Step of the run",
      oninput: () => this.jump(Number(this.range.value) - 1),
    });
    const heads = Math.max(0, ...this.trace.attentions.map((where) => this.trace.heads(where)));
    const entries = [["", "all heads"], ...Array.from({ length: heads }, (_, i) => [String(i), `head ${i}`])];
    const changeHead = (/** @type {string} */ id) => {
      note({ strokes: id });
      this.draw();
    };
    const speeds = SPEEDS.map((each) => [each, `× ${each}`]);
    this.bar = make(
      "div",
      { class: "film-controls" },
      button("One step back", "◀◀", () => this.go(-1)),
      this.play,
      button("One step", "▶▶", () => this.go(1)),
      this.range,
      select("Speed", speeds, last.speed, (speed) => {
        last.speed = speed;
        this.setPace();
      }),
      heads > 1 ? select("Strokes", entries, state().strokes, changeHead) : null,
    );
    this.parts = chapters(this.steps).map(({ at, text }) => ({
      at,
      button: make(
        "button",
        { type: "button", class: "chapter", onclick: () => this.jump(at) },
        make("bdi", {}, text),
      ),
    }));
  }

  elements() {
    const group = { class: "chapters", role: "group", "aria-label": "Words" };
    return [
      make("h2", { class: "unseen" }, "The run as a film"),
      this.bar,
      make("div", group, ...this.parts.map((each) => each.button)),
      this.stage,
      this.choice,
    ];
  }

  async begin() {
    this.setPace();
    await this.draw();
    if (this.isPlaying) this.wait();
  }

  get step() {
    return this.steps[this.at];
  }

  setPace() {
    this.svg.style.setProperty("--pace", String(this.duration()));
  }

  duration() {
    return (TIME * this.step.pace) / Number(last.speed);
  }

  /** The map of this step: the layer it is in, and on a narrow page the stack. */
  drawMap() {
    const narrow = innerWidth < NARROW;
    const { side, layer, rows } = this.step;
    const written = side === "decoder" ? rows[1] : 1;
    const key = `${side} ${layer} ${written} ${narrow}`;
    if (key === this.mapped) return;
    this.mapped = key;
    const layers = { encoder: Infinity, decoder: 0, [side]: layer };
    this.map = layout(this.trace, { layers, rows: { decoder: written }, film: true, narrow, active: side });
    const { width, height } = this.map;
    const room = this.map.stacks[0].top; // above the encoder, for the words
    this.stage.classList.toggle("beside", !narrow && room > 130);
    this.text.style.width =
      narrow || room <= 130 ? "" : `${(100 * this.map.stacks[1].x) / this.map.width - 3}%`;
    this.svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    const leave = (leads) => {
      this.pause();
      set({ ...leads, frame: String(this.at + 1) });
    };
    const figure = figure1(this.map, leave);
    if (!this.scene || this.wasNarrow !== narrow || narrow) {
      this.scene = new Scene(this.trace, this.map, leave);
      this.back = draw("g");
      this.camera.replaceChildren(this.back, ...this.scene.parts);
    }
    this.wasNarrow = narrow;
    this.scene.layout = this.map;
    this.back.replaceChildren(...figure);
  }

  async draw() {
    const drawing = ++this.shown;
    const { step } = this;
    const names = [step.vectors, step.where && `${step.where}.weights`].filter(Boolean);
    const tensors = await this.tensors(names);
    if (!tensors || drawing !== this.shown) return;
    this.setPace();
    this.drawMap();
    const head = state().strokes === "" ? -1 : Number(state().strokes);
    const moving = !wantsStill();
    this.svg.classList.toggle("still", !moving);
    this.scene.show(step, tensors, { head, moving });
    this.follow();
    this.choose();
    this.write(step, tensors[`${step.where}.weights`], head);
    const next = this.steps[this.at + 1];
    if (next)
      this.trace
        .tensors([next.vectors, `${next.where}.weights`].filter((each) => this.trace.has(each)))
        .catch(() => {});
  }

  /** On a narrow page the map is higher than the window: it moves, so that the box of this step is in sight. */
  follow() {
    const { map, step } = this;
    for (const box of this.svg.querySelectorAll("[data-box]"))
      box.classList.toggle("active", box.dataset.box === `${step.side}.${step.box}`);
    const seen = map.narrow ? Math.min(SEEN, map.height) : map.height;
    this.svg.setAttribute("viewBox", `0 0 ${map.width} ${seen}`);
    const box = boxOf(map, step.side, step.box);
    const isAtTop = !box || (["output", "choose", "end"].includes(step.kind) && !step.where);
    const middle = isAtTop ? 0 : box.y + box.height / 2;
    const top = Math.max(0, Math.min(map.height - seen, middle - seen / 2));
    this.camera.style.transform = `translateY(${-top}px)`;
  }

  /** The choice of the next token at this word; the sliders stay while the film is at it. */
  async choose() {
    const word = this.step.word ?? words(this.trace)[0];
    if (word === undefined || word === this.chosen) return;
    this.chosen = word;
    const panel = await sampling(this.trace, word);
    if (word === this.chosen) this.choice.replaceChildren(...(panel ? [panel] : []));
  }

  /** @param {string[]} names */
  async tensors(names) {
    try {
      return await this.trace.tensors(names);
    } catch (error) {
      if (!this.svg.isConnected) throw error; // the page runs it again
      this.pause();
      this.text.textContent = error.message;
      return null;
    }
  }

  write(step, weights, head) {
    const drawn = weights ? strokes(weights, step.rows, head) : [];
    const place = `${this.at + 1} / ${this.steps.length}`;
    const spoken = caption(this.trace, step, drawn);
    this.text.replaceChildren(
      make("span", { class: "quiet" }, place),
      " ",
      make("strong", {}, step.title),
      " ",
      make("span", { class: "film-words" }, spoken),
    );
    this.range.value = String(this.at + 1);
    this.range.setAttribute("aria-valuetext", `${place}: ${step.title}`);
    this.play.textContent = this.isPlaying ? "❚❚" : "▶";
    this.play.setAttribute("aria-label", this.isPlaying ? "Pause" : "Play");
    this.play.title = this.isPlaying ? "Pause" : "Play";
    this.svg.dataset.step = String(this.at + 1);
    const current = this.parts.filter((each) => each.at <= this.at).at(-1);
    for (const each of this.parts)
      each.button.setAttribute("aria-current", each === current ? "step" : "false");
    if (current) setTimeout(() => inSight(current.button), 0); // when it is in the page
    last.at = this.at;
    last.playing = this.isPlaying;
  }

  wait() {
    clearTimeout(this.timer);
    this.timer = setTimeout(async () => {
      if (!this.svg.isConnected) return this.pause();
      if (this.at + 1 >= this.steps.length) return this.pause();
      this.at++;
      await this.draw();
      if (this.isPlaying) this.wait();
    }, this.duration());
  }

  toggle() {
    if (this.isPlaying) return this.pause();
    this.isPlaying = true;
    if (this.at + 1 >= this.steps.length) this.at = 0;
    this.draw().then(() => this.wait());
  }

  pause() {
    clearTimeout(this.timer);
    this.isPlaying = last.playing = false;
    if (this.svg.isConnected) {
      this.play.textContent = "▶";
      this.play.setAttribute("aria-label", "Play");
      note({ frame: String(this.at + 1) });
    }
  }

  /** @param {number} by */
  go(by) {
    this.jump(Math.min(this.steps.length - 1, Math.max(0, this.at + by)));
  }

  /** @param {number} at */
  async jump(at) {
    this.at = at;
    this.pause();
    await this.draw();
    live(this.text.textContent);
  }
}
