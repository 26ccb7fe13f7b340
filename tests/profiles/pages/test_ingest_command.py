"""`manage.py ingest`: one JSON document, exit codes, the numbers of the corpus. In a process and database of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from profiles.management.commands.ingest import _line

pytestmark = [pytest.mark.process, pytest.mark.servers]

ROOT = Path(__file__).parents[3]
DATA = ROOT / "tests" / "data"


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def database(home: Path) -> str:
    """A database with its tables on this run's server: that a command migrates an empty one stands in webapp/test_serve.py."""
    import psycopg
    from django.db import connection

    from tests.kept.cluster import WITH_TABLES

    name = "ingest_command"
    url = os.environ["DATABASE_URL"]
    parameters = {**connection.get_connection_params(), "dbname": "postgres"}
    parameters = {key: parameters[key] for key in ("host", "port", "user", "dbname") if parameters.get(key)}
    with psycopg.connect(**parameters, autocommit=True) as server:
        there = server.execute("SELECT FROM pg_database WHERE datname = %s", [WITH_TABLES]).fetchone()
        server.execute(f"CREATE DATABASE {name}" + (f" TEMPLATE {WITH_TABLES}" if there else ""))
    path, _, query = url.partition("?")
    return f"{path.rsplit('/', 1)[0]}/{name}" + (f"?{query}" if query else "")


def run(home: Path, database: str, *arguments: str | Path) -> tuple[int, Any, str]:
    environment = {**os.environ, "RIDGEPOINT_HOME": str(home), "DATABASE_URL": database}
    done = subprocess.run([sys.executable, ROOT / "manage.py", "ingest", *map(str, arguments)], env=environment,
                          capture_output=True, text=True, timeout=250, cwd=ROOT)
    document = json.loads(done.stdout) if "--json" in arguments else done.stdout
    return done.returncode, document, done.stderr


GOOD = [DATA / "h200" / "kineto_train.json.gz", DATA / "captured" / "matmul_full.ncu-rep.gz"]


@pytest.fixture(scope="module")
def two(home: Path, database: str) -> tuple[int, Any, str]:
    return run(home, database, *GOOD, "--json", "--build", "b1", "--tags", "x,y")


def test_files_become_one_document_with_their_numbers(two):
    code, document, _ = two
    assert code == 0
    trace, report = document["profiles"]
    assert set(trace) == {"id", "file", "format", "status", "error", "records_read", "records_kept", "integrity",
                          "launches", "gpu_time_ns", "top_kernels", "seconds", "peak_rss_bytes", "stored_bytes"}
    assert (trace["file"], trace["format"], trace["status"], trace["error"]) == (str(GOOD[0]), "kineto", "ready", None)
    assert (trace["records_read"], trace["records_kept"], trace["launches"], trace["gpu_time_ns"]) == (
        10_949, 10_949, 948, 10_876_979)
    assert trace["integrity"]["records_read"] == 10_949
    assert sum(kernel["total_ns"] for kernel in trace["top_kernels"]) <= 10_876_979
    for kernel in (*trace["top_kernels"], *report["top_kernels"]):
        assert sum(each["total_ns"] for each in kernel["shapes"]) == kernel["total_ns"]
        assert all(each["p50_ns"] <= each["p95_ns"] for each in kernel["shapes"])
    assert trace["top_kernels"] == sorted(trace["top_kernels"], key=lambda kernel: -kernel["total_ns"])
    assert trace["seconds"] > 0 and 20e6 < trace["peak_rss_bytes"] < 400e6 and 0 < trace["stored_bytes"] < 1e6
    assert "948 launches" in _line(trace) and "\n" not in _line(trace)          # what people see of it
    assert (report["format"], report["launches"], report["gpu_time_ns"]) == ("ncu-rep", 1, 184_480)


def test_any_failure_is_exit_1_and_the_others_are_ingested_whatever_waits_in_the_queue(home, database, two, tmp_path):
    """Uploads of others are taken in turn by workers: the command leaves them alone."""
    import psycopg

    empty = tmp_path / "empty.json"
    empty.write_bytes(b"")
    waits = two[1]["profiles"][0]["id"]
    with psycopg.connect(database, autocommit=True) as rows:
        rows.execute("UPDATE profiles_profile SET status = 'uploaded', worker = '', heartbeat = NULL, attempts = 0, "
                     "created = created - interval '1 hour' WHERE id = %s", [waits])
        code, document, errors = run(home, database, empty, tmp_path / "missing.json", DATA / "h200" / "kineto_layer.json.gz",
                                     "--json")
        assert rows.execute("SELECT status FROM profiles_profile WHERE id = %s", [waits]).fetchone() == ("uploaded",)
    assert code == 1
    failed, missing, ready = document["profiles"]
    assert failed["status"] == "failed" and failed["id"] and failed["error"]["what"] == "the file is empty"
    assert missing["status"] == "failed" and missing["id"] is None and "No such file" in missing["error"]["what"]
    assert ready["status"] == "ready" and ready["launches"] == 52 and ready["id"] != waits
    assert "the file is empty" in errors and "Traceback" not in errors


def test_group_makes_one_profile_of_the_ranks(home, database):
    ranks = [DATA / "h200" / f"ddp_even_rank{rank}.json.gz" for rank in (0, 1)]
    code, document, _ = run(home, database, *ranks, "--group", "--json")
    assert code == 0
    both, = document["profiles"]
    assert both["files"] == [str(rank) for rank in ranks] and both["launches"] == 5010
    assert both["gpu_time_ns"] == 220_684_462


@pytest.mark.deep_only
def test_for_people_it_is_a_line_per_file(home, database):
    code, output, _ = run(home, database, DATA / "h200" / "kineto_layer.json.gz")
    assert code == 0 and "52 launches" in output and output.count("\n") == 1
