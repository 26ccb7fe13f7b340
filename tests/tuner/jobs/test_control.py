"""Pause, resume, extend, the order of the queue, groups, the quarantine, and what searches know of each other."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest
from django.conf import settings
from django.db import connection
from django.urls import reverse
from django.utils import timezone
from django.utils.html import strip_tags

from profiles.base.refused import Refused
from tuner.jobs import control_services, create_services, quarantine, worker_services
from tuner.models import Quarantine, TuneGroup, TuneJob
from tuner.tuning.measure.runner import Session
from tuner.tuning.trial import Measured, Reason, Rejected, Trial
from workers import jobs, tasks
from workers.tune import lead

pytestmark = pytest.mark.django_db(transaction=True, available_apps=settings.INSTALLED_APPS)
MATMULS = [{"M": 1024, "N": 1024, "K": 1024}, {"M": 4096, "N": 4096, "K": 4096}, {"M": 16, "N": 4096, "K": 4096}]
H200 = Session("NVIDIA H200", "9.0", environment={"cuda": "13.0", "triton": "3.6.0", "source_hash": "f" * 64})


@pytest.fixture(autouse=True)
def empty_queues() -> None:
    jobs.connection().flushdb()


def make(**changes: Any) -> TuneJob:
    fields = {"owner": None, "operator": "matmul", "shape": MATMULS[0], "dtype": "bf16", "device": "replay:matmul",
              "strategy": "random", "budget_trials": 10, "budget_seconds": 60}
    return create_services.tune_create(**{**fields, **changes})


def run(job: TuneJob, worker: str = "w", speed: float = 0.0) -> TuneJob:
    lead.run(job.pk, worker, replay_speed=speed)
    job.refresh_from_db()
    return job


def _in_thread(job_id: int, worker: str) -> None:
    try:
        lead.run(job_id, worker)
    finally:
        connection.close()


def order() -> list[int]:
    return list(control_services.waiting_jobs().values_list("pk", flat=True))


# ---- pause, resume, extend ----

def test_a_running_job_rests_within_a_second_and_goes_on_from_its_rows() -> None:
    job = make(strategy="exhaustive", budget_trials=60)
    thread = threading.Thread(target=_in_thread, args=(job.pk, "w1"))
    thread.start()
    end = time.monotonic() + 20
    while job.trials.count() < 5 and time.monotonic() < end:
        time.sleep(0.05)
    asked = time.monotonic()
    control_services.tune_pause(job)
    thread.join(30)
    assert time.monotonic() - asked < 20                 # "within a second" on an idle machine
    job.refresh_from_db()
    assert (job.status, job.worker, job.heartbeat, job.pause_requested, job.attempts) == ("paused", "", None, False, 0)
    before = list(job.trials.values_list("config_key", "created"))
    assert worker_services.tune_claim(job.pk, "w2") is None, "a job that rests is nobody's"
    control_services.tune_resume(job)
    assert job.pk in jobs.waiting("tune")
    assert run(job).status == "done" and job.trials.count() == 60
    assert list(job.trials.values_list("config_key", "created"))[:len(before)] == before


def test_pause_of_a_waiting_job_takes_it_out_of_the_queue_and_stop_ends_it() -> None:
    job = control_services.tune_pause(make())
    assert job.status == "paused" and order() == []
    assert control_services.tune_stop(job).status == "stopped"
    assert control_services.tune_resume(job).status == "stopped", "what has ended is extended, not resumed"


def test_extend_goes_on_where_the_budget_ended() -> None:
    job = run(make())
    assert (job.status, job.ended_by, job.trials.count()) == ("done", "trials", 10)
    keys = set(job.trials.values_list("config_key", flat=True))
    extended = control_services.tune_extend(job, trials=15)
    assert (extended.status, extended.budget_trials, extended.budget_seconds) == ("queued", 25, 150.0)
    assert run(job).trials.count() == 25 and job.status == "done"
    assert keys <= set(job.trials.values_list("config_key", flat=True))


def test_extend_while_it_runs_is_followed_without_a_restart(monkeypatch: pytest.MonkeyPatch) -> None:
    job, real = make(), worker_services.trial_record

    def extends(*given: Any, **named: Any) -> Any:
        row = real(*given, **named)
        if row.number == 8:
            control_services.tune_extend(job, trials=12)
        return row

    monkeypatch.setattr(worker_services, "trial_record", extends)
    assert run(job).trials.count() == 22 and job.attempts == 1


def test_extend_while_the_finalists_are_measured_is_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    job, real = make(), lead.measure_finalists

    def extends(*given: Any) -> Any:
        control_services.tune_extend(TuneJob.objects.get(pk=job.pk), trials=12)
        return real(*given)

    monkeypatch.setattr(lead, "measure_finalists", extends)
    assert (run(job).status, job.ended_by, job.finished) == ("queued", "", None)
    assert job.pk in jobs.waiting("tune")
    monkeypatch.setattr(lead, "measure_finalists", real)
    assert run(job).status == "done" and job.trials.count() == 22


def test_two_people_s_extensions_add_up() -> None:
    job = run(make())
    stale = TuneJob.objects.get(pk=job.pk)
    control_services.tune_extend(job, trials=10)
    assert control_services.tune_extend(stale, trials=10).budget_trials == 30


@pytest.mark.parametrize("given", [{}, {"trials": -3}, {"seconds": float("nan")}, {"trials": 0, "seconds": 0.0}])
def test_an_extension_must_give_something(given: dict[str, Any]) -> None:
    with pytest.raises(Refused):
        control_services.tune_extend(make(), **given)


def test_a_plateau_ends_the_search_and_an_extension_goes_past_it() -> None:
    job = run(make(strategy="random", budget_trials=600, plateau=20, seed=3))
    assert job.ended_by == "plateau" and 20 < job.trials.count() < 600
    last = job.trials.count()
    best_at = next(row.number for row in job.trials.all() if row.median_ms == job.best_ms)
    assert last - 1 - best_at >= 19 or best_at < last
    control_services.tune_extend(job, trials=5)
    assert run(job).trials.count() == last + 5


def test_an_effort_gives_the_numbers_and_one_s_own_go_before() -> None:
    quick = make(effort="quick", budget_trials=None, budget_seconds=None)
    assert (quick.budget_trials, quick.budget_seconds, quick.plateau) == (30, 90, 15)
    assert make(effort="quick", budget_trials=7, budget_seconds=None).budget_trials == 7
    with pytest.raises(Refused) as wrong:
        make(effort="heroic", budget_trials=None)
    assert set(wrong.value.fields) == {"effort", "budget_trials"}


def test_the_space_ends_a_full_search() -> None:
    shape = {"R": 8192, "C": 4096}
    job = run(make(operator="softmax", shape=shape, dtype="fp16", device="replay:softmax", effort="full", budget_trials=None,
                   budget_seconds=None, strategy="exhaustive", space={"parameters": {"num_warps": [8]}}))
    assert job.ended_by == "space" and job.trials.count() == job.valid_size


def test_listed_configurations_are_measured_beside_the_default_and_nothing_else() -> None:
    configs = [row.config for row in run(make(seed=5)).trials.all()[3:6]]
    again = run(make(only=configs))
    assert [row.config for row in again.trials.all()][:3] == configs
    assert again.trials.count() == 4 and again.default_ms


@pytest.mark.parametrize("only", [[], [{"BLOCK": float("inf")}], [{"BLOCK": [1]}], ["BLOCK"], [{}], [{"x": 1}] * 300])
def test_what_is_no_configuration_is_refused(only: Any) -> None:
    with pytest.raises(Refused):
        make(only=only)


# ---- the queue ----

def test_jobs_wait_in_the_order_of_their_worth_and_a_person_s_word_goes_first() -> None:
    small, unknown, large = make(worth_s=5.0), make(), make(worth_s=90.0)
    assert order() == [large.pk, small.pk, unknown.pk]
    assert control_services.queue_move(unknown, before=small) == [large.pk, unknown.pk, small.pk]
    larger = make(worth_s=900.0)
    assert order() == [large.pk, unknown.pk, larger.pk, small.pk]       # what stood in front keeps its place
    control_services.queue_move(large, after=small)
    assert order() == [unknown.pk, larger.pk, small.pk, large.pk]
    control_services.queue_reset()
    assert order() == [larger.pk, large.pk, small.pk, unknown.pk]


def test_a_job_moved_beside_itself_or_beside_one_that_was_taken_up_stays_where_it_is() -> None:
    first, second, third = make(), make(), make()
    assert control_services.queue_move(first, before=first) == [first.pk, second.pk, third.pk]
    worker_services.tune_claim(first.pk, "w")
    assert control_services.queue_move(second, before=first) == [second.pk, third.pk]
    assert control_services.queue_move(second, after=first) == [second.pk, third.pk]
    assert not TuneJob.objects.filter(priority__isnull=False).exists()


def test_an_entry_wakes_the_worker_for_the_first_job_not_for_its_own() -> None:
    first, second = make(), make(worth_s=10.0)
    assert tasks.next_job_id(first.pk) == second.pk
    TuneJob.objects.filter(pk=first.pk).update(status="running", heartbeat=None)
    assert tasks.next_job_id(first.pk) == first.pk, "a job whose worker died goes on before others begin"
    control_services.tune_stop(second)
    TuneJob.objects.filter(pk=first.pk).update(heartbeat=timezone.now())
    assert tasks.next_job_id(first.pk) is None


def test_a_job_for_one_model_waits_for_a_worker_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    make(device="replay:matmul")
    h200, anywhere = make(device="gpu:NVIDIA H200", worth_s=9.0), make(device="gpu", worth_s=1.0)
    assert control_services.next_job(h200.pk, "gpu", {"NVIDIA A100"}) == anywhere.pk
    assert control_services.next_job(anywhere.pk, "gpu", {"NVIDIA H200"}) == h200.pk
    with pytest.raises(Refused):
        make(device="gpu:")


# ---- groups ----

def test_a_group_is_a_job_per_shape_and_stops_as_one(api: Any, alice: Any) -> None:
    shapes = [{"operator": "matmul", "shape": shape, "dtype": "bf16"} for shape in MATMULS[:2]]
    asked = {"name": "a model's shapes", "shapes": shapes, "device": "replay:matmul", "strategy": "random", "effort": "quick"}
    answer = api(alice).post(reverse("api-groups"), asked, format="json")
    assert answer.status_code == 201
    group = TuneGroup.objects.get()
    assert [job["shape"] for job in answer.json()["jobs"]] == MATMULS[:2] and group.owner == alice
    run(group.jobs.first())
    told = api(alice).get(reverse("api-group", args=[group.pk])).json()
    assert told["statuses"] == {"done": 1, "queued": 1} and told["speedup"] >= 1 and not told["ended"]
    assert api(alice).post(reverse("api-group-action", args=[group.pk, "stop"])).json()["statuses"] == {"done": 1, "stopped": 1}


def test_a_group_with_one_wrong_shape_is_not_made(api: Any, alice: Any) -> None:
    asked = {"name": "g", "device": "replay:matmul", "strategy": "random", "effort": "quick",
             "shapes": [{"operator": "matmul", "shape": shape, "dtype": "bf16"} for shape in (MATMULS[0], {"M": 3})]}
    answer = api(alice).post(reverse("api-groups"), asked, format="json")
    assert answer.status_code == 400 and "shapes[1].shape" in answer.json()["error"]
    assert not TuneGroup.objects.exists() and not TuneJob.objects.exists() and not jobs.waiting("tune")


# ---- what searches know of each other ----

def test_a_search_is_told_of_other_shapes_and_never_of_its_own() -> None:
    first, other = run(make(seed=1)), run(make(shape=MATMULS[1], seed=2))
    again = make(seed=3)
    session = Session(first.gpu, "9.0", recorded=first.recorded, environment={"cuda": "13.0", "triton": "3.6.0"}, flops=7)
    known = worker_services.prior_knowledge(again, session, {"a": 1})
    assert [(past.shape, past.toolkit, past.gpu.compute_capability) for past in known.past] == [
        (other.shape, "cuda 13.0, triton 3.6.0", "9.0")]
    assert len(known.past[0].trials) == 10 and known.default == {"a": 1} and known.flops == 7
    assert (known.past[0].flops, known.past[0].bytes) == (2 * 4096 ** 3, 2 * 3 * 4096 ** 2)
    assert all("samples_ms" not in trial.outcome.facts for trial in known.past[0].trials)
    live = worker_services.past_searches(again, Session(first.gpu, "9.0", environment={"cuda": "13.3", "triton": "3.8.0"}))
    assert {tuple(past.shape.values()) for past in live} == {tuple(MATMULS[0].values()), tuple(MATMULS[1].values())}
    measured = Session("NVIDIA H200", "9.0", environment={"cuda": "13.3", "triton": "3.8.0", "sms": 132})
    told = worker_services.prior_knowledge(again, measured, {"a": 1}).past
    assert list(told[:len(live)]) == live and len(told) > 10        # those that come with Ridgepoint follow


# ---- quarantine ----

def gpu_job(**changes: Any) -> TuneJob:
    job = make(**{"device": "gpu", **changes})
    worker_services.tune_claim(job.pk, "w")
    TuneJob.objects.filter(pk=job.pk).update(gpu="NVIDIA H200", toolkit="cuda 13.0, triton 3.6.0", source_hash="f" * 64)
    job.refresh_from_db()
    return job


def fail(job: TuneJob, config: dict[str, Any], reason: Reason) -> None:
    trial = Trial(0, config, Rejected(reason, "an illegal memory access"))
    worker_services.trial_record(job, "w", trial, gpu_uuid="GPU-1", capability="9.0")


def test_what_crashed_hung_or_lied_is_refused_elsewhere_and_what_did_not_fit_is_not() -> None:
    job = gpu_job()
    for value, reason in enumerate((Reason.CRASH, Reason.TIMEOUT, Reason.WRONG, Reason.RESOURCES, Reason.COMPILE, Reason.SPILLS)):
        fail(job, {"BLOCK": value}, reason)
    assert sorted(Quarantine.objects.values_list("reason", flat=True)) == ["crash", "timeout", "wrong"]
    assert quarantine.refused_configs(job, "9.0") == {}, "its own failures are in its own trials"
    other = gpu_job(shape=MATMULS[1])
    refused = quarantine.refused_configs(other, "9.0")
    assert set(refused) == {'{"BLOCK":0}', '{"BLOCK":1}', '{"BLOCK":2}'}
    assert refused['{"BLOCK":0}'].reason == "quarantined"
    assert refused['{"BLOCK":1}'].message.startswith("hung at M=1024 N=1024 K=1024 on NVIDIA H200 in job")
    assert quarantine.refused_configs(other, "8.0") == {}
    for changed in ({"toolkit": "cuda 13.3, triton 3.8.0"}, {"source_hash": "0" * 64}, {"dtype": "fp16"}):
        different = gpu_job()
        for name, value in changed.items():
            setattr(different, name, value)
        assert quarantine.refused_configs(different, "9.0") == {}


def test_lifting_it_gives_a_new_chance_until_it_fails_again(client: Any, alice: Any, bob: Any, sign_in_mode: None) -> None:
    fail(gpu_job(), {"BLOCK": 1}, Reason.CRASH)
    row = Quarantine.objects.get()
    client.force_login(bob)
    assert reverse("quarantine-lift", args=[row.pk]) not in client.get(reverse("quarantine-list")).content.decode()
    page = " ".join(strip_tags(client.get(reverse("quarantine-list")).content.decode()).split())
    assert "1 configuration quarantined: 1 crashed" in page and "BLOCK=1" in page
    assert client.post(reverse("quarantine-lift", args=[row.pk])).status_code == 403
    client.force_login(alice)
    page = client.post(reverse("quarantine-lift", args=[row.pk]), follow=True).content.decode()
    row.refresh_from_db()
    assert row.lifted and row.lifted_by == alice and "Nothing quarantined" in page and "alice" in page
    other = gpu_job()
    assert quarantine.refused_configs(other, "9.0") == {}
    fail(other, {"BLOCK": 1}, Reason.CRASH)
    row.refresh_from_db()
    assert (row.lifted, row.lifted_by, row.count, row.job) == (None, None, 2, other)


def test_a_gpu_on_which_nothing_runs_accuses_no_configuration() -> None:
    job = gpu_job()
    fail(job, {"BLOCK": 1}, Reason.CRASH)
    worker_services.tune_fail(job, "w", "search", "no configuration could be measured", "")
    assert not Quarantine.objects.exists()
    fine = gpu_job()
    worker_services.trial_record(fine, "w", Trial(0, {"BLOCK": 2}, Measured(1.0, 1.0, 1.0, 5)), gpu_uuid="GPU-1", capability="9.0")
    fail(fine, {"BLOCK": 1}, Reason.CRASH)
    worker_services.tune_fail(fine, "w", "search", "the GPU fell off the bus", "")
    assert Quarantine.objects.count() == 1


def test_a_raced_trial_is_never_the_best() -> None:
    job = gpu_job()
    worker_services.trial_record(job, "w", Trial(0, {"BLOCK": 1}, Measured(2.0, 2.0, 2.0, 20)))
    worker_services.trial_record(job, "w", Trial(1, {"BLOCK": 2}, Measured(1.0, 1.0, 1.0, 3, {"ended": "raced"})))
    job.refresh_from_db()
    assert (job.best_ms, job.best_config) == (2.0, {"BLOCK": 1})


# ---- API ----

def test_the_api_does_the_same(api: Any, alice: Any, bob: Any) -> None:
    job, other = make(), make()
    alices = api(alice)
    assert api(bob).post(reverse("api-tune-pause", args=[job.pk])).status_code == 403
    assert alices.post(reverse("api-tune-pause", args=[job.pk])).json()["status"] == "paused"
    assert alices.post(reverse("api-tune-resume", args=[job.pk])).json()["status"] == "queued"
    assert alices.post(reverse("api-tune-extend", args=[job.pk]), {"trials": 5}, format="json").json()["budget_trials"] == 15
    assert alices.post(reverse("api-tune-extend", args=[job.pk]), {}, format="json").status_code == 400
    moved = alices.post(reverse("api-tune-move", args=[other.pk]), {"before": job.pk}, format="json").json()
    assert moved["queue"] == [other.pk, job.pk]
    assert [one["id"] for one in alices.get(reverse("api-queue")).json()["queue"]] == [other.pk, job.pk]
    assert alices.post(reverse("api-queue")).json()["queue"] == [job.pk, other.pk]
    assert alices.get(reverse("api-quarantine")).json() == {
        "total": 0, "count": 0, "next_offset": None, "quarantine": []}
    efforts = [one["name"] for one in alices.get(reverse("api-efforts")).json()["efforts"]]
    assert efforts == ["none", "quick", "normal", "thorough", "full"]
    quarantine.quarantine_config(gpu_job(), Rejected(Reason.CRASH, "x"), {"BLOCK": 1}, "9.0")
    row = alices.get(reverse("api-quarantine")).json()["quarantine"][0]
    assert row["reason"] == "crash" and alices.post(reverse("api-quarantine-lift", args=[row["id"]])).json()["lifted_by"] == "alice"
