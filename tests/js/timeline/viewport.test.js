import assert from "node:assert/strict";
import test from "node:test";
import { between, clock, exactNs, ticks, tipPlace, Viewport } from "../../../static/js/timeline/model/viewport.js";

function viewport(end = 1e9, width = 1000) {
  const v = new Viewport(0, end);
  v.resize(width);
  return v;
}

test("zooming keeps the time under the pointer", () => {
  const v = viewport();
  const before = v.ns(250);
  v.zoomAt(250, 0.1);
  assert.ok(Math.abs(v.ns(250) - before) < 1e-6);
  assert.ok(Math.abs(v.span - 1e8) < 1e-3);
});

test("the window stays inside the trace", () => {
  const v = viewport();
  v.set(-5e8, 5e8);
  assert.deepEqual([v.start, v.end], [0, 1e9]);
  v.set(9e8, 9.5e8);
  v.pan(1e9);
  assert.deepEqual([v.start, v.end], [9.5e8, 1e9]);
  v.zoomAt(500, 1e9);
  assert.ok(v.isWhole);
});

test("neighbouring nanoseconds stay apart after hours of trace", () => {
  const v = viewport(1e13);                    // 2.8 hours
  v.set(9e12, 9e12 + 100);                     // 10 px per ns
  for (let ns = 0; ns <= 100; ns++) assert.ok(Math.abs(v.x(9e12 + ns) - ns * 10) < 0.05, `${ns}`);
});

test("there is an end to zooming in", () => {
  const v = viewport(1e13);
  for (let i = 0; i < 400; i++) v.zoomAt(500, 0.7);
  assert.ok(v.nsPerPx >= 0.0199 && v.nsPerPx < 0.03);
  const short = viewport(3);                   // a trace of 3 ns is shown whole
  assert.deepEqual([short.start, short.end], [0, 3]);
});

test("bins of the chosen level are half a pixel to two pixels wide", () => {
  const v = viewport(4 ** 12, 1000);
  for (const span of [10, 1000, 1024, 4096, 100_000, 4 ** 12]) {
    v.set(0, span);
    const level = v.level(20);
    assert.ok(4 ** level <= Math.max(2 * v.nsPerPx, 1) + 1e-9, `${span}`);
    assert.ok(4 ** (level + 1) > 2 * v.nsPerPx, `${span}`);
  }
  assert.equal(v.level(2), 2);
});

test("ticks are multiples with labels that differ", () => {
  const v = viewport();
  for (const [start, end] of [[0, 1e9], [123_456_789, 123_457_789], [999_999_000, 999_999_050], [0, 30]]) {
    v.set(start, end);
    const { ticks: list, base } = ticks(v);
    assert.ok(list.length >= 2 && list.length <= 20, `${start}: ${list.length}`);
    assert.equal(new Set(list.map((t) => t.label)).size, list.length);
    assert.ok(list.every((t) => t.label.length <= 12), list.map((t) => t.label).join());
    assert.ok(base <= v.start);
  }
});

test("a glide begins and ends exactly", () => {
  const from = { start: 0, end: 1e9 }, to = { start: 5e8, end: 5e8 + 1000 };
  assert.deepEqual(between(from, to, 0), from);
  const end = between(from, to, 1);
  assert.ok(Math.abs(end.start - to.start) < 1e-3 && Math.abs(end.end - to.end) < 1e-3);
  const pan = between({ start: 0, end: 10 }, { start: 100, end: 110 }, 0.5);
  assert.deepEqual(pan, { start: 50, end: 60 });
});

test("a tip follows the pointer and never leaves the view", () => {
  const view = { width: 400, height: 200 }, tip = { width: 120, height: 50 };
  assert.deepEqual(tipPlace({ x: 50, y: 40 }, tip, view), [64, 54]);                  // below and right
  assert.deepEqual(tipPlace({ x: 380, y: 190 }, tip, view), [246, 126]);              // above and left at the far corner
  for (const size of [tip, { width: 390, height: 190 }, { width: 400, height: 200 }]) {
    for (const x of [0, 5, 130, 399]) for (const y of [0, 100, 199]) {
      const [left, top] = tipPlace({ x, y }, size, view);
      assert.ok(left >= 0 && top >= 0 && left + size.width <= view.width && top + size.height <= view.height, `${x} ${y} ${size.width}`);
    }
  }
});

test("times are exact in words", () => {
  assert.equal(exactNs(12416), "12,416 ns");
  assert.equal(clock(1_234_567_891), "1.234\u202f567\u202f891 s");
  assert.equal(clock(0), "0 ns");
  assert.equal(clock(1500), "1.500 µs");
});
