"""Wildcards of metrics: against what ncu itself prints where it is installed, and in its own words where it is not."""

import re

import pytest

from profiles.base.refused import Refused
from profiles.capture.tools import ncu_metrics
from profiles.capture.tools.ncu import NcuOptions, build_argv, find_ncu
from profiles.capture.tools.tool import Paths

# Lines of ncu 2024.1.1's own tables; a long description is wrapped.
PRINTED = """Chip gh100
----------------------------------------- --------------- --------------- ------------------------------
Metric Name                               Metric Type     Metric Unit     Metric Description
----------------------------------------- --------------- --------------- ------------------------------
FE_A.TriageCompute.gr__cycles_active      Counter         cycle           # of cycles where GR was active
dram__bytes                               Counter         byte            # of bytes accessed in DRAM
sm__inst_executed                         Counter         inst            # of warp instructions
                                                                          executed
sm__inst_issued                           Counter         inst            # of warp instructions issued
"""
OTHER = PRINTED.replace("gh100", "ga100").replace("sm__inst_issued  ", "sm__inst_other   ")
BASES = ["FE_A.TriageCompute.gr__cycles_active", "dram__bytes", "sm__inst_executed", "sm__inst_issued"]


def full(bases):
    return [f"{base}.{suffix}" for base in bases for suffix in ("sum", "avg", "sum.per_second")]


def test_names_are_read_from_what_ncu_prints():
    assert ncu_metrics.names_in(PRINTED) == BASES
    assert ncu_metrics.names_in(PRINTED + OTHER) == BASES[:3]                # of two chips, what both have
    assert ncu_metrics.names_in("==ERROR== Driver could not be loaded.") == []


@pytest.mark.parametrize(
    ("wildcard", "found"),
    [
        ("sm__inst_*", ["sm__inst_executed", "sm__inst_issued"]),
        ("sm__inst_?ssued", ["sm__inst_issued"]),
        ("sm__inst_*.sum", ["sm__inst_executed.sum", "sm__inst_issued.sum"]),
        ("dram__*.sum.per_*", ["dram__bytes.sum.per_second"]),
        ("regex:^dram__", ["dram__bytes"]),
        (r"regex:issued\.avg$", ["sm__inst_issued.avg"]),
    ],
)
def test_a_wildcard_names_what_the_gpu_has(wildcard, found):
    assert ncu_metrics.resolve([wildcard], BASES, full) == {wildcard: found}


@pytest.mark.parametrize(
    ("wildcards", "why"),
    [
        (["no__*"], "no__[*] matches none of the 4 metrics"),
        (["sm__*", "tex__*"], "tex__[*] matches none"),
        (["regex:(?=a)"], "lookaround"),
        (["sm__inst_*.no_such"], "matches none"),
    ],
)
def test_a_wildcard_that_names_nothing_is_refused(wildcards, why):
    with pytest.raises(Refused, match=why):
        ncu_metrics.resolve(wildcards, BASES, full)


def test_too_many_are_refused_with_their_numbers():
    many = [f"sm__counter_{number}" for number in range(500)]
    with pytest.raises(Refused, match=r"more than 400 metrics \(sm__[*]: 500\)"):
        ncu_metrics.resolve(["sm__*"], many, full)


def test_no_expression_takes_long():
    names = ["sm__" + "a" * 90 + "!"] * 1000
    with pytest.raises(Refused, match="matches none"):
        ncu_metrics.resolve(["regex:(a+)+$"], names, full)              # minutes and more by backtracking


def test_matches_take_the_wildcards_place_once():
    found = {"sm__inst_*": ["sm__inst_executed", "sm__inst_issued"]}
    assert ncu_metrics.replaced(("dram__bytes", "sm__inst_*", "sm__inst_issued"), found) == (
        "dram__bytes", "sm__inst_executed", "sm__inst_issued")


@pytest.fixture
def program():
    found = find_ncu()
    if found is None:
        pytest.skip("ncu is not installed here; RIDGEPOINT_NCU may name it")
    return found


def test_the_installed_ncu_lists_a_chips_metrics(program):
    chip = ("--chips", "gh100")
    bases = ncu_metrics.query(program, *chip)
    found = ncu_metrics.resolve(["sm__inst_executed_pipe_*.sum", "regex:^dram__bytes"], bases,
                                ncu_metrics.query_suffixed(program, *chip))
    assert len(bases) > 1000 and "dram__bytes" in found["regex:^dram__bytes"]
    assert all(re.fullmatch(r"sm__inst_executed_pipe_\w+\.sum", name) for name in found["sm__inst_executed_pipe_*.sum"])


def test_the_installed_ncu_knows_every_option_of_the_command(program):
    import subprocess

    told = subprocess.run([program, "--help"], capture_output=True, text=True, timeout=60).stdout
    options = NcuOptions(kernel="a", metrics=("dram__bytes.sum",), sections=("Occupancy",), nvtx_include="a/", nvtx_exclude="b/",
                         range_filter=":1:", kernel_id="::a:1", graph_profiling="graph", section_folder="x",
                         pm_sampling_interval=1, warp_sampling_interval="3")
    argv = build_argv(options, [], "out", Paths(program))
    known = set(re.findall(r"--[a-z][a-z-]+", told))
    used = {word for word in argv if word.startswith("--")}
    assert used and used <= known, used - known
    for flag, value in (("--target-processes", "application-only"), ("--graph-profiling", "node"), ("--replay-mode", "app-range")):
        assert value in told[told.index(f"{flag} arg"):][:2500]
