"""What a job says it found, and that exhaustive search ends with the space or its budget."""

from __future__ import annotations

from typing import Any

import pytest
from django.conf import settings
from django.urls import reverse

from profiles.base.refused import Refused
from tuner.jobs import create_services, selectors
from tuner.jobs.outcomes import job_outcome
from tuner.models import TuneJob
from workers import jobs
from workers.tune import lead

pytestmark = pytest.mark.django_db(transaction=True, available_apps=settings.INSTALLED_APPS)
SHAPE = {"M": 1024, "N": 1024, "K": 1024}


@pytest.fixture(autouse=True)
def empty_queues() -> None:
    jobs.connection().flushdb()


def make(**changes: Any) -> TuneJob:
    fields = {"owner": None, "operator": "matmul", "shape": SHAPE, "dtype": "bf16", "device": "replay:matmul",
              "strategy": "exhaustive", "budget_trials": 60, "budget_seconds": 60}
    return create_services.tune_create(**{**fields, **changes})


def ended(**fields: Any) -> TuneJob:
    return TuneJob(operator="matmul", shape=SHAPE, dtype="bf16", device="gpu", strategy="random", budget_trials=10,
                   budget_seconds=10.0, **{"status": "done", **fields})


def finalist(ms: float, **fields: Any) -> dict[str, Any]:
    return {"config": {"BLOCK_M": 64}, "median_ms": ms, "tie": False, **fields}


def test_exhaustive_search_passes_every_plateau() -> None:
    """A job of before may have one in its row: it does not end it either."""
    job = make()
    TuneJob.objects.filter(pk=job.pk).update(plateau=5)
    lead.run(job.pk, "w", replay_speed=0)
    job.refresh_from_db()
    assert job.ended_by == "trials"
    assert job.trials.count() == 60
    assert selectors.job_json(job)["plateau"] is None


def test_exhaustive_search_ends_with_the_space() -> None:
    job = make(budget_trials=100_000, budget_seconds=3600, space={"parameters": {"BM": [128], "BN": [64, 128]}})
    lead.run(job.pk, "w", replay_speed=0)
    job.refresh_from_db()
    assert job.ended_by == "space"
    assert job.trials.count() == job.valid_size


def test_other_searches_keep_their_plateau() -> None:
    job = make(strategy="random", plateau=5)
    lead.run(job.pk, "w", replay_speed=0)
    job.refresh_from_db()
    assert job.ended_by == "plateau"


def test_an_effort_gives_an_exhaustive_search_no_plateau_and_a_typed_one_is_refused() -> None:
    assert make(budget_trials=None, budget_seconds=None, effort="normal").plateau is None
    assert make(strategy="random", effort="normal").plateau == create_services.EFFORTS["normal"].plateau
    with pytest.raises(Refused, match="ends with the space or its budget"):
        make(plateau=40)


def test_the_form_drops_the_plateau_of_its_effort(client: Any, alice: Any) -> None:
    client.force_login(alice)
    answer = client.post(reverse("tune-new"), {
        "operator": "matmul", "shape": "M=1024 N=1024 K=1024", "dtype": "bf16", "device": "replay:matmul", "effort": "normal",
        "strategy": "exhaustive", "budget_trials": 100, "budget_seconds": 180, "plateau": 40, "timing": "cold", "seed": 0})
    assert answer.status_code == 302
    job = TuneJob.objects.get()
    assert (job.plateau, job.effort) == (None, "normal")


@pytest.mark.parametrize(("fields", "kind", "words"), [
    ({"best_ms": 1.0, "default_ms": 2.0, "library_ms": 1.5, "finalists": [finalist(1.0), finalist(2.0, default=True)]},
     "faster", ""),
    ({"best_ms": 1.0, "default_ms": 1.0, "finalists": [finalist(1.0, default=True)]}, "default", "nothing faster than the default"),
    ({"best_ms": 1.0, "default_ms": 1.001, "finalists": [finalist(1.0), finalist(1.001, default=True, tie=True)]},
     "tie", "told apart"),
    ({"best_ms": 1.04, "default_ms": 2.0, "library_ms": 1.0}, "library", "1.04× faster than the best found"),
    ({"best_ms": 1.0, "default_ms": 2.0, "library_ms": 1.002}, "tie", "no faster than"),
    ({"best_ms": 1.0, "default_ms": 1.005}, "default", "nothing faster"),
    ({"best_ms": 1.0, "default_ms": 2.0, "finalists": [finalist(1.0), {"config": {}, "default": True, "reason": "crash"}]},
     "faster", ""),
    ({"best_ms": 1.0}, "unknown", "neither"),
])
def test_the_outcome_in_words(fields: dict[str, Any], kind: str, words: str) -> None:
    outcome = job_outcome(ended(**fields))
    assert outcome is not None
    assert outcome.kind == kind
    assert words in outcome.text
    assert (outcome.mark == "mark-ok") == (kind == "faster")


@pytest.mark.parametrize(("status", "words"), [
    ("done", "keep cuBLAS: 1.25× faster than the best found"), ("stopped", "keep cuBLAS: 1.25× faster than the best found"),
    ("failed", "keep cuBLAS: 1.25× faster than the best found"), ("running", "so far cuBLAS is 1.25× faster"),
    ("paused", "so far cuBLAS is 1.25× faster"), ("queued", "so far cuBLAS is 1.25× faster")])
def test_a_job_in_every_state_says_that_the_library_is_faster(client: Any, alice: Any, status: str, words: str) -> None:
    job = ended(status=status, best_ms=1.25, default_ms=2.0, library_ms=1.0, best_config={"BM": 64}, gpu="NVIDIA H200")
    job.save()
    assert selectors.job_json(job)["keep_library"] == words
    client.force_login(alice)
    page = client.get(reverse("tune", args=[job.pk])).content.decode()
    said = f'id="keep-library">{words[0].upper() + words[1:]}<' in page
    assert said == (status not in ("failed", "queued"))       # which say what they wait for, and what went wrong


@pytest.mark.parametrize("library_ms", [None, 1.3, 1.245])      # unknown, slower, and not surely faster by medians alone
def test_no_job_says_so_of_a_library_that_is_not_surely_faster(library_ms: float | None) -> None:
    job = ended(status="stopped", best_ms=1.25, default_ms=2.0, library_ms=library_ms)
    job.save()
    assert selectors.job_json(job)["keep_library"] is None


def test_only_a_job_that_is_done_has_an_outcome() -> None:
    assert job_outcome(ended(status="stopped", best_ms=1.0, default_ms=1.0)) is None


def test_pages_do_not_call_a_search_without_gain_done(client: Any, alice: Any) -> None:
    client.force_login(alice)
    job = ended(best_ms=1.0, default_ms=1.0, ended_by="plateau", valid_size=602, best_config={"BLOCK_M": 64},
                finalists=[finalist(1.0, default=True)])
    job.save()
    page = client.get(reverse("tune", args=[job.pk])).content.decode()
    assert "Nothing faster than the default configuration found" in page
    assert ">no gain<" in page
    assert 'mark-ok">done' not in page
    assert ">Fastest found<" in page
    listed = client.get(reverse("tune-list")).content.decode()
    assert ">no gain<" in listed
    assert 'mark-ok">done' not in listed
