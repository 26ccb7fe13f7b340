import assert from "node:assert/strict";
import test from "node:test";
import { alignments, Link } from "../../../static/js/timeline/model/linked.js";
import { Timeline } from "../../../static/js/timeline/model/model.js";
import { Viewport } from "../../../static/js/timeline/model/viewport.js";
import { metaOf } from "./fixture.js";

function side(endNs, extra = {}) {
  const timeline = new Timeline(metaOf(endNs, extra)), viewport = new Viewport(timeline.startNs, timeline.endNs);
  viewport.resize(1000);
  return { timeline, viewport };
}

const window = ({ viewport }) => [viewport.start, viewport.end];

test("linked windows reach over the longer trace", () => {
  const a = side(1_000_000), b = side(3_000_000), link = new Link(a, b);
  a.viewport.set(0, 3_000_000);
  link.follow(a);
  assert.deepEqual([window(a), window(b)], [[0, 3_000_000], [0, 3_000_000]]);
});

test("the other goes along, whichever moves", () => {
  const a = side(1_000_000), b = side(1_000_000), link = new Link(a, b);
  a.viewport.set(100, 5000);
  assert.equal(link.follow(a), true);
  assert.deepEqual(window(b), [100, 5000]);
  b.viewport.set(7000, 9000);
  link.follow(b);
  assert.deepEqual(window(a), [7000, 9000]);
  assert.equal(link.follow(a), false);
});

test("two moments are laid over each other", () => {
  const a = side(1_000_000), b = side(1_000_000), link = new Link(a, b);
  a.viewport.set(40_000, 60_000);
  link.align(50_000, 250_000);
  assert.deepEqual(window(b), [240_000, 260_000]);
  assert.equal(a.viewport.x(50_000), b.viewport.x(250_000));
  a.viewport.set(a.viewport.min, a.viewport.max);
  link.follow(a);
  assert.deepEqual([a.viewport.min, a.viewport.max], [-200_000, 1_000_000]);
  assert.deepEqual(window(b), [0, 1_200_000]);
});

test("not linked, each moves alone within its own trace", () => {
  const a = side(1_000_000), b = side(500_000), link = new Link(a, b);
  link.align(0, 400_000);
  link.turn(false);
  a.viewport.set(0, 1000);
  assert.equal(link.follow(a), false);
  assert.deepEqual([b.viewport.min, b.viewport.max], [0, 500_000]);
  link.turn(true);
  assert.deepEqual(window(b), [400_000, 401_000]);
});

test("traces can be aligned by start, by time of day and by their steps", () => {
  const steps = (at) => [{ name: "ProfilerStep#1", start_ns: at, end_ns: at + 10 }, { name: "ProfilerStep#2", start_ns: at + 10, end_ns: at + 20 }];
  const a = side(1000, { steps: steps(100), base_ns: 5000 }), b = side(1000, { steps: steps(300), base_ns: 5200 });
  assert.deepEqual(alignments([a, b]).map(({ key, at }) => [key, at]), [["start", [0, 0]], ["clock", [0, -200]], ["step0", [100, 300]], ["step1", [110, 310]]]);
  assert.deepEqual(alignments([side(1000), side(1000)]).map(({ key }) => key), ["start"]);
});
