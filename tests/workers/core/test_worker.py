"""Real worker processes over real rows: killed, stopped, replaced. Nothing is lost and nothing is done twice."""

from __future__ import annotations

import gzip
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import psycopg
import pytest
from django.conf import settings
from django.core.files.base import ContentFile
from django.db import OperationalError, connection
from django.utils import timezone
from rq import Queue

from profiles.models import Profile
from profiles.upload.services import profile_create
from tests.product import Product
from tuner.gate.suites.job_services import job_create
from tuner.jobs.create_services import tune_create
from tuner.measure.recorded_runs import load_recorded
from tuner.models import KernelRun, Suite, SuiteJob, SuiteKernel, TuneJob
from workers import jobs
from workers.leases import STALE_AFTER
from workers.process import Worker

pytestmark = pytest.mark.django_db(transaction=True)
TAKEN_UP_WITHIN_S = 15      # of a worker being there


@pytest.fixture
def start_worker() -> Iterator[Callable[..., Product]]:
    """`start_worker("ingest")`: a worker of this test's database and queue; it has announced itself on return.

    `redis_url`: another way to the same Valkey.
    """
    started: list[Product] = []
    jobs.connection().flushdb()

    def start(*queues: str, redis_url: str = "") -> Product:
        worker = Product(Path(settings.HOME), *queues, env=servers(redis_url), command="worker")
        started.append(worker)
        worker.wait_for(lambda line: "ready for" in line)
        wait_until(lambda: any(said["pid"] == worker.process.pid for said in jobs.workers()), 10)
        return worker

    yield start
    for worker in started:
        if worker.process.poll() is None:
            worker.stop(signal.SIGTERM)


def servers(redis_url: str = "") -> dict[str, str]:
    """Return what a process needs to find this test's database and queue."""
    database = connection.settings_dict
    url = f"postgresql://{database['USER']}@/{database['NAME']}?host={database['HOST']}&port={database['PORT']}"
    return {"DATABASE_URL": url, "REDIS_URL": redis_url or settings.REDIS_URL, "RIDGEPOINT_HOME": str(settings.HOME)}


def wait_until(condition: Callable[[], Any], within_s: float) -> float:
    """Seconds that it took. Fails when it did not come true."""
    began = time.monotonic()
    while not condition():
        assert time.monotonic() - began < within_s, f"not within {within_s} s"
        time.sleep(0.05)
    return time.monotonic() - began


def tune_job(trials: int) -> TuneJob:
    return tune_create(owner=None, operator="softmax", shape={"R": 8192, "C": 4096}, dtype="fp16", device="replay:softmax",
                       strategy="random", budget_trials=trials, budget_seconds=600)


def of_job(job: TuneJob) -> TuneJob:
    return TuneJob.objects.get(pk=job.pk)


def large_trace() -> bytes:
    """A Kineto file that takes some seconds to read."""
    events = [{"ph": "X", "cat": "kernel", "name": f"kernel_{i % 50}", "pid": 0, "tid": 7, "ts": i * 2.0, "dur": 1.0,
               "args": {"stream": 7, "correlation": i, "device": 0, "grid": [i % 9 + 1, 1, 1], "block": [128, 1, 1]}}
              for i in range(100_000)]
    return gzip.compress(json.dumps({"schemaVersion": 1, "traceEvents": events}).encode(), 1)


def test_a_worker_killed_in_a_tune_job_is_replaced_and_nothing_is_measured_twice(start_worker: Callable[..., Product]) -> None:
    first = start_worker("replay")
    job = tune_job(60)
    wait_until(lambda: job.trials.count() >= 5, 20)
    task = psutil.Process(first.process.pid).children(recursive=True)
    os.kill(first.process.pid, signal.SIGKILL)
    psutil.wait_procs(task, timeout=5)
    outlived = [process for process in task if process.is_running() and process.status() != psutil.STATUS_ZOMBIE]
    assert not outlived, "the task must die with its worker"
    measured = {trial.number: (trial.config_key, trial.created) for trial in job.trials.all()}
    killed = of_job(job)
    assert killed.status == "running" and len(measured) < 60

    start_worker("replay")
    waited_s = wait_until(lambda: of_job(job).worker not in ("", killed.worker), TAKEN_UP_WITHIN_S)
    assert waited_s < TAKEN_UP_WITHIN_S
    wait_until(lambda: of_job(job).status == "done", 60)
    trials = {trial.number: (trial.config_key, trial.created) for trial in job.trials.all()}
    assert measured.items() <= trials.items() and sorted(trials) == list(range(60))


def test_a_worker_killed_in_an_ingest_is_replaced(start_worker: Callable[..., Product]) -> None:
    first = start_worker("ingest")
    profile = profile_create(owner=None, file=ContentFile(large_trace(), name="large.json.gz"))
    wait_until(lambda: Profile.objects.get(pk=profile.pk).status == "ingesting", 20)
    os.kill(first.process.pid, signal.SIGKILL)
    first.process.wait()
    assert Profile.objects.get(pk=profile.pk).status == "ingesting"
    Profile.objects.filter(pk=profile.pk).update(heartbeat=timezone.now() - STALE_AFTER)      # the tune job above waits for it
    start_worker("ingest")
    wait_until(lambda: Profile.objects.get(pk=profile.pk).attempts == 2, TAKEN_UP_WITHIN_S)
    wait_until(lambda: Profile.objects.get(pk=profile.pk).status == "ready", 60)
    assert Profile.objects.get(pk=profile.pk).launches == 100_000


def test_a_task_that_is_killed_alone_is_taken_up_by_the_same_worker(start_worker: Callable[..., Product]) -> None:
    worker = start_worker("replay")
    job = tune_job(40)
    wait_until(lambda: job.trials.count() >= 3, 20)
    children = psutil.Process(worker.process.pid).children()
    for child in children:
        child.kill()
    psutil.wait_procs(children, timeout=5)
    TuneJob.objects.filter(pk=job.pk, status="running").update(heartbeat=timezone.now() - STALE_AFTER)
    wait_until(lambda: of_job(job).status == "done", 60)
    assert job.trials.count() == 40 and of_job(job).attempts == 2


def test_a_stopped_worker_hands_its_row_back_at_once(start_worker: Callable[..., Product]) -> None:
    worker = start_worker("replay")
    job = tune_job(60)
    wait_until(lambda: job.trials.count() >= 3, 20)
    assert worker.stop(signal.SIGTERM, within_s=10) == 0
    stopped = of_job(job)
    assert stopped.status == "queued" and stopped.worker == "" and stopped.attempts == 0
    assert jobs.waiting("tune") == {job.pk} and not jobs.workers()
    start_worker("replay")
    wait_until(lambda: of_job(job).status == "running", TAKEN_UP_WITHIN_S)


def test_a_worker_that_loses_valkey_in_a_task_begins_again(start_worker: Callable[..., Product], tmp_path: Path) -> None:
    way = tmp_path / "valkey.sock"
    way.symlink_to(settings.REDIS_URL.removeprefix("unix://").partition("?")[0])
    worker, job = start_worker("replay", redis_url=f"unix://{way}"), tune_job(30)
    wait_until(lambda: of_job(job).trials.count() >= 3, 30)
    kept = way.rename(tmp_path / "away.sock")
    for kind in ("normal", "pubsub"):
        jobs.connection().client_kill_filter(_type=kind, skipme=True)
    wait_until(lambda: of_job(job).status == "done", 60)           # rows are the truth: nothing of a job is in Valkey
    worker.wait_for(lambda line: "begins again when Valkey answers" in line, 60)
    kept.rename(way)
    worker.wait_for(lambda line: "ready for" in line, 60)
    later = tune_job(5)
    wait_until(lambda: of_job(later).status == "done", 60)
    assert worker.process.poll() is None and of_job(job).attempts == 1 and of_job(job).trials.count() == 30


def test_a_job_whose_server_was_away_is_no_failed_one(monkeypatch: pytest.MonkeyPatch) -> None:
    from workers import tasks
    from workers.row_kinds import ROW_KINDS
    from workers.tune import lead

    job = tune_job(5)

    def lose(job_id: int, worker: str) -> None:
        assert lead.TUNE_LEASES.claim(job_id, worker)
        raise OperationalError("server closed the connection unexpectedly") from psycopg.OperationalError("closed")

    tasks._run(ROW_KINDS["tune"], job.pk, lose)
    row = of_job(job)
    assert row.status == "running" and row.error is None and row.attempts == 1, "it is taken again once its heartbeat is stale"


def test_a_worker_takes_a_name_that_one_before_it_left(start_worker: Callable[..., Product]) -> None:
    """A container that starts again has the host name and process number of before."""
    name = "replay@host-1"
    for _ in range(2):
        worker = Worker([Queue("replay", connection=jobs.connection())], name=name, connection=jobs.connection())
        worker.register_birth()                 # the first one was killed: it could say no last word
    assert jobs.connection().hget(f"rq:worker:{name}", "birth")


def test_an_idle_worker_announces_itself_and_stops_at_once(start_worker: Callable[..., Product]) -> None:
    worker = start_worker("ingest", "replay")
    said = next(each for each in jobs.workers() if each["pid"] == worker.process.pid)
    assert said["queues"] == ["ingest", "replay"] and said["busy"] is None and said["since"] > 0
    assert "softmax" in " ".join(map(str, said["replay"]))
    assert worker.stop(signal.SIGTERM, within_s=10) == 0
    assert not jobs.workers()


BEFORE_RQ_LISTENS = """
bootstrap = process.Worker.bootstrap
def interrupted(self, *given):
    os.kill(os.getpid(), signal.SIGINT)
    bootstrap(self, *given)
process.Worker.bootstrap = interrupted
"""
NO_ANSWER = """
def hang(self, *given):
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(60)                              # a server that takes connections and says nothing
process.Worker.bootstrap = hang
"""
SWALLOWED = """
wait = process.Worker.dequeue_job_and_maintain_ttl
def swallow(self, *given):
    try:
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(1)
    except Exception as error:                  # as Python ignores what is raised in a callback of its own
        print("swallowed", type(error).__name__, flush=True)
    return wait(self, *given)
process.Worker.dequeue_job_and_maintain_ttl = swallow
"""


@pytest.mark.parametrize(("patch", "said"), [
    (BEFORE_RQ_LISTENS, "asked True"), (NO_ANSWER, ""), (SWALLOWED, "swallowed StopRequested")])
def test_a_worker_stops_whenever_the_signal_comes(patch: str, said: str) -> None:
    """Once in a few hundred starts a worker went on after Ctrl-C: what the handler raised had been lost."""
    script = ("import os, signal, time, django\ndjango.setup()\nfrom workers import process\n"
              f"{patch}\nprint('asked', process.work(['messages']))")
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=40, check=False,
                           env={**os.environ, **servers(), "DJANGO_SETTINGS_MODULE": "webapp.settings"})
    assert ended.returncode == 0 and said in ended.stdout, ended.stderr


def test_a_worker_says_what_it_does(start_worker: Callable[..., Product]) -> None:
    worker, said = start_worker("replay"), set[str | None]()
    job = tune_job(60)

    def is_told() -> bool:
        said.update(each["busy"] for each in jobs.workers() if each["pid"] == worker.process.pid)
        return f"tune {job.pk}" in said

    wait_until(is_told, 12)
    assert said <= {None, f"tune {job.pk}"}             # idle before, and nothing else


@pytest.mark.deep_only
def test_a_killed_replay_workers_suite_job_goes_on_from_its_rows(start_worker: Callable[..., Product]) -> None:
    suite = Suite.objects.create(name="nightly", device="replay:timing_runs")
    for place, (op, shape, dtype, configs) in enumerate(load_recorded("timing_runs").kernels()):
        for at, config in enumerate(configs):
            SuiteKernel.objects.create(suite=suite, key=f"{op} {at}", op=op, shape=shape, dtype=dtype, family=op, place=place,
                                       config_from="given", config=config)
    worker = start_worker("replay")
    job = job_create(suite, builds=["a", "b"], runs=12)
    taken = KernelRun.objects.filter(job=job)
    wait_until(lambda: taken.count() > 40, 20)
    for process in psutil.Process(worker.process.pid).children(recursive=True):
        process.send_signal(signal.SIGKILL)
    worker.process.send_signal(signal.SIGKILL)
    worker.process.wait()
    before = dict(taken.values_list("pk", "us"))
    assert 40 < len(before) < 2 * 12 * 13
    SuiteJob.objects.filter(pk=job.pk).update(heartbeat=None)           # what its age would say some seconds later
    start_worker("replay")
    wait_until(lambda: SuiteJob.objects.filter(pk=job.pk, status="done").exists(), TAKEN_UP_WITHIN_S + 15)
    rows = list(taken)
    assert len(rows) == 2 * 12 * 13 == len({(row.build_id, row.number, row.kernel_id) for row in rows})
    assert {row.pk: row.us for row in rows if row.pk in before} == before and not any(row.rejected for row in rows)
    each = {}
    for row in rows:
        each.setdefault((row.build_id, row.number), set()).add(row.facts["recorded_run"])
    assert all(len(runs) == 1 for runs in each.values())
    assert len({run for runs in each.values() for run in runs}) == 24, "two builds of 12 runs: no recorded process serves twice"
