// The pinned header of a kernel's pages: anchors of the page that it once was, and the list of baselines while one types.

import { getJson } from "../lib/http.js";
import { ns } from "../lib/units.js";

const frame = /** @type {HTMLElement} */ (document.querySelector("[data-kernel-frame]"));
const moved = new Map(frame.dataset.moved.trim().split(/\s+/).map((each) => /** @type {[string, string]} */ (each.split("="))));
const part = location.hash.slice(1);
const first = location.pathname.replace(/(\/kernels\/\d+\/).*/, "$1");
if (location.pathname === first && moved.get(part) && !document.getElementById(part)) location.replace(`${first}${moved.get(part)}/${location.search}#${part}`);

const find = /** @type {HTMLInputElement} */ (document.getElementById("baseline-find"));
const list = /** @type {HTMLElement} */ (document.getElementById("baseline-list"));
let asked = 0;

/** @param {any} each */
function line(each) {
  const link = document.createElement("a");
  const url = new URL(location.href);
  url.searchParams.delete("find");
  url.searchParams.set("baseline", each.baseline);
  link.href = `${url.search}`;
  if (each.is_same) link.className = "same";
  const more = document.createElement("span");
  more.className = "muted";
  more.textContent = `${each.kernel} · ${each.mean_ns === null ? "—" : ns(each.mean_ns)} · ${each.gpu || "GPU —"} · ${each.created.slice(0, 10)}`;
  link.append(Object.assign(document.createElement("b"), { textContent: each.profile }), each.build ? ` @ ${each.build} ` : " ", more);
  return link;
}

find.addEventListener("input", async () => {
  const mine = ++asked;
  const { baselines } = await getJson(`${find.dataset.api}?q=${encodeURIComponent(find.value)}`);
  if (mine !== asked) return;                    // a later question is on its way
  list.replaceChildren(...baselines.map(line));
  if (!baselines.length) list.append(Object.assign(document.createElement("p"), { className: "muted", textContent: `No result of “${find.value}”.` }));
});
document.getElementById("baseline").addEventListener("toggle", (event) => { if (/** @type {HTMLDetailsElement} */ (event.target).open) find.focus(); });
