"""Whose rank a track is, and which stand aside: rules on what readers write of a track."""

from __future__ import annotations

from typing import Any

from profiles.timeline.selectors import described


def track(kind: str, name: str, group: str, pid: str | None = "7", **more: Any) -> dict[str, Any]:
    return {"kind": kind, "name": name, "group": group, "pid": pid, **more}


def aside(*tracks: dict[str, Any], format_: str = "kineto") -> list[str | None]:
    return [each["aside"] for each in described(tracks, [], format_)]


def test_a_rank_is_the_label_that_its_group_begins_with() -> None:
    groups = ["rank 1: GPU 1", "rank 10: GPU 10", "GPU 0", "0: a: b.json: GPU 0"]
    found = described([track("stream", "stream 7", group) for group in groups], ["rank 1", "rank 10", "0: a: b.json"], "kineto")
    assert [each["rank"] for each in found] == ["rank 1", "rank 10", None, "0: a: b.json"]


def test_what_libkineto_writes_of_itself_stands_aside() -> None:
    assert aside(track("other", "PyTorch Profiler", "Spans", "Spans"), track("other", "Trace PyTorch Profiler", "Traces", "Traces"),
                 track("other", "overhead", "profiler", "-1"), track("other", "trace", "trace", "")) == ["profiler"] * 4


def test_work_and_other_formats_do_not() -> None:
    assert aside(track("thread", "thread 7", "python (7)"), track("stream", "stream 7", "GPU 0", "0"),
                 track("other", "Iteration", "Markers", "Markers")) == [None] * 3
    assert aside(track("other", "trace", "trace", ""), format_="chrome") == [None]


def test_the_overhead_that_nsight_systems_measured_stands_aside() -> None:
    assert aside(track("other", "profiler overhead · jacobi (7)", "jacobi"), track("other", "OS runtime · jacobi", "jacobi"),
                 format_="nsys-sqlite") == ["profiler", None]


def test_a_counter_that_never_left_zero_is_empty_and_one_of_unknown_extent_is_not() -> None:
    assert aside(track("counter", "a", "GPU 0", least=0.0, greatest=0.0), track("counter", "b", "GPU 0", least=0.0, greatest=2.0),
                 track("counter", "c", "GPU 0", least=-1.0, greatest=0.0), track("counter", "d", "GPU 0"),
                 track("counter", "e", "GPU 0", least=5.0, greatest=5.0)) == ["empty", None, None, None, None]
