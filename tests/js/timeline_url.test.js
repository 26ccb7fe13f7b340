import assert from "node:assert/strict";
import test from "node:test";
import { fromQuery, parseRanges, ranges, toQuery } from "../../static/js/timeline/url.js";

const EMPTY = { window: null, slice: null, area: null, query: "", filter: "", pinned: [], folded: null, marks: [], scroll: 0 };

test("the usual view has no query", () => {
  assert.equal(toQuery(EMPTY), "");
  assert.deepEqual(fromQuery(""), EMPTY);
});

test("a view comes back from its URL", () => {
  const view = {
    window: [1234.5, 99999999999.125], slice: 0, area: { start: 5, end: 50, tracks: [0, 1, 2, 9] }, query: "a&b=c #1 ü", filter: "GPU 0",
    pinned: [7, 3], folded: ["g:python (1)", "t:4", "g:a,b"], marks: [{ start: 1, end: 2 }, { start: 3, end: 3 }], scroll: 120,
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
