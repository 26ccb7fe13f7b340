// "PNG" and "SVG" under every picture: Bokeh's figures (lib/figures.js), inline <svg data-save="name"> and pictures of HTML boxes
// with data-save, in the page's colours and on its ground, so that a saved picture looks as it did. Nothing leaves the browser.

import { paintedSvg } from "./painted.js";
import { css } from "./theme.js";

const SVG = "http://www.w3.org/2000/svg";
const SCALE = 2; // pixels of a PNG per CSS pixel
/** What a drawing takes from style sheets, and a file of its own has to hold. */
const STYLES = ["fill", "fill-opacity", "stroke", "stroke-width", "stroke-dasharray", "stroke-opacity", "opacity", "font-family", "font-size", "font-weight", "text-anchor", "dominant-baseline", "visibility", "display"];

/** @param {Blob} blob @param {string} name */
function download(blob, name) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

/** A file's name from what the page and the picture are called. @param {string} name @param {string} ending */
export function fileName(name, ending) {
  const plain = `${document.title.split(" · ").slice(0, 2).join("-")}-${name}`.replace(/[^A-Za-z0-9._-]+/g, "-").replace(/^[-.]+|[-.]+$/g, "");
  return `${plain.slice(0, 120) || "figure"}.${ending}`;
}

/** @param {string} text of an SVG @returns {string} the same on the page's ground */
function grounded(text) {
  const parsed = new DOMParser().parseFromString(text, "image/svg+xml").documentElement;
  const ground = parsed.ownerDocument.createElementNS(SVG, "rect");
  for (const [key, value] of Object.entries({ width: "100%", height: "100%", fill: css("--panel") })) ground.setAttribute(key, value);
  const box = parsed.getAttribute("viewBox")?.split(/[ ,]+/);
  if (box) { ground.setAttribute("x", box[0]); ground.setAttribute("y", box[1]); }
  parsed.insertBefore(ground, parsed.firstChild);
  return new XMLSerializer().serializeToString(parsed);
}

/** @param {CanvasImageSource} image @param {number} width @param {number} height @returns {Promise<Blob>} */
function png(image, width, height) {
  const canvas = document.createElement("canvas");
  canvas.width = width;
  canvas.height = height;
  const context = canvas.getContext("2d");
  context.fillStyle = css("--panel");
  context.fillRect(0, 0, width, height);
  context.drawImage(image, 0, 0, width, height);
  return new Promise((resolve, reject) => { canvas.toBlob((blob) => (blob ? resolve(blob) : reject(new Error("no picture"))), "image/png"); });
}

const WIDE = 760; // px: a picture that rearranges itself where it has no room is saved as it is where it has

/** How large a drawing is saved. @param {SVGSVGElement|HTMLElement} drawing @returns {{width: number, height: number}} CSS pixels */
function extent(drawing) {
  const { width, height } = drawing.getBoundingClientRect();
  return drawing.closest(".picture") ? { width: Math.max(width, WIDE), height: Number(drawing.getAttribute("height")) || height } : { width, height };
}

/** The picture as an SVG that needs no style sheet. @param {SVGSVGElement|HTMLElement} drawing */
function standalone(drawing) {
  if (!(drawing instanceof SVGSVGElement)) return paintedSvg(drawing);
  const copy = /** @type {SVGSVGElement} */ (drawing.cloneNode(true));
  const from = [drawing, ...drawing.querySelectorAll("*")], to = [copy, ...copy.querySelectorAll("*")];
  from.forEach((element, at) => {
    const style = getComputedStyle(element);
    for (const name of STYLES) to[at].setAttribute(name, style.getPropertyValue(name));
  });
  for (const each of copy.querySelectorAll(".pic-row, .pic-frame, .pic-axis")) each.removeAttribute("transform"); // of narrow pages
  const box = extent(drawing);
  copy.setAttribute("xmlns", SVG);
  copy.setAttribute("width", String(Math.round(box.width)));
  copy.setAttribute("height", String(Math.round(box.height)));
  if (!copy.getAttribute("viewBox")) copy.setAttribute("viewBox", `0 0 ${box.width} ${box.height}`);
  return new XMLSerializer().serializeToString(copy);
}

/** @param {SVGSVGElement|HTMLElement} drawing @returns {Promise<Blob>} */
async function drawingPng(drawing) {
  const image = new Image();
  const box = extent(drawing);
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(standalone(drawing))}`;
  await image.decode();
  return png(image, Math.round(box.width * SCALE), Math.round(box.height * SCALE));
}

/**
 * Two buttons after `target`. @param {Element} target @param {string} name
 * @param {() => Promise<Blob>} asPng @param {() => Promise<Blob>} asSvg
 */
function offer(target, name, asPng, asSvg) {
  if (target.nextElementSibling?.classList.contains("save-figure")) target.nextElementSibling.remove();
  const bar = document.createElement("p");
  bar.className = "save-figure";
  for (const [ending, make] of /** @type {[string, () => Promise<Blob>][]} */ ([["png", asPng], ["svg", asSvg]])) {
    const button = document.createElement("button");
    button.type = "button";
    button.className = "btn btn-small";
    button.textContent = ending.toUpperCase();
    button.setAttribute("aria-label", `Save ${name} as ${ending.toUpperCase()}`);
    button.addEventListener("click", async () => {
      button.disabled = true;
      try {
        download(await make(), fileName(name, ending));
      } catch (error) {
        button.textContent = `no ${ending.toUpperCase()}`;
        console.error(error);
      } finally {
        button.disabled = false;
      }
    });
    bar.append(button);
  }
  target.after(bar);
}

/** @param {HTMLElement} target @param {any} view of a Bokeh figure */
export function offerFigure(target, view) {
  const name = target.dataset.figure?.replace(/-json$/, "") || target.id;
  offer(target, name, async () => {
    const layer = view.export("png");
    return png(layer.canvas, layer.canvas.width, layer.canvas.height);
  }, async () => new Blob([grounded(await (await view.export("svg").to_blob()).text())], { type: "image/svg+xml" }));
}

export function offerDrawings(root = document) {
  for (const drawing of /** @type {NodeListOf<SVGSVGElement|HTMLElement>} */ (root.querySelectorAll("[data-save]"))) {
    if (drawing.nextElementSibling?.classList.contains("save-figure")) continue;
    offer(drawing, drawing.dataset.save || "picture", () => drawingPng(drawing),
      async () => new Blob([grounded(standalone(drawing))], { type: "image/svg+xml" }));
  }
}

offerDrawings();
document.addEventListener("refreshed", () => offerDrawings());
