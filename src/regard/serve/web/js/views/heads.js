// All heads of all layers as small pictures, and one of them large.
import { live, make, roving } from "../a11y.js";
import { SMALL, grid, picture, spoken } from "../figures.js";
import { set, state } from "../state.js";
import { chosen, link, none } from "./attention.js";

const POOL = 32;

export async function render(trace) {
  const own = chosen(trace);
  if (!own) return none(trace);
  const all = await trace.tensors(["*.weights"], { pool: POOL, dtype: "U8" });
  const big = await large(trace, own);
  const kinds = [["encoder self", "The source looks at itself"], ["decoder self", "The output looks back at itself"], ["decoder cross", "The output looks at the source"]];
  const groups = kinds.map(([kind, title]) => {
    const [side, name] = kind.split(" ");
    const wheres = trace.attentions.filter((each) => each.startsWith(side) && each.endsWith(name));
    return wheres.length ? group(trace, own, wheres, all, title) : null;
  }).filter(Boolean);
  return [
    make("h2", {}, "Heads and layers"),
    make("p", { class: "quiet" }, "A row is a layer, a column a head. Dark fields on a light page (bright ones on a dark page) are large weights."),
    make("div", { class: "split" }, make("div", {}, ...groups), big),
  ];
}

function group(trace, own, wheres, all, title) {
  const rows = wheres.map((where) => {
    const { shape, data } = all[`${where}.weights`];
    const [heads, height, width] = shape;
    return Array.from({ length: heads }, (_, head) => {
      const here = where === own.where && head === own.head;
      const image = picture({ data: data.subarray(head * height * width, (head + 1) * height * width), shape: [height, width], kind: "bytes", label: "" });
      image.removeAttribute("role");
      image.setAttribute("aria-hidden", "true");
      const [queries, keys] = trace.sides(where);
      return make("button", {
        type: "button", class: "thumb", "aria-pressed": String(here), title: `${where}, head ${head}`,
        "aria-label": `${spoken(where)}, head ${head}${height === queries.ids.length ? `, ${strongest(data, head, shape, queries.shown, keys.shown)}` : ""}`,
        onclick: () => set({ where, head: String(head), query: state().where === where ? state().query : "", key: "" }),
      }, image);
    });
  });
  const at = [Math.max(0, wheres.indexOf(own.where)), wheres.includes(own.where) ? own.head : 0];
  roving(rows, at, (i, j) => live(rows[i][j].getAttribute("aria-label")));
  const lines = rows.map((cells, i) => make("div", { class: "thumbs-row" },
    make("span", { class: "thumbs-name", "aria-hidden": "true" }, wheres[i].split(".").length > 2 ? wheres[i].split(".")[1] : ""), ...cells));
  return make("section", { "aria-label": title }, make("h3", {}, title), make("div", { class: "scroll" }, make("div", { class: "thumbs", role: "group", "aria-label": title }, ...lines)));
}

/** The largest weight of a head in words, for those who do not see the picture. */
function strongest(data, head, [, height, width], queries, keys) {
  let most = 0, place = 0;
  for (let at = 0; at < height * width; at++) {
    const value = data[head * height * width + at];
    if (value > most) [most, place] = [value, at];
  }
  return `strongest from ${queries[Math.floor(place / width)]} to ${keys[place % width]}`;
}

async function large(trace, own) {
  const parts = await trace.tensors([`${own.where}.weights`, `${own.where}.mask`], { head: own.head });
  const weights = parts[`${own.where}.weights`], mask = parts[`${own.where}.mask`];
  const label = `${spoken(own.where)}, head ${own.head}: rows are queries, columns are keys`;
  const figure = Math.max(...weights.shape) <= SMALL
    ? grid({ weights, mask, queries: own.queries.shown, keys: own.keys.shown, query: own.query, key: own.key, label,
        choose: (query, key) => set({ view: "attention", where: own.where, head: String(own.head), query: String(query), key: String(key) }) })
    : make("div", { class: "large" }, picture({ ...weights, kind: "share", label }));
  return make("section", { class: "big", "aria-label": "One head" },
    make("h3", {}, `${spoken(own.where)}, head ${own.head}`), figure,
    make("p", {}, link({ view: "attention", where: own.where, head: String(own.head) }, "Step by step")));
}
