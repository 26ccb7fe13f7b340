"""Rows that nobody holds are woken again; rows that somebody holds are left alone."""

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone
from rq import Queue

from profiles.models import Capture, CaptureTarget, Profile
from tuner.jobs import sharing_services, worker_services
from tuner.models import TuneJob
from workers import jobs, sweep, tasks
from workers.row_kinds import ROW_KINDS

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def empty_redis() -> None:
    jobs.connection().flushdb()


def tune_job(device: str, **fields: Any) -> TuneJob:
    return TuneJob.objects.create(operator="matmul", shape={"M": 1}, dtype="fp16", device=device, strategy="random",
                                  budget_trials=1, budget_seconds=1, **fields)


def ago(seconds: float) -> Any:
    return timezone.now() - timedelta(seconds=seconds)


def aged(row: Any, seconds: float = 60) -> Any:
    type(row).objects.filter(pk=row.pk).update(created=ago(seconds))
    return row


def entries(queue: str) -> list[tuple[str, int]]:
    return [(job.func_name.rpartition(".")[2], job.args[0]) for job in Queue(queue, connection=jobs.connection()).jobs]


def test_running_rows_whose_heartbeat_is_stale_are_woken_on_their_own_queue() -> None:
    stale = tune_job("replay:matmul", status="running", worker="dead", heartbeat=ago(11))
    on_gpu = tune_job("gpu", status="running", worker="dead", heartbeat=ago(11))
    tune_job("gpu", status="running", worker="alive", heartbeat=ago(6))
    tune_job("gpu", status="done")
    assert sweep.sweep()["tune"] == [on_gpu.pk, stale.pk]
    assert entries("replay") == [("run_tune", stale.pk)] and entries("gpu") == [("run_tune", on_gpu.pk)]


def test_rows_of_before_the_clock_was_set_back_are_woken() -> None:
    """They lie in the future: a dead worker would hold its row, and a row that waits would stand, until that is reached."""
    held = tune_job("gpu", status="running", worker="dead", heartbeat=ago(-3600))
    waits = aged(tune_job("gpu"), -3600)
    tune_job("gpu", status="running", worker="alive", heartbeat=ago(-1))
    tune_job("gpu")                                         # on its way into the queue
    assert sorted(sweep.sweep()["tune"]) == sorted([held.pk, waits.pk])
    assert worker_services.tune_claim(held.pk, "here") is not None


def test_what_is_due_by_itself_is_not_said_to_be_left_behind(caplog: pytest.LogCaptureFixture,
                                                             monkeypatch: pytest.MonkeyPatch) -> None:
    """At a first start nobody held anything."""
    monkeypatch.setitem(jobs.WAKES, next(iter(jobs.WAKES)), lambda waiting: [1])
    caplog.set_level("INFO", "workers.sweep")
    sweep.sweep()
    assert "woken again" not in caplog.text
    jobs.connection().flushdb()
    tune_job("gpu", status="running", worker="dead", heartbeat=ago(11))
    sweep.sweep()
    assert caplog.text.count("woken again") == 1 and "tune " in caplog.text


@pytest.mark.parametrize("off_s", [-60, 60])
def test_a_host_whose_clock_is_wrong_takes_nothing_from_others_and_loses_nothing(monkeypatch: pytest.MonkeyPatch,
                                                                                 off_s: float) -> None:
    """The database's clock writes and compares heartbeats: a wrong one of a host does not matter."""
    theirs, right = tune_job("gpu", status="running", worker="other", heartbeat=ago(3)), timezone.now
    mine = aged(tune_job("gpu"))
    with monkeypatch.context() as host:
        host.setattr(timezone, "now", lambda: right() + timedelta(seconds=off_s))
        assert worker_services.tune_claim(mine.pk, "here") is not None
        assert worker_services.tune_claim(theirs.pk, "here") is None and theirs.pk not in sweep.sweep()["tune"]
    jobs.connection().delete("ridgepoint:sweep")
    assert worker_services.tune_claim(mine.pk, "there") is None and mine.pk not in sweep.sweep()["tune"]


def test_waiting_rows_without_an_entry_are_woken_once() -> None:
    lost = aged(tune_job("gpu"))
    waiting = aged(tune_job("gpu"))
    jobs.enqueue("gpu", "tune", waiting.pk)
    fresh = tune_job("gpu")
    assert sweep.sweep()["tune"] == [lost.pk]
    jobs.connection().delete("ridgepoint:sweep")
    assert sweep.sweep()["tune"] == [] and fresh.pk not in jobs.waiting("tune")


def test_profiles_and_captures_are_swept_too() -> None:
    profile = Profile.objects.create(name="p", status="ingesting", worker="dead", heartbeat=ago(11), attempts=1)
    target = CaptureTarget.objects.create(name="t", argv=["true"])
    capture = Capture.objects.create(target=target, tool="ncu", status="running", worker="dead", heartbeat=ago(11))
    woken = sweep.sweep()
    assert woken["ingest"] == [profile.pk] and woken["capture"] == [capture.pk]
    assert entries("ingest") == [("ingest_profile", profile.pk)] and entries("gpu") == [("run_capture", capture.pk)]


def test_one_worker_sweeps_at_a_time() -> None:
    assert sweep.sweep() and sweep.sweep() == {}


def test_a_stopped_worker_hands_its_rows_back() -> None:
    mine = tune_job("replay:matmul", status="running", worker="me", heartbeat=ago(0), attempts=1)
    other = tune_job("replay:matmul", status="running", worker="other", heartbeat=ago(0), attempts=1)
    target = CaptureTarget.objects.create(name="t", argv=["true"])
    capture = Capture.objects.create(target=target, tool="ncu", status="running", worker="me", heartbeat=ago(0), attempts=2)
    sweep.release("me")
    mine.refresh_from_db()
    capture.refresh_from_db()
    assert (capture.status, capture.worker, capture.attempts) == ("queued", "", 1)
    other.refresh_from_db()
    assert (mine.status, mine.worker, mine.heartbeat, mine.attempts) == ("queued", "", None, 0)
    assert other.status == "running" and other.worker == "other"
    assert entries("replay") == [("run_tune", mine.pk)]


def test_an_unexpected_error_ends_the_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RQ_WORKER_ID", "me")
    job = tune_job("gpu", status="running", worker="me", heartbeat=ago(0))

    def broken(row_id: int, worker: str) -> None:
        raise RuntimeError(f"no luck with {row_id}\0")          # which no JSON of PostgreSQL's can hold

    tasks._run(ROW_KINDS["tune"], job.pk, broken)
    job.refresh_from_db()
    assert job.status == "failed" and job.finished and job.error["what"] == f"unexpected RuntimeError: no luck with {job.pk}�"
    assert set(job.error) == {"where", "what", "hint"}


def test_an_error_does_not_end_a_row_that_another_worker_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RQ_WORKER_ID", "me")
    job = tune_job("gpu", status="running", worker="other", heartbeat=ago(0))

    def broken(row_id: int, worker: str) -> None:
        raise RuntimeError("late")

    tasks._run(ROW_KINDS["tune"], job.pk, broken)
    job.refresh_from_db()
    assert job.status == "running"


def test_a_stopped_helper_gives_its_tasks_back() -> None:
    job = tune_job("replay:matmul", status="running", worker="lead", heartbeat=ago(0))
    member = sharing_services.member_join(job, "me", "helper")
    sharing_services.tasks_put(job, [{"BLOCK": 1}], None)
    assert sharing_services.tasks_claim(job, "me", 1)
    sweep.release("me")
    member.refresh_from_db()
    assert member.left and member.note == "its worker was stopped"
    assert sharing_services.count_free_tasks(job) == 1 and TuneJob.objects.get(pk=job.pk).status == "running"
