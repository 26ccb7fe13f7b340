// Parts of a server-rendered page follow the server: fetch the page again, put its [data-live] parts in place of ours.
// Figures and tables of a new part are made by those who make them (lib/figures.js, lib/save.js, base/frame.js) on "refreshed".

/** @type {AbortController|null} */
let running = null;
let again = 0;
let due = 0; // when a page may be asked for again
const LEAST_MS = 500; // a page is painted twice a second at most

/**
 * What a part says, without what differs each time the server writes the same: the token of a form, ids that Bokeh counts up,
 * how long ago something was. @param {string} html
 */
export function said(html) {
  return html.replace(/(name="csrfmiddlewaretoken" value=")[^"]*/g, "$1")
    .replace(/"(?:p\d+|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})"/g, '""')
    .replace(/(<time\b[^>]*\bdata-ago\b[^>]*>)[^<]*/g, "$1");
}

/** What each part said when it was written, before tables became grids. @type {WeakMap<Element, string>} */
const written = new WeakMap();
if (typeof document !== "undefined") for (const part of document.querySelectorAll("[data-live]")) written.set(part, said(part.innerHTML));

/** The part that the pointer is pressed on: a button that is replaced meanwhile would lose the click. @type {Element|null} */
let pressed = null;
/** Parts that are in use, and what they are to say as soon as they are not. @type {Map<Element, Element>} */
const waiting = new Map();
/** Parts that a script holds, and how often. @type {Map<Element, number>} */
const held = new Map();

/**
 * Let nothing replace a part until what is returned is called: with `changed`, the script wrote into it itself, and whatever the
 * server said meanwhile is older. @param {Element} part @returns {(changed?: boolean) => void}
 */
export function hold(part) {
  held.set(part, (held.get(part) ?? 0) + 1);
  return (changed = false) => {
    const left = held.get(part) - 1;
    left ? held.set(part, left) : held.delete(part);
    if (changed) { written.delete(part); waiting.delete(part); }
    const next = waiting.get(part);
    if (next) put(part, next);
  };
}

/** Whether somebody types or walks in a part, has a menu of it open or presses on it, or a script holds it. @param {Element} part */
function inUse(part) {
  const focus = document.activeElement, types = focus?.matches("input:not([type=checkbox], [type=radio]), textarea, select, [contenteditable]") && part.contains(focus);
  const walks = focus?.closest(".grid-wrap") && part.contains(focus);        // by keys through the rows of a table
  return types || walks || pressed === part || held.has(part) || part.querySelector("details.menu[open], details[open]:not([id]), dialog[open]") !== null;
}

if (typeof document !== "undefined") {
  document.addEventListener("pointerdown", (event) => { pressed = /** @type {Element} */ (event.target).closest?.("[data-live]") ?? null; }, true);
  const later = () => setTimeout(() => { pressed = null; for (const [part, next] of [...waiting]) put(part, next); }); // after the click
  for (const event of ["pointerup", "pointercancel", "focusout", "toggle"]) document.addEventListener(event, later, true);
}

/** By what the same element is known in the next words of a part, wherever it stands there. @param {Element} element */
const nameOf = (element) => [element.tagName, element.id, element.getAttribute("aria-label"), element.getAttribute("href"), element.getAttribute("name"),
  element.getAttribute("value"), element.hasAttribute("aria-label") ? "" : element.textContent.trim()].join("|");

/** @param {Element} part @param {string} name @returns {HTMLElement|undefined} */
const named = (part, name) => /** @type {HTMLElement[]} */ ([...part.querySelectorAll("a[href], button, summary, input, [tabindex]")]).find((each) => nameOf(each) === name);

/** A part says what `next` does, now or when it is not in use any more. @param {Element} part @param {Element} next of the same id */
function put(part, next) {
  waiting.delete(part);
  const now = said(next.innerHTML);
  if (now === written.get(part)) return;
  if (inUse(part)) { waiting.set(part, next); return; }
  const focus = document.activeElement, had = focus && part.contains(focus) && focus !== part ? nameOf(focus) : "";
  written.set(part, now);
  keepState(part, next);
  part.replaceChildren(...next.childNodes);
  if (had) named(part, had)?.focus({ preventScroll: true }); // the keyboard stays where it was
}

/** Parts of one snapshot, all at once. @param {Record<string, string>} parts HTML of a [data-live] part each, by whatever name */
export function putParts(parts) {
  const page = new DOMParser().parseFromString(Object.values(parts).join(""), "text/html");
  for (const part of document.querySelectorAll("[data-live][id]")) {
    const next = page.getElementById(part.id);
    if (next) put(part, next);
  }
  document.dispatchEvent(new Event("refreshed"));
}

/** What a person did to a part outlives it; a figure takes the room of the one it replaces until it is drawn, so that nothing jumps. */
function keepState(part, next) {
  for (const figure of next.querySelectorAll("[data-figure]")) {
    const before = part.querySelector(`[data-figure="${CSS.escape(figure.dataset.figure)}"]`);
    if (before) figure.style.minHeight = `${before.offsetHeight}px`;
  }
  for (const box of part.querySelectorAll("input[type=radio], input[type=checkbox]")) { // what was ticked stays ticked
    const same = next.querySelector(`input[name="${CSS.escape(box.name)}"][value="${CSS.escape(box.value)}"]`);
    if (same) same.checked = box.checked;
  }
  for (const details of next.querySelectorAll("details[id]")) if (part.querySelector(`#${CSS.escape(details.id)}[open]`)) details.open = true;
}

/**
 * @param {() => void} after called when parts were replaced @param {string} url of an answer that holds at least these parts
 * @returns {Promise<boolean>} whether the server answered
 */
export async function refresh(after = () => {}, url = location.href) {
  running?.abort();
  due = performance.now() + LEAST_MS;
  const mine = running = new AbortController();
  try {
    const response = await fetch(url, { credentials: "same-origin", signal: mine.signal, headers: { Accept: "text/html" } });
    if (!response.ok) return false;
    const page = new DOMParser().parseFromString(await response.text(), "text/html");
    for (const part of document.querySelectorAll("[data-live]")) {
      const next = page.getElementById(part.id);
      if (next) put(part, next);
    }
    const missing = [...page.querySelectorAll("[data-live][id]")].some((part) => !document.getElementById(part.id));
    if (missing) document.dispatchEvent(new Event("reshaped")); // the page has parts now that it had not when it was opened
    document.dispatchEvent(new Event("refreshed")); // the frame words the times anew
    after();
    return true;
  } catch (error) {
    if (error.name === "AbortError") return true;
    return false;
  } finally {
    if (running === mine) running = null;
  }
}

/** Many messages in a row ask for one refresh; however many follow, it is not put off, and it waits for the one before. */
export function refreshSoon(after = () => {}, wait_ms = 250) {
  again ||= setTimeout(() => {
    again = 0;
    if (running) refreshSoon(after, wait_ms); else refresh(after);
  }, Math.max(wait_ms, due - performance.now()));
}
