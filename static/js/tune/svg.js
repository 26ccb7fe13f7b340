// Making SVG elements.

const SVG = "http://www.w3.org/2000/svg";

/**
 * @param {string} name @param {Record<string, string|number>} attributes @param {(Element|string)[]} inside
 * @returns {SVGElement}
 */
export function svg(name, attributes = {}, ...inside) {
  const element = /** @type {SVGElement} */ (document.createElementNS(SVG, name));
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, String(value));
  element.append(...inside);
  return element;
}
