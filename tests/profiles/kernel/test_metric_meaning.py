"""Every metric of real reports has a sentence, a unit and which values are good; each part of a name says its own."""

from __future__ import annotations

import csv
import gzip
from pathlib import Path

import pytest

from profiles import ingest
from profiles.analysis.kernel.meaning import NO_RANGE, meaning_of
from profiles.analysis.kernel.meaning.parts import parts_of
from profiles.ingest.naming.bands import BANDS
from profiles.ingest.trace import Report

DATA = Path(__file__).resolve().parents[2] / "data"
REPORTS = ["corpus/ncu/hyperspec_rtx2060maxq.ncu-rep", "corpus/ncu/mistic_a100_TINYK1.ncu-rep",
           "h200/counters/base-few.ncu-rep.gz", "ncu/single_metrics.raw.csv"]
PEAK = ".avg.pct_of_peak_sustained_elapsed"


@pytest.fixture(scope="module")
def units_by_name() -> dict[str, str]:
    """Metrics of reports of four tools' versions, with the unit that each states ("": none)."""
    units: dict[str, str] = {}
    for name in REPORTS:
        report = ingest.read(DATA / name)
        assert isinstance(report, Report)
        for launch in report.launches:
            units.update({metric: units.get(metric) or report.units.get(metric, "") for metric in launch.metrics})
    with gzip.open(DATA / "h200/full_raw.csv.gz", "rt") as file:
        rows = csv.reader(line for line in file if not line.startswith("=="))
        heads, stated = next(rows), next(rows)
    units.update({head: units.get(head, "") for head, unit in zip(heads, stated, strict=True) if "__" in head})
    return units


def test_every_metric_of_real_reports_has_a_sentence_a_unit_and_a_range(units_by_name: dict[str, str]) -> None:
    assert len(units_by_name) > 1_200
    for name in units_by_name:
        meaning = meaning_of(name)
        assert meaning.is_known and meaning.unit and meaning.range not in ("", NO_RANGE), (name, meaning)
        assert 15 < len(meaning.sentence) < 420 and meaning.sentence.endswith(".") and "  " not in meaning.sentence, meaning
        assert not any(part in meaning.sentence for part in ("__", "None", "{", "of of", "..")), meaning


def test_units_are_those_that_the_reports_state(units_by_name: dict[str, str]) -> None:
    """Of counters with a roll-up. What differs is the tool's shorthand."""
    stated = {name: unit for name, unit in units_by_name.items()
              if unit and parts_of(name).rollup and not parts_of(name).is_derived}
    shorthand = {("cycle/inst", "inst"), ("wavefront/s", "1/s"), ("ratio", "%"), ("request", "cycle"), ("branch", "branches")}
    other = {name: (meaning_of(name).unit, unit) for name, unit in stated.items()
             if meaning_of(name).unit != unit and (meaning_of(name).unit, unit) not in shorthand}
    assert len(stated) > 600 and not other


@pytest.mark.parametrize(("name", "words", "unit"), [
    ("l1tex__t_sectors_pipe_lsu_mem_global_op_ld_lookup_hit.sum",
     ("Sectors of 32 bytes", "tag stage", "L1/TEX", "load/store unit", "global memory", "loads", "found there"), "sector"),
    ("lts__t_sectors_srcunit_tex_aperture_peer_op_write.sum.per_second",
     ("L2 cache", "asked for by the L1/TEX", "another GPU's memory", "writes", "per second"), "sector/s"),
    ("smsp__average_warps_issue_stalled_long_scoreboard_per_issue_active.ratio", ("Long scoreboard",), "cycle/inst"),
    ("smsp__pcsamp_warps_issue_stalled_wait_not_issued", ("Samples", "Wait", "issued nothing"), "sample"),
    ("sm__pipe_tensor_op_hmma_cycles_active.avg.pct_of_peak_sustained_active", ("tensor pipe", "in which the unit worked"), "%"),
    ("dram__bytes_read.sum.peak_sustained_elapsed.per_second", ("Bytes read", "keep up, per second"), "byte/s"),
    ("dram__cycles_elapsed.avg.per_second", ("Cycles that passed",), "hz"),
    ("sm__warps_active.avg.per_cycle_active", ("Warps resident",), "warp"),
    ("pmsampling:sm__inst_executed_pipe_alu_realtime.avg", ("ALU pipe", "Sampled over the time"), "inst"),
    ("TPC.TriageCompute.sm__cycles_active.avg", ("Cycles in which it worked", "Sampled"), "cycle"),
    ("sass__inst_executed_per_opcode[HMMA]", ("by opcode", "of HMMA"), "inst"),
    ("derived__lts__lts2xbar_bytes.sum.per_second", ("Computed by Nsight Compute", "towards the SMs"), "byte/s"),
    ("launch__grid_dim_y", ("Blocks of the grid along y",), "block"),
    ("launch__block_dim_x", ("Threads of a block along x",), "thread"),
    ("device__attribute_max_threads_per_block", ("Property of the GPU: max threads per block",), "thread"),
    ("device__attribute_can_map_host_memory", ("can map host memory",), "yes/no"),
])
def test_a_name_says_what_it_counts(name: str, words: tuple[str, ...], unit: str) -> None:
    meaning = meaning_of(name)
    assert meaning.unit == unit and meaning.is_known
    assert all(word in meaning.sentence for word in words), meaning.sentence


@pytest.mark.parametrize(("name", "band"), [
    (f"sm__throughput{PEAK}", "sm"), ("sm__throughput", "sm"), (f"sm__pipe_tensor_cycles_active{PEAK}", "tensor"),
    (f"sm__inst_executed_pipe_tensor_op_hmma{PEAK}", "tensor"), (f"gpu__dram_throughput{PEAK}", "dram"),
    (f"dram__bytes_write.sum{PEAK[4:]}", "dram"), (f"lts__throughput{PEAK}", "unit"),
    (f"gpu__compute_memory_throughput{PEAK}", "unit")])
def test_shares_of_peak_are_called_by_the_table_of_bands(name: str, band: str) -> None:
    meaning = meaning_of(name)
    assert meaning.range.lower().startswith(BANDS[band].text.lower()) and meaning.source == BANDS[band].source


@pytest.mark.parametrize(("name", "begins"), [
    ("l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum", "Good: 0"), ("launch__waves_per_multiprocessor", "Good: many"),
    ("smsp__thread_inst_executed_per_inst_executed.ratio", "Good: 32"),
    ("smsp__thread_inst_executed_per_inst_executed.pct", "Good: 100 %"), ("dram__bytes.sum", "An amount"),
    ("lts__t_sector_hit_rate.pct", "Good: above 80 %"), ("sm__ops_path_tensor_src_fp8.sum.peak_sustained", "A ceiling"),
    ("smsp__issue_active.avg.per_cycle_active", "Good: 0.8"), ("launch__stream_id", "A fact")])
def test_good_and_bad_where_anything_is_stated(name: str, begins: str) -> None:
    assert meaning_of(name).range.startswith(begins)


@pytest.mark.parametrize("name", ["SQ_WAVES", "", "foo__bar.sum", "sm__nothing_known_here.sum", "a" * 5_000, "__", "x__.sum.sum"])
def test_what_is_no_known_name_is_said_to_be_unknown(name: str) -> None:
    meaning = meaning_of(name)
    assert not meaning.is_known and meaning.range == NO_RANGE and meaning.unit == "number" and len(meaning.sentence) < 700


def test_a_part_without_words_is_named() -> None:
    meaning = meaning_of("l1tex__t_sectors_frobnicated.sum")
    assert not meaning.is_known and "Without words here: “frobnicated”" in meaning.sentence and meaning.unit == "sector"


def test_bands_ascend_and_say_their_source() -> None:
    for band in BANDS.values():
        assert band.steps[0][0] == 0 and list(band.limits) == sorted(set(band.limits)) and band.limits and band.source
        assert [band.reading(least) for least, _ in band.steps] == [text for _, text in band.steps]
        assert band.reading(None) == band.reading(-1.0) == band.reading(float("nan")) == ""
    assert [BANDS[key].limits for key in ("sm", "tensor", "dram", "idle", "kernel_us")] == [
        (30, 60, 80), (10, 30, 50), (30, 60, 80), (50,), (10, 100)]
    assert BANDS["sm"].text == "below 30 %: low; 30 to 60 %: moderate; 60 to 80 %: good; from 80 %: near its peak"


@pytest.mark.parametrize("name", [
    "l1tex__t_set_accesses_pipe_lsu_mem_global_op_atom.sum", "smsp__sass_thread_inst_executed_ops_fadd_fmul_ffma_pred_on.avg",
    "smsp__average_inst_executed_per_warp.ratio", "lts__t_bytes_equiv_l1sectormiss_pipe_tex_mem_surface_op_ld.sum",
    "nvlrx__bytes_data_user.sum", "l1tex__f_tex2sm_cycles_active.avg.pct_of_peak_sustained_elapsed",
    "TriageCompute.ctc__throughput",
    "smsp__sass_thread_inst_executed_op_fp32_special_pred_on.sum", "sm__sass_branch_targets.avg", "dram__read_throughput.avg",
    "lts__average_t_sector_srcnode_fbp_aperture_device_op_read.pct", "FBSP.TriageCompute.dramc__write_throughput.avg",
    "smsp__sass_inst_executed_op_global_atom.sum", "sm__sass_data_bytes_mem_shared_op_atom.sum",
    "lts__t_sectors_srcnode_gpc.sum"])
def test_names_of_public_guides_and_scripts_are_known(name: str) -> None:
    assert meaning_of(name).is_known, meaning_of(name)
