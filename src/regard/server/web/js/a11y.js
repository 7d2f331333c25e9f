// Elements, and the habits of keyboard and screen reader. Text enters the page by textContent alone.

/** @typedef {Node | string | null | undefined | (Node | string | null)[]} Child */

/**
 * make("p", {class: "x", onclick}, "text", child): an element.
 * @param {string} name
 * @param {Record<string, any>} settings
 * @param {...Child} children
 * @returns {any}
 */
export function make(name, settings = {}, ...children) {
  return fill(document.createElement(name), settings, children);
}

/**
 * The same in SVG.
 * @param {string} name
 * @param {Record<string, any>} settings
 * @param {...Child} children
 * @returns {any}
 */
export function draw(name, settings = {}, ...children) {
  return fill(document.createElementNS("http://www.w3.org/2000/svg", name), settings, children);
}

/** @param {Element} element @param {Record<string, any>} settings @param {Child[]} children */
function fill(element, settings, children) {
  for (const [name, value] of Object.entries(settings)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return element;
}

/** A remark. @param {...Child} children */
export const quiet = (...children) => make("p", { class: "quiet" }, ...children);

/** A part of a view with a heading. @param {string} name @param {Child} title @param {...Child} children */
export const section = (name, title, ...children) =>
  make("section", { "aria-label": name }, make("h3", {}, title), ...children);

/** A control with a label. @param {string} label @param {Child} control */
export const field = (label, control) =>
  make("div", { class: "field" }, make("span", { class: "label" }, label), control);

/** A table of numbers. @param {Child[]} columns @param {Child[]} rows @param {Record<string, any>} more */
export const table = (columns, rows, { caption = null, foot = null, kind = "" } = {}) =>
  make(
    "table",
    { class: `numbers ${kind}` },
    caption && make("caption", {}, ...caption),
    make("thead", {}, make("tr", {}, ...columns.map((text) => make("th", { scope: "col" }, text)))),
    make("tbody", {}, ...rows),
    foot && make("tfoot", {}, foot),
  );

/** What is wider than the page; it can be scrolled with the keyboard too. @param {string} name @param {Child} inside */
export const scrollable = (name, inside) =>
  make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": name }, inside);

/** The listeners of something that is chosen by a click, Enter or Space. @param {() => void} act */
export const choosable = (act) => ({
  onclick: act,
  onkeydown: (/** @type {KeyboardEvent} */ event) => {
    if (event.key !== "Enter" && event.key !== " ") return;
    event.preventDefault();
    act();
  },
});

/** The listener of a link within the page; with Ctrl or Shift the browser opens it. @param {() => void} act */
export const following = (act) => (/** @type {MouseEvent} */ event) => {
  if (event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  act();
};

/** A word of a text: its direction is its own. */
export const token = (text) => make("bdi", { dir: "auto", class: "token" }, text);

export function live(text) {
  document.getElementById("live").textContent = text;
}

/** A row that is wider than a narrow window is moved, so that one of its parts is in the middle. */
export function inSight(part) {
  const row = part?.parentElement;
  if (!row) return;
  const [place, all] = [part, row].map((each) => each.getBoundingClientRect());
  row.scrollLeft += place.left + place.width / 2 - all.left - all.width / 2;
}

/** Arrow keys walk a row of tabs; one of them is in the order of the Tab key. */
export function tabs(list, entries, chosen, choose) {
  const buttons = entries.map(([id, text]) =>
    make(
      "button",
      {
        type: "button",
        role: "tab",
        id: `tab-${id}`,
        "aria-controls": "panel",
        "aria-selected": String(id === chosen),
        tabindex: id === chosen ? "0" : "-1",
        onclick: () => choose(id),
      },
      text,
    ),
  );
  const had = list.contains(document.activeElement);
  list.replaceChildren(...buttons);
  if (had) document.getElementById(`tab-${chosen}`)?.focus();
  inSight(document.getElementById(`tab-${chosen}`));
  list.onkeydown = (event) => {
    const at = buttons.indexOf(document.activeElement);
    const last = buttons.length - 1;
    const to = { ArrowRight: at === last ? 0 : at + 1, ArrowLeft: at ? at - 1 : last, Home: 0, End: last }[
      event.key
    ];
    if (at < 0 || to === undefined) return;
    event.preventDefault();
    choose(entries[to][0]);
    document.getElementById(`tab-${entries[to][0]}`).focus();
  };
}

/** Rows of cells of which one is in the order of the Tab key; arrows, Home and End walk among them. */
export function roving(rows, start = [0, 0], arrived = (_i, _j) => {}) {
  const all = rows.flat();
  const enter = (cell) => {
    for (const each of all) each.tabIndex = each === cell ? 0 : -1;
  };
  if (all.length) enter(rows[start[0]]?.[start[1]] ?? all[0]);
  rows.forEach((cells, i) =>
    cells.forEach((cell, j) => {
      cell.addEventListener("focus", () => {
        enter(cell);
        arrived(i, j);
      });
      cell.addEventListener("keydown", (event) => {
        const to = walk(event, rows, i, j);
        if (!to) return;
        event.preventDefault();
        to.focus();
      });
    }),
  );
}

function walk(event, rows, i, j) {
  const near = (r, c) => rows[r] && rows[r][Math.min(c, rows[r].length - 1)];
  switch (event.key) {
    case "ArrowRight":
      return rows[i][j + 1];
    case "ArrowLeft":
      return rows[i][j - 1];
    case "ArrowDown":
      return near(i + 1, j);
    case "ArrowUp":
      return near(i - 1, j);
    case "Home":
      return event.ctrlKey ? rows[0][0] : rows[i][0];
    case "End":
      return event.ctrlKey ? rows.at(-1).at(-1) : rows[i].at(-1);
    default:
      return undefined;
  }
}

/** A row of buttons of which one is chosen. */
export function choices(name, entries, chosen, choose) {
  const buttons = entries.map(([id, content, label]) =>
    make(
      "button",
      {
        type: "button",
        class: "choice",
        "aria-pressed": String(String(id) === String(chosen)),
        "aria-label": label,
        onclick: () => choose(id),
      },
      content,
    ),
  );
  const group = make("div", { role: "group", "aria-label": name, class: "choices" }, ...buttons);
  const at = Math.max(
    0,
    entries.findIndex(([id]) => String(id) === String(chosen)),
  );
  roving([buttons], [0, at]);
  return group;
}

export function select(name, entries, chosen, choose) {
  const id = `select-${name.toLowerCase().replaceAll(" ", "-")}`;
  const options = entries.map(([value, text]) => make("option", { value, selected: value === chosen }, text));
  return make(
    "div",
    { class: "field" },
    make("label", { for: id }, name),
    make("select", { id, onchange: (event) => choose(event.target.value) }, ...options),
  );
}

export function check(name, checked, choose) {
  const box = make("input", {
    type: "checkbox",
    checked,
    onchange: (event) => choose(event.target.checked),
    "aria-label": name,
  });
  return make("label", { class: "check" }, box, name);
}
