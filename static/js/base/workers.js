// Workers page: announcements are kept for 15 s and renewed every 5 s; the page asks as often while it is looked at.

import { refresh } from "../lib/refresh.js";

const EVERY_MS = 5000;
const notice = document.getElementById("stale");

async function follow() {
  const answered = document.hidden || await refresh();
  if (notice) notice.hidden = answered;
  setTimeout(follow, EVERY_MS);
}

setTimeout(follow, EVERY_MS);
