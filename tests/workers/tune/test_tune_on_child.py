"""A tune job through the real GPU child, on the CPU: Triton's interpreter measures, the row ends with its winner."""

import functools

import pytest
from django.conf import settings

from tests.tuner.measure.chosen import WITHOUT_TORCH

pytest.importorskip("torch", reason=WITHOUT_TORCH)
pytest.importorskip("triton", reason=WITHOUT_TORCH)

from tuner.jobs import worker_services
from tuner.models import CachedConfig, TuneJob
from tuner.tuning.operators import OPERATORS, limits
from workers.core import gpu
from workers.tune import gpu_child, lead, runner
from workers.tune.sandbox import SandboxRunner

pytestmark = [pytest.mark.torch,
              pytest.mark.django_db(transaction=True, available_apps=settings.INSTALLED_APPS)]

@pytest.fixture(autouse=True)
def without_spares(monkeypatch):
    monkeypatch.setattr(gpu_child, "SPARES", 0)         # each imports torch


CARD = gpu.Gpu(0, "GPU-interpreted", "Triton's interpreter", "9.0", "", 1)


def test_a_job_is_checked_timed_and_cached(alice, monkeypatch, tmp_path):
    monkeypatch.setattr(gpu, "gpus", lambda: [CARD])
    monkeypatch.setattr(gpu.tempfile, "gettempdir", lambda: str(tmp_path))
    monkeypatch.setattr(runner, "SandboxRunner", functools.partial(
        SandboxRunner, child_module="tests.workers.tune.interpreted_child", policy={"max_samples": 10, "rounds": 2}))
    shape = {"R": 4, "C": 100}
    job = TuneJob.objects.create(operator="softmax", shape=shape, dtype="fp16", device="gpu", strategy="random", owner=alice,
                                 budget_trials=5, budget_seconds=120)
    lead.run(job.pk, "worker-1")
    job.refresh_from_db()
    assert (job.status, job.error) == ("done", None)
    rows = list(job.trials.all())
    assert len(rows) == 5 and all(row.outcome == "measured" and row.facts["relative_error"] < 2e-3 for row in rows)
    assert job.library_ms and job.default_ms and job.best_ms <= job.default_ms * 1.5 and job.finalists
    assert job.policy["statistic"] == "median" and job.environment["triton"]
    entry = CachedConfig.objects.get(job=job)
    kept = [job.best_config, *(one["config"] for one in job.finalists if one["default"])]      # where noise hides the gain
    assert entry.config in kept and len(entry.source_hash) == 64
    assert worker_services.tune_claim(job.pk, "worker-2") is None
    CachedConfig.objects.filter(job=job).update(median_ms=1e-6)             # faster than anything that is measured from now on
    again = TuneJob.objects.create(operator="softmax", shape=shape, dtype="fp16", device="gpu", strategy="random", owner=alice,
                                   budget_trials=2, budget_seconds=120, seed=7)
    lead.run(again.pk, "worker-1")
    again.refresh_from_db()
    now = CachedConfig.objects.get(operator="softmax")
    served = [one["config"] for one in again.finalists if one.get("in_force")]
    assert served == [entry.config] and (now.median_ms > 1e-6 or now.evidence["history"][-1]["in_force_ms"] > 1e-6)
    assert OPERATORS["softmax"].space(shape, "fp16", limits(job.gpu)).size >= 100


@pytest.mark.deep_only          # of the space: tests/tuner/spaces/test_added.py; of a child: the test above
def test_values_that_were_added_to_the_space_are_checked_and_timed(alice, monkeypatch, tmp_path):
    """Through the worker: the job's edit is read again, the child launches what is new in it, and the winner keeps it."""
    monkeypatch.setattr(gpu, "gpus", lambda: [CARD])
    monkeypatch.setattr(gpu.tempfile, "gettempdir", lambda: str(tmp_path))
    monkeypatch.setattr(runner, "SandboxRunner", functools.partial(
        SandboxRunner, child_module="tests.workers.tune.interpreted_child", policy={"max_samples": 5, "rounds": 2}))
    edited = {"parameters": {"PER_SM": [3], "STEPS": [5], "num_warps": [4], "ROWS": [1, 8]}, "constraints": []}
    job = TuneJob.objects.create(operator="softmax", shape={"R": 8, "C": 100}, dtype="fp16", device="gpu", strategy="random",
                                 owner=alice, budget_trials=20, budget_seconds=120, space=edited)
    lead.run(job.pk, "worker-1")
    job.refresh_from_db()
    assert (job.status, job.error, job.ended_by) == ("done", None, "space")
    tried = [row.config for row in job.trials.all()]
    assert {(config["PER_SM"], config["STEPS"]) for config in tried} == {(3, 5)} and {config["ROWS"] for config in tried} == {1, 8}
    assert job.valid_size == len(tried) and all(row.outcome == "measured" for row in job.trials.all())
    assert job.best_config["PER_SM"] == 3 and CachedConfig.objects.get(job=job).evidence["space"] == edited


@pytest.mark.parametrize("cards", [1, pytest.param(2, marks=pytest.mark.deep_only)])
def test_a_shape_of_two_gpus_takes_two_of_them_or_says_that_there_is_one(alice, monkeypatch, tmp_path, cards):
    """The child sees both cards; there the interpreter computes the parts of both, and each one's result is checked."""
    seen = [gpu.Gpu(number, f"GPU-{number}", CARD.name, "9.0", "", 1) for number in range(cards)]
    taken = []

    def make(*args, **given):
        taken.append(SandboxRunner(*args, **{**given, "child_module": "tests.workers.tune.interpreted_child",
                                             "policy": {"max_samples": 5, "rounds": 2}}))
        return taken[-1]

    monkeypatch.setattr(gpu, "gpus", lambda: seen[:1])
    monkeypatch.setattr(gpu, "gpus_of_host", lambda: seen)
    monkeypatch.setattr(gpu.tempfile, "gettempdir", lambda: str(tmp_path))
    monkeypatch.setattr(runner, "SandboxRunner", make)
    job = TuneJob.objects.create(operator="all_reduce_rmsnorm", shape={"R": 4, "C": 100, "G": 2}, dtype="bf16", device="gpu",
                                 strategy="random", owner=alice, budget_trials=4, budget_seconds=120)
    lead.run(job.pk, "worker-1")
    job.refresh_from_db()
    if cards == 1:
        assert job.status == "failed" and job.error["what"] == (
            "this shape runs on 2 GPUs at once, this worker's host has 1 × Triton's interpreter")
        return
    assert (job.status, job.error) == ("done", None)
    assert taken[0]._environ["CUDA_VISIBLE_DEVICES"] == "GPU-0,GPU-1" and job.environment["gpus"] == 2
    rows = list(job.trials.all())
    assert rows and all(row.outcome == "measured" and row.facts["relative_error"] < 1e-2 for row in rows)
    assert job.library_ms and CachedConfig.objects.get(job=job).config["SHOTS"] in (1, 2)
