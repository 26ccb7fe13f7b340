// The tabs of a profile: where they do not fit, the current one is brought into view.

for (const bar of document.querySelectorAll("[data-workspace-tabs]")) {
  const current = /** @type {HTMLElement|null} */ (bar.querySelector("[aria-current]"));
  if (current && bar.scrollWidth > bar.clientWidth) bar.scrollLeft = current.offsetLeft - bar.offsetLeft - (bar.clientWidth - current.offsetWidth) / 2;
}
