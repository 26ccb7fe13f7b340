// The column of names at the left of the tracks: fold, pin, and what a track is. Only rows near the view are in the page.

import { el, icon } from "../widgets/dom.js";
import { groupKey, rowsBetween, trackKey } from "../model/layout.js";
import { shareText } from "../data/utilisation.js";

const MARGIN_PX = 400;
const NUMBERS = /(\d[\d.,]*)/;

export class Labels {
  /**
   * @param {HTMLElement} root @param {{fold: (key: string) => void, pin: (track: number) => void}} actions
   * @param {boolean} named tracks stand without their group and say it
   */
  constructor(root, actions, named) {
    this.named = named;
    this.root = root;
    this.actions = actions;
    this.shown = new Map();
    this.rows = null;
  }

  /** @param {import("../model/layout.js").Rows} rows @param {{pinned: Set<number>, folded: Set<string>}} view */
  update(rows, scroll, height, view) {
    const focused = document.activeElement?.closest?.(".tl-label")?.dataset.key;
    const focusedPart = document.activeElement?.dataset?.part;
    if (rows !== this.rows) {
      this.root.replaceChildren();
      this.shown.clear();
      this.rows = rows;
    }
    const near = rowsBetween(rows, scroll - MARGIN_PX, scroll + height + MARGIN_PX);
    const keep = new Set(near.map((row) => row.key));
    for (const [key, element] of this.shown) {
      if (keep.has(key)) continue;
      element.remove();
      this.shown.delete(key);
    }
    for (const row of near) {
      if (this.shown.has(row.key)) continue;
      const element = row.kind === "group" ? this.group(row) : this.track(row, view);
      element.style.top = `${row.y}px`;
      element.style.height = `${row.height}px`;
      element.dataset.key = row.key;
      this.shown.set(row.key, element);
      this.root.append(element);
    }
    if (focused && !this.root.contains(document.activeElement)) this.shown.get(focused)?.querySelector(`[data-part="${focusedPart}"]`)?.focus({ preventScroll: true });
  }

  /** Say beside the names how busy their tracks are in the window. @param {(track: object) => ?number} shareOf 0…1 */
  tellUse(shareOf) {
    for (const [key, element] of this.shown) {
      const row = this.rows.rows.find((each) => each.key === key), place = element.querySelector(".tl-use");
      if (!place || !row?.track) continue;
      const share = shareOf(row.track), text = shareText(share);
      if (place.textContent === text) continue;
      place.textContent = text;
      place.title = share === null ? "" : `busy ${text} of the visible window`;
      place.style.setProperty("--use", `${Math.round((share ?? 0) * 100)}%`);
    }
  }

  group(row) {
    const slices = row.tracks.reduce((sum, t) => sum + t.slices, 0), { group } = row, tracks = row.tracks.length === 1 ? "1 track" : `${row.tracks.length} tracks`;
    return el("div", { class: `tl-label tl-label-group${group.isAside ? " tl-label-aside" : ""}`, draggable: "true" },
      el("button", {
        class: "tl-fold", type: "button", "data-part": "fold", "aria-expanded": String(!row.folded),
        title: `${group.name}: ${group.facts ? `${group.facts}, ` : ""}${tracks}, ${slices.toLocaleString("en-US")} slices`,
        onclick: () => this.actions.fold(groupKey(group)),
      }, icon("chevron"), this.words(group.name, group.note || String(row.tracks.length), Boolean(group.note))),
      el("button", {
        class: "tl-pin tl-hide", type: "button", "data-part": "hide", "aria-label": `Hide ${group.name}`, title: "Hide the group (H)",
        onclick: () => this.actions.hide(group.tracks.map((track) => track.id)),
      }, icon("hide")));
  }

  track(row, view) {
    const { track } = row, pinned = view.pinned.has(track.id), name = this.named ? `${track.group} / ${track.name}` : row.group.nameOf(track);
    const facts = track.kind === "counter" ? track.unit ?? "counter" : `${track.slices.toLocaleString("en-US")} ${track.slices === 1 ? "slice" : "slices"}`;
    const foldable = track.depths > 1 || track.kind === "counter";
    return el("div", { class: `tl-label tl-label-${track.kind}`, "data-track": track.id, draggable: "true" },
      el(foldable ? "button" : "span", {
        class: "tl-fold", type: foldable ? "button" : null, "data-part": "fold",
        "aria-expanded": foldable ? String(!row.folded) : null, title: `${track.group} / ${track.name}: ${facts}`,
        ...(foldable ? { onclick: () => this.actions.fold(trackKey(track)) } : {}),
      }, foldable ? icon("chevron") : el("i", { class: "tl-icon" }), this.words(name, facts),
      track.kind === "counter" ? null : el("span", { class: "tl-use num", "data-use": track.id })),
      el("button", {
        class: "tl-pin", type: "button", "data-part": "pin", "aria-pressed": String(pinned),
        "aria-label": `${pinned ? "Unpin" : "Pin"} ${track.name}`, title: pinned ? "Unpin" : "Pin to the top",
        onclick: () => this.actions.pin(track.id),
      }, icon("pin")),
      el("button", {
        class: "tl-pin tl-hide", type: "button", "data-part": "hide", "aria-label": `Hide ${track.name}`, title: "Hide (H)",
        onclick: () => this.actions.hide([track.id]),
      }, icon("hide")));
  }

  /** A name, which lines break before its numbers and never within, and beside it what stands there where it has the room, whole; `always`: the name yields. */
  words(name, facts, always = false) {
    const parts = name.split(NUMBERS).flatMap((part, at) => (at % 2 ? [el("wbr"), part] : [part]));
    return el("span", { class: always ? "tl-words tl-words-both" : "tl-words" }, el("span", { class: "tl-name" }, ...parts), el("span", { class: "tl-count" }, facts));
  }
}
