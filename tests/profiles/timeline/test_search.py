"""A scan that goes on over several requests, and pages that it no longer holds the hits of."""

import numpy as np
import pytest

from profiles import ingest
from profiles.store import search as search_store
from profiles.store import timeline as timeline_store
from profiles.store import trace as store
from profiles.store.search import scan
from tests.profiles.ingest.corpus import H200


@pytest.fixture(scope="module")
def found():
    store.prepare(ingest.read(H200 / "kineto_train.json.gz")).write(301)
    return timeline_store.timeline(301)


@pytest.fixture(params=["kept", "by the histogram"])
def wanted(found, request, monkeypatch):
    monkeypatch.setattr(search_store, "CHUNK_ROWS", 1000)
    monkeypatch.setattr(search_store, "KEPT_HITS", 10**6 if request.param == "kept" else 50)
    search_store._scans.clear()
    return scan(found, "aten::", "name", np.ones(len(found.tracks), np.bool_), None)


def test_a_scan_goes_on_where_it_stopped(wanted):
    assert not wanted.complete
    counted = []
    while not wanted.complete:
        wanted.work(0.0001)
        counted.append(wanted.total)
    assert len(counted) > 1 and counted == sorted(counted)


def test_pages_are_the_hits_in_order(found, wanted):
    while not wanted.complete:
        wanted.work()
    rows = found.slices.read(0, found.slices.rows, ("name_id", "start_ns"))
    hits = np.flatnonzero(np.array(["aten::" in found.names[i] for i in rows["name_id"]]))
    every = hits[np.lexsort((hits, rows["start_ns"][hits]))].tolist()
    assert wanted.total == len(every) > 1000
    pages = [row for offset in range(0, len(every), 300) for row in wanted.page(offset, 300).tolist()]
    assert pages == every
    assert wanted.page(len(every), 10).size == 0 and wanted.page(len(every) - 1, 10).tolist() == every[-1:]
    for ns in (0, 10_000_000, int(rows["start_ns"][every[77]]), 10**9):
        assert wanted.before(ns) == np.count_nonzero(rows["start_ns"][hits] < ns)
    assert sum(wanted.strip(512)) == len(every)


def test_a_window_and_tracks_narrow_it(found):
    tracks = np.zeros(len(found.tracks), np.bool_)
    tracks[0] = True
    some = scan(found, "aten::", "name", tracks, (5_000_000, 9_000_000))
    some.work()
    rows = found.slices.read(0, found.slices.rows, ("name_id", "start_ns", "dur_ns", "track"))
    here = ((rows["track"] == 0) & (rows["start_ns"] < 9_000_000)
            & (rows["start_ns"] + np.maximum(rows["dur_ns"], 1) > 5_000_000))
    assert some.total == sum("aten::" in found.names[i] for i in rows["name_id"][here])
    assert scan(found, "aten::", "name", tracks, (5_000_000, 9_000_000)) is some


def test_patterns_are_bounded(found):
    everything = np.ones(len(found.tracks), np.bool_)
    for text in ("(", "a" * 501, "a{1000}{1000}", "\\1"):
        with pytest.raises(ValueError):
            scan(found, text, "regex", everything, None)
