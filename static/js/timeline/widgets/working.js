// What takes long says so: after a moment "computing… 34 %" with a way to stop it, and errors in words with a way to try again.

import { el } from "./dom.js";

const SILENT_MS = 250;

/**
 * Run something long and show in `host` how far it is.
 * @param {HTMLElement} host its content is replaced once it takes a while @param {string} what "Summing 3 tracks"
 * @param {AbortSignal} outer ends it too, silently
 * @param {(signal: AbortSignal, onProgress: (share: number) => void) => Promise<any>} run
 * @returns {Promise<any>} the result, also of a later try; undefined where `outer` ended. Stopped or failed, the host says why and
 *   offers to try again
 */
export async function working(host, what, outer, run) {
  const controller = new AbortController(), stop = () => controller.abort();
  outer.addEventListener("abort", stop);
  const bar = el("progress", { max: 1, "aria-label": what }), share = el("span", { class: "num" });
  const line = el("p", { class: "tl-working", role: "status" }, bar, `${what}… `, share, el("button", { class: "btn btn-small", type: "button", onclick: stop }, "Cancel"));
  const timer = setTimeout(() => host.replaceChildren(line), SILENT_MS);
  const onProgress = (done) => { bar.value = done; share.textContent = `${Math.round(100 * done)} %`; };
  try {
    return await run(controller.signal, onProgress);
  } catch (error) {
    if (outer.aborted) return undefined;
    return new Promise((resolve) => {
      const again = () => resolve(working(host, what, outer, run));
      host.replaceChildren(error.name === "AbortError" ? stopped(again) : failed(error, again));
      outer.addEventListener("abort", () => resolve(undefined), { once: true });
    });
  } finally {
    clearTimeout(timer);
    outer.removeEventListener("abort", stop);
  }
}

const stopped = (again) => el("p", { class: "tl-working" }, "Stopped: nothing was computed. ", retry("Start again", again));
const failed = (error, again) => el("p", { class: "notice notice-error", role: "alert" }, `${error.message}. ${error.hint ?? ""} `, retry("Try again", again));
const retry = (text, again) => el("button", { class: "btn btn-small", type: "button", onclick: again }, text);
