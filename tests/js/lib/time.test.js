import assert from "node:assert/strict";
import { test } from "node:test";
import { ago, ticks, tickStep } from "../../../static/js/lib/time.js";

test("steps are 1, 2 or 5 and never more ticks than asked", () => {
  for (const span of [1, 7, 1000, 123456, 1e9, 3.3e12]) {
    for (const most of [2, 5, 12]) {
      const step = tickStep(span, most);
      assert.ok([1, 2, 5].includes(Math.round(step / 10 ** Math.floor(Math.log10(step) + 1e-9))), `${step}`);
      assert.ok(span / step <= most || step === 1);
    }
  }
});

test("labels tell neighbours apart", () => {
  for (const [start, end] of [[0, 1e6], [999_999_000, 1_000_001_000], [5e9, 5e9 + 40], [0, 3]]) {
    const labels = ticks(start, end, 8).map(({ label }) => label);
    assert.equal(new Set(labels).size, labels.length, labels.join(" "));
  }
  assert.deepEqual(ticks(0, 2e6, 4).map(({ label }) => label), ["0", "500 µs", "1.0 ms", "1.5 ms", "2.0 ms"]);
});

test("times in words", () => {
  const now = Date.parse("2026-01-01T12:00:00Z");
  assert.equal(ago("2026-01-01T11:59:58Z", now), "just now");
  assert.equal(ago("2026-01-01T11:57:00Z", now), "3 min ago");
  assert.equal(ago("2025-12-30T12:00:00Z", now), "2 d ago");
  assert.equal(ago("nonsense", now), "—");
});
