// What is shown, to take home: a figure as SVG or PNG, its numbers as CSV or JSON, the whole page as one file.
import * as api from "./api.js";
import { choices, field, make, quiet, select } from "./a11y.js";
import { csv, plain } from "./csv.js";
import { matrixOf } from "./figures.js";
import { hasServer } from "./source.js";
import { dots, drawing } from "./svg.js";

const FIGURES = "table.heat, .thumbs, .large, .strips, svg";
const LONGEST = 16384; // dots of a side that browsers draw for sure
const LARGEST = 2 ** 26; // dots in all
const FORMATS = [
  ["svg", "SVG"],
  ["png1", "PNG", "PNG, once the size"],
  ["png2", "PNG ×2", "PNG, twice the size"],
  ["png3", "PNG ×3", "PNG, three times the size"],
  ["csv", "CSV"],
  ["json", "JSON"],
];

/** The part of the page that exports what the panel shows. */
export function exporter(panel, trace, settings) {
  if (!trace) return [quiet("There is nothing to export yet.")];
  const figures = [...panel.querySelectorAll(FIGURES)]
    .filter((each) => !each.parentElement.closest(`${FIGURES}, button`))
    .map((element) => ({ element, name: nameOf(element) }));
  const message = make("p", { role: "status", class: "quiet" });
  let at = 0;
  const act = async (format) => {
    message.textContent = "";
    try {
      await write(format, figures[at], `regard-${panel.dataset.view}`);
    } catch (error) {
      message.textContent = error.message;
    }
  };
  const names = figures.map(({ name }, i) => [String(i), name]);
  const choose = (id) => {
    at = Number(id);
  };
  return [
    make(
      "div",
      { class: "pickers" },
      figures.length > 1 ? select("Figure", names, "0", choose) : null,
      figures.length
        ? field("Figure or numbers", choices("Format", FORMATS, "", act))
        : quiet("No figure here."),
      hasServer() ? pageLink(trace, settings.largest_page, message) : null,
    ),
    message,
  ];
}

/** A link: the browser fetches and saves the page by itself. */
function pageLink(trace, largest, message) {
  const check = (event) => {
    const sizes = [...trace.shapes].map(([name, shape]) =>
      name === "logits" ? 0 : 4 * shape.reduce((a, b) => a * b, 1),
    );
    const size = sizes.reduce((a, b) => a + b, 0);
    if (size <= largest) return;
    event.preventDefault();
    const [mebibytes, most] = [size, largest].map((bytes) => Math.round(bytes / 2 ** 20));
    message.textContent =
      `A page of this run would hold ${mebibytes} MiB of numbers, ${most} at most. ` + "Take a shorter text.";
  };
  const settings = { class: "button", href: api.pageOf(trace.id), download: "regard.html", onclick: check };
  return make("a", settings, "Whole page (HTML)");
}

/** Save a figure; an Error says why it cannot be. */
async function write(format, { element, name }, file) {
  if (format === "svg") return save(`${file}.svg`, drawing(element, name).text, "image/svg+xml");
  if (format.startsWith("png")) return savePng(file, drawing(element, name), Number(format.slice(3)));
  const matrix = matrixOf(element);
  if (!matrix) throw new Error("This figure shows no matrix; take it as SVG.");
  if (format === "csv") return save(`${file}.csv`, csv(matrix), "text/csv");
  return save(`${file}.json`, `${JSON.stringify(plain(matrix), null, 1)}\n`, "application/json");
}

async function savePng(file, { text, width, height }, times) {
  const size = [Math.ceil(width * times), Math.ceil(height * times)];
  if (Math.max(...size) > LONGEST || size[0] * size[1] > LARGEST) {
    throw new Error(
      `As PNG this would be ${size.join(" × ")} dots, more than a browser draws for sure. ` +
        "Take the SVG: it has no limit.",
    );
  }
  save(`${file}.png`, await dots(text, size[0], size[1]), "image/png");
}

function nameOf(figure) {
  const label =
    figure.getAttribute("aria-label") ?? figure.querySelector("[aria-label]")?.getAttribute("aria-label");
  const heading =
    figure.closest("figure")?.querySelector("figcaption") ?? figure.closest("section")?.querySelector("h3");
  const names = [label, heading?.textContent];
  if (figure.matches(".strips")) names.reverse();
  return names.find((name) => name !== null && name !== undefined) ?? "Figure";
}

function save(name, content, type) {
  const address = URL.createObjectURL(new Blob([content], { type }));
  const link = make("a", { href: address, download: name, hidden: true });
  document.body.append(link); // a link that is nowhere is not always followed
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(address), 60_000);
}
