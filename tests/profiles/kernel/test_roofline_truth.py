"""Rooflines against what was not computed by them: the vendor's raw page, known products, kernels whose work is known."""

from __future__ import annotations

import csv
import gzip
import json
import re
from functools import cache
from pathlib import Path

import pytest

from profiles.analysis.core import gpus
from profiles.analysis.kernel import bounds, counters
from profiles.analysis.kernel.facts import LaunchFacts
from profiles.analysis.kernel.metrics import Metrics
from profiles.analysis.kernel.occupancy import LIMITER_WORDS
from profiles.analysis.kernel.roofline import Roofs, levels
from profiles.analysis.kernel.stalls import Stall
from profiles.analysis.kernel.work import half_moves, work
from profiles.ingest.trace import CounterLaunch, Report
from tests.profiles.kernel import reports

DATA = Path(__file__).resolve().parents[2] / "data"
UNITS = {"": 1.0, "byte": 1.0, "Kbyte": 1e3, "Mbyte": 1e6, "Gbyte": 1e9, "Tbyte": 1e12, "hz": 1.0, "Khz": 1e3, "Mhz": 1e6,
         "Ghz": 1e9, "Thz": 1e12, "cycle": 1.0, "inst": 1.0, "ns": 1.0, "us": 1e3, "ms": 1e6, "%": 1.0}
SASS = "smsp__sass_thread_inst_executed_op_"


def raw(path: Path) -> list[dict[str, float]]:
    """The raw page as ncu exported it, in base units: a reader of its own."""
    with gzip.open(path, "rt") as stream:
        header, units, *rows = list(csv.reader(stream))
    found = []
    for row in rows:
        cells: dict[str, float] = {}
        for name, unit, text in zip(header, units, row, strict=True):
            scale = UNITS.get(unit.split("/")[0])
            if scale is not None and re.fullmatch(r"-?[\d,]+(\.\d+)?(e[+-]?\d+)?", text):
                cells[name] = float(text.replace(",", "")) * scale
        found.append(cells)
    return found


@cache
def facts_of(path: Path) -> tuple[list[CounterLaunch], list[LaunchFacts]]:
    report = reports.read(path)
    assert isinstance(report, Report)
    return report.launches, [counters.launch_facts(launch) for launch in report.launches]


@pytest.mark.parametrize("name", ["h200/full", "h200/buildA", "h200/buildB", "causes/causes_planted"])
def test_positions_are_those_of_the_raw_page(name: str) -> None:
    """Rates from rates (per second, per cycle × clock), never from counts over durations as the code has them: ≤ 0.1 %."""
    _, facts = facts_of(DATA / f"{name}.ncu-rep.zst")
    pages, seen = raw(DATA / f"{name}_raw.csv.gz"), 0
    assert len(pages) == len(facts)
    for page, found in zip(pages, facts, strict=True):
        point, seconds = found.point, page["gpu__time_duration.sum"] * 1e-9
        dram = page["dram__bytes_read.sum.per_second"] + page["dram__bytes_write.sum.per_second"]
        if dram < 0.01 * (point.dram_roof or 0.0):
            continue                    # another pass, next to nothing moved
        assert point.dram_bytes_s == pytest.approx(dram, rel=1e-3)
        cycles_s = page["smsp__cycles_elapsed.avg"] / seconds
        flop_s = sum(page[f"{SASS}{letter}{op}_pred_on.sum.per_cycle_elapsed"] * weight * cycles_s
                     for letter in "fd" for op, weight in (("fma", 2), ("add", 1), ("mul", 1)))
        # leaves by instruction, where the code takes aggregates
        flop_s += sum(value for column, value in page.items()
                      if re.fullmatch(r"sm__ops_path_tensor_op_\w+(_sparsity_(on|off)|int1|fp64)\.sum\.per_second", column))
        if point.flop_s is not None:
            assert point.flop_s == pytest.approx(flop_s, rel=1e-3), found.kernel
        if point.intensity:
            seen += 1
            assert point.intensity == pytest.approx(flop_s / dram, rel=1e-3)
        l1, l2 = found.levels["l1"], found.levels["l2"]
        assert l2.bytes_s == pytest.approx(page["derived__lts__lts2xbar_bytes.sum.per_second"], rel=1e-3)
        assert l1.bytes_s == pytest.approx(page["derived__l1tex__lsu_writeback_bytes_mem_lgds.sum.per_second"], rel=1e-3)
        # the share of the port's cycles, another metric of the vendor's
        share = page["lts__lts2xbar_cycles_active.avg.pct_of_peak_sustained_elapsed"]
        assert l2.roof_pct == pytest.approx(share, rel=0.02, abs=0.3)
    assert seen >= 7


def test_every_precision_is_counted_as_the_product_that_ran() -> None:
    """fp64, fp32, tf32, fp16, bf16, fp8, int8: one 4096³ product each; what is beside it is less than half a percent."""
    _, facts = facts_of(DATA / "causes" / "precisions_raw.csv.gz")
    wanted = ["fp64_tensor", "fp32", "tf32_tensor", "fp16_tensor", "bf16_tensor", "fp8_tensor", "int8_tensor"]
    assert [found.point.precision for found in facts] == wanted
    for found, precision in zip(facts, wanted, strict=True):
        assert found.point.by_precision[precision] == pytest.approx(2 * 4096**3, rel=1e-3)
        assert found.point.flop == pytest.approx(2 * 4096**3, rel=5e-3)
        assert found.point.side == "compute" and found.bound == "compute"
        # dense roofs: at the clock of the launch, not above what the data sheet's clock allows by 10 %
        sheet = gpus.lookup("NVIDIA H200")
        assert sheet is not None and found.sm_clock_hz
        dense = sheet.peaks[precision] * found.sm_clock_hz / sheet.peak_clock_hz(precision)
        assert found.roofs.compute[precision] == pytest.approx(dense, rel=0.03)


def test_setting_a_register_is_no_half_precision_work() -> None:
    """Six kernels of this report hold HFMA2.MMA R, -RZ, RZ, … and no half-precision arithmetic at all."""
    launches, facts = facts_of(DATA / "h200" / "full.ncu-rep.zst")
    counted = [launch for launch in launches if launch.metrics.get(f"{SASS}hfma_pred_on.sum.per_cycle_elapsed")]
    assert len(counted) >= 5
    for launch in counted:
        moves = half_moves(launch.instructions)
        assert moves and "fp16" not in work(launch.metrics, launch.instructions).by_precision
        assert "fp16" not in work(launch.metrics).by_precision                   # by the opcodes alone, too
        told = facts[launch.index].point.notes
        assert told and "set a register" in told[0]
        # as the opcodes' own counter says: every one of them is such a move
        warps = launch.metrics["sass__inst_executed_per_opcode_with_modifier_all[HFMA2.MMA]"]
        assert moves == pytest.approx(4 * 32 * float(warps), rel=0.05)
    assert not any("fp16" in found.point.by_precision for found in facts)


def test_a_conversion_is_no_half_precision_work() -> None:
    """Triton's softmax reads fp16 and computes in fp32: HADD2.F32 R, -RZ, … converts 16,384 × 2,048 values, nothing is added."""
    launches, facts = facts_of(DATA / "h200" / "buildA.ncu-rep.zst")
    chosen = [(launch, found) for launch, found in zip(launches, facts, strict=True) if launch.kernel == "softmax_row"]
    assert len(chosen) == 3
    for launch, found in chosen:
        assert half_moves(launch.instructions) == 2 * 33_554_432
        assert list(found.point.by_precision) == ["fp32"]


def test_real_half_precision_work_is_kept() -> None:
    """Packed multiply-adds alternate HFMA2 and HFMA2.MMA: where both occur, the count stays and the doubt is said."""
    prefix = "sass__inst_executed_per_opcode_with_modifier_all"
    metrics: Metrics = {f"{SASS}hfma_pred_on.sum": 1000.0, f"{prefix}[HFMA2]": 10.0, f"{prefix}[HFMA2.MMA]": 21.0}
    found = work(metrics)
    assert found.by_precision == {"fp16": 4000.0} and found.note and "may be" in found.note


# --- what the measuring kernels claim to do, counted by ncu (recorded/ceilings_once_counted.json) ------------------------

CLAIMED = ("read", "write", "l2", "l1", "fma-fp64", "fma-fp32", "fma-fp16", "gemm-fp64", "gemm-fp32", "gemm-tf32", "gemm-fp16",
           "gemm-bf16", "gemm-fp8", "gemm-int8")       # the copy is no kernel


@pytest.mark.parametrize("index", range(len(CLAIMED)))
def test_measured_ceilings_do_what_they_claim(index: int) -> None:
    name = CLAIMED[index]
    claimed = json.loads((DATA / "recorded" / "ceilings_once.json").read_text())[name]
    counted = json.loads((DATA / "recorded" / "ceilings_once_counted.json").read_text())[index]["metrics"]
    if claimed["kind"] == "compute":
        # a library's tiles reach over the edge of the product (320 columns at a time: 1.6 % more)
        assert claimed["amount"] <= work(counted).by_precision[claimed["precision"]] * 1.0001
        assert work(counted).by_precision[claimed["precision"]] == pytest.approx(claimed["amount"], rel=0.02)
        return
    moved = levels(counted, counted["gpu__time_duration.sum"], None, Roofs(None, None, {}, {}, None))
    # on the way to the L2 a few requests of several SMs are served together
    near = {"dram": 0.015, "l2": 0.04, "l1": 0.001}[claimed["kind"]]
    assert moved[claimed["kind"]].bytes == pytest.approx(claimed["amount"], rel=near)


# --- what bounds a kernel, and what moves it -----------------------------------------------------------------------------

def test_kernels_of_equal_time_and_opposite_fixes_get_opposite_advice() -> None:
    _, facts = facts_of(DATA / "causes" / "causes_planted.ncu-rep.zst")
    memory = next(found for found in facts if found.kernel.startswith("memory_twin")).bounded
    compute = next(found for found in facts if found.kernel.startswith("compute_twin")).bounded
    assert memory and compute
    times = [found.duration_ns or 0.0 for found in facts if "_twin" in found.kernel]
    assert max(times) / min(times) < 1.05
    assert (memory.kind, memory.ceiling) == ("memory", "DRAM") and (compute.kind, compute.ceiling) == ("compute", "FP32")
    assert not set(memory.helps) & set(compute.helps)
    assert memory.helps[0].startswith("Move fewer bytes") and "Faster arithmetic gains nothing" in memory.useless
    assert any("operations" in each for each in compute.helps) and "Fewer bytes gain nothing" in compute.useless
    assert "TF32 tensor has a roof 8.0 times as high" in compute.helps[0]


def sol(sm: float, memory: float, dram: float, l2: float = 10.0, l1: float = 10.0) -> counters.SpeedOfLight:
    return counters.SpeedOfLight(sm, memory, dram, l2, l1)


def occupied(waves: float = 10.0, theoretical: float = 100.0) -> counters.OccupancyFacts:
    return counters.OccupancyFacts(theoretical, theoretical, 8, 64, {"registers": 2}, ["registers"], waves, 50.0, 5.0, "report")


def classify(found: counters.SpeedOfLight, *, ns: float = 100_000.0, where: counters.OccupancyFacts | None = None) -> bounds.Bound:
    waiting = [Stall("long_scoreboard", 20.0, 80.0)]
    point = counters.launch_facts(CounterLaunch(0, "k", ingest_device(), None, None, None, None, {})).point
    return bounds.classify(found, point, where or occupied(), waiting, None, ns)


def ingest_device() -> object:
    from profiles.ingest.trace import Device

    return Device(0, "NVIDIA H200")


@pytest.mark.parametrize(("found", "kind", "ceiling", "first"), [
    (sol(20, 90, 90), "memory", "DRAM", "Move fewer bytes"),
    (sol(20, 90, 30, l2=90), "memory", "L2", "Reuse from shared memory"),
    (sol(20, 90, 30, l1=90), "memory", "L1", "Wider loads"),
    (sol(90, 20, 20), "compute", "issue slots or a pipe without FLOPs", "Issue fewer instructions"),
    (sol(30, 20, 20), "latency", "none: nothing is busy", "Long scoreboard: Load earlier"),
])
def test_each_ceiling_has_its_own_advice(found: counters.SpeedOfLight, kind: str, ceiling: str, first: str) -> None:
    told = classify(found)
    assert (told.kind, told.ceiling) == (kind, ceiling)
    assert told.helps[0].startswith(first) and told.useless


def test_too_few_blocks_and_too_few_warps_are_named() -> None:
    assert classify(sol(10, 10, 10), where=occupied(waves=0.2)).helps[0].startswith("Make more blocks")
    told = classify(sol(10, 10, 10), where=occupied(theoretical=25.0))
    assert any(LIMITER_WORDS["registers"] in each and "25 %" in each for each in told.helps)


def test_a_launch_that_is_over_at_once_is_bound_by_its_launch() -> None:
    """The same counters: 3 µs a launch, and 100 µs."""
    short, long = classify(sol(10, 10, 10), ns=3000.0), classify(sol(10, 10, 10), ns=100_000.0)
    assert (short.kind, long.kind) == ("launch", "latency")
    assert "CUDA graph" in " ".join(short.helps) and "at most its own 3.0 µs" in short.useless
    assert classify(sol(90, 10, 10), ns=3000.0).kind == "compute"             # busy is busy, however short


def test_every_threshold_is_explained() -> None:
    assert set(bounds.MEANINGS) == set(bounds.THRESHOLDS)
    assert bounds.recoverable_ns(1000.0, 75.0) == 250.0 and bounds.recoverable_ns(1000.0, 130.0) == 0.0
    assert bounds.recoverable_ns(None, 10.0) is None and bounds.recoverable_ns(10.0, None) is None
