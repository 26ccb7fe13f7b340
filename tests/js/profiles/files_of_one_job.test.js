import assert from "node:assert/strict";
import test from "node:test";
import { gzipSync } from "node:zlib";

import { areOneJob, headOf, sayOneJob, statedRank } from "../../../static/js/profiles/files_of_one_job.js";

const trace = (rank, size) => JSON.stringify({ schemaVersion: 1, distributedInfo: { backend: "nccl", rank, world_size: size }, traceEvents: [{ ph: "X" }] });

test("rank and world are those before the records", () => {
  assert.deepEqual(statedRank(trace(3, 8)), { rank: 3, size: 8 });
  assert.deepEqual(statedRank('{"distributedInfo": {"world_size": 2, "rank": 0, "pg_config": [{"rank": 9}]}}'), { rank: 0, size: 2 });
  for (const head of ["", "{}", '{"distributedInfo": {"rank": 1}}', '{"distributedInfo": {"pg": {}, "rank": 1, "world_size": 2}}']) assert.equal(statedRank(head), null);
});

test("ranks of one job are of one world, each once", () => {
  const said = (...pairs) => pairs.map((pair) => pair && { rank: pair[0], size: pair[1] });
  assert.ok(areOneJob(said([0, 2], [1, 2])) && areOneJob(said([3, 8], [5, 8])));
  for (const not of [said([0, 2]), said([0, 2], [0, 2]), said([0, 2], [1, 4]), said([0, 1], [0, 1]), said([0, 2], null), said([0, 2], [2, 2])]) assert.ok(!areOneJob(not));
});

test("plain and gzipped files are looked into, cut ones too", async () => {
  const long = `${trace(1, 2).slice(0, -2)},${JSON.stringify(Array.from({ length: 90_000 }, (_, i) => ({ ph: "X", ts: i * 7919 % 99_991 }))).slice(1)}}`;
  assert.ok(await sayOneJob([new Blob([trace(0, 2)]), new Blob([gzipSync(long)])]));
  assert.match(await headOf(new Blob([gzipSync(trace(0, 2))])), /"world_size":2/);
  assert.equal(await sayOneJob([new Blob([trace(0, 2)]), new Blob(["PK"])]), false);
  assert.equal(await headOf(new Blob([new Uint8Array([0x1f, 0x8b, 1, 2, 3])])), "");
});
