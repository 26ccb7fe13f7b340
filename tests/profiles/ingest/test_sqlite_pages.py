"""SQLite pages read without SQLite, compared with SQLite itself; damaged and hostile files."""

from __future__ import annotations

import math
import sqlite3
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from profiles.ingest.core.events import MISSING
from profiles.ingest.core.sqlite_pages import Database
from profiles.ingest.core.sqlite_rows import columns_of
from profiles.ingest.trace import TraceError

VALUES = st.one_of(st.none(), st.integers(-2**63 + 1, 2**63 - 1), st.integers(-300, 300),
                   st.floats(allow_nan=False, allow_infinity=False),
                   st.text(max_size=80), st.text(st.characters(codec="ascii"), min_size=300, max_size=5000), st.binary(max_size=40))


def write(path: Path, rows: list[tuple[Any, ...]], page_size: int = 512, encoding: str = "UTF-8") -> Path:
    path.unlink(missing_ok=True)
    with sqlite3.connect(path) as connection:
        connection.execute(f"PRAGMA page_size={page_size}")
        connection.execute(f"PRAGMA encoding='{encoding}'")
        connection.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, a, -- a comment, with (brackets\n"
                           "                b INT NOT NULL DEFAULT 0, [c d] TEXT)")
        connection.executemany("INSERT INTO t(a, b, [c d]) VALUES (?, ?, ?)", rows)
    connection.close()
    return path


def read(path: Path) -> list[tuple[Any, ...]]:
    """Per row and column of table t: the value as a whole number, as a real one and as a text."""
    database = Database(path)
    table = database.tables["t"]
    out: list[tuple[Any, ...]] = []
    for rows in database.batches(table, table.columns.names):
        out += zip(*(zip(rows.ints(name).tolist(), rows.floats(name).tolist(), rows.texts(name, 1 << 24), strict=True)
                     for name in table.columns.names), strict=True)
    return out


@pytest.mark.slow
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=st.lists(st.tuples(VALUES, st.integers(-2**40, 2**40), VALUES), max_size=60),
       page_size=st.sampled_from([512, 1024, 4096, 65536]), encoding=st.sampled_from(["UTF-8", "UTF-16le", "UTF-16be"]))
def test_reads_what_sqlite_reads(tmp_path, rows, page_size, encoding):
    path = write(tmp_path / "a.sqlite", rows, page_size, encoding)
    with sqlite3.connect(path) as connection:
        wanted = connection.execute("SELECT * FROM t").fetchall()
    connection.close()
    found = read(path)
    assert len(found) == len(wanted)
    for row, want_row in zip(found, wanted, strict=True):
        for (whole, real, text), want in zip(row, want_row, strict=True):
            if isinstance(want, int):
                assert whole == want
            elif isinstance(want, float):
                assert real == want
            else:
                assert whole == MISSING and math.isnan(real) and text == (want if isinstance(want, str) else None)


def test_a_large_table_over_many_levels(tmp_path):
    path = write(tmp_path / "a.sqlite", [(number, number * 3, "x" * (number % 50)) for number in range(40_000)])
    database = Database(path)
    total = sum(int(rows.ints("a").sum()) for rows in database.batches(database.tables["t"], ["a"]))
    assert total == sum(range(40_000))


def test_a_table_can_be_read_again(tmp_path):
    database = Database(write(tmp_path / "a.sqlite", [(1, 2, "x"), (3, 4, "y" * 5_000)]))
    for _ in range(2):
        (rows,) = database.batches(database.tables["t"], ["a", "c d"])
        assert rows.ints("a").tolist() == [1, 3] and rows.texts("c d")[1] == "y" * 5_000


def test_columns_added_later_are_missing_in_older_rows(tmp_path):
    path = write(tmp_path / "a.sqlite", [(1, 2, "x")])
    with sqlite3.connect(path) as connection:
        connection.execute("ALTER TABLE t ADD COLUMN e INT")
        connection.execute("INSERT INTO t(a, b, e) VALUES (5, 6, 7)")
    connection.close()
    database = Database(path)
    (rows,) = database.batches(database.tables["t"], ["e", "nothing"])
    assert rows.ints("e").tolist() == [MISSING, 7] and rows.ints("nothing").tolist() == [MISSING, MISSING]


@pytest.mark.parametrize(("sql", "names", "rowid"), [
    ("CREATE TABLE a (x INT, \"y z\" TEXT, 'w' , [v] REAL)", ["x", "y z", "w", "v"], None),
    ("create table if not exists a(id INTEGER PRIMARY KEY AUTOINCREMENT, n NUMERIC(10, 5) CHECK (n > 0))", ["id", "n"], "id"),
    ("CREATE TABLE a (id INT PRIMARY KEY, x)", ["id", "x"], None),
    ("CREATE TABLE a (k INTEGER, x, PRIMARY KEY (k))", ["k", "x"], "k"),
    ("CREATE TABLE a (id INTEGER, d INTEGER, PRIMARY KEY (id, d))", ["id", "d"], None),
    ("CREATE TABLE a (x, g INT AS (x * 2) VIRTUAL, y, s INT GENERATED ALWAYS AS (x) STORED)", ["x", "y", "s"], None),
])
def test_columns_of_a_statement(sql, names, rowid):
    found = columns_of(sql)
    assert found is not None and found.names == names and found.rowid == rowid


@pytest.mark.parametrize("sql", [
    "", "CREATE VIEW v AS SELECT 1", "CREATE VIRTUAL TABLE f USING fts5(x)", "CREATE TABLE a AS SELECT 1", "CREATE TABLE a(",
    "CREATE TABLE a (x PRIMARY KEY) WITHOUT ROWID", "DROP TABLE a", "CREATE TABLE a ()", "\x00\x01(((((",
    "CREATE TABLE a " + "(" * 100_000])
def test_other_statements_are_no_tables(sql):
    assert columns_of(sql) is None


def test_views_triggers_and_virtual_tables_run_nothing(tmp_path):
    path = write(tmp_path / "a.sqlite", [(1, 2, "x")])
    with sqlite3.connect(path) as connection:
        connection.executescript("""
            CREATE VIEW CUPTI_ACTIVITY_KIND_KERNEL AS
                WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT x FROM n;
            CREATE TRIGGER g AFTER INSERT ON t BEGIN DELETE FROM t; END;
            CREATE TABLE w (k PRIMARY KEY, v) WITHOUT ROWID;""")
    connection.close()
    database = Database(path)
    assert set(database.tables) == {"t"} and sorted(database.not_tables) == ["CUPTI_ACTIVITY_KIND_KERNEL", "w"]


def test_a_cut_file_gives_the_rows_of_whole_pages(tmp_path):
    path = write(tmp_path / "a.sqlite", [(number, number, "x" * 30) for number in range(2_000)])
    data = path.read_bytes()
    path.write_bytes(data[:len(data) // 2])
    database = Database(path)
    table = database.tables["t"]
    found = np.concatenate([rows.ints("a") for rows in database.batches(table, ["a"])])
    assert 500 < found.size < 1_500 and found.tolist() == list(range(found.size))
    assert database.cut == f"byte {len(data) // 2} (page {database.pages + 1} of {database.pages_stated})"
    assert table.pages_lost > 0 and table.first_lost > database.pages


@pytest.mark.parametrize("data", [b"", b"SQLite format 3\0", b"SQLite format 3\0" + b"\xff" * 84,
                                  b"SQLite format 3\0" + bytes(1000)])
def test_a_damaged_header_is_one_clear_error(tmp_path, data):
    path = tmp_path / "a.sqlite"
    path.write_bytes(data)
    with pytest.raises(TraceError, match="byte"):
        Database(path)


def drained(path: Path) -> int:
    try:
        database = Database(path)
        return sum(rows.count + rows.ints(name).size + len(rows.texts(name)) + rows.floats(name).size
                   for table in database.tables.values() for rows in database.batches(table, table.columns.names)
                   for name in table.columns.names)
    except TraceError:
        return 0


@pytest.mark.slow
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(places=st.lists(st.tuples(st.floats(0, 1), st.binary(min_size=1, max_size=12)), min_size=1, max_size=40))
def test_damaged_bytes_never_raise_anything_else(tmp_path, places):
    original = tmp_path / "o.sqlite"
    if not original.exists():
        write(original, [(number, number, "y" * (number % 700)) for number in range(300)])
    data = bytearray(original.read_bytes())
    for place, new in places:
        at = int(place * (len(data) - len(new)))
        data[at:at + len(new)] = new
    path = tmp_path / "d.sqlite"
    path.write_bytes(data)
    started = time.monotonic()
    drained(path)
    assert time.monotonic() - started < 30


def test_circles_and_shared_pages_end(tmp_path):
    """Every interior page points at itself and at the root; every overflow chain goes round."""
    path = write(tmp_path / "a.sqlite", [(number, number, "y" * 3_000) for number in range(3_000)])
    data = bytearray(path.read_bytes())
    for start in range(512, len(data), 512):
        if data[start] == 5:
            data[start + 8:start + 12] = (start // 512 + 1).to_bytes(4, "big")
        else:
            data[start:start + 4] = (start // 512 + 1).to_bytes(4, "big") if data[start] != 13 else data[start:start + 4]
    path.write_bytes(data)
    started = time.monotonic()
    drained(path)
    assert time.monotonic() - started < 60


def test_a_row_of_many_megabytes_is_left_out_and_the_next_is_read(tmp_path):
    path = write(tmp_path / "a.sqlite", [(1, 1, "a"), (2, 2, "b" * (17 << 20)), (3, 3, "c")], 4096)
    database = Database(path)
    table = database.tables["t"]
    (rows,) = database.batches(table, ["a"])
    assert rows.ints("a").tolist() == [1, 3] and table.rows_lost == 1
