"""A kernel's step in both senses: launched in it, begun in it."""

from __future__ import annotations

import gzip
import json

import numpy as np
import pytest

from profiles.analysis.core.frame import frame_of
from profiles.analysis.trace.merge import merge
from profiles.analysis.trace.time.facts import TimeFacts
from profiles.analysis.trace.time.result import time_result
from profiles.analysis.trace.time.steps import kernel_steps, steps_of
from profiles.analysis.trace.time.tiling import devices
from profiles.ingest import read
from tests.builders import trace
from tests.profiles.ingest.corpus import H200

# the host is a step ahead: what step 0 launches second runs in step 1, what step 1 launches runs behind it
AHEAD = """
p (1) / main: ProfilerStep#0 0-100 | cudaLaunchKernel 10-12 corr=1 | cudaLaunchKernel 20-22 corr=2 | \
ProfilerStep#1 100-200 | cudaLaunchKernel 110-112 corr=3 | cudaLaunchKernel 250-252 corr=4
GPU 0 / stream 7: a 30-60 corr=1 | b 120-150 corr=2 | c 210-230 corr=3 | d 260-270 corr=4 | e 150-155
"""


def _steps(frame):
    return kernel_steps(frame, steps_of(frame, devices(frame)))


def test_both_steps_of_a_kernel():
    frame = frame_of(trace(AHEAD))
    found = _steps(frame)
    names = [frame.text(row) for row in frame.kernels.tolist()]
    assert dict(zip(names, found.launched.tolist(), strict=True)) == {"a": 0, "b": 0, "c": 1, "d": -1, "e": -1}
    assert dict(zip(names, found.ran.tolist(), strict=True)) == {"a": 0, "b": 1, "c": -1, "d": -1, "e": 1}


def test_the_page_of_time_says_which():
    frame = frame_of(trace(AHEAD))
    result = time_result(frame)
    rows = {row["name"]: (row["launched"], row["ran"]) for row in result.numbers["steps"]["rows"]}
    assert rows == {"ProfilerStep#0": ({"kernels": 2, "ns": 60_000}, {"kernels": 1, "ns": 30_000}),
                    "ProfilerStep#1": ({"kernels": 1, "ns": 20_000}, {"kernels": 2, "ns": 35_000})}
    assert result.numbers["steps"]["outside"] == {"launched": {"kernels": 2, "ns": 15_000}, "ran": {"kernels": 2, "ns": 30_000}}
    assert (result.numbers["steps"]["kernels"], result.numbers["steps"]["kernels_elsewhere"]) == (5, 2)
    table = next(each for each in result.tables if each.title == "Steps")
    at = [column.name for column in table.columns].index("kernels launched in it")
    assert [row[at:at + 4] for row in table.rows] == [[2, 60_000, 1, 30_000], [1, 20_000, 2, 35_000]]
    assert "may run in the next" in table.note


def test_a_rank_has_steps_of_its_own():
    frame = frame_of(merge([("a", trace(AHEAD, rank=0, base_ns=0)), ("b", trace(AHEAD, rank=1, base_ns=90_000))]))
    spans = steps_of(frame, devices(frame)).spans
    found = _steps(frame)
    for row, launched, ran in zip(frame.kernels.tolist(), found.launched.tolist(), found.ran.tolist(), strict=True):
        rank = frame.rank_of_track[int(frame["track"][row])]
        assert {spans[step].rank for step in (launched, ran) if step >= 0} <= {rank}
    assert np.count_nonzero(found.launched >= 0) == 6 and np.count_nonzero(found.ran >= 0) == 6


def test_steps_that_were_found_in_the_work_have_no_calls_in_them():
    lanes = " | ".join(f"{name} {100 * step + 20 * at}-{100 * step + 20 * at + 15}" for step in range(8)
                       for at, name in enumerate(("a", "b", "c")))
    frame = frame_of(trace(f"GPU 0 / stream 7: {lanes}"))
    found = _steps(frame)
    assert steps_of(frame, devices(frame)).source == "detected" and found.launched is None
    assert TimeFacts(frame).kernel_steps[0] is None
    row = time_result(frame).numbers["steps"]["rows"][0]
    assert row["launched"] is None and row["ran"]["kernels"] == 3


@pytest.mark.parametrize("name", ["kineto_train.json.gz", "ddp_even_rank0.json.gz"])
def test_recorded_steps_are_what_a_loop_counts(name):
    """From the JSON alone: the call that has the kernel's correlation, and the steps on the CPU's thread."""
    events = json.loads(gzip.decompress((H200 / name).read_bytes()))["traceEvents"]
    steps = [(each["name"], each["ts"], each["ts"] + each["dur"]) for each in events
             if each.get("cat") == "user_annotation" and each["name"].startswith("ProfilerStep#")]
    calls = {each["args"]["correlation"]: each["ts"] for each in events if each.get("cat") in ("cuda_runtime", "cuda_driver")
             and "correlation" in each.get("args", {})}

    def step_at(moment):
        return next((name for name, start, end in steps if moment is not None and start <= moment < end), "outside")

    expected = {name: [[0, 0.0], [0, 0.0]] for name in (*(step[0] for step in steps), "outside")}
    for each in events:
        if each.get("cat") == "kernel":
            for sense, moment in enumerate((calls.get(each["args"]["correlation"]), each["ts"])):
                expected[step_at(moment)][sense][0] += 1
                expected[step_at(moment)][sense][1] += each["dur"] * 1000
    numbers = time_result(frame_of(read(H200 / name))).numbers["steps"]
    rows = {**{row["name"]: row for row in numbers["rows"]}, "outside": numbers["outside"]}
    assert len(steps) > 1
    for step, senses in expected.items():
        for sense, (kernels, ns) in zip(("launched", "ran"), senses, strict=True):
            assert rows[step][sense]["kernels"] == kernels and rows[step][sense]["ns"] == pytest.approx(ns, abs=kernels)
