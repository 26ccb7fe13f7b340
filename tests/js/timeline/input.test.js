import assert from "node:assert/strict";
import test from "node:test";
import { Motion } from "../../../static/js/timeline/model/motion.js";

/** Distance of an axis over `seconds` in frames of 1/60 s. */
function run(motion, axis, seconds) {
  let sum = 0;
  for (let t = 0; t < seconds - 1e-9; t += 1 / 60) sum += motion.advance(1 / 60)[axis];
  return sum;
}

test("a tap moves a little and comes to rest", () => {
  const motion = new Motion();
  motion.press("KeyD");
  motion.release("KeyD");
  const moved = run(motion, "pan", 1);
  assert.ok(moved > 0.05 && moved < 0.2, `${moved}`);
  assert.equal(motion.isMoving, false);
});

test("a held key accelerates up to a limit", () => {
  const motion = new Motion();
  motion.press("KeyW");
  const first = run(motion, "zoom", 0.5), second = run(motion, "zoom", 0.5);
  assert.ok(first < 0 && second < first);
  run(motion, "zoom", 5);
  assert.ok(Math.abs(motion.speed.zoom) <= 5);
});

test("the same way whatever the frame rate", () => {
  const slow = new Motion(), fast = new Motion();
  slow.press("KeyA");
  fast.press("KeyA");
  let a = 0, b = 0;
  for (let i = 0; i < 30; i++) a += slow.advance(1 / 30).pan;
  for (let i = 0; i < 120; i++) b += fast.advance(1 / 120).pan;
  assert.ok(Math.abs(a - b) < 0.02 * Math.abs(a));
});

test("opposite keys hold each other; losing focus stops", () => {
  const motion = new Motion();
  motion.press("KeyA");
  motion.press("KeyD");
  run(motion, "pan", 1);
  assert.equal(motion.speed.pan, 0);
  motion.stop();
  assert.equal(motion.isMoving, false);
});
