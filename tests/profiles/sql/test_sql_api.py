"""The console over HTTP: people, limits, charts, files, saved queries, tracks on the timeline, the command and the page."""

from __future__ import annotations

import gzip
import io
import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from django.core.management import CommandError, call_command
from django.urls import reverse

from profiles.models import Profile, SavedQuery
from profiles.sql.examples import EXAMPLES
from profiles.sql.tracks import FIRST_SLICE
from tests.builders import trace
from tests.profiles.timeline.test_timeline_api import STEP, profile_of

pytestmark = pytest.mark.django_db


@pytest.fixture
def profile(settings, tmp_path) -> Profile:
    settings.HOME = tmp_path
    return profile_of(trace(STEP), build="a")


@pytest.fixture
def people(settings, alice, bob, olga):
    settings.LOCAL_MODE = False
    return {"alice": alice, "bob": bob, "olga": olga}


def post(client, name: str, body: dict, *arguments):
    return client.post(reverse(f"api-{name}", args=arguments), json.dumps(body), content_type="application/json")


def ask(client, sql: str, profile: Profile, **body):
    return post(client, "sql", {"query": sql, "profiles": [profile.pk], **body})


def test_rows_come_back_with_their_columns(client, profile):
    found = ask(client, "SELECT name, dur_ns FROM kernels ORDER BY dur_ns", profile).json()
    assert [(each["name"], each["kind"]) for each in found["columns"]] == [("name", "text"), ("dur_ns", "number")]
    assert found["rows"] == [["gemm", 28_000], ["ncclAllReduce", 30_000]]
    assert (found["row_count"], found["truncated"], found["profiles"]) == (2, False, [{"id": profile.pk, "name": "p"}])


def test_an_error_says_where(client, profile):
    found = ask(client, "SELECT nosuch FROM slices", profile)
    assert found.status_code == 400
    assert found.json().keys() == {"error", "where", "hint", "position", "kind"} and found.json()["position"] == 7


@pytest.mark.parametrize("body", [
    {}, {"query": ""}, {"query": "SELECT 1", "profiles": []}, {"query": "SELECT 1", "profiles": [10**9]},
    {"query": "SELECT 1", "profiles": ["x"]}, {"query": "SELECT 1", "build": "nosuch"}, {"query": "SELECT 1", "rows": 0},
    {"query": "SELECT 1", "seconds": 10**9}, {"query": "SELECT 1", "rows": 10**9}, {"query": "SELECT 1", "run": "../x"},
    {"query": "SELECT 1", "format": "exe"}, {"query": "SELECT 1", "chart": {"kind": "pie", "x": "a"}}, [], None])
def test_wrong_requests(client, profile, body):
    assert post(client, "sql", body).status_code == 400


def test_too_many_at_once_is_429(client, profile, monkeypatch):
    from profiles.sql import process as sql_process

    monkeypatch.setattr(sql_process, "WAIT_FOR_PLACE_S", 0.0)
    monkeypatch.setattr(sql_process, "AT_ONCE", 0)
    found = ask(client, "SELECT 1", profile)
    assert found.status_code == 429 and found.json()["kind"] == "busy"


@pytest.mark.parametrize(("kind", "read"), [
    ("csv", lambda body: body.decode().splitlines()), ("parquet", lambda body: pq.read_table(io.BytesIO(body)).to_pydict()),
    ("arrow", lambda body: pa.ipc.open_file(body).read_all().to_pydict())])
def test_files(client, profile, kind, read):
    found = ask(client, "SELECT name, dur_ns FROM kernels ORDER BY dur_ns", profile, format=kind)
    assert found["Content-Disposition"].endswith(f'query.{kind}"')
    expected = {"name": ["gemm", "ncclAllReduce"], "dur_ns": [28_000, 30_000]}
    assert read(found.content) == (["name,dur_ns", '"gemm",28000', '"ncclAllReduce",30000'] if kind == "csv" else expected)


@pytest.mark.parametrize(("chart", "glyph"), [
    ({"kind": "bar", "x": "name", "y": "dur_ns"}, "HBar"), ({"kind": "line", "x": "start_ns", "y": "dur_ns"}, "Line"),
    ({"kind": "scatter", "x": "start_ns", "y": "dur_ns"}, "Scatter"), ({"kind": "histogram", "x": "dur_ns"}, "Quad")])
def test_charts(client, profile, chart, glyph):
    found = ask(client, "SELECT name, start_ns, dur_ns FROM slices", profile, chart=chart).json()
    assert f'"{glyph}"' in json.dumps(found["chart"]) and "µs)" in json.dumps(found["chart"], ensure_ascii=False)


@pytest.mark.parametrize(("chart", "told"), [
    ({"kind": "line", "x": "name", "y": "dur_ns"}, "holds no numbers"),
    ({"kind": "bar", "x": "name", "y": "nosuch"}, "no single column"),
    ({"kind": "bar", "x": "name"}, "needs a column"), ({"kind": "histogram", "x": "nothing"}, "no number")])
def test_charts_that_cannot_be(client, profile, chart, told):
    found = ask(client, "SELECT name, dur_ns, NULL::DOUBLE AS nothing FROM slices", profile, chart=chart)
    assert found.status_code == 400 and told in found.json()["error"]


def test_a_chart_of_nothing(client, profile):
    assert "no rows" in ask(client, "SELECT 1 AS a WHERE false", profile, chart={"kind": "histogram", "x": "a"}).json()["error"]


def test_viewers_may_ask_and_strangers_not(client, profile, people):
    assert ask(client, "SELECT 1", profile).status_code in (401, 403)
    client.force_login(people["bob"])
    assert ask(client, "SELECT 1 AS a", profile).json()["rows"] == [[1]]


def test_the_team_keeps_queries(client, profile, people):
    client.force_login(people["alice"])
    made = post(client, "queries", {"name": " Mine ", "sql": "SELECT 1", "chart": {"kind": "bar", "x": "a", "y": "b", "z": "c"}})
    assert made.status_code == 201
    kept = made.json()
    assert (kept["name"], kept["owner"], kept["mine"]) == ("Mine", "alice", True)
    assert kept["chart"] == {"kind": "bar", "x": "a", "y": "b"}
    address = reverse("api-query", args=[kept["id"]])
    changed = client.patch(address, json.dumps({"description": "why"}), content_type="application/json").json()
    assert (changed["description"], changed["sql"]) == ("why", "SELECT 1")

    client.force_login(people["bob"])           # a viewer reads
    listed = client.get(reverse("api-queries")).json()["queries"]
    assert [(each["name"], each["mine"]) for each in listed] == [("Mine", False)]
    assert post(client, "queries", {"name": "x", "sql": "SELECT 1"}).status_code == 403
    assert client.patch(address, json.dumps({"name": "x"}), content_type="application/json").status_code == 403
    assert client.delete(address).status_code == 403

    client.force_login(people["olga"])          # an owner of the product may change what others keep
    assert client.get(address).json()["mine"]
    assert client.patch(address, json.dumps({"name": "Ours"}), content_type="application/json").json()["name"] == "Ours"
    assert client.delete(address).status_code == 204 and not SavedQuery.objects.exists()


def test_another_engineer_saves_under_another_name(client, people, django_user_model):
    kept = SavedQuery.objects.create(name="n", sql="SELECT 1", owner=people["olga"])
    client.force_login(people["alice"])
    found = client.patch(reverse("api-query", args=[kept.pk]), json.dumps({"name": "x"}), content_type="application/json")
    assert found.status_code == 403 and SavedQuery.objects.get().name == "n"


@pytest.mark.parametrize("body", [{"name": "", "sql": "SELECT 1"}, {"name": "n", "sql": " "}, {"name": "n" * 121, "sql": "x"},
                                  {"name": "n", "sql": "x" * 20_001}, {"sql": "SELECT 1"}])
def test_queries_that_cannot_be_kept(client, people, body):
    client.force_login(people["alice"])
    assert post(client, "queries", body).status_code == 400


@pytest.mark.parametrize("example", EXAMPLES, ids=[each.key for each in EXAMPLES])
def test_examples_run(client, profile, example):
    found = ask(client, example.sql, profile)
    assert found.status_code == 200, found.json()
    names = {each["name"] for each in found.json()["columns"]}
    assert {example.chart[axis] for axis in ("x", "y") if axis in example.chart} <= names


def test_the_idle_gaps_are_right(client, profile):
    other = profile_of(trace("GPU 0 / stream 7: a 0-10 | b 30-40\nGPU 0 / stream 8: c 5-20 | d 32-35"))
    gaps = next(each for each in EXAMPLES if each.key == "idle-gaps")
    assert ask(client, gaps.sql, other).json()["rows"] == [[20_000, 10_000, "before b", 0]]


def test_launch_delays_are_right(client, profile):
    delays = next(each for each in EXAMPLES if each.key == "launch-delays")
    assert ask(client, delays.sql, profile).json()["rows"] == [[8000, 4000, "gemm", 7, "cudaLaunchKernel"]]


def test_kernels_per_step_are_counted_in_both_senses(client, profile):
    ahead = profile_of(trace("p (1) / main: ProfilerStep#0 0-100 | cudaLaunchKernel 10-12 corr=1 | cudaLaunchKernel 20-22 corr=2 | "
                             "ProfilerStep#1 100-200\nGPU 0 / stream 7: a 30-60 corr=1 | b 120-150 corr=2 | c 150-155"))
    steps = next(each for each in EXAMPLES if each.key == "kernels-per-step")
    assert ask(client, steps.sql, ahead).json()["rows"] == [[0, "ProfilerStep#0", 2, 1], [1, "ProfilerStep#1", 0, 2]]


# tracks on the timeline

def timeline(client, profile: Profile, queries: str, rest: str, **query):
    return client.get(f"/api/profiles/{profile.pk}/sql/{queries}/{rest}", query)


def unpacked(body: bytes) -> tuple[list[list[int]], dict[str, np.ndarray]]:
    data = gzip.decompress(body)
    count = int(np.frombuffer(data, "<u4", 2)[1])
    head = np.frombuffer(data, "<u4", 4 * count, 8).reshape(-1, 4)
    rows, at, out = int(head[:, 1].sum()), 8 + 16 * count, {}
    at += -at % 8
    for name, kind in (("start_ns", "<f8"), ("dur_ns", "<f8"), ("name_id", "<u4"), ("count", "<u4"), ("slice_id", "<u4"),
                       ("depth", "<u2"), ("category", "u1"), ("flags", "u1"), ("fill", "u1")):
        out[name] = np.frombuffer(data, kind, rows, at)
        at += out[name].nbytes
    return head.tolist(), out


@pytest.fixture
def waits(profile) -> SavedQuery:
    return SavedQuery.objects.create(name="Waits", sql="""
        SELECT start_ns, dur_ns, 'wait ' || name AS name, 'sync' AS category, stream FROM kernels
        UNION ALL SELECT 13000, 10, 'tiny', 'other', NULL UNION ALL SELECT 13020, 10, 'tiny', 'other', NULL""")


def test_a_result_is_a_track(client, profile, waits):
    plain = client.get(f"/api/profiles/{profile.pk}/timeline/").json()
    found = timeline(client, profile, str(waits.pk), "timeline/").json()
    assert found["tracks"][:-1] == plain["tracks"] and found["end_ns"] == plain["end_ns"]
    more = found["tracks"][-1]
    assert [more[key] for key in ("id", "name", "group", "slices", "depths")] == [3, "Waits", "SQL", 4, 2]
    names = timeline(client, profile, str(waits.pk), "names/").json()["names"]
    head, rows = unpacked(timeline(client, profile, str(waits.pk), "tiles/0/12/", tracks="1,3").content)
    assert [each[0] for each in head] == [1, 3] and head[1][1] == 3
    mine = {name: values[head[0][1]:] for name, values in rows.items()}
    assert [names[i] for i in mine["name_id"]] == ["wait gemm", "tiny", "tiny"]
    assert mine["start_ns"].tolist() == [12_000, 13_000, 13_020] and mine["slice_id"].min() >= FIRST_SLICE
    detail = timeline(client, profile, str(waits.pk), f"slices/{mine['slice_id'][0]}/").json()
    assert [detail[key] for key in ("name", "start_ns", "category", "detail")] == ["wait gemm", 12_000, "sync", {"stream": 7}]


def test_short_rows_are_merged_far_away(client, profile, waits):
    head, rows = unpacked(timeline(client, profile, str(waits.pk), "tiles/4/0/", tracks="3").content)
    assert head[0][1] == 3
    merged = rows["count"] == 2
    assert [rows[name][merged].tolist() for name in ("start_ns", "dur_ns", "flags")] == [[13_000], [30], [2]]


def test_a_counter_is_a_track(client, profile):
    found = timeline(client, profile, "kernels-in-flight", "timeline/").json()["tracks"][-1]
    assert (found["kind"], found["samples"]) == ("counter", 4)
    body = gzip.decompress(timeline(client, profile, "kernels-in-flight", "tiles/4/0/", tracks="3").content)
    assert np.frombuffer(body[-64:], "<f8").reshape(2, 4).tolist() == [[12_000, 30_000, 40_000, 60_000], [1, 2, 1, 0]]


def test_a_query_that_fails_is_a_track_that_says_why(client, profile):
    broken = SavedQuery.objects.create(name="Broken", sql="SELECT nosuch FROM slices")
    nothing = SavedQuery.objects.create(name="Nothing", sql="SELECT 1 AS a")
    found = timeline(client, profile, f"{broken.pk},{nothing.pk}", "timeline/").json()["tracks"][-2:]
    assert "nosuch" in found[0]["name"] and "a track needs the columns" in found[1]["name"]
    assert timeline(client, profile, f"{broken.pk},{nothing.pk}", "tiles/4/0/", tracks="3,4").status_code == 200


def test_everything_else_is_handed_on(client, profile, waits):
    for rest, query in (("slices/", {"q": "gemm"}), ("slices/0/", {}), ("", {}),
                        ("selection/", {"start": 0, "end": 100, "tracks": "0,3"})):
        plain = client.get(f"/api/profiles/{profile.pk}/{rest}", query | ({"tracks": "0"} if "tracks" in query else {}))
        assert timeline(client, profile, str(waits.pk), rest, **query).content == plain.content
    assert timeline(client, profile, str(waits.pk), "nosuch/").status_code == 404


def test_unknown_queries_and_profiles(client, profile):
    assert timeline(client, profile, "12345", "timeline/").status_code == 400
    assert timeline(client, profile, ",".join("1" * 9), "timeline/").status_code == 400
    assert client.get("/api/profiles/12345/sql/top-kernels/timeline/").status_code == 404
    assert timeline(client, profile, "idle-gaps", "tiles/99/0/").status_code == 404
    assert timeline(client, profile, "idle-gaps", f"slices/{FIRST_SLICE + 999}/").status_code == 404


def test_the_tile_is_asked_for_again_when_the_query_changed(client, profile, waits):
    first = timeline(client, profile, str(waits.pk), "tiles/4/0/", tracks="3")
    address, held = f"/api/profiles/{profile.pk}/sql/{waits.pk}/tiles/4/0/?tracks=3", {"If-None-Match": first["ETag"]}
    again = client.get(address, headers=held)
    assert again.status_code == 304 and "no-cache" in first["Cache-Control"]
    SavedQuery.objects.update(sql="SELECT 0 AS start_ns, 5 AS dur_ns")
    assert client.get(address, headers=held).status_code == 200


def test_lanes_become_tracks(client, profile):
    kept = SavedQuery.objects.create(name="By", sql="SELECT start_ns, dur_ns, name, category AS lane FROM slices WHERE NOT instant")
    names = [each["name"] for each in timeline(client, profile, str(kept.pk), "timeline/").json()["tracks"][3:]]
    assert names == ["By: annotation", "By: communication", "By: compute", "By: cpu_op", "By: runtime"]


# the page and the command

def test_the_page_lists_tables_and_examples(client, profile):
    found = client.get(reverse("sql"), {"profiles": str(profile.pk)}).content.decode()
    for text in ("kernel_stats", "occupancy_pct", "Launch delays", ">p</p>", "sql-data"):
        assert text in found
    assert client.get(reverse("sql"), {"profiles": "x,9999999999999999999999,-1", "query": "y"}).status_code == 200


def command(*arguments: str) -> str:
    out = io.TextIOWrapper(io.BytesIO())
    call_command("sql", *arguments, stdout=out)
    out.seek(0)
    return out.read()


def test_the_command_prints_a_table(profile):
    lines = command(str(profile.pk), "SELECT name, dur_ns FROM kernels ORDER BY dur_ns").splitlines()
    assert [line.split() for line in lines] == [["name", "dur_ns"], ["-" * 13, "-" * 6], ["gemm", "28000"],
                                                ["ncclAllReduce", "30000"]]


def test_the_command_prints_csv_and_json(profile):
    assert command(f"build:{profile.build}", "SELECT 1 AS a, 'x' AS b", "--format", "csv").splitlines() == ["a,b", '1,"x"']
    assert json.loads(command(str(profile.pk), "SELECT 1 AS a, NULL AS b", "--format", "json")) == {"a": 1, "b": None}


@pytest.mark.parametrize("arguments", [("x", "SELECT 1"), ("99999", "SELECT 1"), ("tag:none", "SELECT 1")])
def test_the_command_says_what_is_wrong(profile, arguments):
    with pytest.raises(CommandError, match="profile"):
        command(*arguments)


def test_the_commands_query_error_says_where(profile):
    with pytest.raises(CommandError, match="line 1, column 8"):
        command(str(profile.pk), "SELECT nosuch FROM slices")


ODD = ["INTERVAL 1 DAY", "TIMESTAMP 'infinity'", "DATE 'infinity'", "DATE '5000-01-01 (BC)'", "TIMESTAMPTZ '290000-01-01'",
       "TIMESTAMP_NS '2020-01-01 00:00:00.123456789'", "'101'::BIT", "'\\xff'::BLOB", "12::BIGNUM", "union_value(a := 1)",
       "'a'::ENUM('a')", "[DATE '5000-01-01 (BC)']", "{'a': [INTERVAL 1 DAY]}", "MAP {'a': 1}", "array_value(1, 2)",
       "['\\xff'::BLOB]"]


@pytest.mark.parametrize("form", ["json", "csv", "parquet", "arrow"])
def test_every_type_has_a_form(client, profile, form):
    sql = "SELECT " + ", ".join(f"{value} AS v{at}" for at, value in enumerate(ODD))
    found = ask(client, sql, profile, format=form)
    assert found.status_code == 200, found.content
    if form in ("json", "csv"):
        assert all(word in found.content.decode() for word in ("1 day", "00:00:00.123456789", "101"))


@pytest.mark.parametrize("values", ["1e308, -1e308", "5e-324, 1e-323", "2::BIGINT**62, 2::BIGINT**62 + 1"])
def test_numbers_that_no_histogram_holds_are_told(client, profile, values):
    found = ask(client, f"SELECT unnest([{values}]) AS x", profile, chart={"kind": "histogram", "x": "x"})
    assert found.status_code in (200, 400)
    assert found.status_code == 200 or found.json()["hint"]


def test_errors_of_nested_fields_are_sentences(client, profile):
    found = ask(client, "SELECT 1", profile, profiles=[0]).json()
    assert "ErrorDetail" not in found["error"] and "greater than or equal to 1" in found["error"]


def test_addresses_of_queries_hand_on_to_the_profile_only(client, profile):
    sql = "SELECT 0 AS start_ns, 10 AS dur_ns, TIMESTAMP 'infinity' AS at"
    query = post(client, "queries", {"name": "q", "sql": sql}).json()["id"]
    root = f"/api/profiles/{profile.pk}/sql/{query}/"
    for rest in (f"sql/{query}/timeline/", f"sql/{query}/" * 500 + "notes/", "nosuch/", "../../queries/", "/",
                 "slices/" + "9" * 5000 + "/"):
        found = client.get(root + rest)
        assert found.status_code == 404, rest
        assert "tried" not in found.content.decode()
    assert client.get(f"{root}selection/?start=0&end=9&tracks=0,{'9' * 5000}").status_code == 200
    assert client.get(f"{root}slices/{2**31}/").json()["detail"]["at"]
    broken = post(client, "queries", {"name": "b", "sql": "SELECT nosuch"}).json()["id"]
    tracks = client.get(f"/api/profiles/{profile.pk}/sql/{broken}/timeline/").json()["tracks"]
    assert "nosuch" in tracks[-1]["name"]
