// The names at the left by keyboard and by dragging: which track is meant, going from name to name, moving it.

import { groupKey, trackKey } from "../model/layout.js";

export class LabelKeys {
  /** @param {import("../app.js").App} app */
  constructor(app) {
    this.app = app;
    this.commands = {
      pin: () => this.onTrack((track) => app.tracks.pin(track.id)), hide: () => this.hide(), "show-all": () => app.tracks.showAll(),
      fold: () => this.fold(), "fold-all": () => app.tracks.foldAll(),
      "track-up": () => this.move(-1), "track-down": () => this.move(1), "label-up": () => this.step(-1), "label-down": () => this.step(1),
    };
    for (const pane of app.stage.panes) this.dragging(pane);
  }

  /** The name that has the focus: its pane and row. */
  get focused() {
    const label = document.activeElement?.closest?.(".tl-label"), pane = this.app.stage.panes.find((p) => p.element.contains(label));
    const row = pane?.rows.rows.find((r) => r.key === label.dataset.key);
    return row ? { pane, row } : null;
  }

  /** Track or group that keys mean: of the focused name, else of the selection, else under the pointer. */
  get target() {
    const { focused, app } = this;
    if (focused) return focused.row.track ?? focused.row.group;
    const { slice, area } = app.chosen;
    return app.timeline.tracks.get(slice?.track ?? area?.tracks[0] ?? app.hoverTrack) ?? null;
  }

  onTrack(act) {
    const { target } = this;
    if (!target) this.app.say("Select a slice, focus a name or point at a track first.");
    else if (target.tracks) this.app.say("That works on single tracks.");
    else act(target);
  }

  hide() {
    const { target, app } = this;
    if (!target) return app.say("Select a slice, focus a name or point at a track first.");
    app.tracks.hide(target.tracks ? target.tracks.map((t) => t.id) : [target.id]);
    return app.say(`${target.name} is hidden.`);
  }

  fold() {
    const { target, app } = this;
    if (target) app.tracks.fold(target.tracks ? groupKey(target) : trackKey(target));
    else app.say("Select a slice, focus a name or point at a track first.");
  }

  move(direction) {
    const { target, app, focused } = this;
    if (!target) return app.say("Select a slice, focus a name or point at a track first.");
    const done = app.tracks.moveBy(target, direction, focused?.pane.name === "pinned");
    return app.say(done ? `${target.name} moved ${direction < 0 ? "up" : "down"}.` : `${target.name} is the ${direction < 0 ? "first" : "last"} there.`);
  }

  /** Focus the name above or below. */
  step(direction) {
    const { focused, app } = this;
    if (!focused) return;
    const { pane, row } = focused, next = pane.rows.rows[pane.rows.rows.indexOf(row) + direction];
    if (!next) return;
    if (next.y < pane.scroll) app.stage.scrollBy(next.y - pane.scroll, pane.element);
    else if (next.y + next.height > pane.scroll + pane.height) app.stage.scrollBy(next.y + Math.min(next.height, pane.height) - pane.scroll - pane.height, pane.element);
    const label = [...pane.element.querySelectorAll(".tl-label")].find((element) => element.dataset.key === next.key);
    label?.querySelector("button")?.focus({ preventScroll: true });
    app.changed("tracks");
  }

  /** Drag a name to another place of its kind. */
  dragging(pane) {
    const { app } = this, { element } = pane;
    let dragged = null;
    const rowOf = (event) => pane.rows.rows.find((row) => row.key === event.target.closest?.(".tl-label")?.dataset.key);
    const thing = (row) => row.track ?? row.group;
    const fits = (row) => row && dragged && Boolean(row.track) === Boolean(dragged.track) && (pane.name === "pinned" || !row.track || row.group === dragged.group);
    const mark = (label) => {
      element.querySelector(".tl-drop")?.classList.remove("tl-drop");
      label?.classList.add("tl-drop");
    };
    element.addEventListener("dragstart", (event) => {
      dragged = rowOf(event) ?? null;
      if (dragged) event.dataTransfer.setData("text/plain", thing(dragged).name);
    });
    element.addEventListener("dragover", (event) => {
      if (!fits(rowOf(event))) return;
      event.preventDefault();
      mark(event.target.closest(".tl-label"));
    });
    element.addEventListener("drop", (event) => {
      const row = rowOf(event);
      if (!fits(row)) return;
      event.preventDefault();
      mark(null);
      const list = pane.name === "pinned" ? app.tracks.arranged.pinned.map((p) => p.track) : app.tracks.siblings(thing(row));
      const down = list.indexOf(thing(dragged)) < list.indexOf(thing(row)), before = down ? list[list.indexOf(thing(row)) + 1] ?? null : thing(row);
      if (row === dragged) return;
      if (pane.name === "pinned") app.tracks.movePinned(thing(dragged), before);
      else app.tracks.move(thing(dragged), before);
    });
    element.addEventListener("dragend", () => { dragged = null; mark(null); });
  }
}
