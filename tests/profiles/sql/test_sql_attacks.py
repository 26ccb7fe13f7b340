"""SQL is written by people one does not know: what it must not reach, and what it must not cost."""

from __future__ import annotations

import ctypes
import json
import os
import resource
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from profiles.models import Profile
from profiles.sql.process import ROOT, Limits, QueryError, run
from profiles.sql.services import SQL_CHARS, query_run, query_stop
from profiles.sql.tables import NAMES
from tests.builders import trace
from tests.profiles.timeline.test_timeline_api import STEP, profile_of

pytestmark = pytest.mark.django_db
SECONDS = 0.5
SMALL = Limits(seconds=SECONDS, memory_bytes=256 << 20, spill_bytes=64 << 20)
MEMORY_BYTES = SMALL.memory_bytes + (1 << 30)   # resident: DuckDB's own and what texts and plans take beside it


@pytest.fixture
def profile(settings, tmp_path) -> Profile:
    settings.HOME = tmp_path
    return profile_of(trace(STEP))


def refused(sql: str, profile: Profile, limits: Limits = SMALL) -> QueryError:
    with pytest.raises(QueryError) as error:
        query_run(sql, [profile], "me", limits)
    assert error.value.what and error.value.hint and error.value.where
    return error.value


FILES = [
    "SELECT * FROM read_csv('/etc/passwd')", "SELECT * FROM read_csv_auto('/etc/passwd')", "SELECT * FROM read_text('/etc/passwd')",
    "SELECT * FROM read_blob('/etc/passwd')", "SELECT * FROM read_json('/etc/passwd')",
    "SELECT * FROM read_parquet('p{pk}/slices.parquet')",
    "FROM parquet_scan('/tmp/*')", "FROM parquet_metadata('p{pk}/slices.parquet')", "FROM sniff_csv('/etc/passwd')",
    "FROM glob('/**')",
    "FROM '/etc/passwd'", "FROM 'p{pk}/slices.parquet'", "FROM \"p{pk}/../../../../x.parquet\"",
    "FROM 'http://127.0.0.1:1/x.parquet'",
    "FROM 's3://bucket/x.parquet'", "FROM read_duckdb('/tmp/x.db')", "SELECT (SELECT count(*) FROM read_text('/etc/passwd'))",
    "SELECT * FROM slices WHERE name IN (SELECT content FROM read_text('/etc/passwd'))",
    "WITH a AS (FROM read_text('/etc/passwd')) FROM a", "WITH a AS MATERIALIZED (FROM '/etc/passwd') FROM a",
    "SELECT 1 UNION ALL SELECT size FROM read_blob('/etc/passwd')", "SELECT * FROM slices, LATERAL (FROM read_text('/etc/passwd'))",
    "PIVOT (FROM read_text('/etc/passwd')) ON filename IN ('a') USING count(*)", "EXPLAIN ANALYZE FROM read_text('/etc/passwd')",
    "SUMMARIZE '/etc/passwd'", "DESCRIBE '/etc/passwd'", "FROM query('FROM read_text(''/etc/passwd'')')",
    "FROM query_table('/etc/passwd')",
    "FROM json_execute_serialized_sql(json_serialize_sql('FROM read_text(''/etc/passwd'')'))",
    "/* SELECT */ -- SELECT\n FROM read_text('/etc/passwd')", "FROM pg_catalog.pg_tables", "FROM information_schema.tables",
    "FROM system.main.duckdb_settings()", "FROM main.read_text('/etc/passwd')", "SELECT system.main.getenv('HOME')",
]
STATEMENTS = [
    "ATTACH '/tmp/x.db'", "ATTACH ':memory:' AS m", "COPY slices TO '/tmp/x.csv'", "COPY (SELECT 1) TO '/tmp/x.parquet'",
    "EXPORT DATABASE 'x'",
    "IMPORT DATABASE 'x'", "INSTALL httpfs", "LOAD httpfs", "FORCE INSTALL httpfs", "PRAGMA version", "PRAGMA database_list",
    "SET threads = 100", "SET enable_external_access = true", "RESET threads", "SET GLOBAL memory_limit = '100GB'",
    "CALL pragma_version()",
    "CREATE TABLE t (a INT)", "CREATE MACRO m() AS 1", "CREATE SECRET s (TYPE s3)", "CREATE FUNCTION f() AS 1", "DROP VIEW slices",
    "INSERT INTO slices SELECT * FROM slices", "UPDATE slices SET name = ''", "DELETE FROM slices", "ALTER VIEW slices RENAME TO s",
    "PREPARE p AS SELECT 1", "EXECUTE p", "USE memory", "DETACH memory", "CHECKPOINT", "VACUUM", "BEGIN", "COMMIT",
    "SELECT 1; SELECT 2",
    "SELECT 1; COPY slices TO '/tmp/x.csv'", "EXPLAIN COPY slices TO '/tmp/x.csv'", "EXPLAIN ANALYZE COPY slices TO '/tmp/x.csv'",
    "EXPLAIN ANALYZE CREATE TABLE t (a INT)", "WITH x AS (COPY steps TO '/tmp/x.csv') FROM x",
    "WITH x AS (INSERT INTO t VALUES (1) RETURNING 1) FROM x",
    "WITH x AS (DELETE FROM slices RETURNING 1) FROM x", "PIVOT steps ON name USING sum(dur_ns)", "", "   ", "-- nothing",
    "/* nothing",
    "SELECT current_setting('allowed_paths')", "SELECT getenv('HOME')", "FROM duckdb_settings()", "FROM duckdb_secrets()",
    "FROM duckdb_extensions()",
    "FROM duckdb_views()", "FROM pragma_database_size()", "FROM which_secret('a', 's3')", "SELECT * FROM enable_logging()",
    "SHOW DATABASES; SELECT 1",
]


def test_what_reaches_further_is_refused_where_it_is_read(tmp_path, monkeypatch):
    """In this process, as the child of a query does it, but for the kernel's walls and the files of a profile."""
    # imported here: of a process that froze its objects it complains at its end
    import duckdb

    from profiles.sql import child
    from profiles.sql.child import Refused, check

    monkeypatch.chdir(tmp_path)
    connection = child._database({"files": [], "threads": 1, "memory_bytes": 256 << 20, "spill_bytes": 64 << 20})
    for name in NAMES:
        connection.execute(f"CREATE VIEW {name} AS SELECT 'a' AS name, 1 AS dur_ns")
    connection.execute("SET lock_configuration = true")

    def is_answered(sql: str) -> bool:
        try:
            check(connection, sql, NAMES)
            connection.sql(sql).limit(1).fetchall()
        except (Refused, duckdb.Error):
            return False
        return True
    assert is_answered("SELECT count(*) FROM slices")
    assert [sql for sql in (*FILES, *STATEMENTS) if is_answered(sql.replace("{pk}", "1"))] == []


def some(queries: list[str], every: int) -> list[object]:
    """Every so manieth goes the whole way in `make test`: test_what_reaches_further_is_refused_where_it_is_read asks all."""
    return [sql if at % every == 0 else pytest.param(sql, marks=pytest.mark.deep_only) for at, sql in enumerate(queries)]


@pytest.mark.parametrize("sql", some(FILES, 5))
def test_no_file_and_no_network(profile, sql):
    error = refused(sql.replace("{pk}", str(profile.pk)), profile)
    assert error.kind in ("refused", "query")
    assert "root:" not in str(error)


@pytest.mark.parametrize("sql", some(STATEMENTS, 6))
def test_nothing_but_reading(profile, sql):
    assert refused(sql, profile).kind in ("refused", "query")
    assert not Path("/tmp/x.csv").exists()


COSTLY = {
    "cross join": "SELECT count(*) FROM range(1000000) a, range(1000000) b, range(1000000) c",
    "endless recursion": "WITH RECURSIVE r AS (SELECT 1 AS i UNION ALL SELECT i + 1 FROM r) SELECT max(i) FROM r",
    "recursion that grows": "WITH RECURSIVE r AS (SELECT 'x' AS i UNION ALL SELECT i || i FROM r) SELECT max(i) FROM r",
    "sort of everything": "SELECT i FROM range(2000000000) t(i) ORDER BY hash(i)",
    "groups of everything": "SELECT hash(i), count(*) FROM range(2000000000) t(i) GROUP BY ALL ORDER BY 2",
    "one list": "SELECT list(i) FROM range(3000000000) t(i)",
    "one text": "SELECT repeat('x', 4000000000)",
    "a text by padding": "SELECT rpad('x', 2147483647, 'y')",
    "a text by format": "SELECT printf('%1000000000d', 1)",
    "texts together": "SELECT string_agg(repeat('y', 10000), '') FROM range(10000000)",
    "a list repeated": "SELECT repeat([1, 2, 3], 1000000000)",
    "distance": "SELECT sum(levenshtein(repeat('a', 100000), repeat('b', 100000 + i::INT))) FROM range(1000) t(i)",
    "squared tables": "WITH " + ", ".join(["a0 AS (SELECT i FROM range(10) t(i))"] + [
        f"a{n} AS (SELECT x.i FROM a{n - 1} x, a{n - 1} y)" for n in range(1, 12)]) + " SELECT count(*) FROM a11",
}


# each takes all the time or memory that it may: `make test` asks one that runs, one that spills, one that is large, one that grows
COSTLIEST = ("cross join", "sort of everything", "one text", "texts together")


@pytest.mark.parametrize("sql", [pytest.param(sql, id=name, marks=[pytest.mark.deep_only] * (name not in COSTLIEST))
                                 for name, sql in COSTLY.items()])
def test_costs_are_bounded(profile, sql):
    before, began = _children_peak_bytes(), time.monotonic()
    error = refused(sql, profile)
    assert error.kind in ("time", "memory", "query"), error
    assert time.monotonic() - began < SECONDS + 4
    assert _children_peak_bytes() <= max(before, MEMORY_BYTES)
    assert query_run("SELECT 1", [profile], "me").table.num_rows == 1       # the next query is well


CHEAP = {       # look like bombs, and are none here: an answer or an error, at once
    "regex backtracking": "SELECT regexp_matches(repeat('a', 1000000), '(a*)*(a*)*b')",
    "regex size": "SELECT regexp_matches('a', '((a{1,1000}){1,1000}){1,1000}')",
    "like": "SELECT repeat('a', 100000) LIKE '%a%a%a%a%a%a%a%a%b'",
    "parentheses": "SELECT " + "(" * 9000 + "1" + ")" * 9000,
    "additions": "SELECT " + "+".join(["1"] * 9000),
    "nested queries": "SELECT * FROM " + "(SELECT * FROM " * 900 + "steps" + ")" * 900,
    "nested cases": "SELECT " + "CASE WHEN true THEN " * 700 + "1" + " END" * 700,
    "unions": " UNION ALL ".join(["SELECT 1"] * 900),
    "columns": "SELECT " + ", ".join(str(n) for n in range(3500)),
    "JSON nesting": "SELECT json_valid(repeat('[', 1000000))",
    "wide text": "SELECT '" + "x" * (SQL_CHARS + 1) + "'",
    "NUL": "SELECT 'a\0b'",
    "surrogates": "SELECT '\ud800'",
    "an endless table": "SELECT * FROM range(9000000000000000000)",
    "big rows": "SELECT repeat('x', 1000000) FROM range(1000000)",
}


@pytest.mark.parametrize("sql", CHEAP.values(), ids=CHEAP.keys())
def test_bombs_that_are_none(profile, sql):
    began = time.monotonic()
    try:
        query_run(sql, [profile], "me", SMALL)
    except QueryError as error:
        assert error.kind in ("refused", "query", "memory", "crash", "time")
    assert time.monotonic() - began < SECONDS + 4


def _children_peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024


def test_what_a_library_prints_is_no_answer(tmp_path, own_interpreter):
    """DuckDB draws a progress bar for a query of two seconds; here for a shorter one."""
    answer = run("SELECT sum(a.range * b.range) AS s FROM range(12000) a, range(12000) b", tmp_path, {
        "statements": ["SET enable_progress_bar = true", "SET progress_bar_time = 0"], "files": [], "targets": [],
        "tables": ["a", "b"]}, Limits(), tmp_path / "stop")
    assert answer.rows == 1


def test_a_query_cannot_outlive_the_process_that_asked(profile):
    """kill -9 of the web process ends the query too."""
    parent = subprocess.Popen([sys.executable, "-c", f"""
import sys, tempfile; sys.path.insert(0, {str(ROOT)!r})
from pathlib import Path
from profiles.sql.process import Limits, run
folder = Path(tempfile.mkdtemp())
print(folder, flush=True)
run("SELECT count(*) FROM range(100000000) a, range(100000000) b", folder, dict(statements=[], files=[], targets=[], tables=[]),
    Limits(), folder / "stop")"""], stdout=subprocess.PIPE, text=True)
    folder = parent.stdout.readline().strip()
    for _ in range(600):
        time.sleep(0.05)
        if children := _working_in(folder):
            break
    time.sleep(0.5)
    parent.kill()
    parent.wait()
    for _ in range(600):                    # at once when idle; the query would take hours
        if not _working_in(folder):
            break
        time.sleep(0.05)
    assert children and not _working_in(folder)


def _working_in(folder: str) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if os.readlink(entry / "cwd") == folder:
                    found.append(int(entry.name))
            except OSError:
                continue
    return found


WALLED = """
import json, os, socket, sys
sys.path.insert(0, sys.argv[1])
from profiles.sql import walls
folder, given = sys.argv[2:4]
closed = walls.close([given], folder)
def tried(what):
    try: what(); return "done"
    except OSError as error: return type(error).__name__
print(json.dumps({"closed": closed, "given": tried(lambda: open(given)), "passwd": tried(lambda: open("/etc/passwd")),
    "beside": tried(lambda: open(os.path.dirname(given) + "/secret")), "own": tried(lambda: open(folder + "/new", "w")),
    "write": tried(lambda: open(given, "a")), "list": tried(lambda: os.listdir("/etc")),
    "run": tried(lambda: os.execv("/bin/true", ["true"])),
    "tcp": tried(lambda: socket.create_connection(("127.0.0.1", int(sys.argv[4])), 2))}))
"""


def test_the_kernels_walls_stand_without_duckdb(tmp_path):
    (tmp_path / "folder").mkdir()
    for name in ("given", "secret"):
        (tmp_path / name).write_text("x")
    with socket.create_server(("127.0.0.1", 0)) as server:
        done = subprocess.run([sys.executable, "-c", WALLED, str(ROOT), str(tmp_path / "folder"), str(tmp_path / "given"),
                               str(server.getsockname()[1])], capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    if not found["closed"]:
        pytest.skip("this kernel has no Landlock")
    assert {name: found[name] for name in ("given", "own")} == {"given": "done", "own": "done"}
    assert {found[name] for name in ("passwd", "beside", "write", "list", "run")} == {"PermissionError"}
    assert found["tcp"] in ("PermissionError", "done")          # Linux 6.7 and later


def test_limits_hold_for_the_process(tmp_path):
    code = ("import os, sys; sys.path.insert(0, sys.argv[1]); from profiles.sql import walls\n"
            "walls.limit(1 << 30, 5, 1 << 20, os.getppid())\n"
            "import resource\nprint(resource.getrlimit(resource.RLIMIT_AS)[0], resource.getrlimit(resource.RLIMIT_CPU)[0])\n"
            "try: bytearray(2 << 30)\nexcept MemoryError: print('memory')\n"
            "import signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
            "try:\n  with open(sys.argv[2], 'wb') as f: f.write(bytes(2 << 20))\nexcept OSError: print('file')")
    done = subprocess.run([sys.executable, "-c", code, str(ROOT), str(tmp_path / "f")], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [str(1 << 30), "5", "memory", "file"]
    assert (tmp_path / "f").stat().st_size <= 1 << 20


def test_the_query_sees_no_environment(profile, monkeypatch, own_interpreter):
    monkeypatch.setenv("DATABASE_URL", "postgres://secret")
    assert "secret" not in json.dumps([refused("SELECT getenv('DATABASE_URL')", profile).what])


def test_the_walls_stood_around_it(profile, own_interpreter):
    """Wherever this kernel has Landlock (landlock_create_ruleset, asked for its version)."""
    landlock = ctypes.CDLL(None).syscall(444, None, ctypes.c_size_t(0), 1) >= 1
    assert query_run("SELECT 1", [profile], "me").walled == landlock


SCOPES = [
    "SELECT * FROM {0}, (WITH {0} AS (SELECT 1) SELECT * FROM {0})", "SELECT (WITH {0} AS (SELECT 1) SELECT 1 FROM {0}) FROM {0}",
    "WITH b AS (WITH {0} AS (SELECT 1) SELECT * FROM {0}) SELECT * FROM b, {0}"]


@pytest.mark.parametrize("sql", SCOPES)
@pytest.mark.parametrize("name", ["duckdb_views", "pragma_database_list", '"p{pk}/names.parquet"', '"/etc/hosts.csv"'])
def test_a_name_of_with_holds_where_it_stands_only(profile, name, sql):
    assert refused(sql.format(name.format(pk=profile.pk)), profile).kind == "refused"


@pytest.mark.parametrize("sql", [
    "WITH x AS (SELECT 1) SELECT * FROM x UNION ALL SELECT * FROM x", "WITH x AS (SELECT 1), y AS (SELECT * FROM x) FROM y",
    "WITH RECURSIVE x(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM x WHERE i < 3) SELECT (SELECT max(i) FROM x)",
    "SELECT * FROM (WITH x AS (SELECT 1) SELECT * FROM x), slices WHERE EXISTS (WITH y AS (SELECT 2) FROM y)"])
def test_names_of_with_are_tables(profile, sql):
    assert query_run(sql, [profile], "me", SMALL).table.num_rows > 0


@pytest.mark.parametrize("sql", [
    "SELECT list(b) FROM (SELECT true AS b FROM range(20_000_000))", "SELECT list(NULL) FROM range(50_000_000)",
    "SELECT {{'a': list(NULL)}} FROM range(50_000_000)",
    "WITH t AS (SELECT '{0}'::ENUM('{0}') AS e FROM range(9000)) SELECT e, e AS f, e AS g FROM t",
    "SELECT " + ", ".join(["NULL"] * 2000) + " FROM range(9000)"])
def test_what_is_small_on_disk_and_large_on_a_page_is_cut(profile, sql):
    found = query_run(sql.format("x" * 5000), [profile], "me", Limits(seconds=20))
    values = sum(len(str(value)) for column in found.table.columns for value in column.to_pylist())
    assert found.truncated
    assert values < 20 << 20


def test_stopping_what_does_not_run_leaves_nothing(profile, settings):
    for number in range(5):
        query_stop("me", f"made-up-{number}")
    assert not list((Path(settings.HOME) / "sql").glob("stop/*"))


def test_leftovers_of_killed_processes_go(profile, settings):
    left = Path(settings.HOME) / "sql" / "runs" / "query-left"
    left.mkdir(parents=True)
    (left / "spill").touch()
    os.utime(left, (1, 1))
    query_run("SELECT 1", [profile], "me", SMALL)
    assert not left.exists()


@pytest.mark.usefixtures("own_interpreter")
@pytest.mark.parametrize(("start", "what", "hint"), [
    ("import no_such_module_of_ours", "its process ended before it gave an answer: ModuleNotFoundError: No module named "
                                      "'no_such_module_of_ours'", "A fault of this installation, not of the query"),
    ("import os; os.kill(os.getpid(), 11)", "the query ended its process by SIGSEGV", "Make the query simpler")])
def test_a_process_that_dies_says_how(profile: Profile, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture,
                                      start: str, what: str, hint: str) -> None:
    """A data folder that was not resolved made every query end at its first import, and the query was blamed."""
    monkeypatch.setattr("profiles.sql.process._START", start)
    error = refused("SELECT 1", profile)
    assert error.kind == "crash" and error.what == what and error.hint.startswith(hint)
    assert "the process of a query ended with status" in caplog.text
