"""Real worker processes over real rows: killed, stopped, replaced. Nothing is lost and nothing is done twice."""

from __future__ import annotations

import gzip
import json
import os
import signal
import subprocess
import sys
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
from tests.waiting import until
from tuner.gate.suites.job_services import job_create
from tuner.jobs.control_services import tune_stop
from tuner.jobs.create_services import tune_create
from tuner.models import KernelRun, Suite, SuiteJob, SuiteKernel, TuneJob
from tuner.tuning.measure.replay import load_recorded
from workers import jobs, tasks
from workers.leases import STALE_AFTER
from workers.process import Worker

pytestmark = pytest.mark.django_db(transaction=True)
QUEUES = ("ingest", "replay")
LAUNCHES = 15_000           # of a file that takes long enough to be killed over


class Workers:
    """Workers of this test's database and queue: one that a test leaves serves the next, for a start takes seconds."""

    def __init__(self, way: Path) -> None:
        """`way`: a link to this test's Valkey, through which all of them find it."""
        self.way = way
        self.running: list[Product] = []
        self.given: list[Product] = []              # to the test at hand

    def get(self) -> Product:
        """Return a worker that this test did not have yet, idle; it has announced itself."""
        for worker in self.alive():
            if worker not in self.given:
                self.given.append(worker)
                return worker
        worker = Product(Path(settings.HOME), *QUEUES, env=servers(f"unix://{self.way}"), command="worker")
        self.running.append(worker)
        self.given.append(worker)
        worker.wait_for(lambda line: "ready for" in line)
        wait_until(lambda: said_by(worker) is not None)
        return worker

    def alive(self) -> list[Product]:
        return [worker for worker in self.running if worker.process.poll() is None]

    def rest(self) -> None:
        """Have them leave what the test began."""
        self.given.clear()
        for job in TuneJob.objects.exclude(status__in=["done", "stopped", "failed"]):
            tune_stop(job)
        for name in QUEUES:                         # entries whose rows go with the test
            Queue(name, connection=jobs.connection()).empty()
        wait_until(lambda: not any(psutil.Process(worker.process.pid).children() for worker in self.alive()))

    def stop(self) -> None:
        for worker in self.alive():
            assert worker.stop(signal.SIGTERM) == 0         # idle ones
            assert said_by(worker) is None


@pytest.fixture(scope="module")
def kept_workers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workers]:
    jobs.connection().flushdb()
    way = tmp_path_factory.mktemp("way") / "valkey.sock"
    way.symlink_to(settings.REDIS_URL.removeprefix("unix://").partition("?")[0])
    kept = Workers(way)
    yield kept
    kept.stop()


@pytest.fixture
def workers(kept_workers: Workers) -> Iterator[Workers]:
    yield kept_workers
    kept_workers.rest()


@pytest.fixture
def no_workers(workers: Workers) -> Workers:
    """No worker but those that the test starts."""
    workers.stop()
    return workers


def said_by(worker: Product) -> dict[str, Any] | None:
    """Return what a worker announces; None before it did, and once it left."""
    return next((said for said in jobs.workers() if said["pid"] == worker.process.pid), None)


def servers(redis_url: str) -> dict[str, str]:
    """Return what a process needs to find this test's database and queue."""
    database = connection.settings_dict
    url = f"postgresql://{database['USER']}@/{database['NAME']}?host={database['HOST']}&port={database['PORT']}"
    return {"DATABASE_URL": url, "REDIS_URL": redis_url, "RIDGEPOINT_HOME": str(settings.HOME)}


def wait_until(condition: Callable[[], Any]) -> Any:
    """Return the first true value; the machine may have other work, so only a test that fails waits long."""
    return until(condition, 180, 0.05)


def tune_job(trials: int) -> TuneJob:
    return tune_create(owner=None, operator="softmax", shape={"R": 8192, "C": 4096}, dtype="fp16", device="replay:softmax",
                       strategy="random", budget_trials=trials, budget_seconds=600)


def of_job(job: TuneJob) -> TuneJob:
    return TuneJob.objects.get(pk=job.pk)


def large_trace() -> bytes:
    """A Kineto file that takes a while to read."""
    events = [{"ph": "X", "cat": "kernel", "name": f"kernel_{i % 50}", "pid": 0, "tid": 7, "ts": i * 2.0, "dur": 1.0,
               "args": {"stream": 7, "correlation": i, "device": 0, "grid": [i % 9 + 1, 1, 1], "block": [128, 1, 1]}}
              for i in range(LAUNCHES)]
    return gzip.compress(json.dumps({"schemaVersion": 1, "traceEvents": events}).encode(), 1)


def test_a_job_whose_server_was_away_is_no_failed_one(no_workers: Workers) -> None:
    from workers.row_kinds import ROW_KINDS

    job = tune_job(5)

    def lose(job_id: int, worker: str) -> None:
        assert TuneJob.leases.claim(job_id, worker)
        raise OperationalError("server closed the connection unexpectedly") from psycopg.OperationalError("closed")

    tasks._run(ROW_KINDS["tune"], job.pk, lose)
    row = of_job(job)
    assert row.status == "running" and row.error is None and row.attempts == 1, "it is taken again once its heartbeat is stale"


def test_a_worker_takes_a_name_that_one_before_it_left(no_workers: Workers) -> None:
    """A container that starts again has the host name and process number of before."""
    name = "replay@host-1"
    for _ in range(2):
        worker = Worker([Queue("replay", connection=jobs.connection())], name=name, connection=jobs.connection())
        worker.register_birth()                 # the first one was killed: it could say no last word
    assert jobs.connection().hget(f"rq:worker:{name}", "birth")


def test_an_idle_worker_announces_itself(workers: Workers) -> None:
    worker = workers.get()
    wait_until(lambda: (said_by(worker) or {"busy": ""})["busy"] is None)
    said = said_by(worker)
    assert said is not None and said["queues"] == [*QUEUES, jobs.SMALL] and said["since"] > 0
    assert "softmax" in " ".join(map(str, said["replay"]))


def test_a_worker_says_what_it_does(workers: Workers) -> None:
    worker, told = workers.get(), set[str | None]()
    wait_until(lambda: (said_by(worker) or {"busy": ""})["busy"] is None)
    job = tune_job(60)

    def is_told() -> bool:
        said = said_by(worker)
        told.add(said["busy"] if said else "it left")
        return f"tune {job.pk}" in told

    wait_until(is_told)
    assert told <= {None, f"tune {job.pk}"}             # idle before, and nothing else


def test_a_task_that_is_killed_alone_is_taken_up_by_the_same_worker(workers: Workers) -> None:
    worker = workers.get()
    job = tune_job(20)
    wait_until(lambda: job.trials.count() >= 3)
    children = psutil.Process(worker.process.pid).children()
    for child in children:
        child.kill()
    psutil.wait_procs(children, timeout=60)
    TuneJob.objects.filter(pk=job.pk, status="running").update(heartbeat=timezone.now() - STALE_AFTER)
    wait_until(lambda: of_job(job).status == "done")
    assert job.trials.count() == 20 and of_job(job).attempts == 2


def test_a_worker_killed_in_a_tune_job_is_replaced_and_nothing_is_measured_twice(workers: Workers) -> None:
    first = workers.get()
    job = tune_job(60)
    wait_until(lambda: job.trials.count() >= 5)
    task = psutil.Process(first.process.pid).children(recursive=True)
    os.kill(first.process.pid, signal.SIGKILL)
    psutil.wait_procs(task, timeout=60)
    outlived = [process for process in task if process.is_running() and process.status() != psutil.STATUS_ZOMBIE]
    assert not outlived, "the task must die with its worker"
    measured = {trial.number: (trial.config_key, trial.created) for trial in job.trials.all()}
    killed = of_job(job)
    assert killed.status == "running" and len(measured) < 60

    workers.get()                                       # it waits until the heartbeat is stale, as no other test here does
    wait_until(lambda: of_job(job).worker not in ("", killed.worker))
    wait_until(lambda: of_job(job).status == "done")
    trials = {trial.number: (trial.config_key, trial.created) for trial in job.trials.all()}
    assert measured.items() <= trials.items() and sorted(trials) == list(range(60))


def test_a_stopped_worker_hands_its_row_back_at_once(workers: Workers) -> None:
    worker = workers.get()
    job = tune_job(60)
    wait_until(lambda: job.trials.count() >= 3)
    assert worker.stop(signal.SIGTERM) == 0
    stopped = of_job(job)
    assert stopped.status == "queued" and stopped.worker == "" and stopped.attempts == 0
    assert jobs.waiting("tune") == {job.pk} and said_by(worker) is None
    workers.get()
    wait_until(lambda: of_job(job).status == "running")


def test_a_worker_that_loses_valkey_in_a_task_begins_again(workers: Workers) -> None:
    worker, job = workers.get(), tune_job(20)
    wait_until(lambda: of_job(job).trials.count() >= 3)
    starts = worker.log.count("ready for")
    kept = workers.way.rename(workers.way.with_name("away.sock"))
    for kind in ("normal", "pubsub"):
        jobs.connection().client_kill_filter(_type=kind, skipme=True)
    wait_until(lambda: of_job(job).status == "done")               # rows are the truth: nothing of a job is in Valkey
    worker.wait_for(lambda line: "begins again when Valkey answers" in line)
    kept.rename(workers.way)
    wait_until(lambda: worker.log.count("ready for") > starts)
    later = tune_job(5)
    wait_until(lambda: of_job(later).status == "done")
    assert worker.process.poll() is None and of_job(job).attempts == 1 and of_job(job).trials.count() == 20


def test_a_worker_killed_in_an_ingest_is_replaced(workers: Workers, monkeypatch: pytest.MonkeyPatch) -> None:
    """By this process: that another worker finds what is left is shown by the tune job that is killed."""
    first = workers.get()
    profile = profile_create(owner=None, file=ContentFile(large_trace(), name="large.json.gz"))
    wait_until(lambda: Profile.objects.get(pk=profile.pk).status == "ingesting")
    os.kill(first.process.pid, signal.SIGKILL)
    first.process.wait()
    assert Profile.objects.get(pk=profile.pk).status == "ingesting"
    Profile.objects.filter(pk=profile.pk).update(heartbeat=timezone.now() - STALE_AFTER)
    monkeypatch.setenv("RQ_WORKER_ID", "another")
    tasks.ingest_profile(profile.pk)
    after = Profile.objects.get(pk=profile.pk)
    assert (after.attempts, after.status, after.launches) == (2, "ready", LAUNCHES)


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


# each in a fork of one interpreter: what a worker imports takes seconds
SIGNALLED = """
import os, signal, sys, time, django
django.setup()
from workers import process
for patch in sys.argv[1:]:
    if os.fork() == 0:
        exec(patch)
        print("asked", process.work(["messages"]), flush=True)
        os._exit(0)
    print("code", os.waitstatus_to_exitcode(os.wait()[1]), flush=True)
"""


@pytest.mark.deep_only
def test_a_worker_stops_whenever_the_signal_comes() -> None:
    """Once in a few hundred starts a worker went on after Ctrl-C: what the handler raised had been lost."""
    patches = (BEFORE_RQ_LISTENS, NO_ANSWER, SWALLOWED)
    ended = subprocess.run([sys.executable, "-c", SIGNALLED, *patches], capture_output=True, text=True, timeout=240, check=False,
                           env={**os.environ, **servers(settings.REDIS_URL), "DJANGO_SETTINGS_MODULE": "webapp.settings"})
    assert ended.returncode == 0, ended.stderr
    listens, answers, swallowed = ended.stdout.split("code 0\n")[:3]
    assert "asked True" in listens and "asked" not in answers and "swallowed StopRequested" in swallowed, ended.stdout


@pytest.mark.deep_only
def test_a_killed_replay_workers_suite_job_goes_on_from_its_rows(workers: Workers) -> None:
    suite = Suite.objects.create(name="nightly", device="replay:timing_runs")
    for place, (op, shape, dtype, configs) in enumerate(load_recorded("timing_runs").kernels()):
        for at, config in enumerate(configs):
            SuiteKernel.objects.create(suite=suite, key=f"{op} {at}", op=op, shape=shape, dtype=dtype, family=op, place=place,
                                       config_from="given", config=config)
    worker = workers.get()
    job = job_create(suite, builds=["a", "b"], runs=12)
    taken = KernelRun.objects.filter(job=job)
    wait_until(lambda: taken.count() > 40)
    for process in psutil.Process(worker.process.pid).children(recursive=True):
        process.send_signal(signal.SIGKILL)
    worker.process.send_signal(signal.SIGKILL)
    worker.process.wait()
    before = dict(taken.values_list("pk", "us"))
    assert 40 < len(before) < 2 * 12 * 13
    SuiteJob.objects.filter(pk=job.pk).update(heartbeat=None)           # what its age would say some seconds later
    workers.get()
    wait_until(lambda: SuiteJob.objects.filter(pk=job.pk, status="done").exists())
    rows = list(taken)
    assert len(rows) == 2 * 12 * 13 == len({(row.build_id, row.number, row.kernel_id) for row in rows})
    assert {row.pk: row.us for row in rows if row.pk in before} == before and not any(row.rejected for row in rows)
    each = {}
    for row in rows:
        each.setdefault((row.build_id, row.number), set()).add(row.facts["recorded_run"])
    assert all(len(runs) == 1 for runs in each.values())
    assert len({run for runs in each.values() for run in runs}) == 24, "two builds of 12 runs: no recorded process serves twice"
