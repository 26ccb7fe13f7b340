// Lists beside the editor: examples, and the queries that the team keeps, with what this person may do to them.

import { csrfToken, getJson, postJson } from "../lib/http.js";
import { el } from "./dom.js";

/** @param {string} url @param {string} method @param {object} [body] */
async function send(url, method, body) {
  const answer = await fetch(url, { method, credentials: "same-origin", headers: { "Content-Type": "application/json", "X-CSRFToken": csrfToken() }, body: body && JSON.stringify(body) });
  const told = answer.status === 204 ? null : await answer.json().catch(() => ({}));
  if (!answer.ok) throw Object.assign(new Error(told?.error ?? `the server answered ${answer.status}`), { hint: told?.hint ?? "" });
  return told;
}

export class Saved {
  /** @param {HTMLElement} root @param {{examples: any[], queries: any[]}} data @param {{open: (entry: any) => void}} actions */
  constructor(root, data, { open }) {
    this.url = root.dataset.queries;
    this.examples = data.examples;
    this.queries = data.queries;
    this.open = open;
    this.lists = { examples: root.querySelector("#sql-examples"), queries: root.querySelector("#sql-queries") };
    this.dialog = document.getElementById("sql-save-dialog");
    this.show();
  }

  /** @returns {any} the query or example that the address names */
  named(parameters) {
    const number = Number(parameters.get("query"));
    return this.queries.find((query) => query.id === number) ?? this.examples.find((example) => example.key === parameters.get("example"));
  }

  show() {
    this.lists.examples.replaceChildren(...this.examples.map((entry) => this.line(entry, entry.title, entry.about)));
    const queries = this.queries.map((entry) => this.line(entry, entry.name, [entry.description, entry.owner ? `by ${entry.owner}` : ""].filter(Boolean).join(" · "), entry.mine ? this.remover(entry) : null));
    this.lists.queries.replaceChildren(...(queries.length ? queries : [el("li", { className: "muted" }, "None yet: Save… keeps the query in the editor.")]));
  }

  line(entry, title, about, extra) {
    const item = el("li", {}, el("button", { type: "button", className: "what", onclick: () => this.open(entry) }, title), ...(extra ? [extra] : []), el("span", { className: "why" }, about));
    item.setAttribute("aria-current", String(entry === this.current));
    return item;
  }

  remover(entry) {
    const button = el("button", { type: "button", className: "btn btn-small push", ariaLabel: `Delete ${entry.name}` }, "Delete");
    button.addEventListener("click", async () => {
      if (button.dataset.sure !== "1") {
        button.dataset.sure = "1";
        button.textContent = "Delete?";
        button.addEventListener("blur", () => { delete button.dataset.sure; button.textContent = "Delete"; }, { once: true });
        return;
      }
      await send(`${this.url}${entry.id}/`, "DELETE").then(() => this.refresh(), (error) => { button.textContent = error.message; });
    });
    return button;
  }

  async refresh() {
    this.queries = (await getJson(this.url)).queries;
    this.current = this.queries.find((query) => query.id === this.current?.id) ?? (this.current?.key ? this.current : null);
    this.show();
  }

  mark(entry) {
    this.current = entry;
    this.show();
  }

  /** Ask for a name and keep the query. @param {{sql: string, chart: object}} what @returns {Promise<any>} what was kept, or null */
  async save(what) {
    const find = (id) => this.dialog.querySelector(`#${id}`);
    const [name, about, told, over] = ["sql-name", "sql-about", "sql-save-error", "sql-save-over"].map(find);
    const mine = this.current?.mine ? this.current : null;
    name.value = this.current?.name ?? this.current?.title ?? "";
    about.value = this.current?.description ?? this.current?.about ?? "";
    over.hidden = !mine;
    find("sql-save-new").textContent = mine ? "Save as a new one" : "Save";
    told.hidden = true;
    for (;;) {
      this.dialog.returnValue = "cancel";
      this.dialog.showModal();
      await new Promise((resolve) => this.dialog.addEventListener("close", resolve, { once: true }));
      if (!["new", "over"].includes(this.dialog.returnValue)) return null;
      const body = { name: name.value, description: about.value, ...what };
      try {
        const kept = this.dialog.returnValue === "over" && mine ? await send(`${this.url}${mine.id}/`, "PATCH", body) : await postJson(this.url, body);
        this.current = kept;
        await this.refresh();
        return kept;
      } catch (error) {
        told.textContent = `${error.message}. ${error.hint ?? ""}`;
        told.hidden = false;
      }
    }
  }
}
