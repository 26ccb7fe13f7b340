import assert from "node:assert/strict";
import { test } from "node:test";

test("a page is not reloaded while a link is being followed, and is if that led to a download", async (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  let now = 0, reloads = 0, leave = () => {};
  t.mock.method(performance, "now", () => now);
  globalThis.addEventListener = (event, heard) => { assert.equal(event, "beforeunload"); leave = heard; };
  globalThis.location = { reload: () => { reloads += 1; } };
  const { reload } = await import("../../../static/js/lib/reload.js");
  reload();
  assert.equal(reloads, 1);
  leave();
  reload();
  assert.equal(reloads, 1);
  now = 29000;
  t.mock.timers.tick(29000);
  assert.equal(reloads, 1);
  now = 30000;
  t.mock.timers.tick(1000);
  assert.equal(reloads, 2);
});
