"""How L2 was flushed is part of an entry's key: times under two ways stand beside each other, and nothing that stood is lost."""

from __future__ import annotations

import importlib
from typing import Any

import pytest
from django.apps import apps
from django.utils import timezone

from tests.tuner.cache.test_config_cache import DEFAULT, ENVIRONMENT, FAST, GPU, OTHER, SHAPE
from tuner.cache.entries import selectors, services
from tuner.models import CachedConfig, TuneJob
from tuner.tuning.measure.policy import RESET, UNPINNED, flush_text
from tuner.tuning.measure.runner import Session
from tuner.tuning.search.finalists import Finalist
from tuner.tuning.trial import Measured

pytestmark = pytest.mark.django_db

WRITTEN = {"kind": "cold", "flush_bytes": 256 << 20}                # from before a policy named the way
UNPIN = {"kind": "cold", "flush": UNPINNED, "flush_bytes": 240 << 20}


def measured(ms: float) -> Measured:
    return Measured(ms, ms * 0.99, ms * 1.01, 20, {"samples_ms": [ms * (1 + 0.001 * (at % 5 - 2)) for at in range(20)]})


def session(policy: dict[str, Any]) -> Session:
    return Session(gpu=GPU, compute_capability="9.0", environment=ENVIRONMENT, policy=policy)


def job_of(policy: dict[str, Any], config: dict[str, Any], ms: float) -> TuneJob:
    return TuneJob.objects.create(
        operator="matmul", shape=SHAPE, dtype="bf16", device="gpu", strategy="local", budget_trials=9, budget_seconds=9,
        status="done", gpu=GPU, environment=ENVIRONMENT, best_ms=ms, best_config=config, default_ms=0.3, policy=policy,
        finished=timezone.now())


def put(policy: dict[str, Any], config: dict[str, Any], ms: float) -> CachedConfig | None:
    finalists = [Finalist(config, measured(ms)), Finalist(DEFAULT, measured(0.3))]
    return services.config_put(job_of(policy, config, ms), session(policy), measured(ms), "ab12", finalists=finalists,
                               default=DEFAULT)


@pytest.mark.parametrize(("policy", "text"), [
    (WRITTEN, "write 256 MB"), (UNPIN, "unpin, write 240 MB"), ({"flush": RESET, "flush_bytes": 1 << 28}, "reset, write 256 MB"),
    ({"kind": "warm"}, ""), ({}, "")])
def test_the_way_and_its_size_are_one_text(policy: dict[str, Any], text: str) -> None:
    assert flush_text(policy) == text


def test_a_time_under_another_flush_replaces_none_and_the_newer_serves() -> None:
    """Though it is the longer one: the kernel found its inputs in L2 before."""
    before, after = put(WRITTEN, FAST, 0.18), put(UNPIN, OTHER, 0.2)
    assert before is not None and after is not None and (before.flush, after.flush) == ("write 256 MB", "unpin, write 240 MB")
    before.refresh_from_db()
    assert (before.state, after.state) == ("stale", "verified") and "measured again by tune job" in before.state_why
    served = selectors.config_best("matmul", "bf16", GPU, SHAPE, "cuda 13.0, triton 3.6.0")
    assert (served["config"], served["entry"]["flush"]) == (OTHER, after.flush)
    asked = selectors.config_best("matmul", "bf16", GPU, SHAPE, "cuda 13.0, triton 3.6.0", flush="write 256 MB")
    assert (asked["config"], asked["rule"]) == (FAST, "exact")
    assert put(UNPIN, FAST, 0.19) is not None and CachedConfig.objects.count() == 2           # under one way the faster stands


def test_what_is_in_force_is_measured_again_under_another_flush() -> None:
    put(WRITTEN, FAST, 0.18)
    assert services.config_in_force(job_of(UNPIN, OTHER, 0.2), session(UNPIN), "ab12") == FAST
    put(UNPIN, OTHER, 0.2)
    assert services.config_in_force(job_of(UNPIN, OTHER, 0.2), session(UNPIN), "ab12") == OTHER
    assert services.config_in_force(job_of(WRITTEN, OTHER, 0.2), session(WRITTEN), "ab12") == FAST


def test_entries_that_stand_get_what_their_evidence_says() -> None:
    odd = {"flush": 7, "flush_bytes": 1 << 20}
    policies: list[Any] = [WRITTEN, UNPIN, {"kind": "warm"}, None, "cold", {"flush_bytes": "x"}, odd]
    for number, policy in enumerate(policies):
        CachedConfig.objects.create(operator="matmul", dtype="bf16", shape_key=str(number), shape_bucket="M=1", gpu=GPU,
                                    toolkit="cuda 13", config={}, evidence={"policy": policy})
    importlib.import_module("tuner.migrations.0037_cachedconfig_flush").fill(apps, None)
    assert list(CachedConfig.objects.order_by("pk").values_list("flush", flat=True)) == [
        "write 256 MB", "unpin, write 240 MB", "", "", "", "", "write 1 MB"]
