// Elements from words: el("button", {class: "btn", onclick: …}, "Text"). Texts are always text, never markup.

/** A part of one timeline by its id: two timelines of a page differ by the suffix of their ids. @param {HTMLElement} root `.tl` */
export const part = (root, name) => document.getElementById(`${name}${root.dataset.suffix ?? ""}`);

/** @param {string} tag @param {object} attributes "on…" are listeners, null and false are left out @param {...any} children */
export function el(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value !== null && value !== undefined && value !== false) element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

const ICONS = {
  chevron: "M6 4l4 4-4 4",
  hide: "M2 8c3-5 9-5 12 0-3 5-9 5-12 0zM3 13L13 3",
  pin: "M10 2l4 4-3 1-2 3-1 3-5-5 3-1 3-2zM5.5 10.5L2 14",
};

/** A 16 px line drawing. @param {keyof typeof ICONS} name */
export function icon(name) {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  for (const [key, value] of Object.entries({ viewBox: "0 0 16 16", class: `tl-icon tl-icon-${name}`, "aria-hidden": "true" })) svg.setAttribute(key, value);
  const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
  path.setAttribute("d", ICONS[name]);
  svg.append(path);
  return svg;
}

/** Put a text on the clipboard; works on plain HTTP too, where the clipboard API is closed. */
export async function copyText(text) {
  if (navigator.clipboard && isSecureContext) return navigator.clipboard.writeText(text);
  const area = el("textarea", { class: "visually-hidden" });
  area.value = text;
  document.body.append(area);
  area.select();
  document.execCommand("copy");
  area.remove();
}

/** A button that copies and says so. @param {() => string} text */
export function copyButton(label, text) {
  const button = el("button", { class: "btn btn-small", type: "button" }, label);
  button.addEventListener("click", async () => {
    await copyText(text());
    button.textContent = "Copied";
    setTimeout(() => { button.textContent = label; }, 1400);
  });
  return button;
}

/** Hand a text to the browser as a file. */
export function download(name, type, text) {
  const url = URL.createObjectURL(new Blob([text], { type }));
  el("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10000);
}
