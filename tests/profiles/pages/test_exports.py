"""Exports: a trace that is read again is the same trace; tables are the same rows in every form; nothing runs in a sheet."""

from __future__ import annotations

import csv
import gzip
import io
import json
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from django.urls import reverse

from profiles import ingest
from profiles.analysis.compare.comparison import launches_of_trace
from profiles.exports.files import encode, table_of, table_of_cells
from profiles.ingest.trace import Trace
from profiles.models import KernelStat, LaunchCounters, Profile
from profiles.store import area as area_store
from profiles.store import objects as store_launches
from tests.builders import flows, trace
from tests.profiles.ingest.corpus import H200, mostly_deep
from tests.profiles.timeline.test_timeline_api import STEP, profile_of

pytestmark = pytest.mark.django_db
KEPT = ("start_ns", "dur_ns", "name", "category", "instant", "correlation", "external_id", "device", "stream",
        "grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z", "registers_per_thread", "smem_bytes", "occupancy_pct",
        "bytes")


def body(answer) -> bytes:
    assert answer.status_code == 200, answer
    return answer.getvalue() if answer.streaming else answer.content


def rows_of(found: Trace) -> Counter:
    """What a slice is, with what it says, and the track it is on; row numbers and track numbers apart."""
    out: Counter = Counter()
    for row in found.slices.to_pylist():
        track = found.tracks[row["track"]]
        detail = json.dumps(json.loads(row["detail"]) if row["detail"] else {}, sort_keys=True)
        out[(*(row[name] for name in KEPT), track.kind, track.name, track.group, row["depth"], detail)] += 1
    return out


def flows_of(found: Trace) -> Counter:
    return Counter((row["flow"], row["kind"], found.tracks[row["track"]].name, row["time_ns"], row["is_end"])
                   for row in found.flows.to_pylist())


def again(path: Path, content: bytes) -> Trace:
    path.write_bytes(content)
    found = ingest.read(path)
    assert isinstance(found, Trace)
    return found


@pytest.mark.parametrize(("file", "rows"), [
    ("kineto_train.json.gz", 500), ("kineto_layer_stack.json.gz", 400_000),
    pytest.param("kineto_layer_stack.json.gz", 500, marks=pytest.mark.deep_only),
    pytest.param("kineto_train.json.gz", 400_000, marks=pytest.mark.deep_only)])
def test_the_whole_trace_is_read_again_as_it_was(client, tmp_path, monkeypatch, file, rows):
    monkeypatch.setattr(area_store.windows, "__defaults__", ((), rows))
    first = ingest.read(H200 / file)
    assert isinstance(first, Trace)
    profile = profile_of(first, name="train step/4")
    answer = client.get(reverse("api-export-trace", args=[profile.pk]))
    assert answer["Content-Disposition"] == 'attachment; filename="train-step-4.json.gz"'
    second = again(tmp_path / "export.json.gz", body(answer))
    assert rows_of(second) == rows_of(first)
    assert flows_of(second) == flows_of(first)
    assert (second.base_ns, [t.name for t in second.tracks]) == (first.base_ns, [t.name for t in first.tracks])
    assert second.samples.to_pylist() == first.samples.to_pylist()
    assert not second.integrity.not_kept and not second.integrity.truncated_at


def test_counters_instants_flows_and_odd_names(client, tmp_path):
    text = STEP + "python (1) / main 2: \"q\"\\n=1,<b> ü 3-9 | a_b 4.001-4.002 ext=9\nGPU 0 / power W: counter 0.5=1.25 7=-3\n"
    first = trace(text, flows=flows((1, "fwdbwd", 0, 5, False), (1, "fwdbwd", 0, 40, True), (9, "mine", 0, 6, False)))
    profile = profile_of(first)
    content = body(client.get(reverse("api-export-trace", args=[profile.pk]), {"plain": "1"}))
    records = json.loads(content)["traceEvents"]
    assert {record["ph"] for record in records} == {"M", "X", "i", "s", "f", "C"}
    second = again(tmp_path / "export.json", content)
    same = [name for name in KEPT if name not in ("device", "stream")]
    key = lambda found: Counter(tuple(row[name] for name in same) for row in found.slices.to_pylist())  # noqa: E731
    assert key(second) == key(first)
    assert sorted(row["value"] for row in second.samples.to_pylist()) == [-3, 1.25, 5, 8]
    assert Counter((r["flow"], r["kind"], r["time_ns"], r["is_end"]) for r in second.flows.to_pylist()) == Counter(
        (r["flow"], r["kind"], r["time_ns"], r["is_end"]) for r in first.flows.to_pylist())


def test_a_window_of_some_tracks(client, tmp_path):
    first = ingest.read(H200 / "kineto_train.json.gz")
    assert isinstance(first, Trace)
    profile = profile_of(first)
    stream = next(i for i, track in enumerate(first.tracks) if track.kind == "stream")
    start, end = 3_000_000, 9_000_000
    answer = client.get(reverse("api-export-trace", args=[profile.pk]), {"start": start, "end": end, "tracks": stream})
    second = again(tmp_path / "part.json.gz", body(answer))
    inside = [row for row in first.slices.to_pylist()
              if row["track"] == stream and row["start_ns"] < end and row["start_ns"] + max(row["dur_ns"], 1) > start]
    assert second.slices.num_rows == len(inside) > 10
    assert sorted(second.slices["dur_ns"].to_pylist()) == sorted(row["dur_ns"] for row in inside)
    assert second.base_ns is not None and first.base_ns is not None
    assert second.base_ns - first.base_ns == min(row["start_ns"] for row in inside)         # the same moments
    assert f"-{start}-{end}" in answer["Content-Disposition"]


@pytest.mark.parametrize("kind", mostly_deep(["csv", "json", "parquet", "arrow"], "csv", "parquet"))     # below the others
def test_slices_as_a_table(client, monkeypatch, kind):
    monkeypatch.setattr(area_store.windows, "__defaults__", ((), 700))
    first = ingest.read(H200 / "kineto_train.json.gz")
    assert isinstance(first, Trace)
    profile = profile_of(first)
    content = body(client.get(reverse("api-export-slices", args=[profile.pk]), {"format": kind}))
    table = {"parquet": lambda: pq.read_table(pa.BufferReader(content)), "arrow": lambda: pa.ipc.open_file(content).read_all(),
             "json": lambda: pa.Table.from_pylist(json.loads(content)),
             "csv": lambda: pa.Table.from_pylist(list(csv.DictReader(io.StringIO(content.decode()))))}[kind]()
    assert table.num_rows == first.slices.num_rows
    assert sum(int(value) for value in table["dur_ns"].to_pylist()) == sum(first.slices["dur_ns"].to_pylist())
    assert [int(value) for value in table["start_ns"].to_pylist()] == sorted(first.slices["start_ns"].to_pylist())
    grids = [row for row in table["grid_x"].to_pylist() if row not in (None, "")]
    assert len(grids) == first.slices.num_rows - first.slices["grid_x"].null_count


HOSTILE = ["=cmd|' /C calc'!A0", "+1", "-2+3", "@SUM(A1)", "\tx", "\rx", 'a"b,c\n', "plain"]


def test_csv_never_holds_a_formula():
    table = table_of_cells([("=name", "text"), ("n", "number"), ("n", "number")], [[name, -1, 2.5] for name in HOSTILE])
    lines = list(csv.reader(io.StringIO(b"".join(encode(table.schema, iter([table]), "csv")).decode(), newline="")))
    assert lines[0] == ["'=name", "n", "n (2)"]
    assert [line[0] for line in lines[1:]] == [f"'{name}" if name[0] in "=+-@\t\r" else name for name in HOSTILE]
    assert {line[1] for line in lines[1:]} == {"-1"}        # a number is a number


def test_mixed_cells_become_text():
    table = table_of(["a", "b", "c"], [{"a": 1, "b": [1, {"x": 2}], "c": 2**70}, {"a": "x", "b": None, "c": 1.5}])
    assert table["a"].to_pylist() == ["1", "x"] and table["b"].to_pylist() == ['[1, {"x": 2}]', None]
    assert table["c"].to_pylist() == [float(2**70), 1.5]


@pytest.mark.parametrize("kind", ["csv", "json", "parquet", "arrow"])
def test_a_page_s_table_comes_back_as_a_file(client, kind):
    given = {"name": "kernels of ../x", "columns": [{"name": "Name", "type": "text"}, {"name": "Time", "type": "number"}],
             "rows": [["gemm", 12.5], [None, None]]}
    answer = client.post(f"{reverse('api-table')}?format={kind}", json.dumps(given), content_type="application/json")
    assert answer.status_code == 200 and answer["Content-Disposition"] == f'attachment; filename="kernels-of-..-x.{kind}"'
    if kind == "parquet":
        rows = pq.read_table(pa.BufferReader(answer.content)).to_pylist()
        assert rows == [{"Name": "gemm", "Time": 12.5}, {"Name": None, "Time": None}]


@pytest.mark.parametrize(("query", "given"), [
    ("exe", {"columns": [{"name": "a"}], "rows": []}), ("csv", {"columns": [], "rows": []}), ("csv", {"columns": "x", "rows": "y"}),
    ("csv", {"columns": [{"name": "a"}], "rows": [1]}), ("csv", [1, 2])])
def test_what_is_no_table_is_refused(client, query, given):
    answer = client.post(f"{reverse('api-table')}?format={query}", json.dumps(given), content_type="application/json")
    assert answer.status_code == 400 and answer.json()["error"]


def test_readers_may_convert_and_strangers_may_not(client, settings, django_user_model):
    settings.LOCAL_MODE = False
    asked = {"columns": [{"name": "a"}], "rows": [["x"]]}
    assert client.post(reverse("api-table"), json.dumps(asked), content_type="application/json").status_code in (401, 403)
    from webapp.roles import VIEWER, role_set
    viewer = django_user_model.objects.create_user("v", password="x")
    role_set(viewer, VIEWER)
    client.force_login(viewer)
    assert client.post(reverse("api-table"), json.dumps(asked), content_type="application/json").status_code == 200


def test_an_exported_profile_says_where_it_comes_from(client):
    profile = profile_of(trace(STEP))
    Profile.objects.filter(pk=profile.pk).update(metadata={"PT_VERSION": "2.9", "secret": "x"})
    content = gzip.decompress(body(client.get(reverse("api-export-trace", args=[profile.pk]))))
    head = json.loads(content)
    assert head["exportedBy"] == {"program": "Ridgepoint", "profile": profile.pk, "window": None, "tracks": None}
    assert head["PT_VERSION"] == "2.9" and "secret" not in head


@pytest.mark.parametrize("kind", mostly_deep(["csv", "json", "parquet", "arrow"], "json", "arrow"))
def test_lists_of_the_api_come_as_files(client, kind):
    first = ingest.read(H200 / "kineto_train.json.gz")
    assert isinstance(first, Trace)
    profile = profile_of(first)
    store_launches.launches_write(profile.pk, launches_of_trace(first))
    KernelStat.objects.create(profile=profile, name="=k", short_name="k", category="compute", launches=1, total_ns=7, mean_ns=7,
                              p50_ns=7, p95_ns=7, min_ns=7, max_ns=7, share_pct=100)

    def read(name: str, *arguments, **query) -> list[dict]:
        content = body(client.get(reverse(f"api-{name}", args=arguments), {**query, "format": kind}))
        if kind in ("csv", "json"):
            return json.loads(content) if kind == "json" else list(csv.DictReader(io.StringIO(content.decode())))
        return (pq.read_table(pa.BufferReader(content)) if kind == "parquet" else pa.ipc.open_file(content).read_all()).to_pylist()

    assert [row["name"] for row in read("kernels", profile.pk)] == ["'=k" if kind == "csv" else "=k"]
    assert str(profile.pk) in [str(row["id"]) for row in read("profiles")]
    launches = read("launches", profile.pk)
    kernels = [row for row in first.slices.to_pylist() if row["category"] in (0, 1) and not row["instant"]]
    assert len(launches) == len(kernels)
    assert sum(float(row["dur_ns"]) for row in launches) == sum(row["dur_ns"] for row in kernels)
    hits = read("export-hits", profile.pk, q="nvjet")
    assert sorted(int(row["start_ns"]) for row in hits) == sorted(
        row["start_ns"] for row in first.slices.to_pylist() if "nvjet" in row["name"])


def test_a_format_of_profiles_is_still_a_filter(client):
    profile = profile_of(trace(STEP), format="kineto")
    listed = client.get(reverse("api-profiles"), {"format": "kineto"}).json()["results"]
    assert [row["id"] for row in listed] == [profile.pk]
    assert client.get(reverse("api-profiles"), {"format": "nsys"}).json()["results"] == []


def test_counters_are_flat_in_files(client):
    profile = Profile.objects.create(name="c", status="ready", kind="counters", file_name="f", upload_key="k")
    kernel = KernelStat.objects.create(profile=profile, name="k", short_name="k", category="compute", launches=1, total_ns=7,
                                       mean_ns=7, p50_ns=7, p95_ns=7, min_ns=7, max_ns=7, share_pct=100)
    facts = {"sol": {"sm_pct": 61.5}, "x": [1]}
    LaunchCounters.objects.create(profile=profile, kernel=kernel, index=0, duration_ns=7.5, facts=facts)
    rows = json.loads(body(client.get(reverse("api-counters", args=[profile.pk]), {"format": "json"})))
    assert (rows[0]["facts.sol.sm_pct"], rows[0]["duration_ns"], rows[0]["facts.x"]) == (61.5, 7.5, "[1]")


@pytest.mark.parametrize("kind", ["csv", "json", "parquet", "arrow"])
@pytest.mark.parametrize(("columns", "cells"), [
    ([{"name": "a"}], [10**400]), ([{"name": "a", "type": "text"}], [10**400]), ([{"name": "a"}], [1.5, 10**30]),
    ([{"name": "a"}], [{"b": [2**70]}]), ([{"name": {"no": "name"}}], [1])], ids=str)
def test_no_cell_breaks_a_file(client, kind, columns, cells):
    given = {"columns": columns, "rows": [[cell] for cell in cells]}
    assert body(client.post(f"/api/tables/?format={kind}", given, "application/json"))


def test_surrogates_in_a_sent_table_are_answered(client):
    for given in (b'{"columns":[{"name":"a"}],"rows":[["\\ud800"]]}', b'{"columns":[{"name":"\\ud800"}],"rows":[["x"]]}'):
        answer = client.post("/api/tables/?format=parquet", given, "application/json")
        assert answer.status_code in (200, 400), answer
    assert table_of_cells([("\ud800", "text")], [["\ud800"]]).to_pylist() == [{"?": "?"}]


def test_long_tables_are_taken_and_longer_ones_refused(client):
    given = {"columns": [{"name": "a"}], "rows": [["x" * 1000]] * 4000}         # 4 MB: more than Django's own bound for forms
    assert len(pq.read_table(io.BytesIO(body(client.post("/api/tables/?format=parquet", given, "application/json"))))) == 4000
    answer = client.post("/api/tables/", {**given, "rows": given["rows"] * 5}, "application/json")
    assert answer.status_code == 400
    assert "MB" in answer.json()["error"]


def test_what_cannot_be_asked_is_told_before_a_file_begins(client):
    profile = profile_of(trace(STEP))
    for query in ("trace/?start=1" + "0" * 30, "slices/?end=1" + "0" * 30, "hits/?q=(&mode=regex", "hits/?q="):
        answer = client.get(f"/api/profiles/{profile.pk}/export/{query}")
        assert answer.status_code == 400, query
        assert set(answer.json()) >= {"error", "where", "hint"}


@pytest.mark.parametrize("kind", ["csv", "json"])
def test_times_and_bytes_that_python_has_no_words_for_are_written(kind):
    table = pa.table({"ns": pa.array([1], pa.timestamp("ns")), "far": pa.array([2**62], pa.timestamp("us")),
                      "early": pa.array([-(2**31) + 1], pa.date32()), "raw": pa.array([b"\xff\x00"]),
                      "nested": pa.array([[b"\xff"]])})
    told = b"".join(encode(table.schema, iter([table]), kind)).decode()
    assert "ff00" in told
    assert "1970-01-01 00:00:00.000000001" in told
