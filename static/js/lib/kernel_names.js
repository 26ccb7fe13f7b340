// Kernel names on every page: short, demangled or mangled, as buttons [data-kernel-names] say; the choice is remembered.
// A name is a span.kn with the parts of its label, its full name as title and, where the file has it, data-mangled.

const KEY = "ridgepoint.kernel-names";
export const MODES = /** @type {const} */ (["short", "demangled", "mangled"]);
export const NO_MANGLED = "no mangled name in this file";

/** @param {unknown} said @returns {"short"|"demangled"|"mangled"} */
export function modeOf(said) {
  return MODES.find((mode) => mode === said) ?? "short";
}

/**
 * What stands in a name's place: null is its label. Without a mangled name the full one stays, and says why.
 * @param {"short"|"demangled"|"mangled"} mode @param {{full: string, mangled?: string}} name
 */
export function shownName(mode, { full, mangled }) {
  if (mode === "short") return null;
  return mode === "demangled" ? { text: full, note: "" } : mangled ? { text: mangled, note: "" } : { text: full, note: NO_MANGLED };
}

/**
 * What is copied: the full name where exactly a label was selected, else null for what was selected.
 * @param {string} selected @param {{label: string, full: string}} name
 */
export function copied(selected, { label, full }) {
  return selected.trim() && selected.trim() === label.trim() ? full : null;
}

let changed = false;        // whether names have shown anything but their label since the page was opened

function remembered() {
  try { return modeOf(localStorage.getItem(KEY)); } catch { return "short"; }
}

/** @returns {"short"|"demangled"|"mangled"} */
export function current() { return modeOf(globalThis.document?.documentElement.dataset.kernelNames); }

/** @param {Element} element a span.kn */
function dress(element) {
  const mode = current();
  if ((element.dataset.shows ?? "short") === mode) return;
  element.querySelector(".kn-full")?.remove();
  const shown = shownName(mode, { full: element.title, mangled: element.dataset.mangled });
  if (shown) element.dataset.shows = mode; else delete element.dataset.shows;
  if (!shown) return;
  const span = Object.assign(document.createElement("span"), { className: "kn-full", textContent: shown.text });
  if (shown.note) span.prepend(Object.assign(document.createElement("i"), { className: "kn-note", textContent: `(${shown.note}) ` }));
  element.append(span);
}

/** @param {ParentNode} root */
function dressAll(root) {
  if (root instanceof Element && root.matches(".kn")) dress(root);
  for (const element of root.querySelectorAll(".kn")) dress(element);
}

function tellButtons() {
  for (const button of document.querySelectorAll("button[data-kernel-names]")) button.setAttribute("aria-pressed", String(button.dataset.kernelNames === current()));
}

/** @param {"short"|"demangled"|"mangled"} mode */
function set(mode) {
  changed ||= mode !== "short";
  document.documentElement.dataset.kernelNames = mode;
  tellButtons();
  dressAll(document);
  document.dispatchEvent(new CustomEvent("kernel-names", { detail: mode }));
}

/** The page's names follow the switch, also those that tables and refreshes bring later. */
export function start() {
  set(remembered());
  document.addEventListener("click", (event) => {
    const button = event.target instanceof Element ? event.target.closest("button[data-kernel-names]") : null;
    if (!button) return;
    const mode = modeOf(button.dataset.kernelNames);
    try { localStorage.setItem(KEY, mode); } catch { /* storage is closed: the choice lasts for this page */ }
    set(mode);
  });
  addEventListener("storage", (event) => { if (event.key === KEY) set(modeOf(event.newValue)); });       // another tab chose
  document.addEventListener("refreshed", tellButtons);
  new MutationObserver((changes) => {         // rows of a table that were out of view have what was chosen before
    if (!changed) return;
    for (const { addedNodes } of changes) for (const node of addedNodes) if (node instanceof Element) dressAll(node);
  }).observe(document.body, { childList: true, subtree: true });
  document.addEventListener("copy", (event) => {
    const selection = getSelection(), at = selection?.anchorNode;
    const element = (at instanceof Element ? at : at?.parentElement)?.closest(".kn");
    if (!element || !element.contains(selection?.focusNode ?? null)) return;
    const label = [...element.querySelectorAll(".kn-f, .kn-a")].map((part) => part.textContent).join("");
    const whole = copied(String(selection), { label, full: element.title }) ?? copied(String(selection), { label: element.textContent ?? "", full: element.title });
    if (!whole || current() !== "short") return;
    event.clipboardData?.setData("text/plain", whole);
    event.preventDefault();
  });
}
