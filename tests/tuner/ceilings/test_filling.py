"""A grid that leaves SMs empty is told, and warned of where production's would fill the GPU."""

from __future__ import annotations

from typing import Any

import pytest
from django.core.cache import cache
from django.urls import reverse

from profiles.models import KernelShape, KernelStat, Profile
from tuner.ceilings.selectors import grid_programs, job_grid, programs
from tuner.models import TuneJob

CONFIG = {"BM": 128, "BN": 128, "BK": 64, "GM": 8, "num_warps": 8, "num_stages": 4}


@pytest.mark.parametrize(("operator", "shape", "config", "count"), [
    ("matmul", {"M": 1024, "N": 1024, "K": 1024}, CONFIG, 64),
    ("matmul", {"M": 1000, "N": 1024, "K": 1024}, {**CONFIG, "SPLIT_K": 4, "KERNEL": "tiles"}, 256),
    ("matmul", {"M": 1024, "N": 1024, "K": 1024}, {**CONFIG, "KERNEL": "waves and split"}, None),
    ("attention", {"B": 4, "H": 32, "N": 2048, "D": 64, "causal": 1}, {"BM": 128, "BN": 64}, 16 * 128),
    ("softmax", {"R": 100, "C": 4096}, {"ROWS": 8}, 13), ("layernorm", {"R": 64, "C": 4096}, {"BLOCK": 4096}, 64),
    ("matmul", {"M": 1024, "N": 1024, "K": 1024}, {"num_warps": 8}, None), ("no_such", {}, CONFIG, None),
])
def test_programs_of_a_launch(operator: str, shape: Any, config: Any, count: int | None) -> None:
    assert programs(operator, shape, config) == count


@pytest.mark.parametrize(("grid", "count"), [("512×1×1", 512), ("16×8×2", 256), ("132", 132), ("", None), ("x", None),
                                             ("0×1×1", None), ("9" * 40, None)])
def test_blocks_of_a_grid_that_a_profile_tells(grid: str, count: int | None) -> None:
    assert grid_programs(grid) == count


def saw(grid: str, ms: float, m: int) -> None:
    profile = Profile.objects.create(name="step", status="ready", kind="trace", gpu="NVIDIA H200", file_name="f", upload_key="k")
    stat = KernelStat.objects.create(profile=profile, name="matmul_kernel", short_name="matmul", category="compute", launches=9,
                                     total_ns=ms * 1e6, mean_ns=ms * 1e5, share_pct=100)
    KernelShape.objects.create(kernel=stat, grid=grid, block="128×1×1", launches=9, total_ns=ms * 1e6,
                               min_ns=ms * 1e5, max_ns=ms * 1e5,
                               tune={"operator": "matmul", "dtype": "bf16", "M": m, "N": 4096, "K": 4096})


@pytest.mark.django_db
def test_it_is_warned_of_only_where_production_fills_the_gpu(client: Any, alice: Any, api: Any) -> None:
    cache.clear()
    job = TuneJob.objects.create(
        operator="matmul", shape={"M": 1024, "N": 1024, "K": 1024}, dtype="bf16", device="gpu", strategy="local", budget_trials=9,
        budget_seconds=60, status="done", gpu="NVIDIA H200", best_ms=0.01, best_config=CONFIG)
    told = job_grid(job)
    assert told is not None and (told["programs"], told["sms"], told["warns"]) == (64, 132, False)
    assert told["text"] == "64 programs on 132 SMs: 68 have nothing to do"
    saw("64×1×1", 1.0, 1024)
    assert (job_grid(job) or {})["warns"] is False               # production leaves them empty too
    saw("1024×1×1", 5.0, 4096)
    told = job_grid(job)
    assert told is not None and told["warns"] and "it has 1,024 (M=4096 N=4096 K=4096)" in told["text"]
    client.force_login(alice)
    assert "68 have nothing to do" in client.get(reverse("tune", args=[job.pk])).content.decode()
    assert api(alice).get(reverse("api-tune", args=[job.pk])).json()["grid"] == told
    job.best_config = {**CONFIG, "SPLIT_K": 4}
    assert job_grid(job) is None                                 # 256 programs fill it
