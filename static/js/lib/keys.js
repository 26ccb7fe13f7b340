// Keys of the page: every module registers its own with a word on what it does, `?` shows them all.

const SEQUENCE_MS = 1200;
/** @type {{keys: string, what: string, group: string, run: ((event: KeyboardEvent) => void)|null}[]} */
const bindings = [];
let pending = "";
let pendingTimer = 0;

/** @param {EventTarget|null} target typing there must reach the field */
export function isTyping(target) {
  return target instanceof HTMLElement && (target.isContentEditable || ["INPUT", "TEXTAREA", "SELECT"].includes(target.tagName) && !["checkbox", "radio", "button", "submit"].includes(target.type));
}

/**
 * Bind "g p" (a sequence), "/" or "?". With `run` null the key is only listed: the module listens itself.
 * @param {string} keys @param {string} what @param {((event: KeyboardEvent) => void)|null} run @param {string} group
 */
export function bind(keys, what, run = null, group = "This page") {
  bindings.push({ keys, what, group, run });
}

/** @param {KeyboardEvent} event */
function pressed(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented || isTyping(event.target)) return;
  if (document.querySelector("dialog[open]") && event.key !== "?") return;
  const attempt = pending ? `${pending} ${event.key}` : event.key;
  clearTimeout(pendingTimer);
  pending = "";
  const found = bindings.find((binding) => binding.run && binding.keys === attempt);
  if (found) {
    event.preventDefault();
    event.stopImmediatePropagation(); // "g t" must not also be the page's "t"
    found.run(event);
  } else if (bindings.some((binding) => binding.run && binding.keys.startsWith(`${attempt} `))) {
    pending = attempt;
    pendingTimer = setTimeout(() => { pending = ""; }, SEQUENCE_MS);
  }
}

/** @returns {Map<string, {keys: string, what: string}[]>} what `?` shows, page first */
export function listed() {
  const groups = new Map();
  for (const binding of [...bindings].sort((a, b) => (a.group === "Everywhere") - (b.group === "Everywhere"))) {
    groups.set(binding.group, [...(groups.get(binding.group) ?? []), binding]);
  }
  return groups;
}

/** @param {string} keys "g p" -> two <kbd> */
function kbds(keys) {
  return keys.split(" ").flatMap((key, index) => {
    const kbd = document.createElement("kbd");
    kbd.textContent = key;
    return index ? [" ", kbd] : [kbd];
  });
}

/** The panel at the right: what the page says of itself (`#page-help`), then its keys. */
export function showHelp() {
  const open = document.querySelector("dialog.keys-dialog");
  if (open) { open.remove(); return; }
  const dialog = document.createElement("dialog");
  dialog.className = "keys-dialog";
  dialog.setAttribute("aria-label", "Help");
  const close = document.createElement("button"), about = document.getElementById("page-help");
  close.type = "button";
  close.className = "icon-btn help-close";
  close.setAttribute("aria-label", "Close");
  close.textContent = "✕";
  close.addEventListener("click", () => dialog.close());
  dialog.append(close);
  if (about instanceof HTMLTemplateElement) dialog.append(about.content.cloneNode(true));
  for (const [group, entries] of listed()) {
    const list = document.createElement("dl");
    list.className = "keys";
    for (const { keys, what } of entries) {
      const term = document.createElement("dt"), text = document.createElement("dd");
      term.append(...kbds(keys));
      text.textContent = what;
      list.append(term, text);
    }
    const title = document.createElement("h2");
    title.textContent = group;
    dialog.append(title, list);
  }
  dialog.addEventListener("close", () => dialog.remove());
  dialog.addEventListener("click", (event) => { if (event.target === dialog) dialog.close(); });
  document.body.append(dialog);
  dialog.showModal();
}

// Capture: a sequence's second key is taken before the page's own listeners see it.
if (typeof document !== "undefined") document.addEventListener("keydown", pressed, { capture: true });
