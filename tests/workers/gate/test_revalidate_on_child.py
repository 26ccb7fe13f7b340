"""After a toolkit's upgrade: a winner is measured again in real children, a fresh one each run; the new entry takes its place."""

from __future__ import annotations

import functools

import pytest
from django.conf import settings

from tests.tuner.measure.chosen import WITHOUT_TORCH

pytest.importorskip("torch", reason=WITHOUT_TORCH)
pytest.importorskip("triton", reason=WITHOUT_TORCH)

from tuner.cache import rules
from tuner.cache.entries import selectors
from tuner.models import CachedConfig, KernelRun, Suite, TrialRow, TuneJob
from tuner.revalidation import selectors as revalidation_selectors
from tuner.revalidation import services
from tuner.tuning.operators import OPERATORS, limits
from tuner.tuning.trial import config_key
from workers.core import gpu
from workers.fresh import runner
from workers.fresh.processes import FreshRuns, Limits
from workers.gate import suite

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
        state=rules.State.UNVERIFIED)


@pytest.mark.deep_only          # of the child: test_suite_on_child.py; of the rows: tests/tuner/cache/test_revalidation.py
def test_an_unverified_entry_is_measured_again_with_its_rivals_and_the_default(alice, monkeypatch, tmp_path):
    monkeypatch.setattr(gpu, "gpus", lambda: [CARD])
    monkeypatch.setattr(gpu.tempfile, "gettempdir", lambda: str(tmp_path))
    monkeypatch.setattr(settings, "HOME", tmp_path / "home")
    monkeypatch.setattr(runner, "FreshRuns", functools.partial(FreshRuns, limits=Limits()))
    monkeypatch.setattr(services, "ROUNDS", 1)              # the interpreter's times are the host's: noise decides
    monkeypatch.setattr(services, "runs_needed", lambda comparisons: 1)      # each process imports torch
    monkeypatch.setattr(revalidation_selectors, "RIVALS", 0)
    old = measured_before_the_upgrade()
    assert revalidation_selectors.waiting_entries() == [old]
    sides = revalidation_selectors.entry_sides(old)
    (job,) = services.revalidate([old], alice)
    Suite.everything.update(policy={"min_samples": 5, "max_samples": 5, "warmup": 1, "batch": 5})
    suite.run(job.pk, "worker-1", module="tests.workers.tune.interpreted_child")
    job.refresh_from_db()
    assert job.status == "done", job.error
    rows = list(KernelRun.objects.filter(job=job).select_related("build"))
    assert {row.build.name: row.config for row in rows} == sides and len({row.run for row in rows}) == len(sides)
    assert all(row.facts["relative_error"] < 2e-3 and len(row.source_hash) == 64 for row in rows)     # results are checked too
    old.refresh_from_db()
    new = CachedConfig.objects.exclude(pk=old.pk).get()
    assert (old.state, new.state, new.job_id) == ("stale", "verified", old.job_id)
    assert new.config == sides["operator's default"]                      # one run proves nothing: the default serves
    assert new.evidence["revalidation"]["job"] == job.pk and new.evidence["guard"]["verdict"] in ("equal", "slower")
    now = selectors.config_best("softmax", "fp16", GPU, SHAPE, new.toolkit, compute_capability="9.0")
    assert (now["rule"], now["entry"]["id"]) == ("exact", new.pk)
    before = selectors.config_best("softmax", "fp16", GPU, SHAPE, OLD, compute_capability="9.0")
    assert (before["rule"], before["entry"]["id"]) == ("exact", old.pk)
