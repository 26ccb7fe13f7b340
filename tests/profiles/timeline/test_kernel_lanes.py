"""The timeline grouped by kernel: every launch stands on the lane of its kernel and stream, and tiles lose none."""

from __future__ import annotations

import gzip
from collections import Counter
from typing import Any

import numpy as np
import pytest
from django.urls import reverse

from profiles import ingest
from profiles.models import Profile
from profiles.store import trace as store
from profiles.store.timeline import timeline
from profiles.timeline import kernel_lanes
from tests.builders import trace
from tests.profiles.ingest.corpus import H200, mostly_deep
from tests.profiles.timeline.test_timeline_api import unpack

pytestmark = pytest.mark.django_db

TWO = """
GPU 0 / stream 7: gemm 10-40 | copy 50-52 | gemm 60-100 | copy 53-55
GPU 0 / stream 8: gemm 20-30 | all@gpu_annotation 0-100
python (1) / main: aten::mm 0-90
"""


def stored(found: Any) -> Profile:
    profile = Profile.objects.create(name="p", status="ready", kind="trace", file_name="f", upload_key="k")
    store.prepare(found).write(profile.pk)
    return profile


@pytest.fixture
def get(client):
    return lambda name, *arguments, **query: client.get(reverse(f"api-{name}", args=arguments), query)


def test_each_kernel_has_a_lane_per_stream_most_time_first(get) -> None:
    profile = stored(trace(TWO))
    lanes = get("kernel-tracks", profile.pk).json()["tracks"]
    assert [(each["group"], each["name"], each["slices"], each["busy_ns"], each["kernel_launches"]) for each in lanes] == [
        ("gemm", "GPU 0 · stream 7", 2, 70_000, 3), ("gemm", "GPU 0 · stream 8", 1, 10_000, 3),
        ("copy", "GPU 0 · stream 7", 2, 4_000, 2)]
    assert [each["id"] for each in lanes] == [kernel_lanes.FIRST + lane for lane in range(3)]
    document = get("timeline", profile.pk).json()
    assert [document["tracks"][each["of"]]["name"] for each in lanes] == ["stream 7", "stream 8", "stream 7"]


def test_a_tile_shows_long_launches_alone_and_merges_short_ones(get) -> None:
    profile = stored(trace(TWO))
    tile = unpack(gzip.decompress(get("kernel-tile", profile.pk, timeline(profile.pk).top, 0, kernels="2,0").content))
    assert tile["tracks"] == [[kernel_lanes.FIRST, 2, 0], [kernel_lanes.FIRST + 2, 2, 0]]
    assert tile["start_ns"] == [10_000, 60_000, 50_000, 53_000] and tile["dur_ns"] == [30_000, 40_000, 2_000, 2_000]
    assert [get("slice", profile.pk, each).json()["start_ns"] for each in tile["slice_id"]] == tile["start_ns"]
    lanes = kernel_lanes.kernel_lanes(timeline(profile.pk))
    rows = kernel_lanes.lanes_tile(lanes, 6, 0, [2])                # bins of 4,096 ns: both copies, of 2,000 ns each, are short
    assert rows.columns["count"].sum() == 2
    assert (rows.columns["start_ns"] + rows.columns["dur_ns"]).max() == 55_000


@pytest.mark.parametrize("level", mostly_deep([0, 3, 6, 10], "3", "10"))
def test_no_launch_of_a_recording_is_lost_or_counted_twice_at_any_level(level: int) -> None:
    found = ingest.read(H200 / "kineto_train.json.gz")
    profile = stored(found)
    opened = timeline(profile.pk)
    lanes = kernel_lanes.kernel_lanes(opened)
    level = min(level, opened.top)
    seen: Counter[int] = Counter()
    for index in range((opened.document["end_ns"] >> (2 * level + 10)) + 1):
        begin = index << (2 * level + 10)
        rows = kernel_lanes.lanes_tile(lanes, level, index, range(lanes.lane_track.size))
        mine = rows.columns["start_ns"] >= begin                    # what reaches in from before was counted there
        for track, count in zip(rows.track[mine].tolist(), rows.columns["count"][mine].tolist(), strict=True):
            seen[track - kernel_lanes.FIRST] += count
    expected = dict(enumerate(np.diff(lanes.bounds).tolist()))
    assert sum(seen.values()) == sum(expected.values()) == 948 + _copies(opened)
    assert dict(seen) == expected


def _copies(opened: Any) -> int:
    """Memory copies and sets of the recording: work of a GPU that is no kernel."""
    part = opened.slices.read(0, opened.slices.rows, ("category", "track"))
    streams = [track["id"] for track in opened.tracks if track["kind"] == "stream"]
    return int((np.isin(part["category"], (2, 3)) & np.isin(part["track"], streams)).sum())


def test_kernels_beyond_the_first_share_a_lane(get, monkeypatch) -> None:
    monkeypatch.setattr(kernel_lanes, "MOST_KERNELS", 1)
    lanes = get("kernel-tracks", stored(trace(TWO)).pk).json()["tracks"]
    assert [(each["group"], each["kernel"], each["slices"]) for each in lanes] == [
        ("gemm", "gemm", 2), ("gemm", "gemm", 1), ("1 further kernel", None, 2)]


def test_more_launches_than_are_sorted_are_refused_with_the_reason(get, monkeypatch) -> None:
    monkeypatch.setattr(kernel_lanes, "MOST_LAUNCHES", 3)
    answer = get("kernel-tracks", stored(trace(TWO)).pk)
    assert answer.status_code == 409 and "6 slices on streams" in answer.json()["error"] and "stream" in answer.json()["hint"]


@pytest.mark.parametrize("asked", ["", "x", "-1", "3", "0," * 300, "99999999999"])
def test_lanes_that_do_not_exist_are_refused(get, asked: str) -> None:
    assert get("kernel-tile", stored(trace(TWO)).pk, 0, 0, kernels=asked).status_code == 400


def test_a_trace_without_gpu_work_has_no_lanes(get) -> None:
    assert get("kernel-tracks", stored(trace("python (1) / main: aten::mm 0-90")).pk).json() == {"tracks": []}
