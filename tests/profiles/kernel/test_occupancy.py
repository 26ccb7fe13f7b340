"""Occupancy by CUDA's rules against what Nsight Compute states in real reports, and against NVIDIA's own calculator."""

from __future__ import annotations

import csv
import gzip
from pathlib import Path
from typing import Any

import pytest

from profiles import ingest
from profiles.analysis.core import gpus
from profiles.analysis.kernel import counters
from profiles.analysis.kernel.occupancy import occupancy, waves
from profiles.ingest.trace import Report
from tests.profiles.kernel import reports
from tests.unpack import PACKED, unpacked

DATA = Path(__file__).resolve().parents[2] / "data"
REPORTS = [
    *sorted((DATA / "h200").glob("*.ncu-rep.zst")),
    *sorted(path for path in (DATA / "corpus" / "ncu").iterdir() if ".ncu-rep" in path.name),
]
OLD = ("mistic", "speedy")      # ncu before 2022.2 computes with the most shared memory an SM can give


@pytest.mark.parametrize("path", REPORTS, ids=lambda path: path.name)
def test_limits_are_those_of_the_report(path: Path) -> None:
    report = reports.read(path)
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


def test_as_nvidias_calculator_for_every_architecture() -> None:
    """4,800 random launches through cuda_occupancy.h: tests/data/occupancy/cuda_occupancy.cpp."""
    text = gzip.decompress((DATA / "occupancy" / "cuda_occupancy_12.9.csv.gz").read_bytes()).decode()
    seen = set()
    for row in csv.DictReader(text.splitlines()):
        said = {key: int(value) for key, value in row.items() if key != "compute_capability"}
        gpu = gpus.LIMITS[row["compute_capability"]]
        found = occupancy(gpu, said["threads"], said["registers"], said["smem_bytes"], barriers=said["barriers"])
        for name, theirs in (("warps", "by_warps"), ("registers", "by_registers"), ("shared_mem", "by_smem"),
                             ("blocks", "by_blocks"), ("barriers", "by_barriers")):
            most = gpu.blocks_per_sm if said[theirs] > gpu.blocks_per_sm else said[theirs]   # "no limit" is INT_MAX there
            assert min(found.limits[name], gpu.blocks_per_sm) == most, (row, name)
        assert found.blocks_per_sm == said["blocks"], row
        seen.add(row["compute_capability"])
    assert seen == set(gpus.LIMITS) - {"8.8"}                    # CUDA 12.9 does not know it yet


SWEEPS = {"block_size": "threads", "register_count": "registers", "shared_mem_size": "smem", "barrier_count": "barriers"}
DEFAULT_SMEM = 48 * 1024         # more than this per block only for kernels that opted in: cudaFuncSetAttribute


@pytest.mark.slow
@pytest.mark.parametrize("path", REPORTS, ids=lambda path: path.name)
def test_the_curves_are_those_of_the_report(path: Path, tmp_path: Path) -> None:
    """`launch__occupancy_per_*`: warps per SM over block size, registers, shared memory and barriers, as NVIDIA's tool swept
    them for each launch."""
    seen = 0
    for metrics, sweeps in _swept(path, tmp_path):
        gpu = gpus.LIMITS[f"{metrics['major']}.{metrics['minor']}"]
        for sweep, points in sweeps.items():
            for asked, warps in points:
                if asked > gpu.registers_per_thread and sweep == "register_count":       # 256, where no kernel goes
                    continue
                if sweep == "shared_mem_size":       # on this axis NVIDIA's tool counts the driver's share in
                    if warps == 0 and asked > (gpu.smem_bytes_per_block if metrics["smem"] > DEFAULT_SMEM else DEFAULT_SMEM):
                        continue                     # refused, not calculated: beyond what this kernel opted in to
                    asked = max(0, asked - gpu.smem_reserved_bytes_per_block)
                of = metrics | {SWEEPS[sweep]: asked}
                config = None if path.name.startswith(OLD) else metrics["config"]
                found = occupancy(gpu, of["threads"], of["registers"], of["smem"], barriers=of["barriers"],
                                  smem_config_bytes=config)
                assert found.warps_per_sm == warps, (sweep, asked, found)
                seen += 1
    assert seen > 400


def _swept(path: Path, folder: Path) -> list[tuple[dict[str, int], dict[str, list[tuple[int, int]]]]]:
    """What each launch asks for, and NVIDIA's sweeps, read with NVIDIA's own library."""
    import ncu_report

    if path.suffix in PACKED:
        plain = folder / path.stem
        plain.write_bytes(unpacked(path))
        path = plain
    found = []
    context = ncu_report.load_report(str(path))
    for part in (context.range_by_idx(i) for i in range(context.num_ranges())):
        for action in (part.action_by_idx(i) for i in range(part.num_actions())):
            def value(name: str, action: Any = action) -> int:
                metric = action.metric_by_name(name)
                return int(metric.value()) if metric is not None and metric.has_value() else 0
            sweeps = {}
            for sweep in SWEEPS:
                metric = action.metric_by_name(f"launch__occupancy_per_{sweep}")
                if metric is not None and metric.num_instances():
                    ids = metric.correlation_ids()
                    sweeps[sweep] = [(int(ids.value(i)), int(metric.value(i))) for i in range(metric.num_instances())]
            if value("launch__block_size"):
                cc, per = "device__attribute_compute_capability_", "launch__shared_mem_per_block_"
                found.append(({
                    "major": value(f"{cc}major"), "minor": value(f"{cc}minor"), "threads": value("launch__block_size"),
                    "registers": value("launch__registers_per_thread"), "barriers": value("launch__barrier_count"),
                    "smem": value(f"{per}static") + value(f"{per}dynamic"), "config": value("launch__shared_mem_config_size"),
                }, sweeps))
    return found


def test_limits_of_blackwell_are_those_of_a_details_page() -> None:
    """An RTX 5090 (12.0): blocks of 128 threads, two of them by registers (the page does not say how many)."""
    report = ingest.read(DATA / "corpus" / "ncu_csv" / "llmperfopt_rtx5090_k0001.details.csv")
    assert isinstance(report, Report)
    launch = report.launches[0]
    found = counters.launch_facts(launch).occupancy
    assert found.source == "report" and found.limiters == ["registers"] and found.blocks_per_sm == 2
    ours = occupancy(gpus.LIMITS["12.0"], 128, 200, 20 * 1024, barriers=1)
    assert {name: ours.limits[name] for name in ("warps", "blocks", "barriers")} == {
        name: launch.metrics[f"launch__occupancy_limit_{name}"] for name in ("warps", "blocks", "barriers")}
    assert ours.limits["registers"] == found.limits["registers"]
    assert found.theoretical_pct == pytest.approx(ours.theoretical_pct, abs=0.005)


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
