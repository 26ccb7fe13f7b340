"""The benches' generator: a file of it is a trace like any other, with nothing dropped and no id twice."""

from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np
import pytest

from bench import generator
from profiles import ingest
from profiles.ingest.trace import Trace


@pytest.mark.deep_only
@pytest.mark.slow
def test_a_generated_trace_reads_whole(tmp_path: Path) -> None:
    file = tmp_path / "trace.json"
    written, made = generator.write(file, slices=150_000, ranks=4)
    assert written == file.stat().st_size and made >= 150_000
    trace = ingest.read(file)
    assert isinstance(trace, Trace)
    assert trace.slices.num_rows == made and not trace.integrity.not_kept
    assert {track.device for track in trace.tracks if track.kind == "stream"} == {0, 1, 2, 3}
    assert len({track.group for track in trace.tracks if track.kind == "thread"}) >= 4


@pytest.mark.slow
def test_ids_of_launches_are_fresh_in_every_copy(tmp_path: Path) -> None:
    file = tmp_path / "trace.json"
    generator.write(file, slices=30_000, ranks=1)
    launches: dict[int, int] = {}
    for record in json.loads(file.read_bytes())["traceEvents"]:
        if record.get("cat") == "kernel":
            launches[record["args"]["correlation"]] = launches.get(record["args"]["correlation"], 0) + 1
    copies = len({correlation // 10**7 for correlation in launches})
    assert copies >= 3 and max(launches.values()) == 1
    starts = np.array([float(r["ts"]) for r in json.loads(file.read_bytes())["traceEvents"] if r.get("cat") == "kernel"])
    assert (np.diff(np.sort(starts)) >= 0).all() and np.ptp(starts) > 2 * 38_000


@pytest.mark.deep_only
@pytest.mark.slow
def test_it_is_deterministic_and_stops_at_the_size_asked_for() -> None:
    first, again = io.BytesIO(), io.BytesIO()
    assert generator.write(first, raw_bytes=20_000_000, ranks=3) == generator.write(again, raw_bytes=20_000_000, ranks=3)
    assert first.getvalue() == again.getvalue() and 20e6 <= len(first.getvalue()) < 34e6
