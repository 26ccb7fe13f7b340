"""Several workers in one job: one asks the strategy, all measure, rows carry everything between them."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.db import connection
from django.utils import timezone

from tests.product import Product
from tests.relay import relayed
from tuner.jobs import control_services, create_services, sharing_services, worker_services
from tuner.jobs.sharing_services import Role
from tuner.models import TuneJob, TuneMember, TuneTask
from tuner.tuning.search.strategies.fixed_order import ListedConfigs
from tuner.tuning.trial import Measured, Reason, Rejected, Trial, config_key
from workers import jobs
from workers.tune import assist, sharing
from workers.tune import lead as tune

pytestmark = pytest.mark.django_db(transaction=True, available_apps=settings.INSTALLED_APPS)
MATMUL = {"M": 1024, "N": 1024, "K": 1024}


@pytest.fixture(autouse=True)
def empty_queues() -> None:
    jobs.connection().flushdb()


def make(**changes: Any) -> TuneJob:
    fields = {"owner": None, "operator": "matmul", "shape": MATMUL, "dtype": "bf16", "device": "replay:matmul",
              "strategy": "random", "budget_trials": 60, "budget_seconds": 60}
    return create_services.tune_create(**{**fields, **changes})


def of_job(job: TuneJob) -> TuneJob:
    return TuneJob.objects.get(pk=job.pk)


def wait_until(condition: Callable[[], Any], within_s: float) -> None:
    end = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < end, f"not within {within_s} s"
        time.sleep(0.03)


def in_thread(work: Callable[..., Any], *arguments: Any, **options: Any) -> threading.Thread:
    def run() -> None:
        try:
            work(*arguments, **options)
        finally:
            connection.close()

    thread = threading.Thread(target=run)
    thread.start()
    return thread


def test_a_helper_measures_what_the_lead_gives_out_and_nothing_is_tried_twice() -> None:
    job = make()
    lead = in_thread(tune.run, job.pk, "w1")
    wait_until(lambda: of_job(job).valid_size, 10)
    TuneJob.objects.filter(pk=job.pk).update(heartbeat=timezone.now() + timedelta(seconds=30))     # nobody beats here
    jobs.connection().flushdb()                        # its own entry: no other job waits
    helper = in_thread(assist.run, job.pk, "w2")
    lead.join(30)
    helper.join(30)
    ended = of_job(job)
    assert (ended.status, ended.ended_by, ended.worker) == ("done", "trials", "w1")
    rows = list(ended.trials.all())
    assert [row.number for row in rows] == list(range(60)) and len({row.config_key for row in rows}) == 60
    by_worker = Counter(row.worker for row in rows)
    assert set(by_worker) == {"w1", "w2"} and min(by_worker.values()) >= 15
    members = {member.worker: member for member in ended.members.all()}
    assert {name: (member.role, member.trials) for name, member in members.items()} == {
        "w1": ("lead", by_worker["w1"]), "w2": ("helper", by_worker["w2"])}
    assert all(member.left for member in members.values()) and not TuneTask.objects.exists()
    assert ended.best_ms == min(row.median_ms for row in rows if row.median_ms)


def test_a_helper_does_not_begin_while_another_job_waits() -> None:
    job = make()
    worker_services.tune_claim(job.pk, "w1")
    TuneJob.objects.filter(pk=job.pk).update(gpu="NVIDIA H200", recorded="recorded")
    jobs.connection().flushdb()
    make(shape={"M": 4096, "N": 4096, "K": 4096})
    assist.run(job.pk, "w2", replay_speed=0)
    assert not TuneMember.objects.exists()


def test_a_worker_whose_times_would_be_others_does_not_help_and_says_why() -> None:
    job = make()
    worker_services.tune_claim(job.pk, "w1")
    TuneJob.objects.filter(pk=job.pk).update(gpu="NVIDIA H200", toolkit="cuda 12.4, triton 3.0.0", recorded="recorded")
    jobs.connection().flushdb()
    assist.run(job.pk, "w2", replay_speed=0)
    member = TuneMember.objects.get()
    assert member.left and member.note == "cannot help: it has cuda 13.0, triton 3.6.0, the job cuda 12.4, triton 3.0.0"


def test_tasks_of_a_helper_that_died_are_free_again_and_no_two_helpers_get_one() -> None:
    job = make()
    dead, alive = (sharing_services.member_join(job, name, Role.HELPER) for name in ("dead", "alive"))
    configs = [{"BLOCK": 2 ** power} for power in range(4, 10)]
    sharing_services.tasks_put(job, configs, None)
    sharing_services.tasks_put(job, configs[:2], None)                 # given out twice: one row
    assert [task.config for task in sharing_services.tasks_claim(job, "dead", 4)] == configs[:4]
    assert [task.config for task in sharing_services.tasks_claim(job, "alive", 9)] == configs[4:]
    TuneMember.objects.filter(pk=dead.pk).update(heartbeat=timezone.now() - timedelta(seconds=11))
    sharing_services.tasks_release_dead(job)
    dead.refresh_from_db()
    assert dead.left and dead.note == "gave no sign of life" and not sharing_services.member_beat(dead, {})
    assert [task.config for task in sharing_services.tasks_claim(job, "alive", 9)] == configs[:4]
    assert [member.worker for member in sharing_services.live_helpers(job)] == [alive.worker]


def lead_of(job: TuneJob, configs: list[dict[str, Any]], trials: int = 10,
            **given: Any) -> tuple[sharing.SharedStrategy, list[Trial]]:
    from tuner.tuning.space import Space

    recorded: list[Trial] = []
    space = Space.listed(configs)
    shared = sharing.SharedStrategy(job, "lead", ListedConfigs(space, configs), first=given.get("first", []), trials=trials,
                                    clock=lambda: 1.0, refuse=given.get("refuse", lambda config: None), record=recorded.append,
                                    spare=given.get("spare", 0))
    return shared, recorded


def measured(config: dict[str, Any]) -> Trial:
    return Trial(0, config, Measured(1.0, 1.0, 1.0, 5))


def test_the_budget_holds_over_all_workers_and_what_helpers_lost_is_asked_again() -> None:
    job = make()
    worker_services.tune_claim(job.pk, "lead")
    configs = [{"BLOCK": i} for i in range(1, 13)]
    shared, _ = lead_of(job, configs, trials=8)
    shared.load_history([])
    mine = shared.ask(2)
    helper = sharing_services.member_join(job, "h", Role.HELPER)
    shared.share()
    assert sharing_services.count_free_tasks(job) == 3 and shared.trials_left == 3
    assert shared.ask(9) == configs[5:8] and shared.ask(1) == []        # 2 + 3 + 3 are all that may start
    shared.tell([measured(config) for config in (*mine, *configs[5:8])])
    sharing_services.member_leave(helper)
    shared.share()
    assert not TuneTask.objects.exists() and shared.trials_left == 3 and shared.has_waiting
    assert shared.ask(9) == configs[2:5]


def test_more_than_the_budget_starts_once_what_came_first_is_known_and_nobody_helps() -> None:
    job = make()
    worker_services.tune_claim(job.pk, "lead")
    configs = [{"BLOCK": i} for i in range(1, 13)]
    shared, _ = lead_of(job, configs, trials=4, first=[configs[0]], spare=3)
    assert shared.ask(9) == configs[:4]
    shared.tell([measured(configs[0])])
    assert shared.ask(2) == configs[4:6] and shared.ask(9) == configs[6:7] and shared.ask(9) == []
    shared.tell([measured(config) for config in configs[4:7]])
    assert shared.ask(9) == [] and shared.trials_left < 0            # the four that count are known
    helped, _ = lead_of(job, configs, trials=4, spare=3)
    sharing_services.member_join(job, "h", Role.HELPER)
    helped.share()
    assert len(helped.ask(9)) == 4 - sharing_services.count_free_tasks(job)


def test_what_is_in_quarantine_is_a_trial_without_being_run() -> None:
    job = make()
    configs = [{"BLOCK": i} for i in range(1, 5)]
    refused = Rejected(Reason.QUARANTINED, "crashed elsewhere")
    shared, recorded = lead_of(job, configs, first=[{"BLOCK": 3}], refuse=lambda config: refused if config["BLOCK"] < 3 else None)
    shared.load_history([])
    assert shared.ask(9) == [{"BLOCK": 3}, {"BLOCK": 4}]
    assert [(trial.config["BLOCK"], trial.outcome.reason) for trial in recorded] == [(1, "quarantined"), (2, "quarantined")]
    assert [config_key(trial.config) for trial in shared.others()] == [config_key(config) for config in configs[:2]]
    assert shared.others() == []


def test_idle_workers_are_woken_once_and_only_for_their_own_queue_and_gpu() -> None:
    job = make(device="gpu")
    worker_services.tune_claim(job.pk, "lead")
    TuneJob.objects.filter(pk=job.pk).update(gpu="NVIDIA H200")
    jobs.connection().flushdb()
    for name, queue, gpu, busy in (("lead", "gpu", "NVIDIA H200", "tune 1"), ("idle", "gpu", "NVIDIA H200", None),
                                   ("other", "gpu", "NVIDIA A100", None), ("busy", "gpu", "NVIDIA H200", "tune 9"),
                                   ("replay", "replay", "", None), ("differs", "gpu", "NVIDIA H200", None)):
        jobs.announce(name, {"queues": [queue], "gpus": [{"name": gpu}], "busy": busy})
    sharing_services.member_leave(sharing_services.member_join(job, "differs", Role.HELPER), "cannot help: its driver is old")
    assert sharing.wake_helpers(of_job(job), "lead", "gpu") == 1
    assert sharing.wake_helpers(of_job(job), "lead", "gpu") == 0       # its entry still waits
    make(device="gpu")
    jobs.announce("second", {"queues": ["gpu"], "gpus": [{"name": "NVIDIA H200"}], "busy": None})
    assert sharing.wake_helpers(of_job(job), "lead", "gpu") == 0       # a job waits: it goes first


class Thinker:
    """A strategy that takes its time: five configurations, each known only after 0.1 s of thought."""

    def __init__(self) -> None:
        self.heard: list[object] = []
        self.asked = 0

    def ask(self, n: int) -> list[Any]:
        time.sleep(0.1)
        found = [{"BLOCK": number} for number in range(self.asked, min(5, self.asked + n))]
        self.asked += len(found)
        return found

    def tell(self, trials: Any) -> None:
        self.heard += [trial.config["BLOCK"] for trial in trials]

    def tell_facts(self, found: Any) -> None:
        self.heard.append(found)


def test_the_loop_does_not_wait_for_a_strategy_that_thinks() -> None:
    job, thinker = make(), Thinker()
    shared = sharing.SharedStrategy(job, "lead", thinker, first=[], trials=10, clock=lambda: 1.0, refuse=lambda config: None,
                                    record=lambda trial: None, ahead=2)
    assert shared.ask(3) == [{"BLOCK": 0}, {"BLOCK": 1}, {"BLOCK": 2}]      # nothing is ready: it asks for itself
    shared.tell_facts({"key": {"registers": 40}})
    shared.tell([measured({"BLOCK": 0})])
    assert thinker.heard == [], "it is told when there is time to think"
    assert shared.prepare() and thinker.heard == [{"key": {"registers": 40}}, 0]
    thought = thinker.asked
    assert shared.ask(1) == [{"BLOCK": 3}] and thinker.asked == thought, "what was prepared costs no thought"
    assert shared.ask(3) == [{"BLOCK": 4}], "what is ready goes first, the rest is prepared"
    assert not shared.prepare() and shared.ask(1) == []


# ---- as on two hosts ----

@pytest.fixture
def start_host(tmp_path: Path) -> Iterator[Callable[[str], Product]]:
    """`start_host("a")`: a replay worker with a data folder of its own that reaches both servers over TCP."""
    started: list[Product] = []
    database = connection.settings_dict
    with ExitStack() as open_ports:
        rows = open_ports.enter_context(relayed(f"{database['HOST']}/.s.PGSQL.{database['PORT']}"))
        queue = open_ports.enter_context(relayed(settings.REDIS_URL.removeprefix("unix://")))

        def start(name: str) -> Product:
            env = {"DATABASE_URL": f"postgresql://{database['USER']}@127.0.0.1:{rows}/{database['NAME']}",
                   "REDIS_URL": f"redis://127.0.0.1:{queue}"}
            worker = Product(tmp_path / name, "replay", env=env, command="worker")
            started.append(worker)
            worker.wait_for(lambda line: "ready for" in line)
            wait_until(lambda: any(said["pid"] == worker.process.pid for said in jobs.workers()), 10)
            return worker

        yield start
        for worker in started:
            if worker.process.poll() is None:
                worker.stop(signal.SIGTERM)


# in threads: test_a_helper_measures_what_the_lead_gives_out; of a killed lead: tests/workers/core/test_worker.py
@pytest.mark.deep_only
def test_two_hosts_share_a_job_and_the_lead_may_be_killed(start_host: Callable[[str], Product]) -> None:
    hosts = {host.process.pid: host for host in (start_host("a"), start_host("b"))}
    job = make(budget_trials=600, budget_seconds=600)

    def measured_by() -> Counter[str]:
        return Counter(job.trials.values_list("worker", flat=True))

    wait_until(lambda: len(measured_by()) == 2 and min(measured_by().values()) >= 10, 40)
    lead = of_job(job).worker
    os.kill(int(lead.rpartition("-")[2]), signal.SIGKILL)
    hosts.pop(int(lead.rpartition("-")[2])).process.wait()
    kept = {row.pk: (row.number, row.config_key, row.worker) for row in job.trials.all()}
    wait_until(lambda: of_job(job).worker != lead and of_job(job).status == "running", 25)
    before = job.trials.count()
    wait_until(lambda: job.trials.count() >= before + 5, 30)
    control_services.tune_stop(job)
    asked = time.monotonic()
    wait_until(lambda: of_job(job).status == "stopped", 20)
    assert time.monotonic() - asked < 20           # "within a second" on an idle machine
    rows = {row.pk: (row.number, row.config_key, row.worker) for row in job.trials.all()}
    assert kept.items() <= rows.items(), "a trial that was stored is lost"
    assert sorted(number for number, _, _ in rows.values()) == list(range(len(rows)))
    assert len({key for _, key, _ in rows.values()}) == len(rows), "a configuration was tried twice"
