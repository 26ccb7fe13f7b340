// Two timelines with one time axis: where the second stands against the first, and that one follows the other. Knows no DOM.

/**
 * @typedef {{viewport: import("./viewport.js").Viewport, timeline: {startNs: number, endNs: number}}} Side
 *   of the first timeline (a) or the second (b); a moment `ns` of the first stands over `ns + offset` of the second
 */
export class Link {
  /** @param {Side} a @param {Side} b */
  constructor(a, b) {
    Object.assign(this, { a, b, offset: 0, isOn: true, moving: false });
    this.apply();
  }

  other(side) { return side === this.a ? this.b : this.a; }

  /** Let both windows reach over both traces, so that neither holds the other back; alone, each over its own. */
  apply() {
    const { a, b, offset } = this, [s, t] = [a.timeline, b.timeline];
    const min = this.isOn ? Math.min(s.startNs, t.startNs - offset) : s.startNs, max = this.isOn ? Math.max(s.endNs, t.endNs - offset) : s.endNs;
    Object.assign(a.viewport, { min, max });
    Object.assign(b.viewport, this.isOn ? { min: min + offset, max: max + offset } : { min: t.startNs, max: t.endNs });
    a.viewport.set(a.viewport.start, a.viewport.end);
    b.viewport.set(b.viewport.start, b.viewport.end);
    if (this.isOn) this.follow(a);
  }

  /** Put the other side's window where this one's is. @returns {boolean} whether it moved */
  follow(side) {
    if (!this.isOn || this.moving) return false;
    const shift = side === this.a ? this.offset : -this.offset, { viewport } = this.other(side);
    const near = 1e-9 * side.viewport.span;     // sums of large numbers are not exact
    if (Math.abs(viewport.start - side.viewport.start - shift) <= near && Math.abs(viewport.end - side.viewport.end - shift) <= near) return false;
    this.moving = true;
    const moved = viewport.set(side.viewport.start + shift, side.viewport.end + shift);
    this.moving = false;
    return moved;
  }

  /** Let a moment of the first stand over a moment of the second. */
  align(aNs, bNs) {
    this.offset = Math.round(bNs - aNs);
    this.apply();
  }

  turn(isOn) {
    this.isOn = isOn;
    this.apply();
  }
}

/**
 * Ways to lay two traces over each other.
 * @param {Side[]} sides @returns {{key: string, text: string, at: [number, number]}[]} a moment of each
 */
export function alignments([a, b]) {
  const found = [{ key: "start", text: "Starts of the traces", at: [a.timeline.startNs, b.timeline.startNs] }];
  const clock = [a, b].map(({ timeline }) => timeline.meta.base_ns);
  if (clock.every((ns) => ns !== null && ns !== undefined)) {
    const apart = clock[0] - clock[1];
    if (apart && Math.abs(apart) < Math.max(a.timeline.endNs, b.timeline.endNs)) found.push({ key: "clock", text: "Same time of day", at: [0, apart] });
  }
  const steps = [a, b].map(({ timeline }) => timeline.steps);
  for (let i = 0; i < Math.min(steps[0].length, steps[1].length, 500); i++) {
    const [s, t] = [steps[0][i], steps[1][i]];
    found.push({ key: `step${i}`, text: s.name === t.name ? s.name : `${s.name} and ${t.name}`, at: [s.start_ns, t.start_ns] });
  }
  return found;
}
