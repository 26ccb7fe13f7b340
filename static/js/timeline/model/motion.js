// How held keys move the view: speeds that grow while a key is down and fade after it. Knows no DOM.

import { HELD } from "./keymap.js";

// Feel of held keys: a tap moves by about KICK / FRICTION, holding accelerates up to MAX (screens or e-folds per second).
const KICK = { pan: 1.1, zoom: 2.6, scroll: 5 };
const ACCELERATION = { pan: 3.2, zoom: 4.5, scroll: 16 };
const MAX = { pan: 3.6, zoom: 5, scroll: 30 };
const FRICTION = 11;

/** Speeds of the held axes; a function of what is held and the time that passed. */
export class Motion {
  constructor() {
    this.speed = { pan: 0, zoom: 0, scroll: 0 };
    this.held = new Map();      // key code -> [axis, direction]
  }

  press(code) {
    if (this.held.has(code)) return;
    const [axis, direction] = HELD[code];
    this.held.set(code, [axis, direction]);
    this.speed[axis] = direction * KICK[axis];
  }

  release(code) { this.held.delete(code); }
  stop() {
    this.held.clear();
    this.speed = { pan: 0, zoom: 0, scroll: 0 };
  }

  get isMoving() { return Object.values(this.speed).some((v) => v !== 0); }

  /** @param {number} seconds since the last frame @returns {{pan: number, zoom: number, scroll: number}} distances */
  advance(seconds) {
    const moved = {};
    for (const axis of Object.keys(this.speed)) {
      let direction = 0;
      for (const [heldAxis, d] of this.held.values()) if (heldAxis === axis) direction += d;
      const before = this.speed[axis];
      let after = before;
      if (direction) after = Math.max(-MAX[axis], Math.min(MAX[axis], before + direction * ACCELERATION[axis] * seconds));
      else after = Math.abs(before) < 0.02 * KICK[axis] ? 0 : before * Math.exp(-FRICTION * seconds);
      moved[axis] = ((before + after) / 2) * seconds;
      this.speed[axis] = after;
    }
    return moved;
  }
}
