"""TraceLens's own reports of its golden traces (H100, MI210, MI300): busy, idle, total time, every kernel's count and time."""

from __future__ import annotations

import json
from typing import Any

import pytest

from profiles import ingest
from profiles.analysis.core.kernels import kernel_table
from profiles.analysis.trace.breakdown import breakdown
from profiles.ingest.trace import GPU_WORK, Trace
from tests.profiles.ingest.corpus import DATA

WITHIN_MS = 1e-4           # its times are float64 µs since 1970, which hold 0.25 µs
FOLDER = DATA / "tracelens"
TRUTH: dict[str, dict[str, Any]] = json.loads((FOLDER / "truth.json").read_text())


@pytest.mark.parametrize("name", TRUTH)
def test_times_are_those_of_tracelens(name: str) -> None:
    trace = ingest.read(FOLDER / name)
    assert isinstance(trace, Trace)
    truth, found = TRUTH[name], breakdown(trace)
    assert found is not None
    device, = found.devices
    assert device.busy_ns / 1e6 == pytest.approx(truth["busy_ms"], abs=WITHIN_MS)
    work = [row for row in trace.slices.to_pylist() if row["category"] in GPU_WORK]      # its total is from the first to the last
    span_ns = max(row["start_ns"] + row["dur_ns"] for row in work) - min(row["start_ns"] for row in work)
    assert span_ns / 1e6 == pytest.approx(truth["total_ms"], abs=WITHIN_MS)
    assert (span_ns - device.busy_ns) / 1e6 == pytest.approx(truth["idle_ms"], abs=WITHIN_MS)
    kernels = {row.name: (row.launches, row.total_ns) for row in kernel_table(trace)}
    for kernel, (launches, total_us) in truth["kernels"].items():
        if kernels.get(kernel, (0, 0))[0] == launches:      # else some of its launches have no operator: it leaves them out
            assert kernels[kernel][1] / 1e3 == pytest.approx(total_us, abs=0.01)
    same = sum(kernels.get(kernel, (0, 0))[0] == launches for kernel, (launches, _) in truth["kernels"].items())
    assert same >= 0.9 * len(truth["kernels"])
