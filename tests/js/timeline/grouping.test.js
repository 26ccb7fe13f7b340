import assert from "node:assert/strict";
import test from "node:test";
import { ASIDE, grouped, groupTracks } from "../../../static/js/timeline/model/grouping.js";
import { draws, layout } from "../../../static/js/timeline/model/layout.js";
import { Timeline } from "../../../static/js/timeline/model/model.js";
import { shortStep } from "../../../static/js/timeline/draw/steps.js";
import { metaOf } from "./fixture.js";

let next = 0;
const track = (kind, name, group, more = {}) => ({ id: next++, kind, name, group, depths: 1, slices: kind === "counter" ? 0 : 3, sort: next, device: null, ...more });
const shown = (groups) => groups.map((group) => [group.name, ...group.tracks.map(group.nameOf)]);

/** A job of two ranks as the server tells it: the threads come first in each file. */
function job() {
  next = 0;
  return [0, 1].flatMap((n) => {
    const rank = `rank ${n}`, of = { rank };
    return [
      track("thread", "thread 7", `${rank}: python (${n})`, of), track("stream", "stream 7", `${rank}: GPU ${n}`, { ...of, device: n }),
      track("stream", "stream 10", `${rank}: GPU ${n}`, { ...of, device: n }), track("counter", "memory", `${rank}: GPU ${n}`, { ...of, device: n }),
      track("other", "PyTorch Profiler", `${rank}: Spans`, { ...of, aside: "profiler" }), track("counter", "zero", `${rank}: GPU ${n}`, { ...of, device: n, aside: "empty" }),
    ];
  });
}

test("tracks stand under their process or GPU in the file's order", () => {
  const groups = groupTracks([{ id: 0, group: "b", sort: 5 }, { id: 1, group: "a", sort: 9 }, { id: 2, group: "b", sort: 1 }]);
  assert.deepEqual(groups.map((g) => [g.name, g.number, g.tracks.map((t) => t.id)]), [["b", 0, [2, 0]], ["a", 1, [1]]]);
});

test("ranks are stacked, in each the GPU above its threads; the profiler's own and empty counters stand last, all of them", () => {
  assert.deepEqual(shown(grouped(job(), "rank")), [
    ["rank 0: GPU 0", "stream 7", "stream 10", "memory"], ["rank 0: python (0)", "thread 7"],
    ["rank 1: GPU 1", "stream 7", "stream 10", "memory"], ["rank 1: python (1)", "thread 7"],
    [ASIDE, "rank 0: Spans / PyTorch Profiler", "rank 0: GPU 0 / zero", "rank 1: Spans / PyTorch Profiler", "rank 1: GPU 1 / zero"],
  ]);
});

test("by stream, each stream has a lane per GPU, counters stand below", () => {
  assert.deepEqual(shown(grouped(job(), "stream")).slice(0, 4), [
    ["stream 7", "rank 0: GPU 0", "rank 1: GPU 1"], ["stream 10", "rank 0: GPU 0", "rank 1: GPU 1"], ["memory", "rank 0: GPU 0", "rank 1: GPU 1"],
    ["rank 0: python (0)", "thread 7"],
  ]);
});

test("by kernel, each kernel has a lane per stream and begins folded, as do the GPUs below", () => {
  const kernels = [["gemm", 0], ["gemm", 1], ["copy", 0]].map(([name, n], at) => ({
    ...track("stream", `GPU ${n} stream 7`, name, { rank: `rank ${n}`, device: n, of: n }), id: 1000 + at, note: "3 ×" }));
  const groups = grouped(job(), "kernel", kernels);
  assert.deepEqual(groups.slice(0, 4).map(({ name, tracks, startsFolded, note }) => [name, tracks.length, startsFolded, note]), [
    ["gemm", 2, true, "3 ×"], ["copy", 1, true, "3 ×"], ["rank 0: GPU 0", 3, true, ""], ["rank 0: python (0)", 1, false, ""]]);
  assert.deepEqual(shown(grouped(job(), "kernel")), shown(grouped(job(), "rank")));        // until the kernels are known
});

test("what every track shows stays in some group, whatever they are grouped by", () => {
  for (const by of ["rank", "stream", "kernel"]) {
    const ids = grouped(job(), by, []).flatMap((group) => group.tracks.map(({ id }) => id));
    assert.deepEqual(ids.sort((a, b) => a - b), job().map(({ id }) => id));
  }
});

test("a folded group that stands aside draws nothing, an opened one its tracks", () => {
  const timeline = new Timeline({ ...metaOf(), tracks: job() });
  const rows = (folded) => layout(timeline, { folded, pinned: new Set(), filter: "" }).main.rows;
  assert.equal(draws(rows(new Set([`g:${ASIDE}`])).at(-1)), false);
  assert.equal(draws(rows(new Set(["g:rank 0: GPU 0"]))[0]), true);
  assert.equal(rows(new Set()).at(-1).track.name, "zero");
});

test("steps are those of the rank that took them; of one process they are everybody's", () => {
  const steps = ["a", "b"].map((name) => ({ name, start_ns: 0, end_ns: 5 }));
  const two = new Timeline({ ...metaOf(), tracks: job(), steps, step_tracks: [0, 6] });
  const names = (timeline, id) => timeline.stepsOf(timeline.ownerOf(timeline.tracks.get(id))).map(({ name }) => name);
  assert.deepEqual([names(two, 1), names(two, 7)], [["a"], ["b"]]);
  const one = new Timeline({ ...metaOf(), tracks: job(), steps, step_tracks: [0, 0] });
  assert.deepEqual([names(one, 1), names(one, 7)], [["a", "b"], ["a", "b"]]);
  const old = new Timeline({ ...metaOf(), tracks: job(), steps });       // stored before tracks of steps were
  assert.deepEqual(names(old, 7), ["a", "b"]);
});

test("a file of several processes that names no ranks: each shows its own steps, the GPUs none", () => {
  next = 0;
  const tracks = [track("thread", "t", "python (1)"), track("thread", "t", "python (2)"), track("stream", "stream 7", "GPU 0", { device: 0 })];
  const timeline = new Timeline({ ...metaOf(), tracks, steps: [{ name: "a", start_ns: 0, end_ns: 1 }, { name: "b", start_ns: 0, end_ns: 1 }], step_tracks: [0, 1] });
  assert.deepEqual([0, 1, 2].map((id) => timeline.stepsOf(timeline.ownerOf(tracks[id])).map(({ name }) => name)), [["a"], ["b"], []]);
});

test("the number of a step is there whole or not at all", () => {
  assert.deepEqual([16, 10, 6, 4, 3, 1].map((room) => shortStep("ProfilerStep#128", room)), ["ProfilerStep#128", "Profi…#128", "#128", "#128", "", ""]);
  assert.equal(shortStep("warm-up", 4), "war…");
});
