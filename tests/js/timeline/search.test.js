import assert from "node:assert/strict";
import test from "node:test";
import { argumentQuery, Search } from "../../../static/js/timeline/data/search.js";

const noStrip = async () => { throw new Error("no strip"); };

/** An API with `n` hits, ten ns apart; it counts what was asked. */
function searchOver(n) {
  const all = Array.from({ length: n }, (_, i) => ({ id: i, start_ns: i * 10, dur_ns: 5 }));
  const asked = [];
  const slices = async ({ offset = 0, limit, around }) => {
    asked.push({ offset, limit });
    return { total: n, complete: true, counted_to_ns: n * 10, names: [3], slices: all.slice(offset, offset + limit), ...(around === undefined ? {} : { before: all.filter((s) => s.start_ns < around).length }) };
  };
  return { search: new Search({ slices, hits: noStrip }, () => {}), asked };
}

test("the first step starts from the window, then goes round", async () => {
  const { search } = searchOver(5);
  await search.set("x");
  assert.equal(search.text, "– / 5");
  assert.equal((await search.step(1, 25)).id, 3);
  assert.equal(search.text, "4 / 5");
  assert.equal((await search.step(1, 0)).id, 4);
  assert.equal((await search.step(1, 0)).id, 0);
  assert.equal((await search.step(-1, 0)).id, 4);
});

test("backwards first finds the hit before the window", async () => {
  const { search } = searchOver(5);
  await search.set("x");
  assert.equal((await search.step(-1, 25)).id, 2);
});

test("thousands of hits are fetched a page at a time", async () => {
  const { search, asked } = searchOver(2500);
  await search.set("x");
  assert.equal((await search.step(1, 15001)).id, 1501);
  assert.equal(search.text, "1,502 / 2,500");
  assert.equal((await search.step(1, 0)).id, 1502);
  assert.ok(asked.length <= 3);
});

test("nothing found, nothing to step to", async () => {
  const { search } = searchOver(0);
  await search.set("x");
  assert.equal(search.text, "no hits");
  assert.equal(await search.step(1, 0), null);
  await search.set("");
  assert.equal(search.text, "");
});

test("the answer to an older question is dropped", async () => {
  let release;
  const search = new Search({ hits: noStrip, slices: ({ q }) => (q === "old" ? new Promise((resolve) => { release = () => resolve({ total: 9, slices: [] }); }) : Promise.resolve({ total: 1, slices: [{ id: 7, start_ns: 0 }] })) }, () => {});
  const old = search.set("old");
  await search.set("new");
  release();
  await old;
  assert.equal(search.total, 1);
});

test("a failed search says so and can be repeated", async () => {
  let broken = true;
  const search = new Search({ hits: noStrip, slices: async () => { if (broken) throw new Error("down"); return { total: 2, slices: [] }; } }, () => {});
  await search.set("x");
  assert.equal(search.text, "failed");
  broken = false;
  await search.set("x");
  assert.equal(search.total, 2);
});

test("the server counts on while it is asked again, and then the hits are read in their order", async () => {
  let counted = 0, reads = 0;
  const slices = async () => { reads++; return { total: counted, complete: counted >= 1200, slices: [{ id: counted, start_ns: counted }] }; };
  const hits = async () => { counted += 400; return { total: counted, complete: counted >= 1200, bins: [counted] }; };
  const search = new Search({ slices, hits }, () => {});
  await search.set("x");
  assert.match(search.text, /…$/);
  for (let i = 0; i < 100 && reads < 2; i++) await new Promise((resolve) => { setTimeout(resolve, 20); });
  assert.equal(search.text, "– / 1,200");
  assert.deepEqual(search.strip, [1200]);
  assert.deepEqual([reads, search.hits[0].id], [2, 1200]);
});

test("a click on the strip goes to the first hit there, or the last one", async () => {
  const { search } = searchOver(5);
  await search.set("x");
  assert.equal((await search.goTo(21)).id, 3);
  assert.equal((await search.goTo(1e9)).id, 4);
});

test("the way of searching is part of the question", async () => {
  const { search } = searchOver(5);
  await search.set("a.*b", "regex");
  assert.deepEqual(search.parameters, { q: "a.*b", mode: "regex" });
  await search.set("Input Dims:[[64", "argument");
  assert.deepEqual(search.parameters, { q: "Input Dims=[[64", mode: "argument" });
});

test("arguments are asked with a colon or an equals sign", () => {
  assert.equal(argumentQuery("stream:7"), "stream=7");
  assert.equal(argumentQuery("stream = 7"), "stream = 7");
  assert.equal(argumentQuery("bytes>100"), "bytes>100");
  assert.equal(argumentQuery("Call stack:a.py:12"), "Call stack=a.py:12");
  assert.equal(argumentQuery("64"), "64");
});
