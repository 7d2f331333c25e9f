// What a lesson draws: tables, matrices in colour, bars, curves and formulas, each from plain values.
import { draw, following, make, token } from "../a11y.js";
import { reach, share, signed } from "../color.js";
import { bar, fixed, paint } from "../figures.js";
import { address, set } from "../state.js";
import { diagram } from "./diagram.js";
import { axis, formulaParts, short, shown } from "./numbers.js";

const MAX_WRITTEN = 16; // columns up to which the number stands in the cell
const NARROW = 30; // columns from which cells are narrower
const WIDE = 640;
const HIGH = 250;
const [LEFT, RIGHT, TOP, LOW] = [62, 16, 14, 44]; // margins

const math = (text) => formulaParts(text).map(([kind, part]) => (kind ? make(kind, {}, part) : part));

/** Words of the lesson; words of a text are set apart, and there are code, emphasis and links. */
export const words = (text) =>
  [text].flat().flatMap((part) => (typeof part === "string" ? math(part) : marked(part)));
export const plain = (text) =>
  [text]
    .flat()
    .map((part) => (typeof part === "string" ? part : Object.values(part)[0]))
    .join("");

function marked(part) {
  if ("token" in part) return token(part.token);
  if ("link" in part) return linked(part.link, part.href);
  const [[kind, text]] = Object.entries(part);
  return make(kind, {}, kind === "code" ? text : math(text));
}

/** A link to another page, or to a view: ?view=heads changes the view and keeps model and text. */
function linked(text, href) {
  if (!href.startsWith("?")) return make("a", { href, rel: "noreferrer" }, text);
  const changes = Object.fromEntries(new URLSearchParams(href));
  return make("a", { href: address(changes), onclick: following(() => set(changes)) }, text);
}

const KINDS = {
  formula: (data) => make("p", { class: "equation" }, ...math(data.text)),
  text: (data) => make("blockquote", { class: "reading" }, token(data.text)),
  table: (data) => captioned(data, table(data)),
  matrix: (data) => captioned(data, matrix(data)),
  bars: (data) => captioned(data, barred(data)),
  lines: (data) => captioned(data, curves(data), data.series.length > 1 ? legend(data) : null, numbers(data)),
  source: (data) =>
    make(
      "figure",
      { class: "lesson-source" },
      make("figcaption", {}, make("code", {}, data.caption)),
      make("pre", { class: "scroll" }, make("code", {}, data.text)),
    ),
  diagram: (data) => captioned(data, ...diagram(data)),
  slider: (data) => slider(data),
};

export const figure = (data) => KINDS[data.kind](data);

const captioned = (data, ...inside) =>
  make("figure", { class: `lesson-${data.kind}` }, make("figcaption", {}, ...math(data.caption)), ...inside);

/** A figure for each of some values; the slider chooses one of them, or Play shows one after the other. */
function slider({ caption, places, figures }) {
  const value = make("output", {}, places[0]);
  const shownHere = make("div", {}, figure(figures[0]));
  const show = (at) => {
    input.value = at;
    value.textContent = places[at];
    input.setAttribute("aria-valuetext", places[at]);
    shownHere.replaceChildren(figure(figures[at]));
  };
  const input = make("input", {
    type: "range",
    min: 0,
    max: places.length - 1,
    value: 0,
    "aria-valuetext": places[0],
    oninput: (event) => show(Number(event.target.value)),
  });
  const label = make("label", {}, `${caption} `, input, " ", value, " ");
  return make("figure", { class: "lesson-slider" }, label, player(input, places.length - 1, show), shownHere);
}

/** A button that moves a slider to its end, from the beginning if it is there already. */
function player(input, last, show) {
  let timer = 0;
  const stop = () => {
    clearInterval(timer);
    timer = 0;
    button.textContent = "Play";
  };
  const next = () => {
    const at = Number(input.value) + 1;
    if (at > last || !input.isConnected) return stop();
    show(at);
    if (at === last) stop();
  };
  const start = () => {
    if (timer) return stop();
    if (Number(input.value) === last) show(0);
    button.textContent = "Stop";
    timer = setInterval(next, 1000);
  };
  const button = make("button", { type: "button", onclick: start }, "Play");
  return button;
}

function table({ columns, rows, digits }) {
  const whole = columns.map((_, j) =>
    rows.every((row) => typeof row[j] !== "number" || Number.isInteger(row[j])),
  );
  const cell = (value, j) =>
    typeof value === "number"
      ? shown(value, whole[j] ? 0 : digits)
      : value === null
        ? "–"
        : token(String(value));
  return make(
    "div",
    { class: "scroll whole" },
    make(
      "table",
      { class: "numbers" },
      make(
        "thead",
        {},
        make(
          "tr",
          {},
          ...columns.map((text, j) =>
            text
              ? make(
                  "th",
                  {
                    scope: "col",
                    class: rows.some((row) => typeof row[j] === "string") ? "words-cell" : null,
                  },
                  ...math(text),
                )
              : make("td"),
          ),
        ),
      ),
      make(
        "tbody",
        {},
        ...rows.map((row) =>
          make(
            "tr",
            {},
            ...row.map((value, j) =>
              j === 0 && row.length > 1
                ? make("th", { scope: "row" }, cell(value, j))
                : make(
                    "td",
                    {
                      class: typeof value === "string" ? "words-cell" : null,
                      "data-value": typeof value === "number" ? value : null,
                    },
                    cell(value, j),
                  ),
            ),
          ),
        ),
      ),
    ),
  );
}

function matrix({ values, rows, columns, signed: both, mask }) {
  const most = both ? reach(values.flat()) : 1;
  const written = columns.length <= MAX_WRITTEN;
  const whole = values.flat().every(Number.isInteger);
  const cell = (value, i, j) => {
    const hidden = mask && !mask[i][j];
    const color = both ? signed(value / most) : share(value);
    const td = make(
      "td",
      {
        class: hidden ? "masked" : null,
        "data-value": value,
        title: `${rows[i]} → ${columns[j]}: ${hidden ? "hidden" : shown(value, 4)}`,
      },
      hidden
        ? make("span", { class: "unseen" }, "hidden")
        : make("span", { class: written ? null : "unseen" }, inCell(value, whole)),
    );
    return hidden ? td : paint(td, color);
  };
  return make(
    "div",
    { class: "scroll" },
    make(
      "table",
      { class: `still ${written ? "" : columns.length > NARROW ? "small tiny" : "small"}` },
      make(
        "thead",
        {},
        make(
          "tr",
          {},
          make("td"),
          ...columns.map((text) => make("th", { scope: "col" }, make("span", {}, token(text)))),
        ),
      ),
      make(
        "tbody",
        {},
        ...values.map((row, i) =>
          make(
            "tr",
            {},
            make("th", { scope: "row" }, token(rows[i])),
            ...row.map((value, j) => cell(value, i, j)),
          ),
        ),
      ),
    ),
  );
}

const inCell = (value, whole) => (value === null ? "–" : fixed(value, whole ? 0 : 2));

function barred({ names, values, digits, unit }) {
  const most = Math.max(...values, 1e-12);
  return make(
    "table",
    { class: "numbers bars" },
    make(
      "tbody",
      {},
      ...values.map((value, i) =>
        make(
          "tr",
          {},
          make("th", { scope: "row" }, token(names[i])),
          make("td", { "data-value": value }, bar(value / most, shown(value, digits) + unit)),
        ),
      ),
    ),
  );
}

function curves({ places, series, even, log, across, caption, digits }) {
  const values = series.flatMap((line) => line.values).filter((value) => value !== null);
  const [least, most] = [Math.min(...values), Math.max(...values)];
  const high = axis(log ? Math.max(least, 1e-9) : Math.min(0, least), most > least ? most : least + 1, log);
  const wide = axis(even ? 0 : places[0], even ? places.length - 1 : places.at(-1), false);
  const x = (i) => LEFT + wide.at(even ? i : places[i]) * (WIDE - LEFT - RIGHT);
  const y = (value) => TOP + (1 - high.at(value)) * (HIGH - TOP - LOW);
  const every = Math.max(1, Math.ceil(places.length / 8));
  return make(
    "div",
    { class: "scroll whole" },
    draw(
      "svg",
      {
        viewBox: `0 0 ${WIDE} ${HIGH}`,
        class: "curves",
        role: "img",
        "aria-label": `${caption}; the numbers are in the table below`,
      },
      ...high.ticks.map((value) =>
        draw(
          "g",
          {},
          draw("line", { x1: LEFT, x2: WIDE - RIGHT, y1: y(value), y2: y(value), class: "axis-line" }),
          draw("text", { x: LEFT - 6, y: y(value) + 4, "text-anchor": "end", class: "axis" }, short(value)),
        ),
      ),
      ...places.map((place, i) =>
        i % every
          ? null
          : draw(
              "text",
              {
                x: Math.min(x(i), WIDE - 5 * String(place).length),
                y: HIGH - LOW + 18,
                "text-anchor": "middle",
                class: "axis",
              },
              String(place),
            ),
      ),
      draw(
        "text",
        { x: (LEFT + WIDE - RIGHT) / 2, y: HIGH - 6, "text-anchor": "middle", class: "axis" },
        across,
      ),
      ...series.map((line, k) =>
        draw(
          "g",
          { class: `line line-${k % 4}` },
          draw("polyline", {
            points: line.values
              .map((value, i) => (value === null ? null : `${x(i).toFixed(1)},${y(value).toFixed(1)}`))
              .filter(Boolean)
              .join(" "),
          }),
          ...line.values.map((value, i) =>
            value === null || places.length > 24
              ? null
              : mark(k, x(i), y(value), `${line.name}, ${across} ${places[i]}: ${shown(value, digits)}`),
          ),
        ),
      ),
    ),
  );
}

/** Each curve has its own shape of dots, so that colour is never alone. */
function mark(k, x, y, title) {
  const shape = [
    () => draw("circle", { cx: x, cy: y, r: 4 }, draw("title", {}, title)),
    () => draw("rect", { x: x - 3.5, y: y - 3.5, width: 7, height: 7 }, draw("title", {}, title)),
    () => draw("path", { d: `M${x} ${y - 5}l5 9h-10z` }, draw("title", {}, title)),
    () => draw("path", { d: `M${x} ${y - 5}l5 5-5 5-5-5z` }, draw("title", {}, title)),
  ][k % 4];
  return shape();
}

const legend = ({ series }) =>
  make(
    "ul",
    { class: "legend" },
    ...series.map((line, k) =>
      make(
        "li",
        {},
        draw(
          "svg",
          { viewBox: "0 0 36 14", width: 36, height: 14, "aria-hidden": "true" },
          draw(
            "g",
            { class: `line line-${k % 4}` },
            draw("polyline", { points: "0,7 36,7" }),
            mark(k, 18, 7, line.name),
          ),
        ),
        ...math(line.name),
      ),
    ),
  );

const numbers = ({ places, series, across, digits }) =>
  make(
    "details",
    { class: "behind" },
    make("summary", {}, "The numbers as a table"),
    table({
      columns: [across, ...series.map((line) => line.name)],
      rows: places.map((place, i) => [place, ...series.map((line) => line.values[i])]),
      digits,
    }),
  );
