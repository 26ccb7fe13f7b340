import assert from "node:assert/strict";
import test from "node:test";
import { Search } from "../../static/js/timeline/search.js";

/** An API with `n` hits, ten ns apart; it counts what was asked. */
function searchOver(n) {
  const all = Array.from({ length: n }, (_, i) => ({ id: i, start_ns: i * 10, dur_ns: 5 }));
  const asked = [];
  const slices = async ({ offset = 0, limit, start = -Infinity }) => {
    asked.push({ offset, limit, start });
    const found = all.filter((s) => s.start_ns >= start);
    return { total: found.length, slices: found.slice(offset, offset + limit) };
  };
  return { search: new Search({ slices }, () => {}), asked };
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
  const search = new Search({ slices: ({ q }) => (q === "old" ? new Promise((resolve) => { release = () => resolve({ total: 9, slices: [] }); }) : Promise.resolve({ total: 1, slices: [{ id: 7, start_ns: 0 }] })) }, () => {});
  const old = search.set("old");
  await search.set("new");
  release();
  await old;
  assert.equal(search.total, 1);
});

test("a failed search says so and can be repeated", async () => {
  let broken = true;
  const search = new Search({ slices: async () => { if (broken) throw new Error("down"); return { total: 2, slices: [] }; } }, () => {});
  await search.set("x");
  assert.equal(search.text, "failed");
  broken = false;
  await search.set("x");
  assert.equal(search.total, 2);
});
