// From the text to what the first layer reads: tokens, ids, words, vectors, positions.
import { draw, make, quiet, section, token } from "../a11y.js";
import { number, strips } from "../figures.js";
import { state } from "../state.js";
import { sidePicker } from "./selection.js";

const WAVES = 6;

export async function render(trace) {
  const sides = ["source", "target"].filter((side) => trace.tokens[side]);
  const side = sides.includes(state().side) ? state().side : sides[0];
  const stack = side === "source" ? "encoder" : "decoder";
  const tokens = trace.tokens[side];
  const names = ["tokens", "positions", "segments", "sum"].map((part) => `${stack}.embedding.${part}`);
  const tensors = await trace.tensors([
    ...names,
    `${stack}.embedding`,
    `${stack}.positions.cosine`,
    `${stack}.positions.bias`,
  ]);
  return [
    make("h2", {}, "From text to vectors"),
    sidePicker(sides, side),
    cards(tokens),
    vectors(tensors, stack, tokens),
    waves(tensors[`${stack}.embedding.positions`], trace),
    rotations(tensors[`${stack}.positions.cosine`]),
  ].filter(Boolean);
}

function cards(tokens) {
  const words = new Set(tokens.words.filter((word) => word >= 0)).size;
  const all = tokens.shown.map((text, i) =>
    make(
      "li",
      { class: tokens.words[i] < 0 ? "piece special" : tokens.words[i] % 2 ? "piece odd" : "piece" },
      token(text),
      make("span", { class: "quiet" }, `id ${tokens.ids[i]}`),
      make("span", { class: "quiet" }, tokens.words[i] < 0 ? "no word" : `word ${tokens.words[i]}`),
    ),
  );
  return section(
    "Tokens",
    `${tokens.ids.length} tokens of ${words} words`,
    quiet("The tokenizer cuts the text into tokens; the id is the row of the token in the embedding table."),
    make("ol", { class: "pieces" }, ...all),
  );
}

function vectors(tensors, stack, tokens) {
  const captions = {
    tokens: "the vector of each token",
    positions: "what is added for its place",
    segments: "what is added for the first or second text",
    sum: "what the layers begin with",
  };
  const shown = Object.entries(captions).filter(([part]) => tensors[`${stack}.embedding.${part}`]);
  const embedding = tensors[`${stack}.embedding`];
  const figures = shown.map(([part, words]) =>
    figure(tensors[`${stack}.embedding.${part}`], part, words, tokens),
  );
  if (embedding) figures.push(figure(embedding, "tokens", captions.tokens, tokens));
  return section("Vectors", "Vectors", make("div", { class: "three" }, ...figures));
}

const figure = (tensor, name, words, tokens) =>
  make(
    "figure",
    {},
    make("figcaption", {}, make("b", {}, name), ` ${words} (${tensor.shape.at(-1)} numbers)`),
    strips(tensor, tokens.shown, { label: name, most: 24 }),
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
    sinusoidal: "Channel 2i of place p is sin(p / 10000^(2i/d))",
    sinusoidal_halves: "Channel i of place p is sin(p / 10000^(2i/d)), the cosines follow in the second half",
  };
  const order = ": fast waves first, slow ones last. Together they tell every place from every other.";
  return section(
    "Positions",
    "Positions as waves",
    quiet(words[kind] ? words[kind] + order : "These vectors were learned, one for each place."),
    curves(tensor.data, places, width, columns),
  );
}

function rotations(tensor) {
  if (!tensor) return null;
  const [places, width] = tensor.shape;
  const columns = [0, Math.floor(width / 4), Math.floor(width / 2), width - 1];
  return section(
    "Positions",
    "Positions as rotations",
    quiet(
      "Each pair of channels of q and k is rotated by an angle that grows with the place; shown is its cosine.",
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
