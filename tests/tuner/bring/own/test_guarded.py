"""A suite measures an own kernel in a process of its own, behind the walls, and its runs name the version."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from django.conf import settings

from tests.tuner.bring.own.programs import CARD, ON_THE_CPU
from tests.tuner.bring.own.test_own_rows import both, recorded, tune
from tests.tuner.measure.chosen import WITHOUT_TORCH
from tuner.gate.suites import job_services
from tuner.models import KernelRun, Suite, SuiteKernel
from workers.core import gpu, sandboxed
from workers.gate import suite
from workers.tune import own

pytest.importorskip("torch", reason=WITHOUT_TORCH)
pytest.importorskip("triton", reason=WITHOUT_TORCH)
pytestmark = [pytest.mark.torch, pytest.mark.django_db(transaction=True, available_apps=settings.INSTALLED_APPS),
              pytest.mark.skipif(bool(sandboxed.why_not()), reason=f"no sandbox here: {sandboxed.why_not()}")]


def halves(value: Any) -> Any:
    """A record whose tensors are fp16: the interpreter does not compute with bf16."""
    if isinstance(value, dict):
        return {name: "float16" if name == "dtype" else halves(each) for name, each in value.items()}
    return [halves(each) for each in value] if isinstance(value, list) else value


def test_a_suite_runs_an_own_kernel_behind_walls(olga: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.setattr(own, "PROGRAMS", ON_THE_CPU)
    monkeypatch.setattr(gpu, "gpus", lambda: [CARD])
    monkeypatch.setattr(gpu.tempfile, "gettempdir", lambda: str(tmp_path))
    monkeypatch.setattr(settings, "HOME", tmp_path / "home")
    kernel, job = tune(recorded(olga, told=halves(copy.deepcopy(both()))), olga, reference="add_torch")
    row = Suite.objects.create(name="mine", kind=Suite.Kind.OPERATORS, device="gpu",
                               policy={"min_samples": 5, "max_samples": 5, "warmup": 1, "batch": 5})
    SuiteKernel.objects.create(suite=row, key="add", family="add", op=kernel.name, shape=job.shape, dtype=job.dtype)
    asked = job_services.job_create(row, builds=["a"], runs=1)
    suite.run(asked.pk, "worker-1")
    asked.refresh_from_db()
    assert asked.status == "done", asked.error
    run = KernelRun.objects.get(job=asked)
    assert run.rejected == "" and run.source_hash == kernel.source_hash and run.p50_us > 0
