// The way along a flow: from a slice to what it caused, and back to what caused it. Knows no DOM.

// Roles of a slice's links by the direction they lead to, the nearest first: an op calls, the call launches.
const ROLES = { 1: ["calls", "launches", "to", "backward"], "-1": ["launched by", "operator", "from", "forward"] };

/**
 * Where a flow leads from a slice: the ends of its nearest kind first, in order of time.
 * @param {{role: string, id: number, start_ns: number}[]} links @param {1|-1} direction @returns {object[]} each slice once
 */
export function flowEnds(links, direction) {
  const ends = new Map();
  for (const role of ROLES[direction]) {
    for (const link of links.filter((l) => l.role === role).sort((a, b) => a.start_ns - b.start_ns)) if (!ends.has(link.id)) ends.set(link.id, link);
  }
  return [...ends.values()];
}

/** Remembers where a flow was entered, so that its other ends can be visited one after the other. */
export class FlowWalk {
  constructor() {
    this.ends = [];
    this.at = -1;
  }

  /** @param {{id: number, links?: object[]}} slice the selected one @returns {?object} the next slice along the flow */
  along(slice, direction) {
    const ends = flowEnds(slice.links ?? [], direction);
    if (!ends.length) return null;
    this.ends = ends;
    this.at = 0;
    return ends[0];
  }

  /** Another end of the flow that led to this slice; else of the flows that leave it. @returns {?object} */
  other(slice, step) {
    if (this.ends[this.at]?.id !== slice.id) return this.along(slice, 1) ?? this.along(slice, -1);
    this.at = (this.at + step + this.ends.length) % this.ends.length;
    return this.ends[this.at];
  }

  /** "launches 2 of 5" */
  get text() {
    const end = this.ends[this.at];
    return end ? `${end.role} ${this.at + 1} of ${this.ends.length}` : "";
  }
}
