"""From a file that nobody packaged to a tuned entry: checked, tuned behind walls on Triton's interpreter, served."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.conf import settings

from tests.tuner.bring.own.files import ADD, CALL, FOLLOWING, WIDTH
from tests.tuner.bring.own.programs import CARD, ON_THE_CPU
from tests.tuner.measure.chosen import WITHOUT_TORCH
from tests.warm.parent import forks_behind_walls
from tuner.bring.checks import services as checks
from tuner.bring.own import selectors, services
from tuner.models import CachedConfig, KernelCheck, OwnKernel
from workers.core import gpu, sandboxed
from workers.tune import check as check_worker
from workers.tune import gpu_child, lead, own

pytest.importorskip("torch", reason=WITHOUT_TORCH)
pytest.importorskip("triton", reason=WITHOUT_TORCH)
pytestmark = [pytest.mark.torch, pytest.mark.django_db(transaction=True, available_apps=settings.INSTALLED_APPS),
              pytest.mark.skipif(bool(sandboxed.why_not()), reason=f"no sandbox here: {sandboxed.why_not()}")]


@pytest.fixture(autouse=True)
def on_the_cpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.setattr(gpu_child, "SPARES", 0)
    monkeypatch.setattr(own, "PROGRAMS", ON_THE_CPU)
    monkeypatch.setattr(gpu, "gpus", lambda: [CARD])
    monkeypatch.setattr(gpu.tempfile, "gettempdir", lambda: str(tmp_path))


def checked(olga: Any, text: str = ADD, call: str = CALL, siblings: dict[str, str] | None = None, **more: Any) -> KernelCheck:
    check = checks.check_create(text, file="mine.py", call=call, siblings={"near.py": WIDTH} if siblings is None else siblings,
                                owner=olga, **more)
    check_worker.run(check.pk, "here")
    return KernelCheck.objects.get(pk=check.pk)


def test_a_file_with_what_it_imports_is_tuned_and_served(olga: Any) -> None:
    check = checked(olga)
    assert check.status == "done", check.error
    assert list(check.adapters[0]["references"]) == ["add_torch"]
    space = {"BLOCK": "128, 256, 512", "num_warps": "4", "num_stages": "1"}
    kernel, job = services.own_tune(check, params=space, reference="add_torch", owner=olga, device="gpu",
                                    strategy="random", effort="quick")
    assert (job.operator, job.shape, job.dtype) == (kernel.name, {"n": 3000}, "fp16")
    lead.run(job.pk, "worker-1")
    job.refresh_from_db()
    assert (job.status, job.error, job.ended_by) == ("done", None, "space"), [each.message for each in job.trials.all()]
    trials = {row.config["BLOCK"]: row for row in job.trials.all()}
    assert all(trials[block].outcome == "measured" and trials[block].facts["relative_error"] < 1e-2 for block in (128, 256))
    assert (trials[512].reason, trials[512].message) == (
        "wrong", "it writes out of bounds: up to 144 bytes after the last element of out_ptr")      # 3,072 - 3,000 elements
    entry = CachedConfig.objects.get(job=job)
    assert entry.operator == kernel.name and entry.source_hash == kernel.source_hash and job.library_ms
    assert json.loads(kernel.description)["kernel_names"] == ["add_kernel"]
    assert [each.pk for each in selectors.jobs_of(check)] == [job.pk]
    assert OwnKernel.objects.count() == 1

    alone, job = services.own_tune(check, params={**space, "BLOCK": "256"}, owner=olga, device="gpu", strategy="random",
                                   effort="quick")
    lead.run(job.pk, "worker-1")                    # compared with the default's own result, which is no library
    job.refresh_from_db()
    assert (job.status, job.library_ms, alone.is_independent, kernel.is_independent) == ("done", None, False, True), job.error
    assert all("library_ms" not in each for each in job.finalists)


def test_what_the_host_computes_from_its_block_is_right_in_each_configuration(olga: Any) -> None:
    """STEPS and EVEN of another block would leave columns out, or read beyond a row."""
    with forks_behind_walls():
        check = checked(olga, FOLLOWING, "sum_rows(randn(16, 3072))", {}, dtype="fp16")
    assert check.status == "done", check.error
    _, job = services.own_tune(check, params={"BLOCK": "256, 512, 2048", "num_warps": "4", "num_stages": "1"},
                               reference="sum_torch", owner=olga, device="gpu", strategy="random", effort="quick")
    lead.run(job.pk, "worker-1")
    job.refresh_from_db()
    assert job.status == "done", job.error
    trials = {row.config["BLOCK"]: row for row in job.trials.all()}
    assert set(trials) == {256, 512, 2048} and all(each.outcome == "measured" for each in trials.values()), [
        each.message for each in trials.values()]
