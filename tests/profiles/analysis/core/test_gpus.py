"""The table of GPUs: consistent with itself and with what reports say of the same devices."""

from __future__ import annotations

from pathlib import Path

import pytest

from profiles import ingest
from profiles.analysis.core import gpus
from profiles.analysis.kernel import roofline
from profiles.ingest.trace import Report

DATA = Path(__file__).resolve().parents[3] / "data"


@pytest.mark.parametrize("gpu", gpus.GPUS, ids=lambda gpu: gpu.name)
def test_every_row_has_limits_a_source_and_known_precisions(gpu: gpus.Gpu) -> None:
    assert gpu.source.startswith("https://")
    assert gpu.limits.warps_per_sm in (32, 48, 64)
    assert gpu.peaks.keys() <= gpus.PRECISIONS.keys()
    assert gpus.lookup(f"NVIDIA {gpu.name}") == gpu


@pytest.mark.parametrize("gpu", gpus.GPUS, ids=lambda gpu: gpu.name)
def test_peaks_are_dense_rates_times_clock(gpu: gpus.Gpu) -> None:
    """Data sheets round and choose their clock; a sparse figure would be off by two."""
    for precision, peak in gpu.peaks.items():
        rate = gpus.ops_per_sm_cycle(gpu.compute_capability, precision)
        if rate and precision != "fp64":
            assert 0.45 < peak / (rate * gpu.sm_count * gpu.boost_hz) < 1.25, precision


def test_a_near_miss_is_no_match() -> None:
    assert gpus.lookup("NVIDIA A10G") is None
    assert gpus.lookup("NVIDIA A10") is not None
    assert gpus.lookup("NVIDIA A100-SXM4-80GB") is not gpus.lookup("NVIDIA A100 80GB PCIe")
    assert gpus.lookup("") is None


@pytest.mark.slow
def test_the_h200_as_a_report_states_it() -> None:
    report = ingest.read(DATA / "h200" / "full.ncu-rep.zst")
    assert isinstance(report, Report)
    metrics, row = report.launches[0].metrics, gpus.lookup("NVIDIA H200")
    assert row is not None
    limits = row.limits
    for name, value in (
        ("max_warps_per_multiprocessor", limits.warps_per_sm),
        ("max_blocks_per_multiprocessor", limits.blocks_per_sm),
        ("max_registers_per_multiprocessor", limits.registers_per_sm),
        ("max_shared_memory_per_multiprocessor", limits.smem_bytes_per_sm),
        ("max_shared_memory_per_block_optin", limits.smem_bytes_per_block),
        ("multiprocessor_count", row.sm_count),
    ):
        assert metrics[f"device__attribute_{name}"] == value, name
    stated = roofline.roofs(metrics, "NVIDIA H200", "9.0", 132)
    for precision, rate in gpus.OPS_PER_SM_CYCLE["9.0"].items():
        assert stated.per_cycle[precision] == rate * 132, precision
    assert stated.dram_bytes_s == pytest.approx(row.dram_bytes_s, rel=0.01)
    assert "peak_sustained" in stated.source["dram"]
