import assert from "node:assert/strict";
import test from "node:test";
import { flowEnds, FlowWalk } from "../../../static/js/timeline/data/flows.js";
import { nearestEdge, spanEdges } from "../../../static/js/timeline/model/snap.js";

const link = (role, id, start_ns) => ({ role, id, start_ns, name: `slice ${id}` });
const OP = { id: 1, links: [link("launches", 20, 300), link("calls", 11, 200), link("calls", 10, 100), link("launches", 21, 400), link("backward", 30, 900)] };
const CALL = { id: 10, links: [link("operator", 1, 50), link("launches", 20, 300)] };
const KERNEL = { id: 20, links: [link("operator", 1, 50), link("launched by", 10, 100)] };

test("an op leads to its calls, a call to its kernel, and back", () => {
  const walk = new FlowWalk();
  assert.equal(walk.along(OP, 1).id, 10);
  assert.equal(walk.along(CALL, 1).id, 20);
  assert.equal(walk.along(KERNEL, 1), null);
  assert.equal(walk.along(KERNEL, -1).id, 10);
  assert.equal(walk.along(CALL, -1).id, 1);
});

test("forward leads to backward", () => {
  assert.equal(new FlowWalk().along({ id: 1, links: [link("backward", 30, 900)] }, 1).id, 30);
  assert.equal(new FlowWalk().along({ id: 30, links: [link("forward", 1, 0)] }, -1).id, 1);
});

test("the other ends of a flow follow each other in order of kind and time", () => {
  assert.deepEqual(flowEnds(OP.links, 1).map((end) => end.id), [10, 11, 20, 21, 30]);
  const walk = new FlowWalk();
  assert.equal(walk.along(OP, 1).id, 10);
  assert.equal(walk.other({ id: 10 }, 1).id, 11);
  assert.equal(walk.text, "calls 2 of 5");
  assert.equal(walk.other({ id: 11 }, -1).id, 10);
  assert.equal(walk.other({ id: 10 }, -1).id, 30);
  assert.equal(walk.other({ id: 99, links: [] }, 1), null);
});

test("an edge within reach is taken, the nearest one", () => {
  assert.equal(nearestEdge(100, 10, [80, 95, 108]), 95);
  assert.equal(nearestEdge(100, 10, [80, 120]), null);
  assert.deepEqual([...spanEdges([{ start: 1, end: 2 }])], [1, 2]);
});
