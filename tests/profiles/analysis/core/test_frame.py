"""A frame is the same whether its trace was just read or stored: columns, samples, flows."""

from __future__ import annotations

import numpy as np
import pytest

from profiles import ingest
from profiles.analysis.core.frame import Frame, frame_of
from profiles.ingest.trace import Trace
from profiles.models import Profile
from profiles.store.frame import frame_read
from profiles.store.trace import prepare
from tests.builders import flows, trace
from tests.profiles.ingest.corpus import DATA


def test_samples_and_flows_of_a_drawn_trace() -> None:
    """Samples by counter and time, flow ends in order of time."""
    frame = frame_of(trace("""
    GPU 0 / memory:    counter 10=8 0=5
    python / main:     forward 0-10 | backward 20-30
    GPU 0 / reserved:  counter 3=9
    """, flows=flows((7, "fwdbwd", 1, 20, True), (7, "fwdbwd", 1, 1, False), (1, "user", 1, 5, False))))
    time_ns, value = frame.samples.of(0)
    assert (time_ns.tolist(), value.tolist()) == ([0, 10_000], [5, 8])
    assert frame.samples.of(2)[1].tolist() == [9] and not frame.samples.of(1)[0].size
    ends = frame.flows
    assert ends.time_ns.tolist() == [1000, 5000, 20_000] and ends.is_end.tolist() == [False, False, True]
    assert [ends.kinds[kind] for kind in ends.kind] == ["fwdbwd", "user", "fwdbwd"] and ends.flow.tolist() == [7, 1, 7]


def test_a_trace_without_samples_and_flows() -> None:
    frame = frame_of(trace("python / main: forward 0-10"))
    assert not frame.samples.track.size and not frame.flows.flow.size and frame.flows.kinds == []


def test_what_is_around_a_slice_when_marks_and_ended_slices_lie_between() -> None:
    """An allocation mark at its parent's depth hides nothing, and a slice may lie deeper than one below what is around it."""
    frame = frame_of(trace("""
    p / a:  train@python 0-99 | start@python 1-20 | step@annotation 10-90 | call@python 30-80 | [memory] 32 | mm 40-50 | add 60-70
    """))
    around = {frame.text(row): [frame.text(each) for each in frame.path(row)[1:]] for row in range(frame.rows)}
    assert around["mm"] == around["add"] == ["call", "step", "train"]
    assert around["step"] == ["train"] and around["train"] == []
    assert around["[memory]"] == ["call", "step", "train"]


@pytest.mark.parametrize("name", ["corpus/kineto/tracelens_h100_timesformer.json.gz", "recorded/torch_graph_stack_memory.json.gz"])
def test_parents_against_every_slice_that_contains_one(name: str) -> None:
    found = ingest.read(DATA / name)
    assert isinstance(found, Trace)
    frame = frame_of(found)
    start, end, depth, track = frame["start_ns"], frame.end_ns, frame["depth"], frame["track"]
    for row in np.random.default_rng(0).choice(frame.rows, 300, replace=False).tolist():
        below = depth[row] + 65 * frame["instant"][row]          # a mark lies at the depth of what is around it, or just above
        around = np.flatnonzero((track == track[row]) & (start <= start[row]) & (end >= end[row]) & (depth < below)
                                & ~frame["instant"])
        assert frame.parent[row] == (around[np.argmax(depth[around])] if around.size else -1)


@pytest.mark.django_db
def test_a_stored_trace_gives_the_frame_of_the_trace_that_was_read() -> None:
    found = ingest.read(DATA / "recorded" / "torch_graph_stack_memory.json.gz")
    assert isinstance(found, Trace)
    profile = Profile.objects.create(name="stored", status=Profile.Status.READY)
    prepare(found).write(profile.pk)
    read, stored = frame_of(found), frame_read(profile)
    for name in ("start_ns", "dur_ns", "correlation", "external_id", "bytes"):
        assert sorted(read[name].tolist()) == sorted(stored[name].tolist()), name
    assert sorted(map(read.text, range(read.rows))) == sorted(map(stored.text, range(stored.rows)))
    assert read.samples.track.size == 448 and _samples(read) == _samples(stored)
    assert len(read.flows.flow) == 44 and _flows(read) == _flows(stored)
    assert np.all(np.diff(stored.flows.time_ns) >= 0)


def _samples(frame: Frame) -> list[tuple[int, int, float]]:
    return list(zip(*(column.tolist() for column in frame.samples), strict=True))


def _flows(frame: Frame) -> list[tuple[int, str, int, int, bool]]:
    ends = frame.flows
    return sorted(zip(ends.flow.tolist(), (ends.kinds[kind] for kind in ends.kind), ends.track.tolist(), ends.time_ns.tolist(),
                      ends.is_end.tolist(), strict=True))
