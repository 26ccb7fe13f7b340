"""CPU time of traces without GPU work, by hand and against a slow count."""

from collections import defaultdict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from profiles import ingest
from profiles.analysis.trace import breakdown
from profiles.ingest.core import build, spool
from tests.builders import trace
from tests.profiles.ingest.corpus import CORPUS


def table(found, title):
    chosen = next(each for each in found if each.title == title)
    return {row[0]: row[1:] for row in chosen.rows}


def test_self_time_is_without_what_lies_within():
    tables = breakdown.tables(
        trace("""
        app (1) / main:   outer 0-100 | inner 10-40 | deep 20-30 | inner 50-60 | tail 120-130
        app (1) / worker: inner 0-20 | overlap 10-30
    """)
    )
    names = table(tables, "CPU time by name")
    assert {name: [*row[:2], row[3]] for name, row in names.items()} == {
        "outer": [1, 60_000, 100_000],
        "inner": [3, 50_000, 60_000],
        "deep": [1, 10_000, 10_000],
        "tail": [1, 10_000, 10_000],
        "overlap": [1, 20_000, 20_000],
    }
    assert sum(row[2] for row in names.values()) == pytest.approx(100)
    threads = table(tables, "CPU time by thread")
    assert [threads[name][1:3] for name in ("main", "worker")] == [[5, 110_000], [2, 30_000]]
    assert threads["main"][3] == pytest.approx(100 * 110 / 130)


def test_a_file_of_the_corpus():
    tables = breakdown.tables(ingest.read(CORPUS / "chrome/speedscope_simple.json"))
    assert {name: row[1] for name, row in table(tables, "CPU time by name").items()} == {
        "alpha": 2000,
        "beta": 3000,
        "gamma": 5000,
        "epsilon": 4000,
    }


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 60), st.integers(1, 40), st.booleans()), min_size=1, max_size=40),
    st.booleans(),
)
def test_sums_are_those_of_a_slow_count(rows, small):
    lanes = defaultdict(list)
    for name, start, dur, first in rows:
        lanes["main" if first else "other"].append(f"{name} {start}-{start + dur}")
    found = trace("\n".join(f"app (1) / {lane}: " + " | ".join(each) for lane, each in lanes.items()))
    slices = found.slices.to_pylist()
    own = defaultdict(int)
    for row in slices:
        own[row["name"]] += row["dur_ns"]
        above = [
            each
            for each in slices
            if each["track"] == row["track"] and each["depth"] == row["depth"] - 1 and each["start_ns"] <= row["start_ns"]
        ]
        parent = max(above, key=lambda each: each["start_ns"], default=None)
        if parent and row["start_ns"] + row["dur_ns"] <= parent["start_ns"] + parent["dur_ns"]:
            own[parent["name"]] -= row["dur_ns"]
    assert {name: row[1] for name, row in table(breakdown.tables(found), "CPU time by name").items()} == own
    busy = table(breakdown.tables(found), "CPU time by thread")
    for number, track in enumerate(found.tracks):
        covered = {
            ns
            for row in slices
            if row["track"] == number
            for ns in range(row["start_ns"] // 1000, (row["start_ns"] + row["dur_ns"]) // 1000)
        }
        assert busy[track.name][2] == 1000 * len(covered)


def test_windows_do_not_change_the_sums(tmp_path, monkeypatch):
    path = CORPUS / "chrome/speedscope_bex-interaction.json"
    whole = [each.rows for each in breakdown.tables(ingest.read(path))]
    monkeypatch.setattr(build, "IN_MEMORY_ROWS", 0)
    monkeypatch.setattr(spool, "WINDOW_ROWS", 3)
    assert [each.rows for each in breakdown.tables(ingest.read(path))] == whole
