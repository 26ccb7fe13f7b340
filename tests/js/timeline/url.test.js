import assert from "node:assert/strict";
import test from "node:test";
import { foreignEntries, fromQuery, parseRanges, ranges, registered, registerKey, toQuery } from "../../../static/js/timeline/model/url.js";

const EMPTY = { by: "rank", window: null, slice: null, area: null, query: "", filter: "", pinned: [], hidden: [], moves: [], folded: null, marks: [], scroll: 0, pinnedScroll: 0, extra: {} };

test("the usual view has no query", () => {
  assert.equal(toQuery(EMPTY), "");
  assert.deepEqual(fromQuery(""), EMPTY);
});

test("a view comes back from its URL", () => {
  const view = {
    by: "stream", window: [1234.5, 99999999999.125], slice: 0, area: { start: 5, end: 50, tracks: [0, 1, 2, 9] }, query: "a&b=c #1 ü", filter: "GPU 0",
    pinned: [7, 3], hidden: [1, 2, 3, 9], moves: [["t5", "t3"], ["g2", ""]], folded: ["g:python (1)", "t:4", "g:a,b"], marks: [{ start: 1, end: 2 }, { start: 3, end: 3 }], scroll: 120, pinnedScroll: 4, extra: {},
  };
  assert.deepEqual(fromQuery(toQuery(view)), view);
});

test("nothing folded differs from the page's own choice", () => {
  assert.deepEqual(fromQuery(toQuery({ ...EMPTY, folded: [] })).folded, []);
  assert.equal(fromQuery("").folded, null);
});

test("what cannot be read is left out", () => {
  assert.deepEqual(fromQuery("?w=9-1&s=x&a=1-2&pin=a,-1&m=q&y=-5&w=<script>"), EMPTY);
  assert.deepEqual(fromQuery("?s=1e5&w=1-2-3&a=@"), EMPTY);
});

test("track lists are short", () => {
  assert.equal(ranges([5, 2, 1, 0, 9, 10]), "0-2,5,9-10");
  assert.deepEqual(parseRanges("0-2,5,9-10"), [0, 1, 2, 5, 9, 10]);
  assert.ok(parseRanges("0-99999999999").length <= 100001);
});

test("a module's own key is written and taken over, and absent ones are told", () => {
  registerKey("tab", { get: (app) => app.tab, set: (app, text) => { app.tab = text; } });
  assert.equal(toQuery({ ...EMPTY, extra: { tab: "flame" } }), "?tab=flame");
  assert.deepEqual(fromQuery("?tab=flame").extra, { tab: "flame" });
  assert.deepEqual(fromQuery("").extra, { tab: null });
  registered.delete("tab");
});

test("two timelines of a page have their own keys", () => {
  assert.deepEqual(fromQuery("?b.w=1-2&w=5-6", "b.").window, [1, 2]);
  assert.deepEqual(fromQuery("?b.w=1-2&w=5-6").window, [5, 6]);
});

test("a window may begin before the trace, beside another one", () => {
  assert.deepEqual(fromQuery("?w=-500-2000").window, [-500, 2000]);
  assert.equal(toQuery({ ...EMPTY, window: [-500, -20] }), "?w=-500--20");
  assert.deepEqual(fromQuery("?w=-500--20").window, [-500, -20]);
});

test("links of the first version still open", () => {
  const view = fromQuery("?w=10-20&s=4&a=5-50@0-2,9&q=gemm&f=GPU+0&pin=7,3&fold=g:python+(1)&m=1-2&y=120");
  assert.deepEqual([view.window, view.slice, view.area.tracks, view.query, view.filter], [[10, 20], 4, [0, 1, 2, 9], "gemm", "GPU 0"]);
  assert.deepEqual([view.pinned, view.folded, view.marks, view.scroll], [[7, 3], ["g:python (1)"], [{ start: 1, end: 2 }], 120]);
});

test("keys that are no timeline's stay", () => {
  assert.deepEqual(foreignEntries("?sql=3,5&w=1-2&b.w=3-4&b.x=1", ["", "b."]), [["sql", "3,5"], ["b.x", "1"]]);
});
