// A figure as it is laid out, as SVG that needs nothing else, and as pixels.
import { draw, make } from "./a11y.js";

const MARGIN = 12;
const SVG = "http://www.w3.org/2000/svg";

export async function dots(text, width, height) {
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
export function drawing(figure, name) {
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
