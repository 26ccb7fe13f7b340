"""Queue entries carry an id and can be asked for; announcements end by themselves; publishing never ends a job."""

import os
import subprocess
import sys
from typing import Any

import pytest
import redis
from django.conf import settings
from django.db import OperationalError
from rq import Queue

from workers import jobs, process

pytestmark = pytest.mark.servers


@pytest.fixture(autouse=True)
def empty_queues() -> None:
    for name in jobs.QUEUES:
        Queue(name, connection=jobs.connection()).empty()


def test_an_entry_carries_the_id_and_is_found_again() -> None:
    jobs.enqueue("ingest", "ingest", 7)
    jobs.enqueue("replay", "tune", 3)
    jobs.enqueue("gpu", "tune", 4)
    assert jobs.waiting("ingest") == {7} and jobs.waiting("tune") == {3, 4} and jobs.waiting("capture") == set()
    entry = Queue("ingest", connection=jobs.connection()).jobs[0]
    assert entry.func_name == "workers.tasks.ingest_profile" and entry.args == (7,)


def test_the_same_row_may_be_enqueued_twice() -> None:
    jobs.enqueue("ingest", "ingest", 7)
    jobs.enqueue("ingest", "ingest", 7)
    assert Queue("ingest", connection=jobs.connection()).count == 2 and jobs.waiting("ingest") == {7}


def test_an_announcement_is_seen_and_ends() -> None:
    jobs.announce("ingest@here-1", {"queues": ["ingest"], "busy": None})
    assert {"name": "ingest@here-1", "queues": ["ingest"], "busy": None} in jobs.workers()
    assert 0 < jobs.connection().ttl("ridgepoint:worker:ingest@here-1") <= 15
    jobs.retire("ingest@here-1")
    assert "ingest@here-1" not in [worker["name"] for worker in jobs.workers()]


def test_the_worker_that_sends_messages_is_a_small_one() -> None:
    """It waits all day: what reads traces and searches is not imported for it (180 MB)."""
    code = ("import sys, django; django.setup(); from workers.process import _sweep_functions; _sweep_functions(['messages']); "
            "print([each for each in ('sklearn', 'scipy', 'bokeh', 'duckdb', 'workers.tasks') if each in sys.modules])")
    done = subprocess.run([sys.executable, "-c", code], cwd=settings.BASE_DIR, capture_output=True, text=True, timeout=60,
                          env={**os.environ, "DJANGO_SETTINGS_MODULE": "webapp.settings"})
    assert done.stdout == "[]\n", done.stderr


def test_a_redis_that_is_away_does_not_end_a_job(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    gone: Any = redis.Redis(unix_socket_path="/nowhere/redis.sock")
    monkeypatch.setattr(jobs, "connection", lambda: gone)
    jobs.publish("profile.1", "progress", {"done_bytes": 1})
    assert "profile.1 progress was not published" in caplog.text


def test_every_task_can_be_found_by_its_name() -> None:
    from django.utils.module_loading import import_string

    assert all(callable(import_string(name)) for name in jobs.TASKS.values())


def test_a_worker_leaves_while_the_database_is_away(caplog: pytest.LogCaptureFixture) -> None:
    """A stop after PostgreSQL was killed is a stop: one line, no traceback."""
    def release(name: str) -> None:
        raise OperationalError("terminating connection due to unexpected postmaster exit")

    process._retire("ingest@here-1", release)
    [said] = [record.getMessage() for record in caplog.records if record.name.startswith("workers.")]
    assert "left without handing back" in said and "unexpected postmaster exit" in said


def test_a_suite_that_ci_waits_for_comes_before_tune_jobs_that_are_queued() -> None:
    for task, row in (("tune", 991), ("tune", 992), ("suite", 993)):
        jobs.enqueue("replay", task, row)
    ids = [each.rpartition("-")[0] for each in Queue("replay", connection=jobs.connection()).get_job_ids()]
    assert [each for each in ids if each.split("-")[1] in ("991", "992", "993")] == ["suite-993", "tune-991", "tune-992"]


def test_what_stands_since_before_the_clock_was_set_back_turns_nobody_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """A key that was to last 2 s then lasts an hour: no row was woken so long, and workers that had ended were listed."""
    client = jobs.connection()
    assert jobs.take_turn("ridgepoint:test", 2000) and not jobs.take_turn("ridgepoint:test", 2000)
    client.pexpire("ridgepoint:test", 3_600_000)
    assert jobs.take_turn("ridgepoint:test", 2000) and client.pttl("ridgepoint:test") <= 2000
    client.delete("ridgepoint:test")
    jobs.announce("gone@host-1", {"queues": ["gpu"]})
    assert [row["queues"] for row in jobs.workers() if row["name"] == "gone@host-1"] == [["gpu"]]
    client.pexpire("ridgepoint:worker:gone@host-1", 3_600_000)
    assert not [row for row in jobs.workers() if row["name"] == "gone@host-1"]
    jobs.retire("gone@host-1")
