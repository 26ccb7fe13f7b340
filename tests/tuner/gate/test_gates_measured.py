"""Gates of suites that workers measure: rounds, re-runs in turn, resuming, stopping. The worker serves recorded runs of an H200."""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import Any

import pytest
from django.conf import settings
from django.db import connection
from django.utils import timezone

from profiles.base.refused import Refused
from tests.tuner.gate.recorded_suite import KEY, SIMILAR, SLOWER, SOFTMAX, THREE, suite_made
from tuner.gate.builds.services import ensure_build
from tuner.gate.suites.job_services import job_create, job_fail, job_stop
from tuner.gate.suites.run_services import run_record
from tuner.gate.verdicts import decide_services, selectors, services, sides_selectors
from tuner.models import Gate, KernelRun, Suite, SuiteJob
from workers import jobs
from workers.gate import suite

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("unwatched")]


@pytest.fixture
def nightly() -> Suite:
    return suite_made(THREE)


def measured(gate: Gate, rounds: int = 9) -> Gate:
    """Let a worker do what is queued until nothing is."""
    for _ in range(rounds):
        job = gate.jobs.filter(status="queued").order_by("id").first()
        if job is None:
            break
        suite.run(job.pk, "w1", pace=0)
    gate.refresh_from_db()
    return gate


def at(hour: int) -> Any:
    return timezone.now() - timedelta(days=9) + timedelta(hours=hour)


def base(nightly: Suite, runs: int = 10, build: str = "b1") -> None:
    ensure_build(build, at=at(0))
    suite.run(job_create(nightly, builds=[build], runs=runs).pk, "w0", pace=0)


def test_a_slower_configuration_is_confirmed_in_turn_with_the_baselines_build(nightly: Suite) -> None:
    base(nightly)
    gate = services.create_gate(nightly, "b2", at=at(1), configs={KEY: SLOWER})
    assert (gate.status, gate.rounds, selectors.exit_code(gate)) == ("measuring", 1, None)
    first = gate.jobs.get()
    assert (first.runs, [each["build"] for each in first.builds], first.kernels) == (5, ["b2"], None)
    suite.run(first.pk, "w1", pace=0)
    gate.refresh_from_db()
    assert (gate.status, gate.rounds, gate.verdict) == ("measuring", 2, "")
    second = gate.jobs.order_by("-id").first()
    assert [each["build"] for each in second.builds] == ["b1", "b2"] and second.kernels == [KEY]
    assert second.builds[0]["configs"] == {KEY: SOFTMAX}, "the baseline's build is measured as it was"
    assert gate.kernels.get(kernel__key=KEY).verdict == "SLOWER", "what is known so far shows while it is measured again"
    gate = measured(gate)
    assert (gate.status, gate.verdict, gate.rounds) == ("done", "SLOWER", 2)
    row = gate.kernels.first()
    assert (row.kernel.key, row.facts["confirmed"], row.facts["stage"]) == (KEY, True, "again")
    assert 1.05 < row.ratio_p50 < 1.09
    used = KernelRun.objects.filter(pk__in=row.baseline_runs + row.candidate_runs)
    assert set(used.values_list("job", flat=True)) == {second.pk}, "only runs that were taken in turn"
    assert {each.verdict for each in gate.kernels.exclude(pk=row.pk)} == {"PASS"}
    assert gate.recorded and gate.gpu == "NVIDIA H200"
    told = selectors.gate_document(gate)
    assert told["exit_code"] == 1 and [each["why"] for each in told["history"]] == ["gate", "gate"]


def test_an_equal_build_passes_in_one_round_and_serves_the_next(nightly: Suite) -> None:
    base(nightly)
    gate = measured(services.create_gate(nightly, "b2", at=at(1)))
    assert (gate.verdict, gate.rounds) == ("PASS", 1)
    other = measured(services.create_gate(nightly, "b3", at=at(2), configs={KEY: SIMILAR}))
    assert other.verdict == "PASS" and "b2" in other.kernels.get(kernel__key=KEY).facts["baseline"]["builds"]


def test_the_first_build_has_no_baseline_and_becomes_it(nightly: Suite) -> None:
    gate = measured(services.create_gate(nightly, "b1"))
    assert (gate.status, gate.verdict, selectors.exit_code(gate)) == ("done", "NO DATA", 0)
    assert gate.kernels.count() == 3 and "first of this suite" in gate.reason


def test_a_short_baseline_is_measured_in_turn_at_once(nightly: Suite) -> None:
    nightly.baseline_runs = 12
    nightly.save()
    base(nightly, runs=3)
    planned = selectors.plan_for_suite(nightly)
    assert planned["interleaved"] and planned["enough"] and planned["candidate_runs"] > 5
    gate = services.create_gate(nightly, "b2", at=at(1), configs={KEY: SLOWER})
    job = gate.jobs.get()
    assert [each["build"] for each in job.builds] == ["b1", "b2"] and job.runs == planned["candidate_runs"]
    gate = measured(gate)
    assert (gate.verdict, gate.rounds) == ("SLOWER", 1), "both were measured in turn: nothing to confirm"
    assert gate.kernels.first().facts["stage"] == "first"


def test_a_build_is_compared_with_the_one_that_is_named(nightly: Suite) -> None:
    base(nightly)
    gate = measured(services.create_gate(nightly, "b9", at=at(9), against="b0", configs={KEY: SLOWER}))
    assert [each["build"] for each in gate.jobs.get().builds] == ["b0", "b9"]
    assert (gate.verdict, gate.against.name) == ("SLOWER", "b0")
    assert gate.kernels.first().facts["baseline"] == {"mode": "against", "builds": ["b0"], "says": gate.kernels.first().facts[
        "baseline"]["says"]}


def test_too_few_runs_are_refused_before_anything_is_run(nightly: Suite) -> None:
    base(nightly)
    with pytest.raises(Refused, match="too few for 3 kernels") as refused:
        services.create_gate(nightly, "b2", runs=1)
    assert "runs" in refused.value.fields
    assert not Gate.objects.exists() and SuiteJob.objects.count() == 1
    assert not selectors.plan_for_suite(nightly, 1)["enough"]


@pytest.mark.parametrize(("given", "field"), [
    ({"environment": {"gpu": "NVIDIA B300"}}, "environment"), ({"environment": {"device": "tpu"}}, "device"), ({"runs": 0}, "runs"),
    ({"runs": True}, "runs"), ({"configs": {"nobody": {"a": 1}}}, "configs"), ({"configs": {KEY: {"a": float("nan")}}}, "configs"),
    ({"records": [{}]}, "runs")])
def test_what_cannot_be_measured_is_refused(nightly: Suite, given: dict[str, Any], field: str) -> None:
    with pytest.raises(Refused) as refused:
        services.create_gate(nightly, "b2", **given)
    assert field in refused.value.fields
    assert not Gate.objects.exists() and not SuiteJob.objects.exists()


def test_a_gate_of_a_switched_off_suite_is_refused(nightly: Suite) -> None:
    Suite.objects.update(enabled=False)
    with pytest.raises(Refused, match="switched off"):
        services.create_gate("nightly", "b2")


def test_a_worker_that_dies_before_it_tells_the_gate_is_made_up_for(nightly: Suite, monkeypatch: Any) -> None:
    base(nightly)
    gate = services.create_gate(nightly, "b2", at=at(1))
    monkeypatch.setattr(suite, "continue_followers", lambda job_id: None)      # died between the job's end and the verdict
    suite.run(gate.jobs.get().pk, "w1", pace=0)
    gate.refresh_from_db()
    assert gate.status == "measuring"
    assert decide_services.wake_gates() == [gate.pk] and decide_services.wake_gates() == []
    gate.refresh_from_db()
    assert gate.verdict == "PASS"


def test_a_stopped_gate_stops_its_job_and_can_go_on(nightly: Suite) -> None:
    base(nightly)
    gate = services.create_gate(nightly, "b2", at=at(1))
    assert services.stop_gate(gate) and not services.stop_gate(gate)
    assert (gate.status, gate.jobs.get().status, selectors.exit_code(gate)) == ("stopped", "stopped", 2)
    services.measure_gate_again(gate)
    with pytest.raises(Refused, match="going on"):
        services.measure_gate_again(gate)
    assert measured(gate).verdict == "PASS"


def test_more_runs_are_measured_when_somebody_asks(nightly: Suite) -> None:
    base(nightly)
    gate = measured(services.create_gate(nightly, "b2", at=at(1)))
    with pytest.raises(Refused, match="too few"):
        services.measure_gate_again(gate, runs=2, kernels=[KEY])
    with pytest.raises(Refused, match="no kernel"):
        services.measure_gate_again(gate, kernels=["nobody"])
    gate = services.measure_gate_again(gate, runs=6, kernels=[KEY])
    job = gate.jobs.order_by("-id").first()
    assert (job.reason, job.runs, job.kernels, gate.verdict) == ("again", 6, [KEY], "")
    gate = measured(gate)
    assert (gate.verdict, gate.rounds, len(gate.kernels.get(kernel__key=KEY).candidate_runs)) == ("PASS", 2, 6)


def test_a_job_that_fails_fails_the_gate_with_its_reason(nightly: Suite) -> None:
    gate = services.create_gate(nightly, "b2")
    job = gate.jobs.get()
    SuiteJob.objects.filter(pk=job.pk).update(status="running", worker="w1")
    job_fail(job, "w1", "GPU", "the driver went away", "look at the worker")
    decide_services.advance_gate(gate.pk)
    gate.refresh_from_db()
    assert (gate.status, gate.verdict, selectors.exit_code(gate)) == ("failed", "", 3)
    assert gate.error["what"] == "the driver went away" and "driver went away" in gate.reason
    base(nightly)
    again = measured(services.measure_gate_again(gate))
    assert (again.status, again.verdict, again.error) == ("done", "PASS", None), again.reason


def test_a_job_that_a_person_stops_stops_its_gate(nightly: Suite) -> None:
    gate = services.create_gate(nightly, "b2")
    assert job_stop(gate.jobs.get())
    assert decide_services.wake_gates() == [gate.pk]
    gate.refresh_from_db()
    assert (gate.status, gate.verdict, selectors.exit_code(gate)) == ("stopped", "", 2)


def test_a_kernel_whose_runs_all_died_has_no_data_and_says_why(nightly: Suite) -> None:
    base(nightly)
    gate = measured(services.create_gate(nightly, "b2", at=at(1), configs={KEY: {"STEPS": 1, "PER_SM": 1, "num_warps": 1}}))
    assert gate.verdict == "NO DATA"
    row = gate.kernels.first()
    assert row.kernel.key == KEY and "recorded" in row.reason and row.ratio_p50 is None and row.facts["excluded"]


def test_a_new_driver_makes_no_data_until_the_baselines_build_is_measured_under_it(nightly: Suite, monkeypatch: Any) -> None:
    base(nightly)
    gate = services.create_gate(nightly, "b2", at=at(1), configs={KEY: SLOWER})
    bump(monkeypatch)
    gate = measured(gate)
    assert gate.verdict == "NO DATA" and "driver 580.159 → 590.44" in gate.reason
    offer = selectors.gate_document(gate)["offer"]
    assert offer["baseline"] == "b1" and offer["measurable"] and offer["again"].endswith(f"/api/gates/{gate.pk}/again/")
    gate = measured(services.measure_gate_again(gate))
    assert (gate.verdict, gate.driver) == ("SLOWER", "590.44")
    assert gate.kernels.first().facts["baseline"]["builds"] == ["b1"]
    told = selectors.gate_document(gate)
    assert told["offer"] is None
    why = {each["key"]: each["environment"]["kind"] for each in told["kernels"]}
    assert why[KEY] == "build" and set(why.values()) <= {"build", "neither"}, "the driver changed, and did nothing"
    assert any("1 changed by the build" in note for note in told["notes"])


def bump(monkeypatch: Any) -> None:
    """The worker's machine gets a new driver."""
    def newer(*args: Any, **given: Any) -> Any:
        return run_record(*args, **{**given, "driver": "590.44"})
    monkeypatch.setattr(suite.run_services, "run_record", newer)


def test_another_kernel_source_is_not_taken_for_the_baselines(nightly: Suite, monkeypatch: Any) -> None:
    base(nightly)
    KernelRun.objects.update(source_hash="old")
    gate = services.create_gate(nightly, "b2", at=at(1), configs={KEY: SLOWER})
    monkeypatch.setattr(suite.run_services, "run_record",
                        lambda *args, **given: run_record(*args, **{**given, "source_hash": "new"}))
    gate = measured(gate)
    assert gate.verdict == "SLOWER" and not gate.kernels.first().facts["confirmed"]
    assert any("another kernel source" in note for note in gate.report["notes"])


def test_a_baseline_that_cannot_be_measured_again_is_said_and_its_stored_runs_stand(nightly: Suite) -> None:
    base(nightly, runs=24)                # all that were recorded: the replay has no further runs of this build
    gate = measured(services.create_gate(nightly, "b2", at=at(1), configs={KEY: SLOWER}))
    assert (gate.verdict, gate.rounds, gate.kernels.first().facts["confirmed"]) == ("SLOWER", 2, False)
    assert any("b1, measured again in turn, gave no samples: all 24 recorded" in note for note in gate.report["notes"])


@pytest.mark.django_db(transaction=True, available_apps=settings.INSTALLED_APPS)
def test_two_workers_that_advance_one_gate_do_it_once(nightly: Suite, monkeypatch: Any) -> None:
    base(nightly)
    gate = services.create_gate(nightly, "b2", at=at(1), configs={KEY: SLOWER})
    monkeypatch.setattr(suite, "continue_followers", lambda job_id: None)
    suite.run(gate.jobs.get().pk, "w1", pace=0)
    start, did = threading.Barrier(3), []

    def advance() -> None:
        start.wait()
        did.append(decide_services.advance_gate(gate.pk))
        connection.close()
    threads = [threading.Thread(target=advance) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(found is not None for found in did) == 1
    gate.refresh_from_db()
    assert (gate.jobs.count(), gate.rounds, gate.kernels.count()) == (2, 2, 3)


def test_runs_of_another_timing_policy_are_no_baseline(nightly: Suite) -> None:
    base(nightly)
    KernelRun.objects.update(environment={"timing": "cold, 100 samples after 50"})
    gate = services.create_gate(nightly, "b2", at=at(1))
    suite.run(gate.jobs.get().pk, "w1", pace=0)
    assert measured(gate).verdict == "PASS", "a run that does not say how it was timed counts"
    KernelRun.objects.filter(build__name="b2").update(environment={"timing": "warm, 100 samples after 50"})
    found = sides_selectors.load_sides(gate)
    assert all(not one.baseline.runs and "timed otherwise" in one.baseline.reason for one in found.kernels)


def test_a_build_that_is_just_being_judged_is_no_baseline(nightly: Suite) -> None:
    base(nightly)
    open_gate = services.create_gate(nightly, "b2", at=at(1), configs={KEY: SLOWER})
    suite.run(open_gate.jobs.get().pk, "w1", pace=0)                # its re-run is queued: nothing is decided
    gate = measured(services.create_gate(nightly, "b3", at=at(2)))
    assert gate.verdict == "PASS"
    assert all(row.facts["baseline"]["builds"] == ["b1"] for row in gate.kernels.filter(kernel__key=KEY))
    services.stop_gate(open_gate)
    assert measured(services.create_gate(nightly, "b4", at=at(3))).kernels.get(kernel__key=KEY).facts["baseline"]["builds"] == [
        "b3", "b1"], "what a stopped gate had found so far keeps its build out"


def test_pages_hear_of_every_step(nightly: Suite, monkeypatch: Any, django_capture_on_commit_callbacks: Any) -> None:
    told: list[tuple[str, str, Any]] = []
    monkeypatch.setattr(jobs, "publish", lambda *what: told.append(what))
    base(nightly)
    with django_capture_on_commit_callbacks(execute=True):
        gate = measured(services.create_gate(nightly, "b2", at=at(1)))
    mine = [data for topic, event, data in told if topic == f"gate.{gate.pk}" and event == "status"]
    assert mine and mine[-1]["verdict"] == "PASS" and mine[-1]["exit_code"] == 0
    assert any(topic == "home" and event == "gate" for topic, event, _ in told)
