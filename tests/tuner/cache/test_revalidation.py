"""Cached winners measured again by the suite's machinery: over recorded runs of an H200, pages, API, and what may go wrong."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from django.urls import reverse
from django.utils import timezone

from profiles.base.refused import Refused
from tests.tuner.gate.recorded_suite import nobody_watches
from tuner.cache import rules
from tuner.cache.entries import selectors
from tuner.gate.builds.services import ensure_build
from tuner.gate.history.series_services import wake_stale_series
from tuner.gate.suites import job_services, run_services
from tuner.gate.verdicts.services import stop_job
from tuner.models import Build, CachedConfig, GpuEnvironment, KernelRun, Quarantine, RevalidationPolicy, Suite, SuiteJob
from tuner.revalidation import policy_services as environment_services
from tuner.revalidation import selectors as revalidation_selectors
from tuner.revalidation import services
from tuner.tuning.operators import OPERATORS, limits
from workers import jobs, sweep
from workers.gate import suite

pytestmark = pytest.mark.django_db

GPU = "NVIDIA H200"
OLD, NEW = "cuda 12.8, triton 3.5.0", "cuda 13.0, triton 3.6.0"
LARGE, SMALL = {"R": 8192, "C": 4096}, {"R": 1024, "C": 1024}
FAST, MIDDLE = {"STEPS": 3, "PER_SM": 32, "num_warps": 8}, {"STEPS": 3, "PER_SM": 16, "num_warps": 8}      # 38.5, 40.4 µs
SLOW = {"STEPS": 3, "PER_SM": 8, "num_warps": 8}                                                           # 41.2 µs
WORSE_SMALL = {"STEPS": 2, "PER_SM": 2, "num_warps": 4, "ROWS": 1, "BLOCK": 0}                  # 8.4 µs; the default takes 6.7
RECORDED = "replay:timing_runs"


@pytest.fixture(autouse=True)
def alone(monkeypatch: Any) -> None:
    nobody_watches(monkeypatch)


@pytest.fixture
def slow_default(monkeypatch: Any) -> None:
    """The recording lacks softmax's own default at 8192 × 4096: another recorded configuration takes its place."""
    monkeypatch.setitem(OPERATORS, "softmax", replace(OPERATORS["softmax"], default_config=lambda *asked: dict(SLOW)))


def complete(config: dict[str, Any]) -> dict[str, Any]:
    return dict(OPERATORS["softmax"].complete(config))


def winner(config: dict[str, Any] = FAST, shape: dict[str, int] = LARGE, ties: Any = (), **fields: Any) -> CachedConfig:
    """Of a tune job under an older toolkit."""
    return CachedConfig.objects.create(**{
        "operator": "softmax", "dtype": "fp16", "shape": shape, "shape_key": f"C={shape['C']} R={shape['R']}", "gpu": GPU,
        "shape_bucket": selectors.bucket("softmax", shape), "compute_capability": "9.0", "toolkit": OLD, "driver": "570.1",
        "policy": "cold", "config": complete(config), "median_ms": 0.03, "default_ms": 0.04, "library_ms": 0.035,
        "state": rules.State.UNVERIFIED, "evidence": {"ties": [complete(each) for each in ties]}, **fields})


def measured(*entries: CachedConfig, device: str = RECORDED, owner: Any = None) -> SuiteJob:
    (job,) = services.revalidate(entries, owner, device=device)
    suite.run(job.pk, "worker-1", pace=0)
    job.refresh_from_db()
    assert job.status == "done", job.error
    return job


def only_found(job: SuiteJob) -> dict[str, Any]:
    (found,) = job.about["found"].values()
    return dict(found)


# ---- what serves ----

def test_a_winner_that_is_still_faster_stays_with_its_new_numbers(slow_default: None) -> None:
    old = winner(ties=[MIDDLE])
    job = measured(old)
    assert [each["build"] for each in job.builds] == ["operator's default", "cached winner", "near tie 1"]
    processes = KernelRun.objects.filter(job=job)
    assert processes.values("run").distinct().count() == 3 * job.runs == processes.count()
    new = CachedConfig.objects.exclude(pk=old.pk).get()
    assert new.config == old.config and (new.toolkit, new.recorded) == (NEW, job.recorded)
    assert new.median_ms == pytest.approx(0.0385, rel=0.01) and new.default_ms == pytest.approx(0.0412, rel=0.01)
    assert new.library_ms is None                                                  # nobody measured that again
    guard = new.evidence["guard"]
    assert guard["verdict"] == "faster" and 1.05 < guard["low"] < guard["ratio"] < guard["high"] < 1.1
    assert f"{job.runs} against {job.runs} fresh processes" in guard["how"]
    assert new.evidence["revalidation"]["job"] == job.pk and new.evidence["n"] == 100 * job.runs
    assert new.evidence["ties"] == [complete(MIDDLE)]                              # a rival for the next time
    assert only_found(job)["written"] == new.pk and "cached winner stays" in only_found(job)["says"]


def test_a_winner_that_is_slower_now_gives_way_to_the_default() -> None:
    old = winner(WORSE_SMALL, SMALL)
    job = measured(old, device="replay:timing_runs_lead")
    new = CachedConfig.objects.exclude(pk=old.pk).get()
    default = OPERATORS["softmax"].default_config(SMALL, "fp16", limits(GPU))
    assert new.config == complete(dict(default)) and new.evidence["guard"]["verdict"] == "slower"
    assert new.evidence["guard"]["high"] < 1 and new.median_ms == new.default_ms == pytest.approx(0.00666, rel=0.03)
    assert selectors.as_entry(new).gain is None
    assert revalidation_selectors.outcome_counts(job) == {"default": 1}


def test_a_rival_that_is_faster_takes_its_place(slow_default: None) -> None:
    old = winner(MIDDLE, ties=[FAST])
    job = measured(old)
    new = CachedConfig.objects.exclude(pk=old.pk).get()
    assert new.config == complete(FAST) and only_found(job)["serves"] == "near tie 1"
    assert new.evidence["revalidation"]["was"] == complete(MIDDLE)
    assert "near tie 1 serves now" in new.evidence["history"][-1]["says"]


def test_where_the_default_cannot_be_measured_nothing_changes() -> None:
    old = winner()                                                # its real default was never recorded
    job = measured(old)
    assert list(CachedConfig.objects.values_list("pk", flat=True)) == [old.pk]
    assert only_found(job)["written"] is None and "is not recorded" in only_found(job)["says"]
    assert revalidation_selectors.outcome_counts(job) == {"unknown": 1} and not Quarantine.objects.exists()


def here(job: SuiteJob, times: dict[str, list[float]], refused: dict[tuple[str, int], str] | None = None) -> None:
    """What a gpu worker stores of a job: medians in µs by side; `refused`: by side and run."""
    claimed = job_services.job_claim(job.pk, "worker-1")
    assert claimed is not None
    for turn in job_services.job_turns_left(claimed):
        for kernel in turn.kernels:
            us = times[turn.build][turn.number % len(times[turn.build])]
            why = (refused or {}).get((turn.build, turn.number), "")
            run_services.run_record(
                claimed, kernel, turn.build, number=turn.number, run=f"{job.pk} {turn.build} {turn.number}", rejected=why,
                us=[] if why else [us * (1 + 0.001 * (at % 5 - 2)) for at in range(25)], gpu=GPU, toolkit=NEW, driver="580.159",
                config=turn.configs[kernel.key], source_hash="cd34", worker="worker-1")
    job_services.job_set_session(claimed, "worker-1", environment={"gpu": GPU, "compute_capability": "9.0", "triton": "3.6.0"})
    assert job_services.job_finish(claimed, "worker-1")
    suite.continue_followers(job.pk)
    job.refresh_from_db()


SIDE = {"operator's default": [40.0, 40.1, 39.9, 40.2, 39.8], "cached winner": [36.0, 36.1, 35.9, 36.2, 35.8]}


def test_measured_here_the_old_entry_turns_stale_and_serves_only_its_own_toolkit(alice: Any) -> None:
    old, imported = winner(), winner(shape=SMALL, origin="import", toolkit="")
    (job,) = services.revalidate([old, imported], alice)
    assert job.device == f"gpu:{GPU}" and len(job.about["entries"]) == 2 and job.owner == alice
    here(job, SIDE)
    old.refresh_from_db()
    imported.refresh_from_db()
    new, proven = CachedConfig.objects.exclude(pk__in=[old.pk, imported.pk]).order_by("shape_key").reverse()
    assert (new.state, new.driver, new.source_hash, new.origin) == ("verified", "580.159", "cd34", "tune")
    assert (old.state, imported.state, proven.origin) == ("stale", "stale", "tune")
    assert f"re-validation {job.pk}" in old.state_why
    served = selectors.config_best("softmax", "fp16", GPU, LARGE, NEW)
    assert (served["rule"], served["entry"]["id"]) == ("exact", new.pk)
    assert selectors.config_best("softmax", "fp16", GPU, LARGE, OLD)["entry"]["id"] == old.pk
    assert revalidation_selectors.waiting_entries() == []
    assert GpuEnvironment.objects.filter(gpu=GPU, toolkit=NEW).exists()


def test_a_run_that_failed_is_measured_once_more_and_then_quarantined(alice: Any) -> None:
    old = winner()
    (job,) = services.revalidate([old], alice)
    here(job, SIDE, {("cached winner", 1): "wrong: 12 of 33554432 elements differ"})
    again = SuiteJob.objects.get(pk=job.about["again"])
    assert only_found(job)["open"] and not Quarantine.objects.exists() and CachedConfig.objects.get() == old
    assert again.about["first"] == job.pk and again.runs >= job.runs and again.owner == alice
    here(again, SIDE, {("cached winner", 2): "wrong: 3 of 33554432 elements differ"})
    new = CachedConfig.objects.exclude(pk=old.pk).get()
    assert again.about["again"] is None and new.config != old.config and "failed in 1 run" in only_found(again)["says"]
    banned = Quarantine.objects.get()
    assert (banned.reason, banned.config, banned.capability, banned.toolkit) == ("wrong", old.config, "9.0", NEW)
    assert revalidation_selectors.entry_sides(old).keys() == {"operator's default"}      # it is not run again


def test_a_run_that_the_host_failed_says_nothing_of_the_configuration(alice: Any) -> None:
    (job,) = services.revalidate([winner()], alice)
    SuiteJob.objects.filter(pk=job.pk).update(runs=6)
    here(job, SIDE, {("cached winner", 1): "open: no answer within 180 s", ("operator's default", 2): "other: busy"})
    assert only_found(job)["serves"] == "cached winner" and not Quarantine.objects.exists()


def test_noise_is_measured_once_more_with_more_runs(alice: Any) -> None:
    old = winner()
    (job,) = services.revalidate([old], alice)
    here(job, {**SIDE, "cached winner": [30.0, 49.0, 35.0, 52.0, 33.0, 47.0]})
    again = SuiteJob.objects.get(pk=job.about["again"])
    here(again, SIDE)
    assert only_found(again)["serves"] == "cached winner" and CachedConfig.objects.count() == 2


def test_a_tune_jobs_newer_winner_is_left_alone(alice: Any) -> None:
    old = winner()
    (job,) = services.revalidate([old], alice)
    fields = {"toolkit": NEW, "driver": "580.159", "source_hash": "cd34", "state": "verified"}
    newer = winner({"STEPS": 4, "PER_SM": 32, "num_warps": 8}, **fields)
    here(job, SIDE)
    newer.refresh_from_db()
    assert newer.config["STEPS"] == 4 and only_found(job)["written"] is None and "meanwhile" in only_found(job)["says"]


def test_an_entry_that_was_taken_out_or_deleted_meanwhile_is_not_written(alice: Any) -> None:
    out, gone = winner(), winner(shape=SMALL)
    (job,) = services.revalidate([out, gone], alice)
    CachedConfig.objects.filter(pk=out.pk).update(state="quarantined")
    CachedConfig.objects.filter(pk=gone.pk).delete()
    here(job, SIDE)
    assert CachedConfig.objects.get() == out
    says = " ".join(each["says"] for each in job.about["found"].values())
    assert "out of service" in says and "deleted" in says


# ---- jobs ----

def test_a_killed_workers_job_goes_on_and_is_decided_once(slow_default: None, alice: Any, monkeypatch: Any) -> None:
    (job,) = services.revalidate([winner()], alice, device=RECORDED)
    claimed = job_services.job_claim(job.pk, "dies")
    turns = job_services.job_turns_left(claimed)
    kernel = turns[0].kernels[0]
    run_services.run_record(
        claimed, kernel, turns[0].build, number=0, run="before the kill", us=[41.2 + 0.01 * at for at in range(20)], gpu=GPU,
        toolkit=NEW, driver="580.159", config=complete(SLOW), recorded="recorded on NVIDIA H200, torch 2.11.0, Triton 3.6.0",
        facts={"recorded_in": "timing_runs", "recorded_run": 1})
    SuiteJob.objects.filter(pk=job.pk).update(heartbeat=timezone.now() - timedelta(minutes=1))
    monkeypatch.setattr(suite, "continue_followers", lambda job_id: None)      # the second worker dies before it decides
    suite.run(job.pk, "worker-2", pace=0)
    job.refresh_from_db()
    assert job.status == "done" and KernelRun.objects.filter(job=job, run="before the kill").count() == 1
    assert KernelRun.objects.filter(job=job).count() == 2 * job.runs and "decided" not in job.about
    assert services.revalidate([CachedConfig.objects.get()], alice, device=RECORDED) == []      # it is under way
    jobs.connection().delete(sweep._TURN_KEY, sweep._DOUBT_KEY)
    sweep.sweep()
    job.refresh_from_db()
    assert only_found(job)["serves"] == "cached winner" and CachedConfig.objects.count() == 2
    assert not services.decide(job.pk)


def test_what_cannot_be_judged_is_given_up_and_stops_nobody_else(alice: Any, monkeypatch: Any) -> None:
    broken, fine = (services.revalidate([winner(shape=shape)], alice)[0] for shape in (LARGE, SMALL))
    monkeypatch.setattr(suite, "continue_followers", lambda job_id: None)
    for job in (broken, fine):
        here(job, SIDE)
    SuiteJob.objects.filter(pk=broken.pk).update(about={**broken.about, "round": None})
    assert services.decide_measured_jobs() == [fine.pk]
    broken.refresh_from_db()
    assert broken.status == "failed" and "could not be judged" in broken.error["what"]
    assert services.decide_measured_jobs() == []


def test_a_job_that_is_stopped_or_fails_leaves_the_cache_as_it_was(alice: Any) -> None:
    entry = winner()
    (job,) = services.revalidate([entry], alice)
    assert services.revalidate([entry], alice) == []
    assert stop_job(job) and not services.decide(job.pk)
    (other,) = services.revalidate([entry], alice)                    # whoever stopped it may ask again
    job_services.job_claim(other.pk, "w")
    job_services.job_fail(other, "w", "GPU", "it fell off the bus", "")
    suite.continue_followers(other.pk)
    entry.refresh_from_db()
    assert entry.state == "unverified" and CachedConfig.objects.count() == 1
    RevalidationPolicy.objects.create(by_itself=True, by=alice)
    assert environment_services.wake_revalidations() == []                         # what failed is not repeated by itself


def test_a_host_that_is_behind_is_not_measured_over_and_over(alice: Any) -> None:
    """The GPU model was seen with something newer than the worker that measures has: the new entry is doubtful at once."""
    GpuEnvironment.objects.create(gpu=GPU, toolkit="cuda 13.1, triton 3.8.0", driver="590.1")
    RevalidationPolicy.objects.create(by_itself=True, by=alice)
    winner()
    (pk,) = environment_services.wake_revalidations()
    here(SuiteJob.objects.get(pk=pk), SIDE)
    new = CachedConfig.objects.get(toolkit=NEW)
    assert new.state == "unverified" and "was seen since" in new.state_why
    assert environment_services.wake_revalidations() == []


def test_entries_of_one_gpu_share_jobs_the_hottest_first(alice: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(services, "MOST_ENTRIES", 2)
    rows = [winner(shape={"R": 64 * n, "C": 4096}, median_ms=0.02 + n / 1000) for n in range(1, 4)]
    other = winner(gpu="NVIDIA B200", compute_capability="10.0")
    broken = winner({"BLOCK": 1}, {"R": 32, "C": 64})
    made = services.revalidate([*rows, other, broken], alice)
    assert sorted(len(job.about["entries"]) for job in made) == [1, 1, 2]
    first = next(job for job in made if len(job.about["entries"]) == 2)
    assert set(first.about["entries"].values()) == {rows[0].pk, rows[1].pk}
    assert {job.suite.name for job in made} == {"cached winners, cold: NVIDIA H200", "cached winners, cold: NVIDIA B200"}
    assert revalidation_selectors.expected_seconds(rows[:2]) == pytest.approx(first.about["expected_s"])
    assert revalidation_selectors.why_not(broken).startswith("its configuration does not name")


# ---- nobody takes it for the team's ----

def test_its_suite_and_its_sides_show_nowhere_among_the_teams(client: Any, alice: Any, slow_default: None) -> None:
    job = measured(winner(), owner=alice)
    assert not Suite.objects.exists() and not Build.objects.exists() and Build.everything.count() == 2
    client.force_login(alice)
    for name, args in (("suite-list", []), ("build-list", []), ("gate-new", []), ("environments", []), ("home", [])):
        page = client.get(reverse(name, args=args))
        assert page.status_code == 200
        text = page.content.decode()
        assert "cached winners, cold" not in text and "near tie" not in text, name
    assert client.get(reverse("suite", args=[job.suite_id])).status_code == 404
    assert client.get(reverse("api-suites")).json()["suites"] == []
    assert client.get(reverse("build", args=["cached winner"])).status_code == 404
    assert client.post(reverse("api-suite-jobs", args=[job.suite.name]), {"builds": ["b"]}).status_code == 404
    assert wake_stale_series() == []
    with pytest.raises(Refused, match="a side of its own"):
        ensure_build("cached winner")


# ---- people and programs ----

def test_the_page_follows_a_job_from_the_button_to_what_serves(client: Any, alice: Any, bob: Any, slow_default: None,
                                                                monkeypatch: Any) -> None:
    entry = winner(ties=[MIDDLE])
    client.force_login(bob)
    assert client.post(reverse("cache-revalidate"), {"entry": entry.pk}).status_code == 403
    client.force_login(alice)
    page = client.get(reverse("cache", args=[entry.pk])).content.decode()
    assert "The default and 2 configurations in turn" in page
    made = client.post(reverse("cache-revalidate"), {"entry": entry.pk})
    job = SuiteJob.objects.get()
    assert made.url == reverse("cache-revalidation", args=[job.pk])
    page = client.get(made.url).content.decode()
    assert "1 winner will be measured again" in page and "Waiting: no worker has NVIDIA H200" in page and ">Stop<" in page
    assert reverse("cache-revalidation", args=[job.pk]) in client.get(reverse("home")).content.decode()
    assert reverse("cache-revalidation", args=[job.pk]) in client.get(reverse("workers")).content.decode()
    assert client.post(reverse("cache-revalidation-stop", args=[job.pk])).status_code == 302
    assert "Stopped: the cache is as it was" in client.get(made.url).content.decode()
    done = measured(entry, owner=alice)
    page = client.get(reverse("cache-revalidation", args=[done.pk])).content.decode()
    assert "cached winner stays: it takes 6." in page and "recorded on NVIDIA H200" in page and "✓ serves" in page
    assert page.count('class="sp-dot"') == 3 * done.runs
    new = CachedConfig.objects.exclude(pk=entry.pk).get()
    page = client.get(reverse("cache", args=[new.pk])).content.decode()
    assert f"re-validation {done.pk}" in page and "serves now" in page
    page = client.get(reverse("cache-revalidations")).content.decode()
    assert "1 of 1 stays as served" in page and "stopped: the cache is as it was" in page
    assert f"re-validation {done.pk}" in client.get(reverse("cache-list")).content.decode()
    for wrong in ("cache-revalidation", "api-revalidation"):
        assert client.get(reverse(wrong, args=[10**9])).status_code == 404
    assert client.post(reverse("cache-revalidation-stop", args=[done.pk])).status_code == 302


def test_the_api_tells_every_side(api: Any, alice: Any, bob: Any, slow_default: None) -> None:
    entry = winner()
    told = api(bob).get(reverse("api-revalidate")).json()
    assert [row["id"] for row in told["entries"]] == [entry.pk] and told["expected_s"] > 0 and told["jobs"] == []
    assert api(bob).post(reverse("api-revalidate"), {}, format="json").status_code == 403
    assert api(alice).post(reverse("api-revalidate"), {"entries": [entry.pk]}, format="json").json()["refused"] == {}
    stop_job(SuiteJob.objects.get())
    job = measured(entry)
    told = json.loads(json.dumps(api(bob).get(reverse("api-revalidation", args=[job.pk])).json()))
    (kernel,) = told["kernels"]
    assert (told["status"], kernel["outcome"], kernel["serves"], kernel["entry"]) == ("done", "stays", "cached winner", entry.pk)
    served = next(side for side in kernel["sides"] if side["serves"])
    assert served["name"] == "cached winner" and len(served["p50_us"]) == job.runs and served["high"] < 1
    assert api(bob).get(reverse("api-revalidate")).json()["jobs"][0]["says"] == "1 of 1 stays as served"
