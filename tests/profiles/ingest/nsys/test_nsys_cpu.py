"""A capture without a GPU: NVTX ranges and calls of the OS runtime, against the program and the export's own rows."""

import gzip
import sqlite3
from collections import Counter

from profiles import ingest
from profiles.ingest.trace import Category, Trace
from tests.profiles.ingest.corpus import DATA

EXPORT = DATA / "recorded" / "nsys_cpu" / "cpu.sqlite.gz"


def test_what_the_program_did_is_what_is_read(tmp_path):
    trace = ingest.read(EXPORT)
    assert isinstance(trace, Trace) and not trace.devices and not trace.integrity.repaired
    rows = trace.slices.to_pylist()
    ranges = [row for row in rows if row["category"] == Category.ANNOTATION]
    assert Counter(row["name"] for row in ranges) == {
        **{f"step {number}": 1 for number in range(5)}, "forward": 5, "backward": 5, "load": 10}       # as train.txt says
    assert all(row["dur_ns"] > 4_000_000 for row in ranges if row["name"] == "backward")     # two loads of 2 ms
    assert len([row for row in ranges if row["name"] == "load" and row["dur_ns"] >= 2_000_000]) == 10
    (tmp_path / "cpu.sqlite").write_bytes(gzip.decompress(EXPORT.read_bytes()))
    with sqlite3.connect(tmp_path / "cpu.sqlite") as export:
        wanted = {name: (count, total) for name, count, total in export.execute(
            "SELECT value, count(*), sum(end - start) FROM OSRT_API JOIN StringIds ON nameId = id GROUP BY value")}
        assert not export.execute("SELECT count(*) FROM StringIds WHERE instr(value, char(0))").fetchone()[0]    # no environments
    for name in ("clock_nanosleep", "pthread_create", "open64", "write", "sem_wait"):
        of_name = [row["dur_ns"] for row in rows if row["name"] == name]
        assert (len(of_name), sum(of_name)) == wanted[name]
    assert wanted["clock_nanosleep"][0] == 10 and wanted["pthread_create"][0] == 5
