// A picture made of HTML boxes (bars, trees) as an SVG of its own: what the browser laid out, box by box and word by word.

const SVG = "http://www.w3.org/2000/svg";
const HATCH = '<pattern id="hatch" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)"><path d="M0 0V6" stroke="#000" stroke-opacity=".45" stroke-width="2"/></pattern>';

/** @param {string} name @param {Record<string, string|number>} attributes */
function make(name, attributes) {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, String(value));
  return element;
}

/** @param {CSSStyleDeclaration} style does it paint its ground? */
const painted = (style) => style.backgroundColor !== "transparent" && !/^rgba\(.*, 0\)$/.test(style.backgroundColor);

/** The text nodes directly within an element that show something. @param {Element} element @returns {Text[]} */
function texts(element) {
  return /** @type {Text[]} */ ([...element.childNodes].filter((node) => node.nodeType === Node.TEXT_NODE && node.textContent.trim()));
}

/** What of a text fits into its box, as the page's ellipsis has it. @param {string} text @param {number} room @param {CSSStyleDeclaration} style */
function fitted(text, room, style) {
  const context = document.createElement("canvas").getContext("2d");
  context.font = `${style.fontWeight} ${style.fontSize} ${style.fontFamily}`;
  if (context.measureText(text).width <= room + 1) return text;
  let length = text.length;
  while (length > 0 && context.measureText(`${text.slice(0, length)}…`).width > room) length -= 1;
  return length ? `${text.slice(0, length)}…` : "";
}

/** @param {HTMLElement} host @returns {string} an SVG of the same size */
export function paintedSvg(host) {
  const frame = host.getBoundingClientRect();
  const root = make("svg", { xmlns: SVG, width: Math.round(frame.width), height: Math.round(frame.height), viewBox: `0 0 ${frame.width} ${frame.height}` });
  root.innerHTML = `<defs>${HATCH}</defs>`;
  for (const element of host.querySelectorAll("*")) {
    const box = element.getBoundingClientRect(), style = getComputedStyle(element);
    if (!box.width || !box.height || style.visibility === "hidden") continue;
    const place = { x: (box.left - frame.left).toFixed(2), y: (box.top - frame.top).toFixed(2), width: box.width.toFixed(2), height: box.height.toFixed(2) };
    if (painted(style)) root.append(make("rect", { ...place, rx: parseFloat(style.borderTopLeftRadius) || 0, fill: style.backgroundColor }));
    if (style.backgroundImage.includes("repeating-linear-gradient")) root.append(make("rect", { ...place, fill: "url(#hatch)" }));
    for (const node of texts(element)) {
      const range = document.createRange();
      range.selectNodeContents(node);
      const at = range.getBoundingClientRect();
      const words = fitted(node.textContent.trim().replace(/\s+/g, " "), Math.min(at.right, box.right) - at.left, style);
      if (!words) continue;
      const text = make("text", { x: (at.left - frame.left).toFixed(2), y: (at.top + at.height / 2 - frame.top).toFixed(2), "dominant-baseline": "central",
        fill: style.color, "font-family": style.fontFamily, "font-size": style.fontSize, "font-weight": style.fontWeight });
      text.textContent = words;
      root.append(text);
    }
  }
  return new XMLSerializer().serializeToString(root);
}
