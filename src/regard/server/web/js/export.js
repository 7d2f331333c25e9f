// What is shown, to take home: a figure as SVG or PNG, its numbers as CSV or JSON, the whole page as one file.
import * as api from "./api.js";
import { choices, draw, make, select } from "./a11y.js";
import { matrixOf } from "./figures.js";
import { kept } from "./source.js";

const FIGURES = "table.heat, .thumbs, .large, .strips, svg";
const MARGIN = 12;
const LONGEST = 16384,
  LARGEST = 2 ** 26; // dots that browsers draw for sure: of a side, in all
const LARGEST_PAGE = 64 * 2 ** 20; // bytes of numbers, as the server has it
const SVG = "http://www.w3.org/2000/svg";

/** The part of the page that exports what the panel shows. */
export function exporter(panel, trace) {
  const figures = [...panel.querySelectorAll(FIGURES)].filter(
    (each) => !each.parentElement.closest(`${FIGURES}, button`),
  );
  if (!trace) return [make("p", { class: "quiet" }, "There is nothing to export yet.")];
  const named = figures.map((figure, i) => [String(i), nameOf(figure)]);
  const message = make("p", { role: "status", class: "quiet" });
  let at = 0;
  const tell = (text) => {
    message.textContent = text;
  };
  const view = panel.dataset.view;
  const file = (ending) => `regard-${view}.${ending}`;
  const actions = {
    svg: () => save(file("svg"), drawing(figures[at], named[at][1]).text, "image/svg+xml"),
    png1: () => png(1),
    png2: () => png(2),
    png3: () => png(3),
    csv: () => numbers((matrix) => save(file("csv"), csv(matrix), "text/csv")),
    json: () =>
      numbers((matrix) =>
        save(file("json"), `${JSON.stringify(listed(matrix), null, 1)}\n`, "application/json"),
      ),
  };
  async function png(times) {
    const { text, width, height } = drawing(figures[at], named[at][1]);
    const size = [Math.ceil(width * times), Math.ceil(height * times)];
    if (Math.max(...size) > LONGEST || size[0] * size[1] > LARGEST) {
      tell(
        `As PNG this would be ${size.join(" × ")} dots, more than a browser draws for sure. Take the SVG: it has no limit.`,
      );
      return;
    }
    save(file("png"), await dots(text, ...size), "image/png");
  }
  function numbers(write) {
    const matrix = matrixOf(figures[at]);
    if (matrix) write(matrix);
    else tell("This figure shows no matrix; take it as SVG.");
  }
  async function act(name) {
    tell("");
    try {
      await actions[name]();
    } catch (error) {
      tell(error.message);
    }
  }
  const formats = [
    ["svg", "SVG"],
    ["png1", "PNG", "PNG, once the size"],
    ["png2", "PNG ×2", "PNG, twice the size"],
    ["png3", "PNG ×3", "PNG, three times the size"],
    ["csv", "CSV"],
    ["json", "JSON"],
  ];
  // a link: the browser fetches and saves it by itself
  const whole = make(
    "a",
    {
      class: "button",
      href: api.pageOf(trace.id),
      download: "regard.html",
      onclick: (event) => {
        const size = [...trace.shapes].reduce(
          (sum, [name, shape]) => sum + (name === "logits" ? 0 : 4 * shape.reduce((a, b) => a * b, 1)),
          0,
        );
        if (size <= LARGEST_PAGE) return;
        event.preventDefault();
        tell(
          `A page of this run would hold ${Math.round(size / 2 ** 20)} MiB of numbers, ${LARGEST_PAGE / 2 ** 20} at most. Take a shorter text.`,
        );
      },
    },
    "Whole page (HTML)",
  );
  return [
    make(
      "div",
      { class: "pickers" },
      named.length > 1
        ? select("Figure", named, "0", (id) => {
            at = Number(id);
          })
        : null,
      named.length
        ? make(
            "div",
            { class: "field" },
            make("span", { class: "label" }, "Figure or numbers"),
            choices("Format", formats, "", act),
          )
        : make("p", { class: "quiet" }, "No figure here."),
      kept ? null : whole,
    ),
    message,
  ];
}

function nameOf(figure) {
  const label =
    figure.getAttribute("aria-label") ?? figure.querySelector("[aria-label]")?.getAttribute("aria-label");
  const section =
    figure.closest("figure")?.querySelector("figcaption") ?? figure.closest("section")?.querySelector("h3");
  return (
    (figure.matches(".strips") ? (section?.textContent ?? label) : (label ?? section?.textContent)) ??
    "Figure"
  );
}

function save(name, content, type) {
  const address = URL.createObjectURL(new Blob([content], { type }));
  const link = make("a", { href: address, download: name, hidden: true });
  document.body.append(link); // a link that is nowhere is not always followed
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(address), 60_000);
}

/** Spreadsheets read a text that begins so as a formula. */
const harmless = (text) => (/^[=+\-@\t\r]/.test(text) ? `'${text}` : text);
const quoted = (text) => `"${harmless(text).replaceAll('"', '""')}"`;

function csv(matrix) {
  const lines = [
    ["", ...matrix.columns].map(quoted),
    ...listed(matrix).values.map((row, i) => [quoted(matrix.rows[i]), ...row]),
  ];
  return lines.map((line) => `${line.join(",")}\r\n`).join("");
}

function listed({ label, rows, columns, data, width }) {
  return {
    label,
    rows,
    columns,
    values: rows.map((_, i) => Array.from(data.slice(i * width, i * width + columns.length))),
  };
}

async function dots(text, width, height) {
  const image = new Image();
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(text)}`;
  await image.decode();
  const canvas = make("canvas", { width, height });
  canvas.getContext("2d").drawImage(image, 0, 0, width, height);
  return new Promise((done, failed) =>
    canvas.toBlob(
      (blob) => (blob ? done(blob) : failed(new Error("The browser could not draw this; take the SVG."))),
      "image/png",
    ),
  );
}

/** The figure as it is laid out, as SVG that needs nothing else: styles inside, fonts of the system. */
function drawing(figure, name) {
  const scroll = figure.closest(".scroll");
  const before = scroll ? [scroll.scrollLeft, scroll.scrollTop] : null;
  scroll?.scrollTo(0, 0);
  const origin = figure.getBoundingClientRect();
  const [width, height] = [
    Math.max(origin.width, figure.scrollWidth ?? 0) + 2 * MARGIN,
    Math.max(origin.height, figure.scrollHeight ?? 0) + 2 * MARGIN,
  ];
  const style = getComputedStyle(document.documentElement);
  const paper = getComputedStyle(document.body).getPropertyValue("--paper") || "#fff";
  const root = draw(
    "svg",
    {
      xmlns: SVG,
      width,
      height,
      viewBox: `0 0 ${width} ${height}`,
      role: "img",
      "font-family": style.fontFamily,
    },
    draw("title", {}, name),
    draw("desc", {}, "Drawn by Regard from the numbers of one run."),
    draw("rect", { width, height, fill: paper.trim() }),
  );
  copy(figure, root, origin.left - MARGIN, origin.top - MARGIN);
  if (before) scroll.scrollTo(...before);
  return { text: new XMLSerializer().serializeToString(root), width, height };
}

function copy(element, into, left, top) {
  if (element.nodeType === Node.TEXT_NODE) return writeText(element, into, left, top);
  if (element.nodeType !== Node.ELEMENT_NODE || !element.getClientRects().length) return undefined;
  const box = element.getBoundingClientRect();
  const place = { x: box.left - left, y: box.top - top, width: box.width, height: box.height };
  if (element instanceof SVGSVGElement) return into.append(styled(element, place));
  if (element instanceof HTMLCanvasElement)
    return into.append(
      draw("image", {
        ...place,
        href: element.toDataURL(),
        preserveAspectRatio: "none",
        "image-rendering": "pixelated",
      }),
    );
  const style = getComputedStyle(element);
  const outlined =
    style.outlineStyle !== "none" && parseFloat(style.outlineWidth) > 0 && element !== document.activeElement;
  const border =
    parseFloat(style.borderTopWidth) > 0 &&
    style.borderTopStyle !== "none" &&
    parseFloat(style.borderLeftWidth) > 0;
  if (!/^rgba\(.*, 0\)$|^transparent$/.test(style.backgroundColor) || outlined || border) {
    const given = {
      fill: style.backgroundColor,
      stroke: outlined ? style.outlineColor : border ? style.borderTopColor : "none",
      "stroke-width": outlined ? 2 : 1,
    };
    const data = element.dataset.value === undefined ? {} : { "data-value": element.dataset.value };
    into.append(
      draw("rect", {
        ...place,
        rx: Math.min(parseFloat(style.borderTopLeftRadius) || 0, 6),
        ...given,
        ...data,
      }),
    );
  }
  if (element.matches("td.masked"))
    into.append(
      draw("path", {
        d: `M${place.x} ${place.y + place.height}l${place.width} ${-place.height}`,
        stroke: "#888",
        "stroke-width": 1,
      }),
    );
  for (const child of element.childNodes) copy(child, into, left, top);
  return undefined;
}

function writeText(node, into, left, top) {
  if (!node.data.trim()) return;
  const range = document.createRange();
  range.selectNodeContents(node);
  const box = range.getBoundingClientRect();
  if (!box.width || !box.height) return;
  const style = getComputedStyle(node.parentElement);
  const size = parseFloat(style.fontSize);
  const given = { "font-size": size, "font-weight": style.fontWeight, fill: style.color };
  const upright = style.writingMode.startsWith("vertical");
  const [x, y] = [box.left - left, box.top - top];
  into.append(
    upright // read from below
      ? draw(
          "text",
          {
            ...given,
            transform: `translate(${x + box.width / 2 + size * 0.35} ${y + box.height}) rotate(-90)`,
          },
          node.data,
        )
      : draw(
          "text",
          { ...given, x: x + box.width / 2, y: y + box.height / 2 + size * 0.35, "text-anchor": "middle" },
          node.data,
        ),
  );
}

const KEPT = [
  "fill",
  "stroke",
  "stroke-width",
  "stroke-dasharray",
  "font-size",
  "font-weight",
  "text-anchor",
  "opacity",
  "text-decoration",
];

/** An SVG with what the style sheet says written into each part. */
function styled(svg, place) {
  const clone = svg.cloneNode(true);
  const [from, to] = [svg, clone].map((each) => [...each.querySelectorAll("*")]);
  from.forEach((element, i) => {
    const style = getComputedStyle(element);
    for (const name of KEPT) to[i].setAttribute(name, style.getPropertyValue(name));
    for (const name of ["class", "tabindex", "role", "href"])
      if (name !== "href" || element.localName === "a") to[i].removeAttribute(name);
  });
  for (const name of ["class", "style", "role", "tabindex"]) clone.removeAttribute(name);
  for (const [name, value] of Object.entries(place)) clone.setAttribute(name, value);
  return clone;
}
