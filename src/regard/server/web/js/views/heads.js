// All heads of all layers as small pictures; one of them large, by one of several readings; up to four side by side.
import { isRefused } from "../api.js";
import { check, live, make, quiet, roving, section, select } from "../a11y.js";
import { reach } from "../color.js";
import { attentionFigure, cut, legend, number, picture, spoken } from "../figures.js";
import { set, state } from "../state.js";
import { chosen, labels, link, none } from "./selection.js";
import { term } from "./terms.js";

const MOST_PINS = 4;
const READINGS = [
  ["weights", "Weights: where it looks"],
  ["value_norm", "Value norms: what it takes"],
  ["rollout", "Rollout: through all layers"],
];
const SORTS = [
  ["", "By layer and head"],
  ["entropy", "Sharpest first (entropy)"],
  ["distance", "Nearest first (distance)"],
];
const UNITS = { entropy: "bits", distance: "tokens" };
const KINDS = [
  ["encoder self", "The source looks at itself"],
  ["decoder self", "The output looks back at itself"],
  ["decoder cross", "The output looks at the source"],
];

/** `page.settings.thumbnail`: cells on a side of a small picture. */
export async function render(trace, _, page) {
  const selection = chosen(trace);
  if (!selection) return none(trace);
  if (state().head === "mean") selection.head = "mean";
  const reading = READINGS.some(([id]) => id === state().reading) ? state().reading : "weights";
  const sort = UNITS[state().sort] ? state().sort : "";
  const all = await trace.tensors(["*.weights"], { pool: page.settings.thumbnail, dtype: "U8" });
  const numbers = sort ? await trace.reading({ kind: "heads" }) : null;
  const pins = pinned(trace);
  const [big, ...sides] = await Promise.all([
    large(trace, selection, reading),
    ...pins.map((pin) => beside(trace, pin, reading)),
  ]);
  const groups = KINDS.map(([kind, title]) => {
    const [side, name] = kind.split(" ");
    const wheres = trace.attentions.filter((each) => each.startsWith(side) && each.endsWith(name));
    return wheres.length ? group(trace, selection, wheres, all, title, numbers, sort) : null;
  }).filter(Boolean);
  return [
    make("h2", {}, "Heads and layers"),
    controls(reading, sort),
    sides.length ? section("Pinned heads", "Side by side", make("div", { class: "pins" }, ...sides)) : null,
    make(
      "div",
      { class: "split" },
      make(
        "div",
        {},
        sort
          ? quiet(
              "Heads of a kind in the order of their ",
              sort === "entropy" ? term(sort) : sort,
              `, in ${UNITS[sort]}.`,
            )
          : quiet("A row is a layer, a column a head. The stronger the colour, the larger the weight: "),
        legend(),
        ...groups,
      ),
      big,
    ),
  ].filter(Boolean);
}

const controls = (reading, sort) =>
  make(
    "div",
    { class: "pickers" },
    select("Reading", READINGS, reading, (id) => set({ reading: id })),
    select("Order", SORTS, sort, (id) => set({ sort: id })),
    check("Whole words", state().words === "1", (on) => set({ words: on ? "1" : "" })),
    check("Hide <s> and </s>", state().hide === "1", (on) => set({ hide: on ? "1" : "" })),
  );

/** The pins of the address that this run has: "encoder.0.self:2". */
function pinned(trace) {
  return state()
    .pins.split(",")
    .map((each) => each.split(":"))
    .filter(
      ([where, head], i, all) =>
        trace.attentions.includes(where) &&
        (head === "mean" || (/^\d+$/.test(head) && Number(head) < trace.heads(where))) &&
        all.findIndex((other) => other.join(":") === `${where}:${head}`) === i,
    )
    .slice(0, MOST_PINS)
    .map(([where, head]) => ({ where, head }));
}

const pinsWithout = (where, head) =>
  state()
    .pins.split(",")
    .filter((each) => each && each !== `${where}:${head}`);

function group(trace, selection, wheres, all, title, numbers, sort) {
  const entries = wheres.map((where) =>
    Array.from({ length: trace.heads(where) }, (_, head) => ({
      where,
      head,
      value: numbers?.[`${where}.${sort}`]?.data[head],
    })),
  );
  const rows = (
    sort
      ? chunks(
          entries.flat().sort((a, b) => a.value - b.value),
          entries[0].length,
        )
      : entries
  ).map((cells) => cells.map((cell) => thumb(trace, selection, cell, all, sort)));
  const buttons = rows.map((cells) => cells.map(([button]) => button));
  const places = (sort ? rows : entries).map((_, i) =>
    buttons[i].findIndex((each) => each.getAttribute("aria-pressed") === "true"),
  );
  const at = Math.max(
    0,
    places.findIndex((place) => place >= 0),
  );
  roving(buttons, [at, Math.max(0, places[at])], (i, j) => live(buttons[i][j].getAttribute("aria-label")));
  const lines = rows.map((cells, i) =>
    make(
      "div",
      { class: "thumbs-row" },
      make(
        "span",
        { class: "thumbs-name", "aria-hidden": "true" },
        !sort && wheres[i].split(".").length > 2 ? wheres[i].split(".")[1] : "",
      ),
      ...cells.map(([button, caption]) =>
        caption ? make("div", { class: "thumbs-cell" }, button, caption) : button,
      ),
    ),
  );
  const thumbs = make("div", { class: "thumbs", role: "group", "aria-label": title }, ...lines);
  return section(title, title, make("div", { class: "scroll" }, thumbs));
}

const chunks = (list, size) =>
  Array.from({ length: Math.ceil(list.length / size) }, (_, i) => list.slice(i * size, (i + 1) * size));

function thumb(trace, selection, { where, head, value }, all, sort) {
  const { shape, data } = all[`${where}.weights`];
  const [, height, width] = shape;
  const image = picture({
    data: data.subarray(head * height * width, (head + 1) * height * width),
    shape: [height, width],
    kind: "bytes",
    label: "",
  });
  image.removeAttribute("role");
  image.removeAttribute("aria-label");
  image.setAttribute("aria-hidden", "true");
  const [queries, keys] = trace.sides(where);
  const suffix = sort ? `, ${sort} ${number(value, 2)} ${UNITS[sort]}` : "";
  const isWhole = height === queries.ids.length; // not pooled
  const most = isWhole ? `, ${strongest(data, head, shape, labels(queries), keys.shown)}` : "";
  const button = make(
    "button",
    {
      type: "button",
      class: "thumb",
      "aria-pressed": String(where === selection.where && head === selection.head),
      title: `${where}, head ${head}${suffix}`,
      "aria-label": `${spoken(where)}, head ${head}${suffix}${most}`,
      onclick: () =>
        set({ where, head: String(head), query: state().where === where ? state().query : "", key: "" }),
    },
    image,
  );
  const short = `${where.split(".").length > 2 ? where.split(".")[1] : ""}.${head}`.replace(/^\./, "");
  return [
    button,
    sort ? make("span", { class: "quiet", "aria-hidden": "true" }, `${short}: ${number(value, 2)}`) : null,
  ];
}

/** The largest weight of a head in words, for those who do not see the picture. */
function strongest(data, head, [, height, width], queries, keys) {
  let most = 0,
    place = 0;
  for (let at = 0; at < height * width; at++) {
    const value = data[head * height * width + at];
    if (value > most) [most, place] = [value, at];
  }
  return `strongest from ${queries[Math.floor(place / width)]} to ${keys[place % width]}`;
}

const titled = (where, head, reading) =>
  reading === "rollout"
    ? "Rollout through all layers"
    : `${spoken(where)}, ${head === "mean" ? "mean of all heads" : `head ${head}`}`;

async function large(trace, selection, reading) {
  const heads = [
    ...Array.from({ length: trace.heads(selection.where) }, (_, head) => [String(head), String(head)]),
    ["mean", "mean of all"],
  ];
  const name = `${selection.where}:${selection.head}`;
  const full = pinned(trace).length >= MOST_PINS;
  const isPinned = state().pins.split(",").includes(name);
  const { figure, caveats } = await shown(trace, selection.where, selection.head, reading, selection);
  return make(
    "section",
    { class: "big", "aria-label": "One head" },
    make(
      "h3",
      {},
      ...(reading === "rollout"
        ? [term("rollout", "Rollout"), " through all layers"]
        : [titled(selection.where, selection.head, reading)]),
    ),
    reading === "rollout"
      ? null
      : make(
          "div",
          { class: "pickers" },
          select("Head", heads, String(selection.head), (head) => set({ head })),
          make(
            "button",
            {
              type: "button",
              disabled: full && !isPinned,
              onclick: () =>
                set({
                  pins: [...pinsWithout(selection.where, selection.head), ...(isPinned ? [] : [name])].join(
                    ",",
                  ),
                }),
            },
            isPinned ? "Unpin" : full ? "Four are pinned" : "Pin beside others",
          ),
        ),
    figure,
    ...caveats.map((text) => quiet(text)),
    reading === "rollout" || selection.head === "mean"
      ? null
      : make(
          "p",
          {},
          link({ view: "attention", where: selection.where, head: String(selection.head) }, "Step by step"),
        ),
  );
}

async function beside(trace, { where, head }, reading) {
  const [queries, keys] = trace.sides(where);
  const kind = reading === "rollout" ? "weights" : reading;
  const { figure } = await shown(trace, where, head, kind, { queries, keys });
  return make(
    "section",
    { class: "pin", "aria-label": `Pinned: ${titled(where, head, kind)}` },
    make(
      "div",
      { class: "drawer-head" },
      make("h4", {}, titled(where, head, kind)),
      make(
        "button",
        {
          type: "button",
          "aria-label": `Unpin ${titled(where, head, kind)}`,
          onclick: () => set({ pins: pinsWithout(where, head).join(",") }),
        },
        "×",
      ),
    ),
    figure,
  );
}

/** A reading as a figure, or why there is none: the controls stay, to choose another. */
async function shown(...options) {
  try {
    return await drawn(...options);
  } catch (error) {
    if (!isRefused(error)) throw error;
    return { figure: make("p", { class: "wrong" }, error.message), caveats: [] };
  }
}

/** A reading as a figure, and what it does not mean. All numbers come from Python. */
async function drawn(trace, where, head, kind, selection) {
  const words = state().words === "1";
  const look = await trace.reading(kind === "rollout" ? { kind, words } : { kind, where, head, words });
  const plain = kind === "weights" && !words && head !== "mean";
  const mask = plain ? (await trace.tensors([`${where}.mask`]))[`${where}.mask`] : null;
  const hide = state().hide === "1";
  const keep = (side, texts) =>
    texts.map((_, i) => i).filter((i) => !hide || !look.special[side].includes(i));
  const [rows, columns] = [keep(0, look.rows), keep(1, look.columns)];
  const weights = cut(look.values, rows, columns);
  const isOneHead = kind !== "rollout" && head !== "mean";
  const choose = (i, j) => {
    const [query, key] = [look.places[0][rows[i]], look.places[1][columns[j]]].map(String);
    if (isOneHead) set({ view: "attention", where, head: String(head), query, key });
  };
  const left = "What is hidden keeps its share: rows shown may sum to less.";
  const caveats = hide ? [...look.honest, left] : look.honest;
  if (!rows.length || !columns.length) return { figure: make("p", {}, "Nothing is left to show."), caveats };
  const figure = attentionFigure({
    weights,
    mask: mask && cut(mask, rows, columns),
    queries: rows.map((i) => look.rows[i]),
    keys: columns.map((j) => look.columns[j]),
    query: words ? null : rows.indexOf(selection.query),
    key: words ? null : columns.indexOf(selection.key),
    label: `${titled(where, head, kind)}: rows are queries, columns are keys`,
    most: kind === "value_norm" ? reach(weights.data) : 1,
    unit: kind === "value_norm" ? "length" : "weight",
    choose,
  });
  return { figure, caveats };
}
