/** An element with properties and children. Texts stay texts. @param {string} tag @param {Record<string, any>} properties @param {(Node|string)[]} children */
export function el(tag, properties = {}, ...children) {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children);
  return element;
}
