"""The overview's numbers against a plain sum over the slices."""

import numpy as np

from profiles import ingest
from profiles.analysis.core.kernels import numbers
from profiles.ingest.trace import GPU_WORK
from profiles.store import timeline as timeline_store
from profiles.store import trace as store
from profiles.store.density import density
from tests.builders import trace as drawn
from tests.profiles.ingest.corpus import H200


def test_shares_are_what_slices_cover():
    store.prepare(drawn("""
        p / main: ProfilerStep#0@annotation 0-900 | aten::mm 100-350 | aten::t 120-130
        GPU 0 / stream 7: gemm 200-262.144 | gemm 300-400""")).write(201)
    found = density(timeline_store.timeline(201))
    us = found.bin_ns / 1000
    share = found.share.sum(axis=1) / 255 * us
    rounding = 2 * us * found.share.shape[1] / 255
    assert abs(share[0] - 250) < rounding and abs(share[1] - 162.144) < rounding
    first = int(200 / us)
    assert found.share[1, first] > 0 and not found.share[1, :first - 1].any()
    assert found.category[0, int(200 / us)] == 5 and found.category[1, first] == 0


def test_a_recordings_streams_are_as_busy_as_their_kernels():
    trace = ingest.read(H200 / "kineto_train.json.gz")
    store.prepare(trace).write(202)
    timeline = timeline_store.timeline(202)
    found = density(timeline)
    stream = next(track["id"] for track in timeline.tracks if track["kind"] == "stream")
    mine = (numbers(trace.slices, "track") == stream) & np.isin(numbers(trace.slices, "category"), [int(c) for c in GPU_WORK])
    exact = numbers(trace.slices, "dur_ns")[mine].sum()
    drawn_ns = found.share[stream].sum() / 255 * found.bin_ns
    assert exact <= drawn_ns
    if "busy_ns" in timeline.bins.names:                # older stored traces count the gaps inside merged entries
        assert drawn_ns <= exact + found.bin_ns / 255 * np.count_nonzero(found.share[stream])
    body = found.pack()
    assert len(body) == 24 + 2 * found.share.size and body[:4] == b"RPD1"
