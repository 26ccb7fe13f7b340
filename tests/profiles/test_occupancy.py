"""Occupancy by CUDA's rules against what Nsight Compute states in real reports."""

from __future__ import annotations

from pathlib import Path

import pytest

from profiles import ingest
from profiles.analysis import gpus
from profiles.analysis.occupancy import occupancy, waves
from profiles.trace import Report

DATA = Path(__file__).resolve().parent.parent / "data"
REPORTS = [
    *sorted((DATA / "h200").glob("*.ncu-rep.gz")),
    *sorted(path for path in (DATA / "corpus" / "ncu").iterdir() if ".ncu-rep" in path.name),
]
OLD = ("mistic", "speedy")      # ncu before 2022.2 computes with the most shared memory an SM can give


@pytest.mark.parametrize("path", REPORTS, ids=lambda path: path.name)
def test_limits_are_those_of_the_report(path: Path) -> None:
    report = ingest.read(path)
    assert isinstance(report, Report)
    seen = 0
    for launch in report.launches:
        metrics, limits = launch.metrics, gpus.limits(launch.device.compute_capability)
        if launch.incomplete or limits is None:
            continue
        stated = {
            name: metrics[f"launch__occupancy_limit_{name}"] for name in ("warps", "registers", "shared_mem", "blocks")
        }
        smem = sum(int(metrics[f"launch__shared_mem_per_block_{part}"]) for part in ("static", "dynamic"))
        config = None if path.name.startswith(OLD) else int(metrics["launch__shared_mem_config_size"])
        found = occupancy(
            limits,
            int(metrics["launch__block_size"]),
            int(metrics["launch__registers_per_thread"]),
            smem,
            smem_config_bytes=config,
        )
        assert found.limits == stated
        theoretical = metrics.get("sm__maximum_warps_per_active_cycle_pct")
        assert theoretical is not None
        if (
            "launch__occupancy_limit_barriers" not in metrics
            or found.blocks_per_sm <= metrics["launch__occupancy_limit_barriers"]
        ):
            assert found.theoretical_pct == pytest.approx(theoretical)
        seen += 1
    assert seen


def test_the_limiter_is_named() -> None:
    hopper = gpus.LIMITS["9.0"]
    assert occupancy(hopper, 256, 32, 0).limiters == ("warps", "registers")
    assert occupancy(hopper, 256, 33, 0).limiters == ("registers",)
    assert occupancy(hopper, 32, 16, 0).limiters == ("blocks",)
    assert occupancy(hopper, 128, 32, 100 * 1024).limiters == ("shared_mem",)


def test_nothing_fits() -> None:
    too_much = occupancy(gpus.LIMITS["7.5"], 1024, 255, 0)
    assert (too_much.blocks_per_sm, too_much.theoretical_pct) == (0, 0.0)
    assert waves(100, too_much.blocks_per_sm, 40) is None


def test_waves_and_tail() -> None:
    full = waves(264, 2, 132)
    assert full is not None and (full.waves, full.tail_pct, full.loss_pct) == (1.0, 100.0, 0.0)
    tail = waves(265, 1, 132)
    assert tail is not None
    assert tail.waves == pytest.approx(2.0076, abs=1e-4)
    assert tail.tail_pct == pytest.approx(100 / 132)
    assert tail.loss_pct == pytest.approx(100 * (1 - 265 / 396))
