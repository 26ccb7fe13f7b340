// What may be done to tracks: fold, pin, hide, move, filter; and finding them again. The rows follow from the view.

import { moveKey, withMove } from "../model/arrange.js";
import { ns, plural } from "../../lib/units.js";
import { groupKey, layout, trackKey } from "../model/layout.js";

const MANY_TRACKS = 60;         // beyond this, processes with many threads start folded
const MANY_THREADS = 4;

export class Tracks {
  /** @param {import("../app.js").App} app */
  constructor(app) {
    this.app = app;
  }

  /** A view without anything done to it. */
  static view() {
    return { by: "rank", folded: new Set(), foldedByHand: false, pinned: new Set(), hidden: new Set(), moves: [], filter: "" };
  }

  /** @param {import("../model/url.js").View} view */
  restore(view) {
    const { timeline } = this.app, { tracks } = timeline, known = (ids) => new Set(ids.filter((id) => tracks.has(id)));
    timeline.group(view.by);
    this.app.view = {
      by: view.by, folded: new Set(view.folded ?? this.usuallyFolded()), foldedByHand: view.folded !== null, filter: view.filter,
      pinned: known(view.pinned), hidden: known(view.hidden), moves: view.moves,
    };
  }

  usuallyFolded() {
    const { groups, meta } = this.app.timeline, many = meta.tracks.length > MANY_TRACKS;
    return groups.filter((g) => g.startsFolded || (many && !g.tracks.some((t) => t.kind === "stream") && g.tracks.length > MANY_THREADS)).map(groupKey);
  }

  /** Put the tracks in other groups. What was folded or moved by hand was of the groups before. @param {"rank"|"stream"|"kernel"} by */
  async groupBy(by) {
    const { app } = this, { timeline, view } = app;
    if (by === "kernel" && !(await this.kernels())) return app.controls.showGrouping(view.by);
    Object.assign(view, { by, moves: [], foldedByHand: false });
    timeline.group(by);
    view.folded = new Set(this.usuallyFolded());
    app.controls.showGrouping(by);
    this.relayout();
    app.stage.main.element.scrollTop = app.stage.main.scroll = 0;
    app.history.remember(true);
    return undefined;
  }

  /** The tracks of kernels, asked for once. @returns {Promise<boolean>} whether they are here */
  async kernels() {
    const { app } = this;
    if (app.timeline.kernels) return true;
    app.say("Sorting launches by kernel…", true);
    try {
      this.asking ??= app.api.kernelTracks();
      const { tracks } = await this.asking;
      app.timeline.setKernels(tracks.map((track) => ({ ...track, note: ns(track.kernel_ns), facts: `${ns(track.kernel_ns)} in ${plural(track.kernel_launches, "launch")}` })));
      app.say("");
      return true;
    } catch (error) {
      app.say(`The launches could not be grouped by kernel: ${error.message}. ${error.hint ?? ""}`, true);
      return false;
    } finally {
      this.asking = null;
    }
  }

  relayout() {
    const { app } = this, rows = layout(app.timeline, app.view);
    this.arranged = rows.arranged;
    app.stage.setRows(rows);
    app.controls.tellTracks(rows.arranged);
    app.changed("tracks");
  }

  changed() {
    this.relayout();
    this.app.history.remember();
  }

  fold(key) {
    const { view } = this.app;
    if (!view.folded.delete(key)) view.folded.add(key);
    view.foldedByHand = true;
    this.changed();
  }

  /** Fold all groups, or open all when none is open. */
  foldAll() {
    const { view, timeline } = this.app, keys = timeline.groups.map(groupKey), open = keys.some((key) => !view.folded.has(key));
    for (const key of keys) view.folded[open ? "add" : "delete"](key);
    view.foldedByHand = true;
    this.changed();
  }

  pin(track) {
    const { pinned } = this.app.view;
    if (!pinned.delete(track)) pinned.add(track);
    this.changed();
  }

  filter(text) {
    this.app.view.filter = text;
    this.changed();
  }

  /** @param {number[]} ids of tracks, or of all of a group */
  hide(ids) {
    for (const id of ids) this.app.view.hidden.add(id);
    this.changed();
  }

  /** Hide everything but these. */
  only(ids) {
    const { timeline, view } = this.app;
    view.hidden = new Set(timeline.meta.tracks.map((track) => track.id).filter((id) => !ids.includes(id)));
    this.changed();
  }

  show(ids) {
    for (const id of ids) this.app.view.hidden.delete(id);
    this.changed();
  }

  /** Nothing hidden, by hand or by the filter; the usual order. */
  showAll() {
    this.app.view.hidden.clear();
    this.app.controls.filter("");
  }

  usualOrder() {
    this.app.view.moves = [];
    this.changed();
  }

  get hasMoves() { return this.app.view.moves.length > 0; }

  /** Put a track or group before another of its kind; null: at the end. */
  move(thing, before) {
    const { view } = this.app, key = (it) => (it ? moveKey(it) : "");
    view.moves = withMove(view.moves, key(thing), key(before));
    this.changed();
  }

  /** One place up (-1) or down (1) among what is shown; a pinned track among the pinned ones. @returns {boolean} whether there was room */
  moveBy(thing, direction, isPinned = false) {
    const list = isPinned ? this.arranged.pinned.map((p) => p.track) : this.siblings(thing), at = list.indexOf(thing), to = at + direction;
    if (at < 0 || to < 0 || to >= list.length) return false;
    if (isPinned) this.movePinned(thing, direction > 0 ? list[to + 1] : list[to]);
    else this.move(thing, direction > 0 ? list[to + 1] ?? null : list[to]);
    return true;
  }

  movePinned(track, before) {
    const { view } = this.app, ids = [...view.pinned].filter((id) => id !== track.id);
    ids.splice(before ? ids.indexOf(before.id) : ids.length, 0, track.id);
    view.pinned = new Set(ids);
    this.changed();
  }

  /** What a track or group may change places with: shown ones of its group, shown groups. */
  siblings(thing) {
    const { groups } = this.arranged;
    if (thing.tracks) return groups.map((g) => g.group);
    return groups.find((g) => g.shown.includes(thing))?.shown ?? [];
  }

  /** Group of a track. */
  groupOf(id) { return this.app.timeline.groups.find((g) => g.tracks.some((t) => t.id === id)); }

  /** Show a track that the filter, a hand or a folded group hides. */
  uncover(id) {
    const { app } = this, group = this.groupOf(id);
    const wasHidden = app.view.hidden.delete(id), wasFolded = group && app.view.folded.delete(groupKey(group));
    if (wasHidden || wasFolded) this.relayout();
    if (!app.stage.main.rows.byTrack.has(id)) app.controls.filter("");
  }

  /** Hidden tracks with content, for the list that shows them again. */
  get hidden() { return [...this.app.view.hidden].map((id) => this.app.timeline.tracks.get(id)); }

  foldTrack(track) { this.fold(trackKey(track)); }
}
