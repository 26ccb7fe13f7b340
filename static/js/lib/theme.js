// Light or dark: follows the system until somebody chooses; the choice is remembered. theme-init.js set the first paint.

const KEY = "ridgepoint.theme";
const system = matchMedia("(prefers-color-scheme: dark)");
/** @type {Set<(theme: string) => void>} */
const listeners = new Set();

/** @returns {"light"|"dark"} */
export function current() {
  return document.documentElement.dataset.theme === "dark" ? "dark" : "light";
}

/** @param {"light"|"dark"} theme */
function apply(theme) {
  if (theme === current()) return;
  document.documentElement.dataset.theme = theme;
  for (const listener of listeners) listener(theme);
}

function chosen() {
  try { return localStorage.getItem(KEY); } catch { return null; }
}

/** Switch and remember; choosing what the system says goes back to following it. */
export function toggle() {
  const next = current() === "dark" ? "light" : "dark";
  try {
    if ((next === "dark") === system.matches) localStorage.removeItem(KEY);
    else localStorage.setItem(KEY, next);
  } catch { /* storage is closed: the choice lasts for this page */ }
  apply(next);
}

/** @param {(theme: string) => void} listener called after each change */
export function onChange(listener) {
  listeners.add(listener);
}

/** Value of a custom property, for canvas and Bokeh: css("--text"). @param {string} name */
export function css(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

system.addEventListener("change", () => { if (!chosen()) apply(system.matches ? "dark" : "light"); });
addEventListener("storage", (event) => { // another tab chose
  if (event.key === KEY) apply(event.newValue ?? (system.matches ? "dark" : "light"));
});
