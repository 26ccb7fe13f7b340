// A page is made anew because what it shows has changed. A person who has just followed a link goes there all the same: a reload
// that begins while the next page is on its way would take its place.

const LEAVES_MS = 30000; // a link may lead to a download, and then the page is still here
let left_ms = -Infinity; // when a navigation began

globalThis.addEventListener?.("beforeunload", () => { left_ms = performance.now(); });

/** Reloads the page, or does so later if the person is on the way to another and is still here then. */
export function reload() {
  const wait_ms = left_ms + LEAVES_MS - performance.now();
  if (wait_ms > 0) setTimeout(reload, wait_ms); else location.reload();
}
