// The pinned header of a kernel's pages: anchors of the page that it once was, and the baseline from a searchable list.

import "../lib/combobox.js";

const frame = /** @type {HTMLElement} */ (document.querySelector("[data-kernel-frame]"));
const moved = new Map(frame.dataset.moved.trim().split(/\s+/).map((each) => /** @type {[string, string]} */ (each.split("="))));
const part = location.hash.slice(1);
const first = location.pathname.replace(/(\/kernels\/\d+\/).*/, "$1");
if (location.pathname === first && moved.get(part) && !document.getElementById(part)) location.replace(`${first}${moved.get(part)}/${location.search}#${part}`);

const form = /** @type {HTMLFormElement} */ (document.getElementById("baseline"));
form.addEventListener("change", (event) => { if (/** @type {HTMLElement} */ (event.target).id === "baseline-of") form.requestSubmit(); });
