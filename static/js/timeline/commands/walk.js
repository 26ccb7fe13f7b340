// From slice to slice by keys: along the track, to caller and callee, to other tracks, along flows; and growing the selection.

import { ns as nsText } from "../../lib/units.js";
import { FlowWalk } from "../data/flows.js";
import { decodeTile } from "../model/model.js";
import { deepestAt, nearestAt, neighbour, sliceAt } from "../data/neighbours.js";

export class Walk {
  /** @param {import("../app.js").App} app */
  constructor(app) {
    this.app = app;
    this.flow = new FlowWalk();
    this.growing = null;
    this.commands = {
      previous: () => this.beside(-1), next: () => this.beside(1), caller: () => this.up(), callee: () => this.down(),
      "flow-back": () => this.alongFlow(-1), "flow-on": () => this.alongFlow(1), "flow-other": () => this.otherEnd(1), "flow-other-back": () => this.otherEnd(-1),
      "extend-left": () => this.grow(-1), "extend-right": () => this.grow(1), "extend-up": () => this.growTracks(-1), "extend-down": () => this.growTracks(1),
    };
  }

  /** Reads tiles of one track; a new walk ends the one before. */
  reader(track) {
    this.reading?.abort();
    this.reading = new AbortController();
    const { signal } = this.reading, { api } = this.app, known = new Map();
    return (level, index) => {
      const key = `${level}/${index}`;
      if (!known.has(key)) known.set(key, api.tile(level, index, [track], signal).then((body) => decodeTile(body).get(track)));
      return known.get(key);
    };
  }

  /** Run one walk and go to what it finds. @param {number} track @param {(read: Function) => Promise<?object>} find @param {string} nothing what to say */
  async go(track, find, nothing) {
    const { app } = this;
    try {
      const found = await find(this.reader(track));
      if (found) return await app.chosen.jump({ ...found, track: found.track ?? track, merged: 0 }, false);
      app.say(nothing);
    } catch (error) {
      if (error.name !== "AbortError") app.controls.fail(error);
    }
    return null;
  }

  /** The slice before or after the selected one on its track and depth; without one, the first that begins in view. */
  beside(direction) {
    const { app } = this, { slice } = app.chosen, track = slice?.track ?? app.stage.topTrack();
    if (track === undefined) return null;
    const from = slice ?? { depth: 0, start_ns: Math.ceil(app.viewport.start) - 1 };
    return this.go(track, (read) => neighbour(read, app.timeline, from, slice ? direction : 1), direction > 0 ? "This is the last slice here." : "This is the first slice here.");
  }

  /** The caller; from an outermost slice, the deepest slice above it. */
  up() {
    const { app } = this, { slice } = app.chosen;
    if (slice.depth > 0) return this.go(slice.track, (read) => nearestAt(read, app.timeline, slice.depth - 1, slice.start_ns), "");
    const above = this.trackBeside(slice.track, -1), at = middle(slice);
    if (!above) return app.say("This is the uppermost track.");
    return this.go(above.id, async (read) => (await deepestAt(read, app.timeline, above.depths, at)) ?? nearestAt(read, app.timeline, 0, at), `No slice on ${above.name}.`);
  }

  /** The first callee; from an innermost slice, the slice below it on the next track. */
  down() {
    const { app } = this, { slice } = app.chosen, { timeline } = app, at = middle(slice), end = slice.start_ns + slice.dur_ns;
    const below = this.trackBeside(slice.track, 1);
    const callee = async (read) => {
      const within = (await sliceAt(read, timeline, slice.depth + 1, slice.start_ns)) ?? (await neighbour(read, timeline, { depth: slice.depth + 1, start_ns: slice.start_ns }, 1));
      if (within && within.start_ns < end) return within;
      const found = below && (await nearestAt(this.reader(below.id), timeline, 0, at));
      return found && { ...found, track: below.id };
    };
    return this.go(slice.track, callee, below ? `No slice on ${below.name}.` : "This is the lowest track.");
  }

  /** The next track up or down that shows slices. */
  trackBeside(id, direction) {
    const tracks = this.shownTracks(), at = tracks.findIndex((track) => track.id === id);
    return tracks[at + direction] ?? null;
  }

  shownTracks() { return this.app.tracks.arranged.groups.flatMap((g) => g.shown).filter((track) => track.slices > 0); }

  /** The selected slice with its links: keys may be quicker than the server. */
  async known() {
    const { app } = this, { slice } = app.chosen;
    if (!slice || slice.links) return slice;
    return app.api.slice(slice.id).catch((error) => { app.controls.fail(error); return null; });
  }

  async alongFlow(direction) {
    const { app } = this, slice = await this.known();
    if (!slice) return app.say("Select a slice first: its flows start there.");
    const end = this.flow.along(slice, direction);
    if (!end) return app.say(direction > 0 ? "No flow leaves this slice." : "No flow leads to this slice.");
    return this.toEnd(end);
  }

  async otherEnd(step) {
    const { app } = this, slice = await this.known(), end = slice && this.flow.other(slice, step);
    return end ? this.toEnd(end) : app.say("No flow here.");
  }

  async toEnd(end) {
    const full = await this.app.chosen.jump(end, false);
    this.app.say(`${this.flow.text}: ${end.name}`);
    return full;
  }

  /** Grow the selection by a slice of its track, from where it began. */
  async grow(direction) {
    const { app } = this, growing = this.grown();
    if (!growing) return;
    try {
      const next = await neighbour(this.reader(growing.track), app.timeline, growing.at, direction);
      if (!next) return app.say("There is no further slice.");
      growing.at = next;
      this.show(growing);
    } catch (error) {
      if (error.name !== "AbortError") app.controls.fail(error);
    }
  }

  growTracks(direction) {
    const growing = this.grown(), tracks = this.shownTracks().map((track) => track.id);
    const to = growing && tracks[tracks.indexOf(growing.lastTrack) + direction];
    if (to === undefined || !growing) return;
    growing.lastTrack = to;
    this.show(growing);
  }

  /** What grows: the selection as it began, the slice and the track that it reaches to. */
  grown() {
    const { slice, area } = this.app.chosen;
    if (this.growing && area === this.growing.area) return this.growing;
    if (slice) return { first: { start: slice.start_ns, end: slice.start_ns + slice.dur_ns }, at: slice, track: slice.track, lastTrack: slice.track };
    if (!area?.tracks.length) return null;
    return { first: { start: area.start, end: area.start }, at: { depth: 0, start_ns: area.end - 1, dur_ns: 1 }, track: area.tracks[0], lastTrack: area.tracks.at(-1) };
  }

  show(growing) {
    const { at, first, track, lastTrack } = growing, tracks = this.shownTracks().map((t) => t.id);
    const [a, b] = [tracks.indexOf(track), tracks.indexOf(lastTrack)].sort((x, y) => x - y);
    growing.area = { start: Math.min(first.start, at.start_ns), end: Math.max(first.end, at.start_ns + at.dur_ns), tracks: tracks.slice(a, b + 1) };
    this.growing = growing;
    this.app.stage.reveal(lastTrack, 0);
    this.app.chosen.selectArea(growing.area, true, false);
    this.app.say(`Selected ${nsText(growing.area.end - growing.area.start)} on ${growing.area.tracks.length === 1 ? "1 track" : `${growing.area.tracks.length} tracks`}.`);
  }
}

const middle = (slice) => Math.floor(slice.start_ns + slice.dur_ns / 2);
