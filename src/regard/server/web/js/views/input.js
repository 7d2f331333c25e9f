// From the text to what the first layer reads: pieces, ids, words, vectors, positions.
import { choices, draw, make, token } from "../a11y.js";
import { number, strips } from "../figures.js";
import { set, state } from "../state.js";

const WAVES = 6;

export async function render(trace) {
  const sides = ["source", "target"].filter((side) => trace.tokens[side]);
  const side = sides.includes(state().side) ? state().side : sides[0];
  const stack = side === "source" ? "encoder" : "decoder";
  const pieces = trace.tokens[side];
  const names = ["tokens", "positions", "segments", "sum"].map((part) => `${stack}.embedding.${part}`);
  const tensors = await trace.tensors([
    ...names,
    `${stack}.embedding`,
    `${stack}.positions.cosine`,
    `${stack}.positions.bias`,
  ]);
  return [
    make("h2", {}, "From text to vectors"),
    sides.length > 1
      ? choices(
          "Side",
          [
            ["source", "What is read"],
            ["target", "What is written"],
          ],
          side,
          (id) => set({ side: id }),
        )
      : null,
    table(pieces),
    vectors(tensors, stack, pieces),
    waves(tensors[`${stack}.embedding.positions`], trace),
    turned(tensors[`${stack}.positions.cosine`]),
  ].filter(Boolean);
}

function table(pieces) {
  const words = new Set(pieces.words.filter((word) => word >= 0)).size;
  const cards = pieces.shown.map((text, i) =>
    make(
      "li",
      { class: pieces.words[i] < 0 ? "piece special" : pieces.words[i] % 2 ? "piece odd" : "piece" },
      token(text),
      make("span", { class: "quiet" }, `id ${pieces.ids[i]}`),
      make("span", { class: "quiet" }, pieces.words[i] < 0 ? "no word" : `word ${pieces.words[i]}`),
    ),
  );
  return make(
    "section",
    { "aria-label": "Pieces" },
    make("h3", {}, `${pieces.ids.length} pieces of ${words} words`),
    make(
      "p",
      { class: "quiet" },
      "The tokenizer cuts the text into pieces it knows; the id is the row of the piece in the embedding table.",
    ),
    make("ol", { class: "pieces" }, ...cards),
  );
}

function vectors(tensors, stack, pieces) {
  const captions = {
    tokens: "the vector of each piece",
    positions: "what is added for its place",
    segments: "what is added for the first or second text",
    sum: "what the layers begin with",
  };
  const shown = Object.entries(captions).filter(([part]) => tensors[`${stack}.embedding.${part}`]);
  const embedding = tensors[`${stack}.embedding`];
  const figures = shown.map(([part, words]) =>
    figure(tensors[`${stack}.embedding.${part}`], part, words, pieces),
  );
  if (embedding) figures.push(figure(embedding, "tokens", captions.tokens, pieces));
  return make(
    "section",
    { "aria-label": "Vectors" },
    make("h3", {}, "Vectors"),
    make("div", { class: "three" }, ...figures),
  );
}

const figure = (tensor, name, words, pieces) =>
  make(
    "figure",
    {},
    make("figcaption", {}, make("b", {}, name), ` ${words} (${tensor.shape.at(-1)} numbers)`),
    strips(tensor, pieces.shown, { label: name, most: 24 }),
  );

/** Some columns of the position matrix as curves over the places. */
function waves(tensor, trace) {
  if (!tensor) return null;
  const [places, width] = tensor.shape;
  const kind = trace.meta.config.positions;
  // from fast to slow waves, by equal factors; between two sines there is a cosine, or all sines come first
  const apart = kind === "sinusoidal_halves" ? 1 : 2;
  const columns = Array.from(
    { length: WAVES },
    (_, i) =>
      apart * Math.max(0, Math.min(width / 2 - 1, Math.floor((width / 2) ** (i / (WAVES - 1)) - 0.99))),
  );
  const words = {
    sinusoidal:
      "Channel 2i of place p is sin(p / 10000^(2i/d)): fast waves first, slow ones last. Together they tell every place from every other.",
    sinusoidal_halves:
      "Channel i of place p is sin(p / 10000^(2i/d)), and the cosines follow in the second half: fast waves first, slow ones last. Together they tell every place from every other.",
  };
  return make(
    "section",
    { "aria-label": "Positions" },
    make("h3", {}, "Positions as waves"),
    make("p", { class: "quiet" }, words[kind] ?? "These vectors were learned, one for each place."),
    curves(tensor.data, places, width, columns),
  );
}

function turned(tensor) {
  if (!tensor) return null;
  const [places, width] = tensor.shape;
  const columns = [0, Math.floor(width / 4), Math.floor(width / 2), width - 1];
  return make(
    "section",
    { "aria-label": "Positions" },
    make("h3", {}, "Positions as turns"),
    make(
      "p",
      { class: "quiet" },
      "Each pair of channels of q and k is turned by an angle that grows with the place; shown is its cosine.",
    ),
    curves(tensor.data, places, width, columns),
  );
}

function curves(data, places, width, columns) {
  const W = 560,
    H = 44,
    left = 96;
  const rows = [...new Set(columns)].map((column, i) => {
    const values = Array.from({ length: places }, (_, p) => data[p * width + column]);
    const most = Math.max(1e-9, ...values.map(Math.abs));
    const x = (p) => left + (places > 1 ? (p / (places - 1)) * (W - left - 10) : 0);
    const y = (v) => i * H + H / 2 - (v / most) * (H / 2 - 6);
    return draw(
      "g",
      {},
      draw("line", { x1: left, x2: W - 10, y1: y(0), y2: y(0), class: "axis-line" }),
      draw("text", { x: 0, y: i * H + H / 2 + 4, class: "axis" }, `channel ${column}`),
      draw("polyline", {
        points: values.map((v, p) => `${x(p).toFixed(1)},${y(v).toFixed(1)}`).join(" "),
        class: "wave",
      }),
      ...(places <= 64
        ? values.map((v, p) =>
            draw(
              "circle",
              { cx: x(p), cy: y(v), r: 2.5, class: "dot" },
              draw("title", {}, `place ${p}: ${number(v, 4)}`),
            ),
          )
        : []),
    );
  });
  return make(
    "div",
    { class: "scroll" },
    draw(
      "svg",
      {
        viewBox: `0 0 ${W} ${rows.length * H}`,
        class: "waves",
        role: "img",
        "aria-label": `Positions: ${rows.length} channels over ${places} places`,
      },
      ...rows,
    ),
  );
}
