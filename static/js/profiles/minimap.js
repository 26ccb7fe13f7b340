// The strip of a whole timeline: a click opens the timeline around the time under the pointer.

const WINDOW = 1 / 16; // of the whole, around the click

for (const link of /** @type {NodeListOf<HTMLAnchorElement>} */ (document.querySelectorAll("a[data-minimap]"))) {
  const whole = Number(link.dataset.endNs), picture = /** @type {HTMLElement} */ (link.querySelector("[data-minimap-picture]"));
  const windowAt = (clientX) => {
    const box = picture.getBoundingClientRect(), at = Math.min(Math.max((clientX - box.left) / box.width, 0), 1);
    const start = Math.min(Math.max(at - WINDOW / 2, 0), 1 - WINDOW);
    return `${Math.round(start * whole)}-${Math.round((start + WINDOW) * whole)}`;
  };
  const plain = link.href;
  for (const event of ["pointerdown", "pointermove"]) link.addEventListener(event, (at) => { link.href = `${plain}?w=${windowAt(/** @type {PointerEvent} */ (at).clientX)}`; });
  link.addEventListener("pointerleave", () => { link.href = plain; });
}
