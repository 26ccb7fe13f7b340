"""After a toolkit's upgrade: an entry is measured again in a real child, and the new one takes the old one's place."""

from __future__ import annotations

import functools

import pytest
from django.conf import settings

pytest.importorskip("torch")
pytest.importorskip("triton")

from tuner import cache
from tuner.configs import revalidation_services, selectors
from tuner.models import CachedConfig, TrialRow, TuneJob
from tuner.operators import OPERATORS, limits
from tuner.trial import config_key
from workers import gpu, tune, tune_runner
from workers.sandbox import SandboxRunner

pytestmark = [pytest.mark.torch,
              pytest.mark.django_db(transaction=True, available_apps=settings.INSTALLED_APPS)]

GPU = "CPU"                      # what the child without a GPU calls its device
CARD = gpu.Gpu(0, "GPU-interpreted", GPU, "9.0", "", 1)
SHAPE = {"R": 4, "C": 100}
OLD = "cuda 11.8, triton 2.1.0"


def measured_before_the_upgrade():
    """The rows that a job under an older toolkit left: its winner in the cache, and a rival that came next."""
    configs = list(OPERATORS["softmax"].space(SHAPE, "fp16", limits(GPU)).configs())[:2]
    job = TuneJob.objects.create(operator="softmax", shape=SHAPE, dtype="fp16", device="gpu", strategy="random", budget_trials=2,
                                 budget_seconds=9, status="done", gpu=GPU, best_ms=1.0, best_config=configs[0])
    for number, config in enumerate(configs):
        TrialRow.objects.create(job=job, number=number, config=config, config_key=config_key(config), outcome="measured",
                                median_ms=1.0 + number, at_s=number)
    return CachedConfig.objects.create(
        operator="softmax", dtype="fp16", shape=SHAPE, shape_key="C=100 R=4", gpu=GPU,
        shape_bucket=selectors.bucket("softmax", SHAPE),
        compute_capability="9.0", toolkit=OLD, policy="cold", config=configs[0], median_ms=1.0, default_ms=2.0, job=job,
        state=cache.State.UNVERIFIED)


def test_an_unverified_entry_is_measured_again_with_its_rivals_and_the_default(alice, monkeypatch, tmp_path):
    monkeypatch.setattr(gpu, "gpus", lambda: [CARD])
    monkeypatch.setattr(gpu.tempfile, "gettempdir", lambda: str(tmp_path))
    monkeypatch.setattr(tune_runner, "SandboxRunner", functools.partial(
        SandboxRunner, child_module="tests.workers.interpreted_child", policy={"max_samples": 10, "rounds": 2}))
    old = measured_before_the_upgrade()
    entries = revalidation_services.waiting()
    assert entries == [old]
    expected = revalidation_services.candidates(entries[0])
    (job,) = revalidation_services.revalidate(entries, alice)
    tune.run(job.pk, "worker-1")
    job.refresh_from_db()
    assert job.status == "done", job.error
    tried = [dict(row.config) for row in job.trials.all()]
    assert [config for config in expected if config in tried] == expected
    assert len(tried) <= len(expected) + 1                                     # and the default, if it is none of them: no search
    old.refresh_from_db()
    new = CachedConfig.objects.exclude(pk=old.pk).get()
    assert (old.state, new.state, new.job_id) == ("stale", "verified", job.pk)
    assert new.evidence["guard"]["verdict"] in ("faster", "equal", "slower")
    now = selectors.config_best("softmax", "fp16", GPU, SHAPE, new.toolkit, compute_capability="9.0")
    assert (now["rule"], now["entry"]["id"]) == ("exact", new.pk)
    before = selectors.config_best("softmax", "fp16", GPU, SHAPE, OLD, compute_capability="9.0")
    assert (before["rule"], before["entry"]["id"]) == ("exact", old.pk)
