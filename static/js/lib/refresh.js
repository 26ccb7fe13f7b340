// Parts of a server-rendered page follow the server: fetch the page again, put its [data-live] parts in place of ours.

/** @type {AbortController|null} */
let running = null;
let again = 0;

/** Skip a part in which somebody is typing or has a menu open. @param {Element} part */
function inUse(part) {
  return part.contains(document.activeElement) && document.activeElement !== document.body || part.querySelector("details[open], dialog[open]") !== null;
}

/**
 * @param {() => void} after called when parts were replaced @param {string} url of an answer that holds at least these parts
 * @returns {Promise<boolean>} whether the server answered
 */
export async function refresh(after = () => {}, url = location.href) {
  running?.abort();
  const mine = running = new AbortController();
  try {
    const response = await fetch(url, { credentials: "same-origin", signal: mine.signal, headers: { Accept: "text/html" } });
    if (!response.ok) return false;
    const page = new DOMParser().parseFromString(await response.text(), "text/html");
    for (const part of document.querySelectorAll("[data-live]")) {
      const next = page.getElementById(part.id);
      if (next && !inUse(part) && next.innerHTML !== part.dataset.seen) {
        part.dataset.seen = next.innerHTML;
        if (next.innerHTML !== part.innerHTML) part.replaceChildren(...next.childNodes);
      }
    }
    document.dispatchEvent(new Event("refreshed")); // the frame words the times anew
    after();
    return true;
  } catch (error) {
    if (error.name === "AbortError") return true;
    return false;
  }
}

/** Many messages in a row ask for one refresh. @param {() => void} after @param {number} wait_ms */
export function refreshSoon(after = () => {}, wait_ms = 250) {
  clearTimeout(again);
  again = setTimeout(() => refresh(after), wait_ms);
}
