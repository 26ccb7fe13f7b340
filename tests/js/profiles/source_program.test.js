import assert from "node:assert/strict";
import test from "node:test";
import { jumps, LANES, Program } from "../../../static/js/profiles/source_program.js";

const found = { registers_per_thread: 64, missing: "", general: [2, 8, 64, 8, 4], uniform: [0, 1, 1, 0, 0], predicates: [0, 0, 1, 1, 0],
  targets: [null, null, null, 1, 4], writers: [[], [0], [0, 1], [2], [1]] };

test("jumps over each other get lanes of their own, the shortest innermost", () => {
  const targets = new Array(20).fill(null);
  targets[9] = 8; targets[10] = 5; targets[12] = 2; targets[14] = 16;
  const laid = jumps(targets);
  assert.deepEqual(laid.map(({ from, lane }) => [from, lane]), [[9, 0], [14, 0], [10, 1], [12, 2]]);
  for (const a of laid) for (const b of laid) if (a !== b && a.lane === b.lane) {
    assert.ok(Math.max(a.from, a.to) < Math.min(b.from, b.to) || Math.max(b.from, b.to) < Math.min(a.from, a.to));
  }
});

test("a jump that finds no lane is kept, without one; one to itself is none", () => {
  const targets = new Array(40).fill(null);
  for (let each = 0; each < LANES + 2; each += 1) targets[20 + each] = 19 - each;
  targets[39] = 39;
  const laid = jumps(targets);
  assert.equal(laid.length, LANES + 2);
  assert.equal(laid.filter(({ lane }) => lane === null).length, 2);
});

test("who reads is who wrote, turned round", () => {
  const program = new Program(found);
  assert.deepEqual(program.readers(0), [1, 2]);
  assert.deepEqual(program.readers(1), [2, 4]);
  assert.deepEqual(program.readers(4), []);
  for (let row = 0; row < 5; row += 1) for (const writer of program.writers(row)) assert.ok(program.readers(writer).includes(row));
});

test("live registers of a line are the most of its instructions", () => {
  const program = new Program(found);
  assert.equal(program.mostLive([0, 1, 3]), 8);
  assert.equal(program.mostLive([]), null);
  assert.equal(program.pressure(64), 1);
  assert.match(program.words(2), /^64 registers live of 64 that a thread holds, 1 uniform ones, 1 predicates$/);
  const unknown = new Program({ ...found, general: [], targets: [], writers: [], missing: "too long" });
  assert.equal(unknown.known, false);
  assert.equal(unknown.mostLive([0]), null);
  assert.match(unknown.words(0), /unknown: too long/);
});

test("jumps that cross the rows on screen are drawn, others not", () => {
  const program = new Program(found);
  assert.deepEqual(program.crossing(2, 3).map(({ from, to }) => [from, to]), [[3, 1]]);
  assert.deepEqual(program.crossing(4, 5), []);
});
