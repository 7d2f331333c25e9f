// The picture or sound that a model reads: chosen, dropped or drawn here, sent as a data URL, never stored.
import { make } from "./a11y.js";

const WIDEST = 512; // pixels that are sent: the model sees fewer
const MOST = 700_000; // bytes of a sound
const INK = 18; // pixels of a stroke

/** @type {Map<string, string>} name -> data URL, while the page is open */
const files = new Map();

/** Take a file of the server by its name, as if it had been chosen. @param {string} name */
export async function takeFromServer(name) {
  const response = await fetch(`/web/media/${name}`);
  if (!response.ok) throw new Error(`There is no file ${name}.`);
  remember(name, await asUrl(await response.blob()));
}

/** What the server gets for a name: the file, or the name itself, which may be a text. @param {string} name */
export const sourceOf = (name) => files.get(name) ?? name;

/** Whether a name means a file that this page no longer has. @param {string} name */
export const isLost = (name) => name !== "" && !files.has(name);

/** @param {string} name @param {string} url */
function remember(name, url) {
  const key = files.get(name) === url || !files.has(name) ? name : `${name} (${files.size + 1})`;
  files.set(key, url);
  return key;
}

/** @param {Blob} file @returns {Promise<string>} */
const asUrl = (file) =>
  new Promise((done, failed) => {
    const reader = new FileReader();
    reader.onload = () => done(String(reader.result));
    reader.onerror = () => failed(new Error("The browser could not read this file."));
    reader.readAsDataURL(file);
  });

/** A picture, smaller where it is large. @param {File} file */
async function pictureUrl(file) {
  const image = await createImageBitmap(file).catch(() => {
    throw new Error(`${file.name} is not a picture that the browser can read.`);
  });
  const scale = Math.min(1, WIDEST / Math.max(image.width, image.height));
  const canvas = make("canvas", {
    width: Math.max(1, Math.round(image.width * scale)),
    height: Math.max(1, Math.round(image.height * scale)),
  });
  canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
  return canvas.toDataURL("image/png");
}

/**
 * Take a file; resolves to the name that the page knows it by.
 * @param {File} file
 * @param {string} kind "image", "video" or "audio"
 */
async function take(file, kind) {
  if (kind === "image") return remember(file.name, await pictureUrl(file));
  if (file.size > MOST) throw new Error(`${file.name} is too long for this page: use the command line.`);
  return remember(file.name, await asUrl(file));
}

/**
 * A black square to draw on in white, as digits are stored.
 * @param {(name: string) => void} drawn is called when a stroke ends
 */
function sketch(drawn) {
  const canvas = make("canvas", { width: 224, height: 224, class: "sketch", "aria-label": "Draw here" });
  const pen = canvas.getContext("2d");
  let number = 0;
  const clear = () => {
    pen.fillStyle = "black";
    pen.fillRect(0, 0, canvas.width, canvas.height);
  };
  /** @param {PointerEvent} event @returns {[number, number]} */
  const place = (event) => {
    const box = canvas.getBoundingClientRect();
    return [
      ((event.clientX - box.left) / box.width) * canvas.width,
      ((event.clientY - box.top) / box.height) * canvas.height,
    ];
  };
  canvas.addEventListener("pointerdown", (/** @type {PointerEvent} */ event) => {
    canvas.setPointerCapture(event.pointerId);
    pen.strokeStyle = "white";
    pen.lineWidth = INK;
    pen.lineCap = pen.lineJoin = "round";
    pen.beginPath();
    pen.moveTo(...place(event));
  });
  canvas.addEventListener("pointermove", (/** @type {PointerEvent} */ event) => {
    if (!event.buttons) return;
    pen.lineTo(...place(event));
    pen.stroke();
  });
  canvas.addEventListener("pointerup", () =>
    drawn(remember(`drawing ${++number}`, canvas.toDataURL("image/png"))),
  );
  clear();
  return make(
    "div",
    { class: "drawing" },
    canvas,
    make("button", { type: "button", onclick: clear }, "Clear the drawing"),
  );
}

/**
 * The file field, the drawing and files that are dropped on the page.
 * @param {() => string | null} kind what the model reads; null: text
 * @param {(name: string) => void} taken
 * @param {(message: string) => void} trouble
 */
export function listenToFiles(kind, taken, trouble) {
  const input = /** @type {HTMLInputElement} */ (document.getElementById("file"));
  const given = (/** @type {FileList | null | undefined} */ list) => {
    const reads = kind();
    if (list?.length && reads) {
      take(list[0], reads)
        .then(taken)
        .catch((error) => trouble(error.message));
    }
  };
  input.addEventListener("change", () => given(input.files));
  document.getElementById("sketch-field")?.append(sketch(taken));
  addEventListener("dragover", (event) => kind() && event.preventDefault());
  addEventListener("drop", (event) => {
    if (!kind()) return;
    event.preventDefault();
    given(event.dataTransfer?.files);
  });
}
