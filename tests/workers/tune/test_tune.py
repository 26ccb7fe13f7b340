"""The job as a worker runs it: row → loop → rows, whole, resumed, stopped, superseded, failed."""

import threading
import time

import pytest
from django.conf import settings
from django.db import connection

from profiles.base.refused import Refused
from tuner import devices
from tuner.jobs import control_services, create_services, page_selectors, selectors, worker_services
from tuner.models import CachedConfig, TrialRow, TuneJob
from workers.leases import Superseded
from workers.tune import lead, runner

# The list of applications makes the flush after each test cascade: a swapped-out token table of knox stays behind.
pytestmark = pytest.mark.django_db(transaction=True, available_apps=settings.INSTALLED_APPS)
MATMUL = {"M": 1024, "N": 1024, "K": 1024}


def make(**changes):
    fields = {"owner": None, "operator": "matmul", "shape": MATMUL, "dtype": "bf16", "device": "replay:matmul",
              "strategy": "local", "budget_trials": 30, "budget_seconds": 60, "seed": 4}
    return create_services.tune_create(**{**fields, **changes})


def run(job, worker="w1", speed=0.0):
    lead.run(job.pk, worker, replay_speed=speed)
    job.refresh_from_db()
    return job


def configs(job):
    return list(job.trials.order_by("number").values_list("config_key", flat=True))


def test_a_whole_job():
    job = run(make())
    assert (job.status, job.trials.count(), job.worker, job.attempts) == ("done", 30, "w1", 1)
    assert job.recorded == "recorded on NVIDIA H200, torch 2.11.0, Triton 3.6.0"
    assert (job.space_size, job.valid_size) == (720, 602)
    assert job.pruned == {"shared memory": 70, "accumulator registers": 48}
    assert job.library_ms == pytest.approx(0.008912, rel=1e-3)
    assert job.trials.get(number=0).median_ms == job.default_ms          # the default configuration comes first
    assert job.best_ms == min(job.trials.exclude(median_ms=None).values_list("median_ms", flat=True)) < job.default_ms
    assert job.finalists[0]["config"] == job.best_config and job.finalists[-1]["default"]
    assert job.heartbeat is None and job.finished
    entry = CachedConfig.objects.get()
    assert (entry.config, entry.shape_bucket, entry.gpu) == (job.best_config, "K=1024 M=1024 N=1024", "NVIDIA H200")
    assert (entry.toolkit, entry.recorded, entry.job) == ("cuda 13.0, triton 3.6.0", job.recorded, job)
    assert entry.evidence["trials"] == 30 and entry.evidence["n"] == 20


def test_a_resumed_job_measures_nothing_twice_and_ends_as_an_uninterrupted_one(monkeypatch):
    whole = configs(run(make()))
    job, real, died = make(), worker_services.trial_record, RuntimeError("killed")

    def dies(job, worker, trial, default=None, **device):
        row = real(job, worker, trial, default, **device)
        if row.number == 11:
            raise died
        return row

    monkeypatch.setattr(worker_services, "trial_record", dies)
    with pytest.raises(RuntimeError):
        run(job)
    monkeypatch.undo()
    TuneJob.objects.filter(pk=job.pk).update(heartbeat=None, elapsed_s=5.0)      # its worker is gone
    run(job, "w2")
    assert (job.status, job.attempts, job.worker) == ("done", 2, "w2")
    assert configs(job) == whole
    assert job.elapsed_s >= 5.0


def test_a_running_job_is_not_taken_by_a_second_worker():
    job = make()
    assert worker_services.tune_claim(job.pk, "w1")
    assert worker_services.tune_claim(job.pk, "w2") is None


def test_what_a_superseded_worker_still_has_is_not_written():
    job = make()
    mine = worker_services.tune_claim(job.pk, "w1")
    TuneJob.objects.filter(pk=job.pk).update(worker="w2")
    runner_trials = list(lead.tune(devices.load_landscape("matmul").space(3), "random",
                                   runner.ReplayRunner(devices.load_landscape("matmul"), 3), lead.Budget(trials=1), 0))
    with pytest.raises(Superseded):
        worker_services.trial_record(mine, "w1", runner_trials[0])
    assert not TrialRow.objects.exists()


def test_stop_while_it_runs_keeps_what_was_measured():
    job = make(strategy="exhaustive", budget_trials=600)
    def run_and_close():
        lead.run(job.pk, "w1")                 # paced as on the page: about 12 trials a second
        connection.close()

    thread = threading.Thread(target=run_and_close)
    thread.start()
    deadline = time.monotonic() + 20
    while TrialRow.objects.filter(job=job).count() < 5 and time.monotonic() < deadline:
        time.sleep(0.05)
    asked = time.monotonic()
    control_services.tune_stop(job)
    thread.join(timeout=30)
    seconds = time.monotonic() - asked
    job.refresh_from_db()
    assert job.status == "stopped" and 5 <= job.trials.count() < 200
    assert seconds < 15                        # "within a second" on an idle machine; the search would take 50 s
    assert job.best_ms and not CachedConfig.objects.exists()


def test_stop_of_a_waiting_job_ends_it_at_once():
    job = control_services.tune_stop(make())
    assert job.status == "stopped"
    assert run(job).trials.count() == 0


def test_budget_in_seconds():
    job = run(make(strategy="exhaustive", budget_trials=600, budget_seconds=1), speed=50.0)
    assert job.status == "done" and 0 < job.trials.count() < 60         # 12 a second here at most; a busy machine has fewer


def test_a_gpu_job_without_a_gpu_fails_with_what_to_do(monkeypatch):
    monkeypatch.setattr(runner.gpu, "gpus", lambda: [])
    job = run(make(device="gpu"))
    assert job.status == "failed"
    assert job.error == {"where": "GPU child", "what": "this worker sees no NVIDIA GPU",
                         "hint": "Start it on a machine with a GPU and its driver."}


def test_a_landscape_that_went_away_fails_the_job():
    job = make()
    TuneJob.objects.filter(pk=job.pk).update(device="replay:gone")
    assert run(job).error["what"] == "there is no such recorded landscape"


def test_too_many_dead_workers_end_the_job():
    job = make()
    TuneJob.objects.filter(pk=job.pk).update(attempts=worker_services.MAX_ATTEMPTS)
    assert "workers died" in run(job).error["what"]


def test_unknown_config_keys_longer_than_the_column_stay_unique():
    long = {f"parameter_{i}": i for i in range(40)}
    assert len(worker_services.row_key(long)) <= 200
    assert worker_services.row_key(long) != worker_services.row_key({**long, "parameter_0": 1})


def test_trials_reach_the_pages_in_batches(monkeypatch):
    told = []
    monkeypatch.setattr(runner.jobs, "publish", lambda topic, event, data: told.append((topic, event, data)))
    began = time.monotonic()
    job = run(make(strategy="exhaustive", budget_trials=120))
    seconds = time.monotonic() - began
    batches = [data["trials"] for topic, event, data in told if (topic, event) == (f"tune.{job.pk}", "trials")]
    assert sorted(trial["number"] for batch in batches for trial in batch) == list(range(120))
    assert len(batches) <= 2 + seconds / 0.2               # a watched job costs messages by the second, not by the trial
    assert all("samples_ms" not in trial["facts"] for batch in batches for trial in batch)


SOFTMAX = {"operator": "softmax", "shape": {"R": 8192, "C": 4096}, "dtype": "fp16", "device": "replay:softmax"}


def test_exhaustive_search_ends_with_the_space_or_its_budget_and_never_on_a_plateau():
    whole = run(make(**SOFTMAX, strategy="exhaustive", budget_trials=None, budget_seconds=None, effort="thorough"))
    assert whole.valid_size == whole.trials.count() <= whole.budget_trials
    assert page_selectors.ended_text(whole, whole.trials.count()) == "the whole space was tried"
    part = run(make(**SOFTMAX, strategy="exhaustive", budget_trials=7, effort="quick"))
    assert (part.ended_by, part.trials.count(), part.plateau) == ("trials", 7, None)
    with pytest.raises(Refused, match="ends with the space or its budget only"):
        make(**SOFTMAX, strategy="exhaustive", plateau=3)


def test_evolution_that_ends_on_its_plateau_says_so():
    job = run(make(strategy="evolutionary", budget_trials=600, plateau=10))
    assert job.ended_by == "plateau" and job.trials.count() < 600
    assert page_selectors.trials_without_gain(selectors.lean_trials(job)) >= 10
    assert page_selectors.ended_text(job, job.trials.count()) == "ended on its plateau: the last 10 trials gained less than 1 %"
