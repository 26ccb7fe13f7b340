"""Counters per instruction and per line: known answers from drawn code, the reports' own totals, NVIDIA's own marks."""

from __future__ import annotations

import csv
import gzip
import re
from collections import defaultdict
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from profiles.analysis.kernel import findings_source
from profiles.analysis.kernel.instructions import (
    SAMPLES,
    SAMPLES_NOT_ISSUED,
    THREADS,
    Instructions,
    checks,
    hottest,
    lines,
    reasons_at,
)
from profiles.analysis.kernel.waits import Waits
from profiles.ingest.trace import INSTRUCTIONS
from tests.profiles.kernel.reports import DATA, launches, read

REPORTS = ["causes/causes_planted.ncu-rep.zst", "causes/causes_mended.ncu-rep.zst", "h200/full.ncu-rep.zst",
           "captured/matmul_full.ncu-rep.gz",
           "corpus/ncu/cutlass_fork_a100_report75.ncu-rep.gz", "corpus/ncu/speedy_scan_rtx3070.ncu-rep",
           "corpus/ncu/mistic_a100_TINYK1.ncu-rep"]


def code(text: str) -> Instructions:
    """Instructions drawn as lines "FILE:LINE  SASS  | metric=value …"; "-" for no line. 16 bytes each, from 0x7f0000000000."""
    rows: list[dict[str, Any]] = []
    for number, drawn in enumerate(filter(str.strip, text.splitlines())):
        left, _, right = drawn.strip().partition("|")
        place, _, sass = left.strip().partition("  ")
        file, _, line = place.partition(":")
        row: dict[str, Any] = {"address": 0x7F0000000000 + 16 * number, "sass": sass.strip(), "ptx": "",
                               "file": None if file == "-" else int(file), "line": None if file == "-" else int(line)}
        for pair in right.split():
            name, value = pair.split("=")
            row[{"ran": "inst_executed", "threads": "thread_inst_executed_true"}.get(
                name, f"smsp__pcsamp_warps_issue_stalled_{name}")] = float(value)
        rows.append(row)
    metrics = sorted({name for row in rows for name in row} - set(INSTRUCTIONS.names))
    schema = pa.schema([*INSTRUCTIONS, *((name, pa.float64()) for name in metrics)])
    return Instructions(pa.Table.from_pylist(rows, schema))


LOOP = """
0:10  MOV R1, c[0x0][0x28]                 | ran=8 threads=256 selected=1
0:12  LDG.E.128 R4, desc[UR4][R2.64]       | ran=80 threads=2560 selected=2
0:12  IADD3 R2, R2, 0x10, RZ               | ran=80 threads=2560
1:7   FFMA R8, R6, R9, R8                  | ran=80 threads=640 long_scoreboard=60 selected=5
0:12  @P0 BRA 0x7f0000000010               | ran=80 threads=2560 wait=4
-     EXIT                                 | ran=8 threads=256
"""


def test_lines_hold_what_their_instructions_hold() -> None:
    found = code(LOOP)
    made = {(line.file, line.line): line for line in lines(found)}
    assert [(line.file, line.line) for line in lines(found)][:2] == [(1, 7), (0, 12)]
    hot = made[1, 7]
    assert (hot.values[SAMPLES], hot.reasons, hot.values[THREADS]) == (65.0, {"long_scoreboard": 60.0, "selected": 5.0}, 8.0)
    loop = made[0, 12]
    assert loop.rows.tolist() == [1, 2, 4]
    assert (loop.values[SAMPLES], loop.values["inst_executed"], loop.values[THREADS]) == (6.0, 240.0, 32.0)
    assert made[None, None].rows.tolist() == [5]
    assert sum(line.values[SAMPLES] for line in made.values()) == 72.0
    assert [found.readable_sass[row] for row in hottest(found, SAMPLES, 2)] == ["FFMA R8, R6, R9, R8", "@P0 BRA +0x10"]
    assert reasons_at(found, 3) == {"long_scoreboard": 60.0, "selected": 5.0}


def test_an_instruction_waits_for_the_load_of_its_register() -> None:
    found = Waits(code(LOOP))
    assert found.producer(3, "long_scoreboard") == 1           # R6 lies in the four registers from R4
    assert found.producer(3, "short_scoreboard") is None       # no shared load anywhere
    assert found.producer(3, "selected") is None


@pytest.mark.parametrize(("text", "row", "reason", "expected"), [
    # the load stands behind its use, one turn of the loop before
    ("0:1  MOV R1, RZ\n0:2  FADD R3, R5, R3\n0:2  LDG.E R5, [R2.64]\n0:2  @P0 BRA 0x7f0000000010", 1, "long_scoreboard", 2),
    # without the loop nothing brings it there
    ("0:1  MOV R1, RZ\n0:2  FADD R3, R5, R3\n0:2  LDG.E R5, [R2.64]\n0:2  EXIT", 1, "long_scoreboard", None),
    # the nearest load of the register counts, not an older one
    ("0:1  LDG.E R5, [R2.64]\n0:2  LDG.E R5, [R4.64]\n0:2  FADD R3, R5, R3", 2, "long_scoreboard", 1),
    ("0:1  LDS.64 R6, [R2]\n0:2  LDG.E R9, [R4.64]\n0:2  FADD R3, R7, R3", 2, "short_scoreboard", 0),
    ("0:1  LDSM.16.M88.4 R8, [R2]\n0:2  HMMA.16816.F32 R20, R4, R11, R20", 1, "short_scoreboard", 0),
    ("0:1  LDG.E R5, [R2.64]\n0:1  FADD R3, UR5, R3", 1, "long_scoreboard", None),          # another bank of registers
    ("0:1  BAR.SYNC.DEFER_BLOCKING 0x0\n0:1  NOP\n0:2  LDS R1, [R2]", 2, "barrier", 0),
    ("0:1  DEPBAR.LE SB0, 0x1\n0:2  UIADD3 UR7, UR7, 0x1, URZ", 1, "long_scoreboard", 0),
    ("0:1  SYNCS.PHASECHK.TRANS64.TRYWAIT P3, [UR22+0x8], R5\n0:2  MOV R1, R2\n0:2  @!P3 NANOSLEEP.SYNCS 0x50", 2,
     "long_scoreboard", 0),
    ("0:1  LDG.E R5, [R2.64]\n0:1  STG.E [R8.64], R5", 1, "long_scoreboard", 0),
    ("", 0, "", None),
])
def test_producers(text: str, row: int, reason: str, expected: int | None) -> None:
    if text:
        assert Waits(code(text)).producer(row, reason) == expected
    else:
        assert lines(Instructions(INSTRUCTIONS.empty_table())) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", REPORTS)
def test_every_metric_of_instructions_adds_up_to_the_launchs_total(name: str) -> None:
    for launch in launches(name):
        assert launch.instructions is not None
        found = checks(Instructions(launch.instructions), launch.metrics)
        assert len(found) >= 40
        assert [each.metric for each in found if not each.agrees] == []


@pytest.mark.parametrize("name", REPORTS[:4])
def test_shares_are_those_of_nvidias_marks(name: str) -> None:
    """ "This line is responsible for 16.7% of all warp stalls. 94.2% of the stalls for this line are of type barrier." """
    seen = 0
    for launch in launches(name):
        assert launch.instructions is not None
        found = Instructions(launch.instructions)
        row_of = {address: row for row, address in enumerate(found.address.tolist())}
        total = found.values(SAMPLES).sum()
        excess = {"shared wavefronts": "memory_l1_wavefronts_shared", "global accesses": "memory_l2_theoretical_sectors_global"}
        for mark in launch.marks:
            row = row_of.get(mark.address or -1)
            stalls = re.match(r".* ([\d.]+)% of all warp stalls. ([\d.]+)% of the stalls for this line are of type (\w+)\.",
                              mark.text)
            wasted = re.match(r"([\d.]+)% of this line's (.+) are excessive", mark.text)
            if stalls and row is not None:
                own = found.values(SAMPLES)[row]
                reason = found.values(f"smsp__pcsamp_warps_issue_stalled_{stalls[3]}")[row]
                assert 100 * own / total == pytest.approx(float(stalls[1]), abs=0.0501)
                assert 100 * reason / own == pytest.approx(float(stalls[2]), abs=0.0501)
                seen += 1
            elif wasted and row is not None:
                metric = excess[wasted[2]]
                share = 100 * found.values(f"derived__{metric}_excessive")[row] / found.values(metric)[row]
                assert share == pytest.approx(float(wasted[1]), abs=0.0051)
                seen += 1
    assert seen >= {"causes/causes_planted.ncu-rep.zst": 20, "h200/full.ncu-rep.zst": 40}.get(name, 0)


VENDOR = {      # columns of `ncu --page source --csv`, as we call them
    "Warp Stall Sampling (All Samples)": SAMPLES, "Warp Stall Sampling (Not-issued Samples)": SAMPLES_NOT_ISSUED,
    "# Samples": "smsp__pcsamp_sample_count", "Instructions Executed": "inst_executed",
    "Thread Instructions Executed": "thread_inst_executed",
    "Predicated-On Thread Instructions Executed": "thread_inst_executed_true",
    "Divergent Branches": "smsp__branch_targets_threads_divergent", "L1 Tag Requests Global": "memory_l1_tag_requests_global",
    **{f"L1 Wavefronts Shared{end}": f"{before}memory_l1_wavefronts_shared{after}" for end, before, after in (
        ("", "", ""), (" Ideal", "", "_ideal"), (" Excessive", "derived__", "_excessive"))},
    **{f"L2 Theoretical Sectors Global{end}": f"{before}memory_l2_theoretical_sectors_global{after}" for end, before, after in (
        ("", "", ""), (" Ideal", "", "_ideal"), (" Excessive", "derived__", "_excessive"))},
    "L2 Theoretical Sectors Local": "memory_l2_theoretical_sectors_local",
}
STATES = {"dispatch": "dispatch_stall", "imc": "imc_miss", "lg": "lg_throttle", "long_sb": "long_scoreboard",
          "math": "math_pipe_throttle", "mio": "mio_throttle", "no_inst": "no_instructions", "short_sb": "short_scoreboard",
          "sleep": "sleeping", "tex": "tex_throttle", "gmma": "warpgroup_arrive"}


def vendor_tables(path: Path) -> list[tuple[list[str], list[list[str]]]]:
    """(heads, rows) of every launch, as ncu prints its source page."""
    tables: list[tuple[list[str], list[list[str]]]] = []
    with gzip.open(path, "rt", newline="") as file:
        for row in csv.reader(file):
            if row and row[0] == "Address":
                tables.append((row, []))
            elif row and row[0].startswith("0x"):
                tables[-1][1].append(row)
    return tables


def vendor_metric(head: str) -> str:
    state = re.match(r"stall_(\w+)( \(Not Issued\))?$", head)
    if state:
        return f"smsp__pcsamp_warps_issue_stalled_{STATES.get(state[1], state[1])}{'_not_issued' if state[2] else ''}"
    return VENDOR.get(head, "")


def words(sass: str) -> list[str]:
    """Of an instruction, in any order: releases of the disassembler order some operands differently."""
    return sorted(re.split(r"[\s,.]+", re.sub(r"`\(\S+\)", "", sass).strip()))


@pytest.mark.slow
@pytest.mark.parametrize(("report", "page"), [("causes/causes_planted.ncu-rep.zst", "causes/causes_planted_sass.csv.gz"),
                                              ("h200/buildA.ncu-rep.zst", "h200/buildA_sass.csv.gz")])
def test_every_cell_of_the_vendors_source_page(report: str, page: str) -> None:
    tables, found = vendor_tables(DATA / page), launches(report)
    assert len(tables) == len(found)
    compared = 0
    for (heads, rows), launch in zip(tables, found, strict=True):
        assert launch.instructions is not None
        own = Instructions(launch.instructions)
        assert [int(row[0], 16) for row in rows[:len(own)]] == own.address.tolist()
        assert all(row[1].strip() == "NOP" for row in rows[len(own):])           # padding behind the kernel: never executed
        assert [words(row[1]) for row in rows[:len(own)]] == [words(text) for text in own.sass]
        for at, head in enumerate(heads):
            metric = vendor_metric(head)
            if metric and own.has(metric):
                theirs = [0.0 if row[at] in ("-", "") else float(row[at]) for row in rows[:len(own)]]
                assert own.values(metric).tolist() == theirs, (launch.kernel, head)
                compared += len(theirs)
    assert compared > 200_000


def test_lines_of_a_report_against_a_sum_by_hand() -> None:
    launch = launches("captured/matmul_full.ncu-rep.gz")[0]
    assert launch.instructions is not None
    rows = launch.instructions.to_pylist()
    by_hand: dict[Any, float] = defaultdict(float)
    for row in rows:
        by_hand[row["file"], row["line"]] += row["smsp__pcsamp_sample_count"] or 0.0
    made = {(line.file, line.line): line.values[SAMPLES] for line in lines(Instructions(launch.instructions))}
    assert made == by_hand and len(made) > 10
    files = read("captured/matmul_full.ncu-rep.gz").files
    assert all(file.text for file in files)
    assert any("tl.dot(" in file.text.splitlines()[line - 1] for file_number, line in made      # type: ignore[union-attr]
               if file_number is not None and (file := files[file_number]))


PLANTED = {     # kernel -> rule, and the line of tests/gpu/causes.cu where it was put
    "uncoalesced_copy": ("source.uncoalesced", "line 17 of causes.cu"),
    "bank_conflict_transpose": ("source.bank_conflicts", "line 31 of causes.cu"),
    "divergent_branches": ("source.divergence", "line 48 of causes.cu"),
    "spilling_registers": ("source.spills", "line 69 of causes.cu"),
    "atomic_contention": ("source.atomics", "device_atomic_functions.hpp (inlined after line 103)"),
    "accidental_double": ("source.double", "line 163 of causes.cu"),
    "tail_wave": ("source.tail", "50 % of its SM time"),
    "barrier_heavy": ("source.wait", "line 123 of causes.cu holds 69 %"),
    "pointer_chase": ("source.wait", "line 134 of causes.cu holds 100 %"),
}


def test_every_planted_cause_is_found_at_its_line() -> None:
    found = findings_source.find(read("causes/causes_planted.ncu-rep.zst"))
    for kernel, (rule, words) in PLANTED.items():
        own = [each for each in found if each.title.startswith(f"{kernel}: ") and each.rule == rule]
        assert len(own) == 1 and words in own[0].title, (kernel, own)
        assert own[0].advice and own[0].kernel


def test_nothing_is_found_where_the_cause_was_mended() -> None:
    """`pointer_chase` is unchanged code: its loads are as scattered as before."""
    found = findings_source.find(read("causes/causes_mended.ncu-rep.zst"))
    assert {(each.title.split(":")[0], each.rule) for each in found if each.rule != "source.wait"} == {
        ("pointer_chase", "source.uncoalesced")}
    waits = {each.title.split(":")[0]: each.title for each in found if each.rule == "source.wait"}
    assert "Barrier" not in waits["barrier_heavy"]


def test_what_the_tail_is_worth_is_what_mending_it_won() -> None:
    """Periodic samples say what is idle; the same kernel without the second wave says what that took."""
    planted, mended = (next(each for each in launches(f"causes/causes_{build}.ncu-rep.zst") if each.kernel.startswith("tail_wave"))
                       for build in ("planted", "mended"))
    found = next(each for each in findings_source.find(read("causes/causes_planted.ncu-rep.zst")) if each.rule == "source.tail")
    won_ns = float(planted.metrics["gpu__time_duration.sum"]) - float(mended.metrics["gpu__time_duration.sum"])
    assert found.worth_ns == pytest.approx(won_ns, rel=0.03)


def test_nvidias_estimate_for_the_same_fault_is_named_as_theirs() -> None:
    found = {each.rule: each for each in findings_source.find(read("causes/causes_planted.ncu-rep.zst"))}
    spills = found["source.spills"]
    assert "NVIDIA estimates up to 59 % less time" in spills.title                  # the lower of theirs: 58.9 and 73.5 %
    assert spills.worth_ns == pytest.approx(2_739_392 * 0.589, rel=1e-3)
    assert (found["source.divergence"].severity, found["source.atomics"].worth_ns) == ("high", None)
