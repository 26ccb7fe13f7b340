// Which profiles a query is asked of: ids, a build, a tag. The URL holds them.

import { el } from "./dom.js";

export class Scope {
  /** @param {HTMLElement} root @param {number[]} ids @param {() => void} onChange */
  constructor(root, ids, onChange) {
    const find = (id) => root.querySelector(`#${id}`);
    this.chips = find("sql-chosen");
    this.add = find("sql-add");
    this.build = find("sql-build");
    this.tag = find("sql-tag");
    this.ids = new Set(ids);
    this.names = new Map([...this.add.options].filter((option) => option.value).map((option) => [Number(option.value), option.dataset]));
    const url = new URL(location.href).searchParams;
    for (const [select, name] of [[this.build, "build"], [this.tag, "tag"]]) {
      const wanted = url.get(name);
      if (wanted && [...select.options].some((option) => option.value === wanted)) select.value = wanted;
    }
    this.add.addEventListener("change", () => {
      if (this.add.value) this.ids.add(Number(this.add.value));
      this.add.value = "";
      this.changed(onChange);
    });
    for (const select of [this.build, this.tag]) select.addEventListener("change", () => this.changed(onChange));
    this.onChange = onChange;
    this.show();
  }

  changed(onChange) { this.show(); onChange(); }

  get isEmpty() { return !this.ids.size && !this.build.value && !this.tag.value; }

  /** The only profile asked, where there is exactly one. */
  get one() { return this.ids.size === 1 && !this.build.value && !this.tag.value ? [...this.ids][0] : null; }

  get kinds() { return new Set([...this.ids].map((id) => this.names.get(id)?.kind)); }

  /** What the API takes. */
  request() {
    return { ...(this.ids.size ? { profiles: [...this.ids] } : {}), ...(this.build.value ? { build: this.build.value } : {}), ...(this.tag.value ? { tag: this.tag.value } : {}) };
  }

  write(url) {
    const { profiles, build, tag } = this.request();
    for (const [name, value] of [["profiles", profiles?.join(",")], ["build", build], ["tag", tag]]) {
      if (value) url.searchParams.set(name, value); else url.searchParams.delete(name);
    }
  }

  show() {
    const chips = [...this.ids].map((id) => {
      const name = this.names.get(id)?.name ?? `profile ${id}`;
      return el("span", { className: "chip" }, el("b", {}, name), el("button", { type: "button", ariaLabel: `Without ${name}`, onclick: () => { this.ids.delete(id); this.changed(this.onChange); } }, "✕"));
    });
    this.chips.replaceChildren(...(chips.length || this.build.value || this.tag.value ? chips : [el("span", { className: "chip mark-warn" }, "no profile chosen")]));
  }
}
