"""What a tune job takes through the product: from Start to its first trial and to its end, one at a time and ten in the queue.

Times are the rows' own (`created`, `started`, `finished`, `prepare_s`, `at_s`): a reader's polling does not count.
"""

from __future__ import annotations

import time
from datetime import datetime
from typing import Any

from tests.gpu.conftest import Site, workers

ENDED = ("done", "failed", "stopped", "cancelled")
TRIALS, SECONDS = 60, 60
SMALL = ("softmax", "fp16", {"R": 2048, "C": 2048})
QUEUE = [("softmax", "fp16", {"R": 2048, "C": 2048}), ("rmsnorm", "bf16", {"R": 4096, "C": 4096}),
         ("layernorm", "bf16", {"R": 8192, "C": 1024}), ("softmax", "bf16", {"R": 4096, "C": 4096}),
         ("silu_mul", "bf16", {"R": 4096, "C": 4096}), ("rmsnorm", "fp16", {"R": 1024, "C": 8192}),
         ("row_sum", "bf16", {"R": 4096, "C": 4096}), ("softmax", "fp16", {"R": 512, "C": 8192}),
         ("layernorm", "fp16", {"R": 2048, "C": 4096}), ("add_rmsnorm", "bf16", {"R": 4096, "C": 2048})]


def start(site: Site, problem: tuple[str, str, dict[str, int]]) -> dict[str, Any]:
    operator, dtype, shape = problem
    return site.post("/api/tune/", {"operator": operator, "dtype": dtype, "shape": shape, "device": "gpu", "seed": 1,
                                    "budget_seconds": SECONDS, "budget_trials": TRIALS})


def seconds(later: str, earlier: str) -> float:
    return (datetime.fromisoformat(later) - datetime.fromisoformat(earlier)).total_seconds()


def times(site: Site, job: dict[str, Any]) -> dict[str, Any]:
    """Return seconds from Start to each moment of a job that is done."""
    row = site.wait(f"/api/tune/{job['id']}/", ENDED, 120)
    assert row["status"] == "done", f"{row['error']}\n{site.product.log[-6000:]}"
    trials = site.get(f"/api/tune/{job['id']}/trials/")["trials"]
    claimed_s = seconds(row["started"], row["created"])
    use = row["counters"]
    return {"problem": f"{row['operator']} {row['dtype']} {row['shape']}", "claimed_s": round(claimed_s, 2),
            "prepare_s": row["prepare_s"],
            "first_trial_s": round(claimed_s + row["prepare_s"] + min(trial["at_s"] for trial in trials), 2),
            "searched_s": round(row["elapsed_s"], 2), "whole_s": round(seconds(row["finished"], row["created"]), 2),
            "trials": len(trials), "best_us": row["best_ms"] * 1e3, "library_us": row["library_ms"] * 1e3,
            "ended_by": row["ended_by"], "outcome": row["outcome"], "created": row["created"], "finished": row["finished"],
            **{name: use.get(name) for name in ("open_s", "busy_s", "waited_s", "compile_s", "replaced")}}


def test_what_a_job_takes(site, report):
    report.add("job on a worker that has just started", **times(site, start(site, SMALL)))
    end = time.monotonic() + 60
    while not all(worker.get("warm", {}).get("ready") for worker in workers(site) if "gpu" in worker["queues"]):
        assert time.monotonic() < end, (workers(site), site.product.log[-4000:])
        time.sleep(0.5)
    report.add("warm parent", **next(worker["warm"] for worker in workers(site) if "gpu" in worker["queues"]))
    for number in range(3):
        report.add(f"job on a warm worker {number}", **times(site, start(site, SMALL)))
        time.sleep(1)
    report.add("warm parent afterwards", **next(worker["warm"] for worker in workers(site) if "gpu" in worker["queues"]))


def test_what_ten_queued_jobs_take(site, report):
    jobs = [start(site, problem) for problem in QUEUE]
    rows = [times(site, job) for job in jobs]
    whole_s = seconds(max(row["finished"] for row in rows), min(row["created"] for row in rows))
    report.add("ten queued jobs", whole_s=round(whole_s, 1), jobs=rows)
    assert "starts as a new process" not in site.product.log, site.product.log[-4000:]
