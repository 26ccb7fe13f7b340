"""Areas of the timeline in numbers, each recomputed from the trace itself by other means."""

from __future__ import annotations

import asyncio
import json
import threading
import time

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from django.urls import reverse

from profiles import ingest
from profiles.analysis.core import groups
from profiles.analysis.core.groups import Sums, TooManyGroups
from profiles.ingest.trace import GPU_WORK, Category, Trace
from profiles.library import streaming_api
from profiles.store import area as area_store
from profiles.store import timeline as timeline_store
from tests.builders import trace
from tests.profiles.ingest.corpus import H200
from tests.profiles.timeline.test_timeline_api import STEP, profile_of

pytestmark = pytest.mark.django_db


@pytest.fixture(scope="module")
def recorded() -> Trace:
    found = ingest.read(H200 / "kineto_train.json.gz")
    assert isinstance(found, Trace)
    return found


@pytest.fixture
def get(client):
    def call(name: str, *arguments, **query):
        return client.get(reverse(f"api-{name}", args=arguments), query)
    return call


def expected(found: Trace, start: int, end: int, tracks: set[int], key) -> dict:
    """By Python loops: key -> (count, clipped, whole durations)."""
    out: dict = {}
    for row in found.slices.to_pylist():
        begin, dur = row["start_ns"], row["dur_ns"]
        if row["track"] not in tracks or begin >= end or begin + max(dur, 1) <= start:
            continue
        entry = out.setdefault(key(row), [0, 0, []])
        entry[0] += 1
        entry[1] += max(min(begin + dur, end) - max(begin, start), 0)
        entry[2].append(dur)
    return out


WINDOWS = [(0, 10**12, None), (3_000_000, 9_000_000, None), (5_000_000, 30_000_000, "GPU")]


@pytest.mark.parametrize(("start", "end", "group"), [pytest.param(*each, marks=[pytest.mark.deep_only] * (each[2] is None))
                                                     for each in WINDOWS])
@pytest.mark.parametrize(("by", "key"), [
    ("name,category", lambda row: (row["name"], Category(row["category"]).name.lower())),
    ("grid", lambda row: (" × ".join(str(row[f"grid_{a}"]) for a in "xyz") if row["grid_x"] is not None else None,)),
    ("category,stream", lambda row: (Category(row["category"]).name.lower(), row["stream"])),
    ("track,depth", lambda row: (row["track"], row["depth"])),
    ("arg:Input Dims", lambda row: (json.dumps(json.loads(row["detail"] or "{}").get("Input Dims"), separators=(",", ":")),)),
])
def test_groups_are_what_a_loop_counts(get, recorded, monkeypatch, start, end, group, by, key):
    monkeypatch.setattr(area_store, "WINDOW_ROWS", 900)
    monkeypatch.setattr(area_store.windows, "__defaults__", ((), 900))          # many windows, as in a large trace
    profile = profile_of(recorded)
    tracks = {i for i, t in enumerate(recorded.tracks) if t.kind != "counter" and (not group or t.group.startswith(group))}
    found = get("selection", profile.pk, start=start, end=end, by=[by] if by.startswith("arg:") else by,
                tracks=",".join(map(str, sorted(tracks)))).json()
    wanted = expected(recorded, start, end, tracks, key)
    names = {f"{t.group} / {t.name}": i for i, t in enumerate(recorded.tracks)}
    rows = {}
    for row in found["rows"]:
        shown = tuple(names.get(row[c], row[c]) if c == "track" else row[c] for c in found["by"])
        rows[shown if by != "arg:Input Dims" else ("null" if shown[0] is None else shown[0],)] = row
    assert set(rows) == set(wanted) and found["groups"] == len(wanted) and found["quantiles"] == "exact"
    everything = sum(clipped for _, clipped, _ in wanted.values())
    for shown, (count, clipped, whole) in wanted.items():
        row = rows[shown]
        assert (row["count"], row["total_ns"], row["whole_ns"]) == (count, clipped, sum(whole)), shown
        assert (row["min_ns"], row["max_ns"]) == (min(whole), max(whole))
        assert row["mean_ns"] == pytest.approx(np.mean(whole))
        assert row["p50_ns"] == pytest.approx(np.quantile(whole, 0.5)) and row["p95_ns"] == pytest.approx(np.quantile(whole, 0.95))
        assert row["share_pct"] == pytest.approx(100 * clipped / everything)
    assert found["slices"] == sum(count for count, _, _ in wanted.values()) == sum(b["count"] for b in found["histogram"])


def test_the_operator_that_launched_it(get, recorded):
    profile = profile_of(recorded)
    rows = recorded.slices.to_pylist()
    of = {row["external_id"]: row["name"] for row in rows if row["category"] == Category.CPU_OP and row["external_id"] is not None}
    wanted: dict = {}
    for row in rows:
        if row["category"] == Category.COMPUTE:
            wanted[of.get(row["external_id"])] = wanted.get(of.get(row["external_id"]), 0) + row["dur_ns"]
    found = get("selection", profile.pk, start=0, end=10**12, by="operator", where="category:0").json()
    assert {row["operator"]: row["total_ns"] for row in found["rows"]} == wanted and len(wanted) > 5


def test_busy_time_over_many_windows(get, recorded, monkeypatch):
    monkeypatch.setattr(area_store.windows, "__defaults__", ((), 500))
    profile = profile_of(recorded)
    points = [(row["start_ns"], row["start_ns"] + row["dur_ns"]) for row in recorded.slices.to_pylist()
              if row["category"] in GPU_WORK]
    busy, reach = 0, 0
    for begin, end in sorted(points):
        busy += max(end - max(begin, reach), 0)
        reach = max(reach, end)
    assert get("selection", profile.pk, start=0, end=10**12).json()["busy_ns"] == busy


def test_rows_lead_to_their_slices(get, recorded, monkeypatch):
    monkeypatch.setattr(area_store.windows, "__defaults__", ((), 700))
    profile = profile_of(recorded)
    rows = get("selection", profile.pk, start=0, end=10**12, by="name,grid").json()["rows"]
    row = max(rows, key=lambda row: row["count"])
    asked = {"start": 0, "end": 10**12, "where": row["key"]}
    first = get("selection-slices", profile.pk, **asked, limit=7).json()
    assert first["total"] == row["count"] and {each["name"] for each in first["slices"]} == {row["name"]}
    starts = [each["start_ns"] for each in first["slices"]]
    assert starts == sorted(starts) == sorted(
        each["start_ns"] for each in recorded.slices.to_pylist()
        if (each["name"] == row["name"] and " × ".join(str(each[f"grid_{a}"]) for a in "xyz") == row["grid"]) or (
            each["name"] == row["name"] and row["grid"] is None and each["grid_x"] is None))[:7]
    assert get("selection-slices", profile.pk, **asked, limit=5, offset=2).json()["slices"] == first["slices"][2:]


def test_a_histogram_is_brushed(get, recorded):
    profile = profile_of(recorded)
    dur = np.array(recorded.slices["dur_ns"])
    found = get("selection-histogram", profile.pk, start=0, end=10**12).json()
    assert found["count"] == dur.size and found["whole_ns"] == dur.sum()
    assert found["p95_ns"] == pytest.approx(np.quantile(dur, 0.95))
    for each in found["histogram"]:
        inside = dur[(dur >= each["from_ns"]) & (dur < each["to_ns"])]
        assert (each["count"], each["total_ns"]) == (inside.size, inside.sum())
    least, most = found["histogram"][8]["from_ns"], found["histogram"][12]["to_ns"]
    brushed = get("selection", profile.pk, start=0, end=10**12, least_ns=least, most_ns=most).json()
    assert brushed["slices"] == np.count_nonzero((dur >= least) & (dur < most))


def test_progress_and_the_result_come_as_lines(client, recorded, monkeypatch):
    monkeypatch.setattr(area_store.windows, "__defaults__", ((), 200))
    monkeypatch.setattr("profiles.library.streaming_api._TELL_S", 0.0)
    profile = profile_of(recorded)
    answer = client.get(reverse("api-selection", args=[profile.pk]), {"start": 0, "end": 10**12, "stream": "1"})
    lines = [json.loads(line) for line in answer.getvalue().splitlines()]
    assert answer["Content-Type"] == "application/x-ndjson" and len(lines) > 5
    progress = [line["progress"] for line in lines[:-1]]
    assert progress == sorted(progress) and 0 < progress[0] <= progress[-1] <= 1
    assert lines[-1]["result"] == client.get(reverse("api-selection", args=[profile.pk]), {"start": 0, "end": 10**12}).json()


def test_what_takes_too_long_is_given_up(get, client, recorded, monkeypatch):
    monkeypatch.setattr("profiles.library.streaming_api.finish.__defaults__", (-1.0,))
    monkeypatch.setattr("profiles.library.streaming_api.answer.__defaults__", (-1.0,))
    profile = profile_of(recorded)
    answer = get("selection", profile.pk, start=0, end=10**12)
    assert answer.status_code == 503 and "longer" in answer.json()["error"] and answer.json()["hint"]
    asked = {"start": 0, "end": 10**12, "stream": "1"}
    lines = client.get(reverse("api-selection", args=[profile.pk]), asked).getvalue().splitlines()
    assert "longer" in json.loads(lines[-1])["error"]


def test_long_answers_wait_for_a_place(get, client, recorded, monkeypatch):
    profile = profile_of(recorded)
    places = threading.BoundedSemaphore(1)
    monkeypatch.setattr("profiles.library.streaming_api._places", places)
    assert get("selection", profile.pk, start=0, end=10**12).status_code == 200
    lines = client.get(reverse("api-selection", args=[profile.pk]), {"start": 0, "end": 10**12, "stream": "1"})
    assert "result" in json.loads(lines.getvalue().splitlines()[-1])
    monkeypatch.setattr("profiles.library.streaming_api.finish.__defaults__", (0.1,))
    monkeypatch.setattr("profiles.library.streaming_api.answer.__defaults__", (0.1,))
    with places:
        assert get("selection", profile.pk, start=0, end=10**12).status_code == 503
        lines = client.get(reverse("api-selection", args=[profile.pk]), {"start": 0, "end": 10**12, "stream": "1"})
        assert "longer" in json.loads(lines.getvalue().splitlines()[-1])["error"]
    assert places.acquire(timeout=0), "every place was given back"


@pytest.mark.parametrize("query", [
    {"by": "nothing"}, {"where": "name"}, {"where": "grid:1"}, {"where": "name:x"}, {"where": "nothing:1"}, {"least_ns": "-1"},
    {"where": "name:99999999999999999999999"}, {"format": "exe"},
])
def test_wrong_questions(get, query):
    profile = profile_of(trace(STEP))
    answer = get("selection", profile.pk, start=0, end=100, **query)
    assert answer.status_code == 400 and answer.json()["error"]


def test_nothing_there(get):
    profile = profile_of(trace(STEP))
    found = get("selection", profile.pk, start=90_000, end=90_000, tracks="1").json()
    assert (found["rows"], found["slices"], found["histogram"], found["busy_ns"]) == ([], 0, [], 0)
    assert get("selection-histogram", profile.pk, start=90_000, end=90_000, tracks="1").json()["count"] == 0
    assert get("selection-slices", profile.pk, start=90_000, end=90_000, tracks="1").json()["total"] == 0
    assert "arg:context" in [each["key"] for each in get("selection-columns", profile.pk).json()["columns"]]


@pytest.mark.parametrize("kind", ["csv", "json", "parquet", "arrow"])
def test_the_table_as_a_file(get, recorded, kind):
    profile = profile_of(recorded)
    answer = get("selection", profile.pk, start=0, end=10**12, by="name,grid", format=kind)
    assert f"selection.{kind}" in answer["Content-Disposition"]
    rows = get("selection", profile.pk, start=0, end=10**12, by="name,grid").json()["rows"]
    if kind == "csv":
        assert len(answer.content.decode().splitlines()) == len(rows) + 1
        return
    if kind == "json":
        table = pa.Table.from_pylist(json.loads(answer.content))
    else:
        read = pq.read_table if kind == "parquet" else lambda buffer: pa.ipc.open_file(buffer).read_all()
        table = read(pa.BufferReader(answer.content))
    assert table["total_ns"].to_pylist() == [row["total_ns"] for row in rows]
    assert table["grid"].to_pylist() == [row["grid"] for row in rows]


class TestSums:
    def test_quantiles_stay_close_where_durations_are_too_many(self, monkeypatch):
        monkeypatch.setattr(groups, "PAIRS", 20_000)
        random = np.random.default_rng(1)
        key, dur = random.integers(0, 5, 60_000), random.lognormal(9, 2, 60_000).astype(np.int64)
        sums = Sums(1)
        for at in range(0, dur.size, 5_000):
            sums.add([key[at:at + 5_000]], dur[at:at + 5_000], dur[at:at + 5_000] // 2)
        made = sums.groups()
        assert not made.exact
        for at, code in enumerate(made.keys[0].tolist()):
            mine = dur[key == code]
            assert (made.count[at], made.whole_ns[at], made.min_ns[at], made.max_ns[at]) == (
                mine.size, mine.sum(), mine.min(), mine.max())
            assert made.p50_ns[at] == pytest.approx(np.quantile(mine, 0.5), rel=0.011)
            assert made.p95_ns[at] == pytest.approx(np.quantile(mine, 0.95), rel=0.011)

    def test_keys_that_never_repeat_are_refused(self, monkeypatch):
        monkeypatch.setattr(groups, "PAIRS", 1_000)
        sums = Sums(1)
        with pytest.raises(TooManyGroups):
            for at in range(20):
                sums.add([np.arange(at * 500, at * 500 + 500)], np.ones(500, np.int64), np.ones(500, np.int64))


def test_windows_hold_every_slice_once(recorded):
    profile = profile_of(recorded)
    found = timeline_store.timeline(profile.pk)
    seen = [window.counted_rows["slice"] for window in area_store.windows(found, area_store.whole(found), rows=300)]
    assert len(seen) > 4
    assert sorted(np.concatenate(seen).tolist()) == list(range(recorded.slices.num_rows))


def test_work_ends_with_its_client():
    """What the server streams stops at the next step once nobody reads it any more."""
    steps: list[str] = []

    def work():
        try:
            for number in range(1_000):
                steps.append(str(number))
                yield b"x"
        finally:
            steps.append("closed")

    async def read_two() -> None:
        chunks = streaming_api._drain(work())
        assert [await anext(chunks), await anext(chunks)] == [b"x", b"x"]
        await chunks.aclose()

    asyncio.run(read_two())
    for _ in range(100):
        if steps[-1] == "closed":
            break
        time.sleep(0.02)
    assert steps == ["0", "1", "closed"]
