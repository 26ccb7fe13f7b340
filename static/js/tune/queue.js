// The order of the queue: drag a waiting job, Alt+↑ ↓ on it, or its buttons. Each is the same POST of its new neighbour.

import { csrfToken } from "../lib/http.js";
import { bind } from "../lib/keys.js";
import { hold } from "../lib/refresh.js";

/** @type {HTMLElement|null} */
let dragged = null;
let letGo = (changed = false) => {}; // of the part whose row is dragged: what replaced it would end the drag without a word
let target = { row: null, after: false };

const queue = () => document.getElementById("queue");
const waiting = () => /** @type {HTMLElement[]} */ ([...queue()?.querySelectorAll("li[draggable=true]") ?? []]);
const said = (text) => { const status = document.getElementById("queue-said"); if (status) status.textContent = text; };

/** The row is put there at once; what the server says after it has answered replaces it. @param {HTMLElement} row @param {HTMLElement} other @param {boolean} after */
async function move(row, other, after, refresh) {
  if (row === other) return;
  const back = row.nextElementSibling, release = hold(queue());
  other[after ? "after" : "before"](row);
  const body = new URLSearchParams({ csrfmiddlewaretoken: csrfToken(), [after ? "after" : "before"]: other.dataset.job });
  try {
    const response = await fetch(row.querySelector("form").action, { method: "POST", body, credentials: "same-origin", headers: { Accept: "text/html" } });
    if (!response.ok) throw new Error(`the server answered ${response.status}`);
    said(`Job ${row.dataset.job} is now ${waiting().indexOf(row) + 1} of ${waiting().length}.`);
  } catch (error) {
    back ? back.before(row) : row.parentElement.append(row);
    said(`Job ${row.dataset.job} was not moved: ${error.message}.`);
  }
  release(true);
  refresh();
}

/** @param {HTMLElement} row @param {number} step */
function step(row, step_, refresh) {
  const rows = waiting(), other = rows[rows.indexOf(row) + step_];
  if (!other) { said(step_ < 0 ? "It is the first." : "It is the last."); return; }
  move(row, other, step_ > 0, refresh);
  row.focus();
}

function mark(row, after) {
  for (const each of waiting()) each.classList.remove("before", "after");
  row?.classList.add(after ? "after" : "before");
  target = { row, after };
}

/** @param {() => void} refresh the page's parts */
export function reorder(refresh) {
  document.addEventListener("dragstart", (event) => {
    const row = /** @type {Element} */ (event.target).closest?.("#queue li[draggable=true]");
    if (!row) return;
    dragged = /** @type {HTMLElement} */ (row);
    letGo = hold(queue());
    row.classList.add("dragged");
    event.dataTransfer.effectAllowed = "move";
    event.dataTransfer.setData("text/plain", dragged.dataset.job);
  });
  document.addEventListener("dragover", (event) => {
    const row = dragged && /** @type {HTMLElement} */ (/** @type {Element} */ (event.target).closest?.("#queue li[draggable=true]"));
    if (!row) return;
    event.preventDefault();
    const box = row.getBoundingClientRect();
    mark(row, event.clientY > box.top + box.height / 2);
  });
  document.addEventListener("drop", (event) => { if (dragged && target.row) { event.preventDefault(); move(dragged, target.row, target.after, refresh); } });
  document.addEventListener("dragend", () => {
    dragged?.classList.remove("dragged");
    mark(null, false);
    dragged = null;
    letGo();
    letGo = () => {};
  });
  document.addEventListener("keydown", (event) => {
    const row = document.activeElement?.closest?.("#queue li[draggable=true]");
    if (!row || !event.altKey || (event.key !== "ArrowUp" && event.key !== "ArrowDown")) return;
    event.preventDefault();
    step(/** @type {HTMLElement} */ (row), event.key === "ArrowUp" ? -1 : 1, refresh);
  });
  document.addEventListener("submit", (event) => {
    const form = /** @type {HTMLFormElement} */ (event.target);
    if (!form.matches("#queue form[data-step]")) return;
    event.preventDefault();
    const row = /** @type {HTMLElement} */ (form.closest("li")), button = form.querySelector("button");
    step(row, Number(form.dataset.step), refresh);
    button.focus();
  });
  bind("Alt+↑ Alt+↓", "Move the waiting job that has the focus", null, "In the queue");
}
