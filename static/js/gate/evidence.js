// Pointing at a row of the interval plot, or reaching it by keyboard, shows its evidence beside the plot: the page's own answer for ?at=.

const WAIT_MS = 150; // a pointer that passes asks for nothing
const seen = new Map(); // address -> text of the part
let due = 0, wanted = "";

/** @param {SVGAElement} row */
async function show(row) {
  const pk = /kernels\/(\d+)\//.exec(row.getAttribute("href") ?? "")?.[1], now = document.getElementById("evidence");
  if (!pk || !now || now.dataset.kernel === pk) return;
  const url = new URL(location.href);
  url.searchParams.set("at", pk);
  wanted = url.href;
  if (!seen.has(url.href)) {
    const answer = await fetch(url, { credentials: "same-origin", headers: { Accept: "text/html" } }).catch(() => null);
    if (!answer?.ok) return;
    seen.set(url.href, new DOMParser().parseFromString(await answer.text(), "text/html").getElementById("evidence")?.outerHTML ?? "");
  }
  const part = new DOMParser().parseFromString(seen.get(url.href), "text/html").getElementById("evidence");
  if (!part || wanted !== url.href) return; // another row was pointed at meanwhile
  document.getElementById("evidence")?.replaceWith(part);
  for (const each of document.querySelectorAll(".intervals .iv-row")) if (each === row || each.getAttribute("href") === row.getAttribute("href")) each.setAttribute("aria-current", "true"); else each.removeAttribute("aria-current");
  history.replaceState(history.state, "", url);
  document.dispatchEvent(new Event("refreshed")); // its picture can be saved
}

function asked(event) {
  const row = event.target instanceof Element ? event.target.closest(".intervals .iv-row") : null;
  if (!row || event.pointerType === "touch") return;
  clearTimeout(due);
  due = setTimeout(() => show(/** @type {SVGAElement} */ (row)), WAIT_MS);
}

document.addEventListener("pointerover", asked);
document.addEventListener("focusin", asked);
