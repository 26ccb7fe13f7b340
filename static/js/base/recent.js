// Objects that this person opened last, kept in the browser; each account has its own list.

import { remembered } from "./palette_model.js";

const key = () => `ridgepoint.recent.${document.body.dataset.person ?? ""}`;

/** @returns {import("./palette_model.js").Entry[]} newest first */
export function recent() {
  try {
    const kept = JSON.parse(localStorage.getItem(key()) ?? "[]");
    return Array.isArray(kept) ? kept.filter((each) => typeof each?.title === "string" && typeof each?.url === "string" && each.url.startsWith("/")) : [];
  } catch { return []; }
}

/** @param {import("./palette_model.js").Entry} entry */
export function remember(entry) {
  try { localStorage.setItem(key(), JSON.stringify(remembered(recent(), entry))); } catch { /* storage is closed */ }
}

/** The page of an object is one with a number in its address and a name at the end of its crumbs. */
export function rememberPage() {
  const crumbs = [...document.querySelectorAll(".crumbs > :not([aria-hidden])")].map((crumb) => crumb.textContent?.trim() ?? "").filter((text) => text && text !== "/");
  const [kind, title] = [crumbs[0], crumbs.at(-1)];
  if (crumbs.length < 2 || !title || !/^\/[a-z]+\/(\d+|[^/]+)\//.test(location.pathname) || !/\d|^\/builds\//.test(location.pathname)) return;
  remember({ kind: "recent", title, url: location.pathname, detail: crumbs.length > 2 ? crumbs.slice(0, -1).join(" / ") : kind ?? "" });
}
