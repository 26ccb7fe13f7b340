"""A search ends at a share of the ceiling, and a time that cannot be is no result of it."""

from __future__ import annotations

from typing import Any

import pytest
from django.conf import settings
from django.urls import reverse

from tuner.ceilings.least_time import LeastTime
from tuner.ceilings.selectors import believe_below
from tuner.jobs import control_services, create_services, page_selectors, selectors
from tuner.models import TuneJob
from tuner.tuning.measure.replay import ReplayRunner
from tuner.tuning.trial import Config, Measured, Outcome, Reason, Rejected
from workers import jobs
from workers.tune import lead

pytestmark = pytest.mark.django_db(transaction=True, available_apps=settings.INSTALLED_APPS)
SHAPE = {"M": 1024, "N": 1024, "K": 1024}
LIMIT = LeastTime(0.01, "memory", 0.001, 0.01, "data sheet", 0.008)


@pytest.fixture(autouse=True)
def empty_queues() -> None:
    jobs.connection().flushdb()


def make(**changes: Any) -> TuneJob:
    fields = {"owner": None, "operator": "matmul", "shape": SHAPE, "dtype": "bf16", "device": "replay:matmul",
              "strategy": "random", "budget_trials": 300, "budget_seconds": 60}
    return create_services.tune_create(**{**fields, **changes})


def run(job: TuneJob) -> TuneJob:
    lead.run(job.pk, "w", replay_speed=0)
    return TuneJob.objects.get(pk=job.pk)


def test_a_search_ends_at_the_share_that_was_asked_for_and_an_extension_goes_past_it() -> None:
    job = run(make(ceiling_pct=15))                     # its best of all reaches 22 %
    ceiling = selectors.job_json(job)["ceiling"]
    assert job.status == "done" and job.ended_by == "ceiling" and 0.15 <= ceiling["share"] < 0.22
    assert job.trials.count() < 300 and selectors.job_json(job)["ceiling_pct"] == 15
    assert page_selectors.ended_text(job, job.trials.count()) == "ended at 15 % of what this GPU can do"
    last = job.trials.order_by("number").last()
    assert last is not None and last.median_ms is not None and last.median_ms <= ceiling["ms"] / 0.15
    assert not job.trials.exclude(pk=last.pk).filter(median_ms__lte=ceiling["ms"] / 0.15).exists()     # not one trial too many
    before = job.trials.count()
    control_services.tune_extend(job, trials=20)
    job = run(TuneJob.objects.get(pk=job.pk))
    assert job.ceiling_pct is None and job.trials.count() > before


def test_who_extends_it_while_its_finalists_are_measured_goes_past_it_too(monkeypatch: pytest.MonkeyPatch) -> None:
    job, real = make(ceiling_pct=15), ReplayRunner.finalists

    def extends(runner: ReplayRunner, configs: list[Config]) -> Any:
        control_services.tune_extend(job, trials=20)
        monkeypatch.setattr(ReplayRunner, "finalists", real)
        return real(runner, configs)

    monkeypatch.setattr(ReplayRunner, "finalists", extends)
    first = run(job)
    before = first.trials.count()
    assert (first.status, first.ceiling_pct) == ("queued", None)
    assert run(first).trials.count() > before


def test_a_share_that_is_out_of_reach_ends_nothing() -> None:
    assert run(make(ceiling_pct=95, budget_trials=40)).ended_by == "trials"


@pytest.mark.parametrize("pct", [0, -1, 101])
def test_a_share_is_of_1_to_100(api: Any, alice: Any, pct: float) -> None:
    answer = api(alice).post(reverse("api-tune-list"), {
        "operator": "matmul", "shape": SHAPE, "dtype": "bf16", "device": "replay:matmul", "ceiling_pct": pct}, format="json")
    assert answer.status_code == 400 and "ceiling_pct" in answer.json()["fields"]


def test_a_time_below_the_limit_is_rejected_and_one_within_a_step_of_it_stands() -> None:
    told = believe_below(LIMIT, Measured(0.005, 0.004, 0.006, 20, {"registers": 32, "samples_ms": [0.005] * 20}))
    assert isinstance(told, Rejected) and told.reason == Reason.IMPOSSIBLE and "5 µs" in told.message
    assert told.facts == {"registers": 32}
    stands = Measured(0.0075, 0.007, 0.008, 20)
    assert believe_below(LIMIT, stands) is stands and believe_below(None, stands) is stands


def test_an_impossible_time_never_wins_a_job(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel that does nothing at one configuration: the search rejects it and goes on from the others."""
    honest = ReplayRunner._outcome

    def sometimes_nothing(self: ReplayRunner, config: Config) -> Outcome:
        outcome = honest(self, config)
        fast = isinstance(outcome, Measured) and config["BM"] == 128 and config["num_warps"] == 8
        return Measured(0.0005, 0.0004, 0.0006, 20, outcome.facts) if fast else outcome

    monkeypatch.setattr(ReplayRunner, "_outcome", sometimes_nothing)
    job = run(make(budget_trials=80))
    refused = job.trials.filter(reason="impossible")
    assert refused.exists() and all("impossible: 0.5 µs" in row.message for row in refused)
    assert job.best_ms is not None and job.best_ms > 0.005 and job.status == "done"
    assert all(row["median_ms"] > 0.005 for row in job.finalists)
    assert {row["reason"]: row["count"] for row in selectors.failures_by_reason(job)}["impossible"] == refused.count()
