// How many jobs wait or run, beside the search; the list is in the menu. Asked while the page is looked at.

import { getJson } from "../lib/http.js";

const EVERY_MS = 20000;

/** @param {{kind: string, title: string, url: string, waiting: boolean}} job */
function line({ kind, title, url, waiting }) {
  const item = document.createElement("li"), link = document.createElement("a"), chip = document.createElement("span"), state = document.createElement("span");
  chip.className = "chip";
  chip.textContent = kind;
  state.className = "muted";
  state.textContent = waiting ? "waits" : "runs";
  const name = document.createElement("span");
  name.className = "menu-what";
  name.textContent = title;
  link.href = url;
  link.append(chip, name, state);
  item.append(link);
  return item;
}

export function start() {
  const menu = document.getElementById("activity"), count = document.getElementById("activity-count"), list = document.getElementById("activity-list");
  if (!menu || !count || !list) return;
  async function ask() {
    if (document.hidden) return;
    try {
      const answer = await getJson(menu.dataset.url ?? "");
      count.textContent = answer.count >= 20 ? "20+" : String(answer.count);
      menu.classList.toggle("busy", answer.count > 0);
      list.replaceChildren(...answer.jobs.map(line));
      if (!answer.count) list.replaceChildren(Object.assign(document.createElement("li"), { className: "muted", textContent: "No job waits or runs." }));
    } catch {
      count.textContent = "—"; // the live indicator says that the server is away
    }
  }
  ask();
  setInterval(ask, EVERY_MS);
  menu.addEventListener("toggle", () => { if (menu.hasAttribute("open")) ask(); });
  document.addEventListener("refreshed", ask); // a job of this page began or ended
}
