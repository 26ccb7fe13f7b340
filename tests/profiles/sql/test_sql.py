"""Queries over a profile's tables: what they see, what they may take, how many at once."""

from __future__ import annotations

import threading
import time
from decimal import Decimal

import pyarrow as pa
import pytest

from profiles.exports import files
from profiles.ingest.trace import TraceError
from profiles.models import Profile
from profiles.sql import services as sql_services
from profiles.sql.process import AT_ONCE_EACH, Limits, QueryError
from profiles.sql.services import choose_profiles, limits_of, query_run, query_stop
from profiles.sql.tables import NAMES, TABLES
from tests.builders import trace
from tests.profiles.timeline.test_timeline_api import STEP, flows, profile_of

pytestmark = pytest.mark.django_db


@pytest.fixture
def home(settings, tmp_path):
    settings.HOME = tmp_path
    return tmp_path


@pytest.fixture
def profile(home) -> Profile:
    return profile_of(trace(STEP, flows=flows((1, "fwdbwd", 0, 5, False), (1, "fwdbwd", 0, 40, True))), build="a", tags=["night"],
                      integrity={"records_read": 9, "records_kept": 7, "not_kept": {"torn": 2}, "notes": ["one note"]},
                      metadata={"driver": "580", "versions": {"cuda": 13.0}})


def rows(sql: str, *profiles: Profile, **limits) -> list[list]:
    return files.rows(query_run(sql, list(profiles), "me", Limits(**limits) if limits else None).table)


def test_slices_are_those_of_the_timeline(profile):
    found = rows("SELECT name, category, start_ns, dur_ns, track, depth, instant FROM slices ORDER BY start_ns, depth", profile)
    assert len(found) == 7
    assert ["gemm", "compute", 12_000, 28_000, 1, 0, False] in found
    assert [row[0] for row in found if row[-1]] == ["sync"] and found[-1][2:4] == [70_000, 0]


def test_kernels_hold_their_arguments(profile):
    found = rows("SELECT name, grid_x, block_x, registers_per_thread, smem_bytes, occupancy_pct, args ->> '$.context' FROM kernels "
                 "ORDER BY start_ns", profile)
    assert found == [["gemm", 4, 128, 64, 1024, 50.0, "1"], ["ncclAllReduce", None, None, None, None, None, None]]


def test_a_slices_id_is_the_timelines(profile, client):
    for number, name in rows("SELECT id, name FROM slices", profile):
        assert client.get(f"/api/profiles/{profile.pk}/slices/{number}/").json()["name"] == name


@pytest.mark.parametrize(("sql", "expected"), [
    ("SELECT name, kind, unit FROM tracks ORDER BY id",
     [["main", "thread", None], ["stream 7", "stream", None], ["memory", "counter", "bytes"]]),
    ("SELECT track, time_ns, value FROM samples", [[2, 0, 5.0], [2, 10_000, 8.0]]),
    ("SELECT kind, is_end, time_ns FROM flows ORDER BY time_ns", [["fwdbwd", False, 5000], ["fwdbwd", True, 40_000]]),
    ("SELECT step, name, dur_ns FROM steps", [[0, "ProfilerStep#0", 100_000]]),
    ("SELECT section, reason, records FROM integrity ORDER BY ALL",
     [["kept", "records", 7], ["not_kept", "torn", 2], ["notes", "one note", None], ["read", "records", 9]]),
    ("SELECT key, value FROM metadata ORDER BY key", [["driver", "580"], ["versions.cuda", "13.0"]]),
    ("SELECT build, tags[1], kind FROM profiles", [["a", "night", "trace"]]),
    ("SELECT count(*) FROM counters", [[0]]),
    ("SELECT k.name FROM kernels k JOIN slices s USING (profile, correlation) WHERE s.category = 'runtime'", [["gemm"]]),
])
def test_every_other_table(profile, sql, expected):
    assert rows(sql, profile) == expected


DESCRIBED = [[table.name, each.name, each.type] for table in TABLES for each in table.columns]


def described(profile: Profile) -> list[list]:
    """Table, name and type of each column of all tables."""
    return rows(" UNION ALL ".join(f"SELECT '{name}', column_name, column_type FROM (DESCRIBE {name})" for name in NAMES), profile)


def test_tables_are_what_the_documentation_says(profile):
    assert described(profile) == DESCRIBED and all(each.about for table in TABLES for each in table.columns)


@pytest.mark.parametrize("table", TABLES, ids=NAMES)
def test_examples_of_the_documentation_run(profile, table):
    rows(table.example, profile)


def test_a_profile_without_stored_parts_has_empty_tables(home):
    bare = Profile.objects.create(name="p", status="ready", kind="counters", file_name="f", upload_key="k")
    assert described(bare) == DESCRIBED


def test_one_query_over_many_profiles(profile):
    other = profile_of(trace("GPU 0 / stream 7: gemm 0-8"), build="b")
    found = rows("SELECT build, sum(dur_ns) FROM kernels JOIN profiles p ON p.id = profile WHERE kernels.name = 'gemm' "
                 "GROUP BY build ORDER BY build", profile, other)
    assert found == [["a", 28_000], ["b", 8_000]]


def test_profiles_are_chosen_by_id_build_and_tag(profile):
    other = profile_of(trace("GPU 0 / stream 7: gemm 0-8"), build="b")
    assert choose_profiles([profile.pk]) == [profile]
    assert choose_profiles(build="b") == [other]
    assert choose_profiles(tag="night") == [profile]
    assert choose_profiles([profile.pk, other.pk], build="a") == [profile]
    for arguments, told in (({}, "no profile is chosen"),
                            ({"ids": [other.pk + 1]}, "no ready profile"), ({"build": "c"}, "no ready profile")):
        with pytest.raises(TraceError, match=told):
            choose_profiles(**arguments)


def test_more_profiles_than_a_query_takes(profile, monkeypatch):
    monkeypatch.setattr(sql_services, "MAX_PROFILES", 0)
    with pytest.raises(TraceError, match="more than 0 profiles"):
        choose_profiles(build="a")


def test_rows_are_limited_and_it_is_said(profile):
    found = query_run("SELECT * FROM range(1000000000000)", [profile], "me", Limits(rows=3000))
    assert found.table.num_rows == 3000 and found.truncated
    found = query_run("SELECT * FROM range(10)", [profile], "me", Limits(rows=10))
    assert found.table.num_rows == 10 and not found.truncated


def test_bytes_are_limited_and_it_is_said(profile):
    found = query_run("SELECT repeat('x', 100000) FROM range(1000000)", [profile], "me", Limits(bytes=1 << 20))
    assert found.truncated and found.table.nbytes <= 1 << 20


def test_nobody_gets_more_than_the_most():
    asked = limits_of(10**9, 10**9, whole=True)
    assert (asked.rows, asked.seconds) == (sql_services.MOST.rows, sql_services.MOST.seconds)
    assert limits_of() == Limits()


def test_a_result_is_kept_for_its_chart_and_its_file(profile):
    sql = "SELECT random() AS value"
    first = query_run(sql, [profile], "me")
    again = query_run(sql, [profile], "you")
    fresh = query_run(sql, [profile], "me", fresh=True)
    assert again.kept and not first.kept and not fresh.kept
    assert again.table.equals(first.table) and not fresh.table.equals(first.table)
    Profile.objects.filter(pk=profile.pk).update(build="c")
    assert not query_run(sql, [Profile.objects.get(pk=profile.pk)], "me").kept


def test_old_results_go(profile, home, monkeypatch):
    monkeypatch.setattr(sql_services, "_KEPT_BYTES", 1)
    for number in range(3):
        query_run(f"SELECT {number}", [profile], "me")
    assert len(list((home / "sql" / "results").iterdir())) <= 1


def test_nothing_is_left_of_a_query(profile, home):
    query_run("SELECT 1", [profile], "me")
    with pytest.raises(QueryError):
        query_run("SELECT nosuch", [profile], "me")
    assert list((home / "sql" / "runs").iterdir()) == []
    assert list((home / "sql").glob("stop/*")) == []


def test_a_run_can_be_stopped(profile):
    found: list[QueryError] = []

    def run() -> None:
        with pytest.raises(QueryError) as error:
            query_run("SELECT count(*) FROM range(10000000) a, range(10000000) b", chosen, "me", run="r-1")
        found.append(error.value)

    chosen = [profile]
    with monkeypatched_prepare(profile):
        thread = threading.Thread(target=run)
        thread.start()
        time.sleep(1.0)
        query_stop("you", "r-1")            # of somebody else: another run
        time.sleep(0.3)
        assert thread.is_alive()
        query_stop("me", "r-1")
        thread.join(60)
    assert not thread.is_alive()
    assert found[0].kind == "stopped"


class monkeypatched_prepare:
    """A second thread sees no row of this test's transaction: the tables are prepared before."""

    def __init__(self, profile: Profile) -> None:
        self.profile = profile

    def __enter__(self) -> None:
        from profiles.sql import views as sql_views

        self.views, self.before = sql_views, sql_views.prepare
        sql_views.prepare = lambda profiles, folder, analysed: sql_views.QueryFiles()

    def __exit__(self, *_: object) -> None:
        self.views.prepare = self.before


def test_one_person_runs_so_many_at_once(home, monkeypatch):
    from contextlib import ExitStack

    from profiles.sql import process as sql_process

    monkeypatch.setattr(sql_process, "WAIT_FOR_PLACE_S", 0.2)
    places = home / "places"
    with ExitStack() as held:
        for _ in range(AT_ONCE_EACH):
            held.enter_context(sql_process.place(places, "me"))
        with pytest.raises(QueryError, match="queries of yours are running") as error, sql_process.place(places, "me"):
            pass
        assert error.value.kind == "busy"
    with sql_process.place(places, "me"):       # the places are free again
        pass


def test_everybody_together_runs_so_many_at_once(home, monkeypatch):
    from contextlib import ExitStack

    from profiles.sql import process as sql_process

    monkeypatch.setattr(sql_process, "WAIT_FOR_PLACE_S", 0.2)
    monkeypatch.setattr(sql_process, "AT_ONCE", 2)
    with ExitStack() as held:
        for person in ("me", "you"):
            held.enter_context(sql_process.place(home, person))
        with pytest.raises(QueryError, match="2 queries are running"), sql_process.place(home, "she"):
            pass


def test_errors_say_where(profile):
    with pytest.raises(QueryError) as error:
        query_run("SELECT name,\n  'é', nosuch FROM slices", [profile], "me")
    assert (error.value.where, error.value.position) == ("line 2, column 8", 20)
    assert "nosuch" in error.value.what


def test_cells_are_what_json_holds():
    table = files.plain(pa.table({
        "sum": pa.array([Decimal(2**70), Decimal(5)], pa.decimal128(38, 0)),
        "small": pa.array([Decimal(7), None], pa.decimal128(38, 0)), "big": [2**60, 1], "nan": [float("nan"), 1.5],
        "list": [[1, 2], None], "bytes": [b"\xff", None], "text": ["x" * 30_000, "y"]}))
    first, second = files.rows(table)
    assert first[:6] == [float(2**70), 7, str(2**60), None, "[1, 2]", "ff"]
    assert len(first[6]) < 20_100 and second == [5.0, None, 1, 1.5, None, None, "y"]
    assert [each["kind"] for each in files.columns(table)] == ["number"] * 4 + ["text"] * 3
