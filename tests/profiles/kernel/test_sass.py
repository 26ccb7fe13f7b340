"""Live registers, jumps and writers of SASS: held against what NVIDIA's nvdisasm says of the same code, and small programs."""

from __future__ import annotations

import json

import pytest

from profiles.analysis.kernel.instructions import Instructions
from profiles.analysis.kernel.sass import liveness
from profiles.analysis.kernel.sass.liveness import Program, bits, live_registers, live_sets, program, writers
from profiles.analysis.kernel.sass.matched import match_lines, why_other_code
from profiles.analysis.kernel.sass.operands import PREDICATE, UNIFORM, parse, span
from profiles.ingest.trace import SourceFile
from tests.profiles.kernel.reports import DATA, launches

PLANTED = "causes/causes_planted.ncu-rep.zst"
EVERY = ("h200/full.ncu-rep.zst", "h200/buildA.ncu-rep.zst", "h200/buildB.ncu-rep.zst", "causes/triton_planted.ncu-rep.zst",
         PLANTED, "corpus/ncu/cutlass_fork_a100_report75.ncu-rep.gz")


def made(*lines: str) -> Program:
    found = program(lines, [16 * row for row in range(len(lines))])
    assert found is not None
    return found


def names(registers: int) -> set[str]:
    def name(bit: int) -> str:
        return f"R{bit}" if bit < UNIFORM else f"UR{bit - UNIFORM}" if bit < PREDICATE else f"P{bit - PREDICATE}"
    return {name(bit) for bit in bits(registers)}


def test_live_registers_are_those_of_nvdisasm() -> None:
    """`nvdisasm --print-life-ranges` counted every row of thirteen kernels: general, uniform and predicate registers alike."""
    stated = json.loads((DATA / "causes" / "live_registers.json").read_text())
    rows = 0
    for launch in launches(PLANTED):
        known, code = stated.pop(launch.kernel.partition("(")[0]), Instructions(launch.instructions)
        found = program(code.readable_sass, code.offset.tolist())
        assert found is not None
        registers = live_registers(found)
        assert list(registers.general) == known["general"], launch.kernel
        assert list(registers.uniform) == known["uniform"], launch.kernel
        assert list(registers.predicates) == known["predicates"], launch.kernel
        rows += len(code)
    assert not stated and rows == 6378


@pytest.mark.parametrize("name", EVERY)
def test_no_kernel_needs_more_registers_than_it_was_given(name: str) -> None:
    """The most that are live at once: never more than the launch holds, and at 64 and more at least two thirds of them."""
    for launch in launches(name):
        code = Instructions(launch.instructions)
        found = program(code.readable_sass, code.offset.tolist())
        assert found is not None
        most, given = max(live_registers(found).general), float(launch.metrics["launch__registers_per_thread"])
        assert most <= given, launch.kernel
        if given >= 64 and "nvjet" not in launch.kernel:       # these hold registers for a warpgroup that only copies
            assert most >= 0.66 * given, launch.kernel


@pytest.mark.parametrize(("sass", "reads", "writes"), [
    ("LDG.E.128 R4, desc[UR6][R2.64]", "R2 R3 UR6 UR7", "R4 R5 R6 R7"),
    ("STG.E.64 desc[UR4][R8.64+0x10], R2", "R2 R3 R8 R9 UR4 UR5", ""),
    ("@!P0 FADD R1, -R2, |R3|", "P0 R2 R3", "R1"),
    ("ISETP.GE.AND P0, PT, R2, UR4, P3", "R2 UR4 P3", "P0"),
    ("IADD3 R4, P0, P1, R2, R3, RZ", "R2 R3", "R4 P0 P1"),
    ("IADD3.X R5, R3, R6, RZ, P0, !PT", "R3 R6 P0", "R5"),
    ("IMAD.WIDE R6, R19, 0x4, R4", "R19 R4 R5", "R6 R7"),
    ("DFMA R6, R6, R2, 0.5", "R6 R7 R2 R3", "R6 R7"),
    ("F2F.F64.F32 R28, R32", "R32", "R28 R29"),
    ("F2I.F64.TRUNC R4, R8", "R8 R9", "R4"),
    ("HMMA.16816.F32.BF16 R16, R24, R12, R16", "R16 R17 R18 R19 R24 R25 R26 R27 R12 R13", "R16 R17 R18 R19"),
    ("SHFL.BFLY PT, R5, R6, 0x1, 0x1f", "R6", "R5"),
    ("VOTE.ANY R12, PT, P1", "P1", "R12"),
    ("LDSM.16.M88.4 R8, [R3+0x2000]", "R3", "R8 R9 R10 R11"),
    ("ATOMG.E.ADD.STRONG.GPU PT, R6, [R2.64], R9", "R2 R3 R9", "R6"),
    ("LDGSTS.E.BYPASS.128 [R13+0x1000], desc[UR16][R4.64], P5", "R13 R4 R5 UR16 UR17 P5", ""),
    ("CS2R R54, SRZ", "", "R54 R55"), ("MOV R1, c[0x0][0x28]", "", "R1"), ("@!PT LDS RZ, [RZ]", "", ""), ("", "", ""),
    ("P2R R3, PR, RZ, 0x3", "P0 P1", "R3"), ("NEVER.SEEN R4, R5, R6.H0_H0", "R5 R6", "R4"),
])
def test_what_an_instruction_reads_and_writes(sass: str, reads: str, writes: str) -> None:
    found = parse(sass)
    assert (names(found.reads), names(found.writes)) == (set(reads.split()), set(writes.split()))


def test_warpgroup_accumulators_are_as_wide_as_their_shape() -> None:
    found = parse("HGMMA.64x128x16.F32.BF16 R24, gdesc[UR16].tnspA, R24")
    assert found.writes == span("R", 24, 64) and found.reads == span("R", 24, 64) | span("UR", 16, 4)


LOOP = ("MOV R1, c[0x0][0x28]", "MOV R2, 0x8", "MOV R3, RZ", "IADD3 R3, R3, R2, RZ", "IADD3 R2, R2, -0x1, RZ",
        "ISETP.NE.AND P0, PT, R2, RZ, PT", "@P0 BRA +0x30", "STG.E desc[UR4][R6.64], R3", "EXIT")


def test_a_loop_keeps_alive_what_its_next_round_reads() -> None:
    found = made(*LOOP)
    assert found.flow.target == (None,) * 6 + (3, None, None) and found.flow.follows[6] == (3, 7)
    sets = live_sets(found)
    assert names(sets[6]) == {"R1", "R2", "R3", "R6", "R7", "UR4", "UR5", "P0"}      # R2 for the next round
    assert names(sets[7]) == {"R1", "R3", "R6", "R7", "UR4", "UR5"}
    assert writers(found)[3] == [1, 2, 3, 4] and writers(found)[6] == [5] and writers(found)[7] == [3]


def test_a_guarded_write_keeps_the_earlier_value() -> None:
    found = made("MOV R2, 0x1", "@P0 MOV R2, 0x2", "STG.E desc[UR4][R6.64], R2", "EXIT")
    assert "R2" in names(live_sets(found)[0]) and writers(found)[2] == [0, 1]
    plain = made("MOV R2, 0x1", "MOV R2, 0x2", "STG.E desc[UR4][R6.64], R2", "EXIT")
    assert writers(plain)[2] == [1]


def test_what_is_read_under_the_same_predicate_was_written_there() -> None:
    found = made("MOV R2, 0x1", "@P0 MOV R2, 0x2", "@P0 FADD R3, R2, R2", "@!P0 FADD R4, R2, R2", "ISETP.NE.AND P0, PT, R3, RZ, PT",
                 "@P0 FADD R5, R2, R2", "EXIT")
    assert writers(found)[2] == [1] and writers(found)[3] == [0, 1] and writers(found)[5] == [0, 1, 4]


def test_a_call_goes_to_its_function_and_the_return_behind_the_call() -> None:
    found = made("MOV R20, 0x30", "CALL.REL.NOINC +0x50", "FADD R4, R4, R4", "STG.E desc[UR4][R6.64], R4", "EXIT",
                 "FMUL R4, R8, R8", "RET.REL.NODEC R20, +0x0")
    assert found.flow.follows[1] == (5,) and found.flow.follows[6] == (2,) and found.flow.follows[4] == ()
    assert writers(found)[2] == [5]


def test_a_program_that_is_too_long_or_broken_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    assert live_registers(made("BRA", "BRA +0xffff0", "@", "@P9 X", ",,,", "R2R R999, R1000", "BRX R4, -0x1c0")).general
    assert live_registers(made()).general == () and writers(made()) == []
    monkeypatch.setattr(liveness, "MOST_ROWS", 2)
    assert program(LOOP, [16 * row for row in range(len(LOOP))]) is None


def test_many_guarded_writers_are_bounded() -> None:
    found = made(*["@P0 MOV R2, R4"] * 3000, "FADD R3, R2, R2", "EXIT")
    assert writers(found)[3000] == list(range(3000 - liveness.MOST_WRITERS, 3000))


def file(name: str, *lines: str) -> SourceFile:
    return SourceFile(name, "\n".join(lines) or None)


def test_lines_go_with_those_of_the_same_text() -> None:
    mine = file("/a/k.py", "def k():", "  x = 1", "  y = 2", "  z = 3")
    other = file("/b/k.py", "import t", "def k():", "  x = 1", "  y = 5", "  z = 3")
    found = match_lines([mine], [file("/b/other.py", "def k():"), other], [(0, 1), (0, 2), (0, 3), (0, 4)])
    assert found.lines == {(0, 1): (1, 2), (0, 2): (1, 3), (0, 4): (1, 5)} and found.reasons == {}
    assert match_lines([file("k.py")], [file("k.py")], [(0, 7)]).lines == {(0, 7): (0, 7)}       # without text the number must do


def test_lines_without_a_counterpart_say_why() -> None:
    gone = match_lines([file("k.py", "a")], [file("x.py", "a")], [(0, 1)])
    assert gone.lines == {} and gone.reasons == {0: "the baseline has no file k.py"}
    two = match_lines([file("k.py", "a")], [file("/a/k.py", "a"), file("/b/k.py", "a")], [(0, 1)])
    assert two.reasons == {0: "the baseline has no file k.py"}                                   # which of the two is unknown
    changed = match_lines([file("k.py", "a")], [file("k.py", "b")], [(0, 1)])
    assert changed.reasons == {0: "no line of k.py is as it was in the baseline"}


def test_other_machine_code_says_how_much_of_it_is_other() -> None:
    assert why_other_code(["A", "B"], ["A", "B"]) == ""
    assert why_other_code(["A", "B"], ["A", "C"]) == "other machine code: 1 of 2 instructions differ"
    assert why_other_code(["A"] * 1500, ["A"]) == "other machine code: 1,500 instructions here, 1 in the baseline"
