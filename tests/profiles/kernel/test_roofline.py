"""Work, bytes and roofs: exact where the algorithm is known, never counted twice."""

from __future__ import annotations

from pathlib import Path

import pytest

from profiles.analysis.kernel import counters, roofline
from profiles.analysis.kernel.roofline import Metrics, Roofs, Work
from profiles.ingest.trace import CounterLaunch, Report
from tests.profiles.kernel import reports

DATA = Path(__file__).resolve().parents[2] / "data"
H200, CORPUS = DATA / "h200", DATA / "corpus" / "ncu"


def launches(path: Path) -> list[CounterLaunch]:
    report = reports.read(path)
    assert isinstance(report, Report)
    return report.launches


def of(launch: CounterLaunch) -> roofline.Point:
    return counters.launch_facts(launch).point


@pytest.fixture(scope="module")
def full() -> list[CounterLaunch]:
    return launches(H200 / "full.ncu-rep.zst")


def test_a_bf16_gemm_is_two_n_cubed(full: list[CounterLaunch]) -> None:
    gemm = of(full[0])
    assert gemm.by_precision == {"bf16_tensor": 137_438_953_472}
    assert gemm.flop == 2 * 4096**3
    assert gemm.flop_s == pytest.approx(786.05e12, rel=1e-4)
    assert (gemm.precision, gemm.side) == ("bf16_tensor", "compute")
    # the tensor pipe's own share of its peak, from another pass of the same launch
    assert gemm.roof_pct == pytest.approx(
        full[0].metrics["sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed"], abs=0.1
    )


def test_scalar_work_is_exact(full: list[CounterLaunch]) -> None:
    assert roofline.work(full[1].metrics).by_precision == pytest.approx({"fp32": 2 * 2**26})     # one FFMA per element
    assert roofline.work(full[10].metrics).by_precision == pytest.approx({"fp64": 2**26})        # one DMUL per element
    small = of(full[6])
    assert small.by_precision == {"bf16_tensor": 2 * 16 * 4096 * 4096}
    assert small.side == "memory"


def test_no_work_is_no_dot_with_its_reason(full: list[CounterLaunch]) -> None:
    cast = of(full[9])
    assert (cast.flop, cast.intensity) == (0, None)
    assert cast.reason and "moves data" in cast.reason


def test_dram_roof_is_that_of_the_report(full: list[CounterLaunch]) -> None:
    for launch in full:
        point = of(launch)
        assert point.dram_bytes == launch.metrics["dram__bytes_read.sum"] + launch.metrics["dram__bytes_write.sum"]
        assert point.dram_roof == pytest.approx(1504 * launch.metrics["dram__cycles_elapsed.avg.per_second"])
        assert point.dram_bytes_s is not None and point.dram_roof is not None
        if launch.metrics["gpu__time_duration.sum"] > 50_000:      # percentages come from another pass
            share = 100 * point.dram_bytes_s / point.dram_roof
            assert share == pytest.approx(
                launch.metrics["gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed"], rel=0.01
            )


@pytest.mark.parametrize("name", ["full", "buildA", "buildB"])
def test_operations_of_paths_equal_those_of_executed_instructions(name: str) -> None:
    """Two independent counts of the same work: hardware paths, and SASS opcodes times their shape."""
    for launch in launches(H200 / f"{name}.ncu-rep.zst"):
        counted = {p: v for p, v in roofline.work(launch.metrics).by_precision.items() if p.endswith("_tensor")}
        by_opcode = roofline.tensor_opcodes(launch.metrics)
        assert by_opcode is not None
        assert {p: v for p, (v, _) in by_opcode.items()} == counted


def test_older_reports_count_tensor_work_by_opcode() -> None:
    for launch in launches(CORPUS / "cutlass_fork_a100_report75.ncu-rep.gz"):
        point = of(launch)
        assert point.precision == "int8_tensor"
        busy = launch.metrics["sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed"]
        assert point.roof_pct == pytest.approx(busy, rel=0.03)


def test_sgemm_of_an_ampere_report() -> None:
    """1024³ SGEMM kernels: 2·1024³, whatever their tiling."""
    for launch in launches(CORPUS / "esmm_a10g_output.ncu-rep"):
        assert roofline.work(launch.metrics).by_precision == pytest.approx({"fp32": 2 * 1024**3})


@pytest.mark.parametrize(
    ("metrics", "work"),
    [
        (
            {
                "src_bf16_dst_fp32": 8,
                "op_hgmma_src_bf16_dst_fp32_sparsity_off": 6,
                "op_hmma_src_bf16_dst_fp32_sparsity_off": 2,
            },
            {"bf16_tensor": 8},
        ),
        (
            {"op_hgmma_src_bf16_dst_fp32_sparsity_off": 6, "op_hmma_src_bf16_dst_fp32_sparsity_off": 2},
            {"bf16_tensor": 8},
        ),
        (
            {
                "src_fp16": 9,
                "op_hgmma_src_fp16_sparsity_off": 4,
                "op_hmma_src_fp16_dst_fp16_sparsity_off": 3,
                "op_hmma_src_fp16_dst_fp32_sparsity_off": 2,
            },
            {"fp16_tensor": 9},
        ),
        (
            {
                "op_hgmma_src_fp16_sparsity_off": 4,
                "op_hmma_src_fp16_dst_fp16_sparsity_off": 3,
                "op_hmma_src_fp16_dst_fp32_sparsity_on": 2,
            },
            {"fp16_tensor": 9},
        ),
        (
            {
                "src_fp16_dst_fp32_sparsity_off": 5,
                "src_fp16_dst_fp32_sparsity_on": 1,
                "src_fp16_dst_fp16_sparsity_off": 2,
            },
            {"fp16_tensor": 8},
        ),
        (
            {"src_fp8_sparsity_off": 5, "src_fp8_sparsity_on": 1, "src_int8": 3, "src_fp64": 2},
            {"fp8_tensor": 6, "int8_tensor": 3, "fp64_tensor": 2},
        ),
        ({"src_fp16_bf16_tf32_dst_fp32": 4, "src_fp16_dst_fp16": 3}, {"fp16_tensor": 7}),
        ({"op_utcqmma_src_fp4_fp6_fp8_sparsity_off": 4}, {"fp8_tensor": 4}),
    ],
    ids=range(8),
)
def test_aggregates_and_leaves_are_never_both_taken(metrics: dict[str, float], work: dict[str, float]) -> None:
    named: Metrics = {f"sm__ops_path_tensor_{name}.sum": float(value) for name, value in metrics.items()}
    assert roofline.work(named).by_precision == work


def test_peaks_are_dense() -> None:
    """The aggregate states the sparse rate; the leaf that says "off" states the dense one."""
    prefix = "sm__ops_path_tensor_"
    metrics: Metrics = {
        f"{prefix}src_bf16_dst_fp32.sum.peak_sustained": 8192.0,
        f"{prefix}op_hmma_src_bf16_dst_fp32_sparsity_off.sum.peak_sustained": 2731.0,
        f"{prefix}op_hgmma_src_bf16_dst_fp32_sparsity_off.sum.peak_sustained": 4096.0,
        f"{prefix}op_hgmma_src_bf16_dst_fp32_sparsity_on.sum.peak_sustained": 8192.0,
        "smsp__cycles_elapsed.avg.per_second": 1e9,
    }
    assert roofline.roofs(metrics).compute == {"bf16_tensor": 4096e9}


def test_a_mix_of_precisions_is_bound_by_the_pipe_that_fills_first() -> None:
    ceilings = Roofs(1e12, None, {"fp32": 10e12, "bf16_tensor": 1000e12}, {}, 1e9, {})
    point = roofline.point(1e6, Work({"fp32": 1e9, "bf16_tensor": 50e9}, {}), 1e6, ceilings)
    assert point.precision == "fp32"
    assert point.compute_roof == pytest.approx(51e9 / (1e9 / 10e12))
    assert point.side == "compute"
    assert point.roof_pct == pytest.approx(100 * 1e-4 / 1e-3)


def test_unknown_stays_unknown() -> None:
    def point_of(metrics: roofline.Metrics) -> roofline.Point:
        return roofline.point(5.0, roofline.work(metrics), roofline.dram_bytes(metrics), roofline.roofs(metrics))

    point = point_of({})
    assert point.flop is None and point.intensity is None and point.roof_pct is None
    assert point.reason and "no FLOP counters" in point.reason
    busy = point_of({roofline.TENSOR_PIPE[0]: 40.0, "smsp__sass_thread_inst_executed_op_ffma_pred_on.sum": 3.0})
    assert busy.reason and "tensor cores were used" in busy.reason
