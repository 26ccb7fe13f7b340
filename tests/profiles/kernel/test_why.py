"""Why a kernel changed: the parts add up to the change, and planted causes are named by their factor."""

from __future__ import annotations

import csv
import gzip
import io

import pytest

from profiles.analysis.compare.why import INSTRUCTIONS, TIME, WARPS, why
from tests.profiles.ingest.corpus import DATA
from tests.profiles.kernel import reports

CAUSES, H200 = DATA / "causes", DATA / "h200"


@pytest.fixture(scope="module")
def planted():
    """Kernel -> (raw metrics mended, raw metrics planted)."""
    sides = [reports.read(CAUSES / f"causes_{build}.ncu-rep.zst") for build in ("mended", "planted")]
    by_name = [{launch.kernel.split("(")[0]: launch.metrics for launch in side.launches} for side in sides]
    return {name: (by_name[0][name], by_name[1][name]) for name in by_name[0]}


# What was planted in each kernel (tests/gpu/causes.cu), and the factors that must hold most of its cost.
PLANTED = {
    "uncoalesced_copy": {"wait", "instructions"}, "bank_conflict_transpose": {"wait"}, "divergent_branches": {"instructions"},
    "spilling_registers": {"wait", "instructions"}, "low_occupancy": {"warps"}, "small_grid": {"warps", "share"},
    "tail_wave": {"share"}, "atomic_contention": {"wait"}, "barrier_heavy": {"instructions"}, "accidental_double": {"wait"},
}


@pytest.mark.parametrize("name", PLANTED)
def test_what_was_planted_is_what_costs(planted, name):
    found = why(*([each] for each in planted[name]))
    slower = {factor.key: factor.part_ns for factor in found.factors if factor.part_ns > 0}
    assert sum(slower[key] for key in PLANTED[name]) > 0.75 * sum(slower.values()), found.sentence


def test_the_evidence_says_the_cause(planted):
    def said(name: str) -> str:
        return why(*([each] for each in planted[name])).sentence

    assert "register spills 0 →" in said("spilling_registers") and "registers per thread 240 → 32" in said("spilling_registers")
    assert "dynamic shared memory per block 1,024 B → 204,800 B" in said("low_occupancy")
    assert "blocks 1,056 → 16" in said("small_grid") and "blocks 132 → 133" in said("tail_wave")


@pytest.mark.parametrize("name", ["pointer_chase", "memory_twin", "compute_twin"])
def test_unchanged_code_has_no_cause_of_its_own(planted, name):
    old, new = planted[name]
    found = why([old], [new])
    own = [factor for factor in found.factors if factor.key in ("instructions", "warps", "share", "wait")]
    assert all(abs(factor.part_ns) < 0.02 * old[TIME] for factor in own)


def test_parts_add_up_and_factors_are_what_the_raw_page_says():
    """Recomputed from NVIDIA's own CSV of the same reports, from other counters: issue rate and cycles."""
    both = [reports.read(H200 / f"build{build}.ncu-rep.zst") for build in "AB"]
    pages = [list(csv.DictReader(io.StringIO(gzip.decompress((H200 / f"build{build}_raw.csv.gz").read_bytes()).decode())))[1:]
             for build in "AB"]
    for at, (old, new) in enumerate(zip(both[0].launches, both[1].launches, strict=True)):
        found = why([old.metrics], [new.metrics])
        assert sum(factor.part_ns for factor in found.factors) == pytest.approx(found.delta_ns, abs=1e-6 * old.metrics[TIME])
        factors = {factor.key: factor for factor in found.factors}
        for side, page in zip(("old", "new"), pages, strict=True):
            row = {name: value.replace(",", "") for name, value in page[at].items()}
            wait = float(row["smsp__average_warp_latency_per_inst_issued.ratio"])
            assert getattr(factors["wait"], side) == pytest.approx(wait, rel=0.05)      # ncu rounds, and counts in other passes
            assert getattr(factors["clock"], side) == pytest.approx(
                float(row["gpc__cycles_elapsed.avg.per_second"]) * 1e9, rel=0.05)
            product = (getattr(factors["instructions"], side) * getattr(factors["wait"], side) / (
                getattr(factors["warps"], side) * getattr(factors["share"], side) * getattr(factors["clock"], side)))
            assert 1e9 * product == pytest.approx((old if side == "old" else new).metrics[TIME], rel=1e-9)


def test_softmax_of_build_b_lost_its_warps():
    """Build B runs one warp where A ran sixteen: known from the program."""
    old, new = ([launch.metrics for launch in reports.read(H200 / f"build{build}.ncu-rep.zst").launches
                 if launch.kernel == "softmax_row"] for build in "AB")
    first = why(old, new).factors[0]
    assert first.key == "warps" and first.old > 14 and first.new < 1.1
    assert {each.name for each in first.evidence} >= {"theoretical occupancy", "registers per thread", "threads per block"}


def test_a_missing_counter_is_no_answer(planted):
    old, new = planted["tail_wave"]
    for names in ((TIME,), WARPS, INSTRUCTIONS):
        assert why([{name: value for name, value in old.items() if name not in names}], [new]) is None
    assert why([], [new]) is None and why([{}], [{}]) is None


def test_equal_sides_have_no_parts(planted):
    old, _ = planted["small_grid"]
    found = why([old], [old])
    assert found.delta_ns == 0 and found.sentence == "" and all(factor.part_ns == 0 for factor in found.factors)
