"""What a family is worth, by numbers worked out by hand; its shapes, from traces drawn in text."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from profiles.analysis.core.frame import frame_of
from profiles.analysis.core.shapes import SHAPES_PER_KERNEL, Problem, bare, bucket, group_shapes, launches_of, shapes_of
from profiles.analysis.kernel.worth import (
    FamilyCounters,
    FamilyTime,
    KernelClass,
    LaunchShape,
    class_reaches,
    is_same_shape,
    worth,
)
from tests.builders import trace

H200, V100 = "NVIDIA H200", "Tesla V100"


def of(grid: int, flop: float | None = None) -> LaunchShape:
    """Launches with so many blocks of 256 threads."""
    return LaunchShape(f"{grid}×1×1", "256×1×1", flop)


def test_recoverable_time_is_what_lies_below_the_own_roof() -> None:
    spent = [FamilyTime(1, H200, of(20), "compute", 800.0, 8), FamilyTime(1, H200, of(12), "compute", 200.0, 20)]
    counted = [FamilyCounters(1, H200, of(20), 100.0, 75.0, "compute", 10.0, "rule A"),
               FamilyCounters(1, H200, of(12), 10.0, 20.0, "memory", 60.0, "rule B")]
    [one] = worth(spent, counted)
    assert one.recoverable_ns == pytest.approx(800 * 0.25 + 200 * 0.8)          # each shape under its own roof
    assert one.rule_ns == pytest.approx(800 * 0.1 + 200 * 0.6)
    assert (one.known_ns, one.at_most_ns, one.launches) == (1000, pytest.approx(360), 28)
    assert one.roof_pct == pytest.approx(64.0) and one.side == "compute"


@pytest.mark.parametrize(("spent", "counted", "same"), [
    ((of(132, 1e12), 100.0, 1), (of(132, 1.02e12), 900.0), True),       # a persistent kernel: its product is the same
    ((of(132, 1e12), 100.0, 1), (of(132, 2e12), 100.0), False),         # another product of one grid, in whatever time
    ((of(132), 100.0, 1), (of(132, 2e12), 140.0), True),                # no product recorded: about the same time per launch
    ((of(132), 1000.0, 10), (of(132, 2e12), 140.0), True), ((of(132), 100.0, 1), (of(132, 2e12), 400.0), False),
    ((of(20), 100.0, 1), (of(22), 100.0), False), ((None, 100.0, 1), (of(22), 100.0), False),
    ((LaunchShape("", "256×1×1"), 100.0, 1), (LaunchShape("", "256×1×1"), 100.0), False),      # what is not known is not the same
    ((of(20), 0.0, 1), (of(20), 100.0), False), ((of(20), 100.0, 0), (of(20), 100.0), False)])
def test_counters_speak_for_launches_of_their_own_shape_alone(spent: Any, counted: Any, same: bool) -> None:
    (shape, total_ns, launches), (of_counters, ns) = spent, counted
    one = FamilyTime(1, H200, shape, "compute", total_ns, launches)
    assert is_same_shape(one, FamilyCounters(1, H200, of_counters, ns, 88.0)) is same
    [found] = worth([one], [FamilyCounters(1, H200, of_counters, ns, 88.0)])
    assert (found.basis == "measured", found.known_ns) == (same, total_ns if same else 0.0)
    assert same or "counters on NVIDIA H200 are of other shapes" in found.reason


def test_counters_of_another_shape_change_nothing_of_what_dimensions_say() -> None:
    """206 ms of products reach 63.6 % of their roof by their dimensions, whatever a report of another product reached."""
    spent = [FamilyTime(1, H200, of(132, 3e12), "compute", 206e6, 100, 131e6)]
    report = [FamilyCounters(1, H200, of(132, 2 * 4096**3), 174_848.0, 88.0, "compute")]
    [alone], [beside] = worth(spent, [], CLASSES), worth(spent, [*report, *REACHED], CLASSES)
    assert alone == beside and beside.basis == "shapes"
    assert beside.interval_ns == (0.0, 75e6) and beside.expected_ns == 37.5e6
    assert beside.shapes_roof_pct == pytest.approx(63.6, abs=0.05) and beside.roof_pct is None


def test_what_was_counted_itself_needs_no_likeness() -> None:
    """Of a report's own launches, with no grid in the file."""
    own = FamilyCounters(1, H200, None, 50.0, 40.0, "memory")
    [one] = worth([FamilyTime(1, H200, None, "compute", 50.0, 1, own=own)], [own])
    assert one.recoverable_ns == pytest.approx(30) and one.basis == "measured"


def test_the_order_is_that_of_what_is_expected() -> None:
    """Nothing to 7.19 ms does not stand above a measured 6.94 ms, and what nobody knows is not hidden behind crumbs."""
    spent = [FamilyTime(1, H200, of(1), "compute", 10e6, 1, 2.81e6), FamilyTime(2, H200, of(2), "compute", 69.4e6, 1),
             FamilyTime(3, H200, None, "compute", 100e6, 1), FamilyTime(4, H200, None, "communication", 9e6, 1),
             FamilyTime(5, H200, None, "compute", 5e6, 1)]
    found = worth(spent, [FamilyCounters(2, H200, of(2), 69.4e6, 90.0, "memory")])
    assert [one.family for one in found] == [3, 2, 4, 1, 5]
    assert found[3].interval_ns == pytest.approx((0.0, 7.19e6)) and found[1].expected_ns == pytest.approx(6.94e6)
    assert found[0].expected_ns is None and found[0].interval_ns is None       # it has a place, no number


def test_what_nobody_counted_is_unknown() -> None:
    """Counters of another GPU say nothing; a roof that is passed wins nothing back; collectives have none."""
    spent = [FamilyTime(1, V100, of(20), "compute", 100.0, 1), FamilyTime(2, H200, of(20), "compute", 500.0, 1),
             FamilyTime(3, H200, of(20), "communication", 90.0, 1), FamilyTime(4, H200, of(20), "compute", 300.0, 1),
             FamilyTime(4, V100, of(20), "compute", 20.0, 1)]
    counted = [FamilyCounters(1, H200, of(20), 100.0, 10.0), FamilyCounters(2, H200, of(20), 500.0, 104.0, "memory"),
               FamilyCounters(3, H200, of(20), 90.0, 5.0), FamilyCounters(4, H200, of(20), 300.0, 80.0, "memory")]
    found = {one.family: one for one in worth(spent, counted)}
    assert [one.family for one in worth(spent, counted)] == [4, 1, 3, 2]
    assert found[1].recoverable_ns is None and found[1].at_most_ns == 100 and found[1].expected_ns is None and found[1].reason
    assert found[2].recoverable_ns == 0 and found[2].at_most_ns == 0
    assert found[3].recoverable_ns is None and found[3].roof_pct is None
    assert found[4].recoverable_ns == pytest.approx(60) and found[4].at_most_ns == pytest.approx(80)     # 20 are unknown


CLASSES = {1: KernelClass("matmul", True), 2: KernelClass("matmul"), 3: KernelClass("matmul"), 4: KernelClass("matmul"),
           5: KernelClass("norm"), 6: KernelClass("matmul")}
REACHED = [FamilyCounters(2, H200, of(20), 10.0, 20.0), FamilyCounters(3, H200, of(20), 10.0, 40.0),
           FamilyCounters(4, H200, of(20), 5.0, 50.0), FamilyCounters(4, H200, of(20), 15.0, 70.0),
           FamilyCounters(4, H200, of(22), 1.0, 130.0)]


def test_an_estimate_is_what_counted_kernels_of_its_class_reach_there() -> None:
    """Shares 0.2, 0.4, 0.65 (one shape counted twice, by its time) and 1 (no more than the roof): median 0.525."""
    spent = [FamilyTime(6, H200, None, "compute", 1000.0, 4), FamilyTime(6, V100, of(20), "compute", 10.0, 1),
             FamilyTime(5, H200, of(20), "compute", 900.0, 4), FamilyTime(1, H200, of(20), "communication", 800.0, 1)]
    found = {one.family: one for one in worth(spent, REACHED, CLASSES)}
    one = found[6]
    assert one.recoverable_ns is None and one.estimate_ns == one.expected_ns == pytest.approx(475)
    assert one.interval_ns == pytest.approx((1000 * (1 - 0.7375), 1000 * (1 - 0.35)))
    assert (one.reaches[H200].count, one.basis, one.estimated_ns, one.unknown_ns) == (4, "class", 1000, 10)
    assert "no norm kernel" in found[5].reason and found[5].interval_ns is None and "collective" in found[1].reason
    assert [each.family for each in worth(spent, REACHED, CLASSES)] == [6, 5, 1]        # 475, half of 900, half of 800


def test_a_class_of_vendor_libraries_is_its_own_where_enough_were_counted() -> None:
    library = [FamilyCounters(1, H200, of(blocks), 1.0, 90.0) for blocks in (20, 21, 22)]
    reaches = class_reaches([*REACHED, *library], CLASSES)
    assert reaches[H200, "matmul", True].median == pytest.approx(0.9) and reaches[H200, "matmul", None].count == 7
    spent = [FamilyTime(7, H200, of(20), "compute", 100.0, 1)]
    [one] = worth(spent, [*REACHED, *library], {**CLASSES, 7: KernelClass("matmul", True)})
    assert one.estimate_ns == pytest.approx(10)


def test_shapes_give_an_estimate_before_the_class_does_and_counters_before_both() -> None:
    floors_ns = {6: 6.0, 5: 3.0, 2: 9.9, 7: 50.0}
    spent = [FamilyTime(family, H200, of(20), "compute", 10.0, 1, floor_ns) for family, floor_ns in floors_ns.items()]
    found = {one.family: one for one in worth(spent, REACHED, CLASSES)}
    assert found[6].expected_ns == pytest.approx(2) and found[6].basis == "shapes"
    assert found[6].interval_ns == pytest.approx((0.0, 4.0))
    assert found[5].expected_ns == pytest.approx(3.5) and found[5].interval_ns == pytest.approx((0.0, 7.0))
    assert found[2].recoverable_ns == pytest.approx(8) and found[2].basis == "measured"
    assert found[7].expected_ns is None                                     # no launch is faster than its floor


@given(st.lists(st.tuples(st.integers(1, 7), st.sampled_from([H200, V100, ""]), st.sampled_from([None, of(20), of(22)]),
                          st.sampled_from(["compute", "communication"]), st.floats(1, 1e9), st.none() | st.floats(0, 2e9)),
                max_size=30))
def test_parts_add_up_and_no_number_exceeds_its_time(rows: list[Any]) -> None:
    found = worth([FamilyTime(f, gpu, shape, kind, ns, 1, floor) for f, gpu, shape, kind, ns, floor in rows], REACHED, CLASSES)
    assert sum(one.total_ns for one in found) == pytest.approx(sum(row[4] for row in rows))
    for one in found:
        slack = 1e-9 * one.total_ns
        assert one.known_ns + one.estimated_ns + one.unknown_ns == pytest.approx(one.total_ns)
        assert (one.expected_ns is None) == bool(one.reason) == (one.known_ns + one.estimated_ns == 0)
        if one.expected_ns is not None and one.interval_ns:
            low, high = one.interval_ns
            assert 0 <= low <= one.expected_ns + slack <= high + 2 * slack <= one.known_ns + one.estimated_ns + 3 * slack
    expected = [one.expected_ns for one in found if one.expected_ns is not None]
    assert expected == sorted(expected, reverse=True)
    unknown = [one.total_ns for one in found if one.expected_ns is None]
    assert unknown == sorted(unknown, reverse=True)


LANES = (
    "python (1) / main: aten::linear 0-50 ext=1 | cudaLaunchKernel 1-2 corr=1 | aten::mm 60-90 ext=2 | "
    "cudaLaunchKernel 61-62 corr=2 | cudaLaunchKernel 64-65 corr=3\n"
    "GPU 0 / stream 7:  gemm 10-20 corr=1 ext=1 grid=8x4x1 block=256x1x1 | gemm 70-100 corr=2 ext=2 grid=8x4x1 block=256x1x1 | "
    "gemm 100-125 corr=3 ext=2 grid=8x4x1 block=256x1x1 | "
    "gemm 130-132 grid=1x1x1 block=64x1x1 | other_gemm 140-145 grid=2x1x1 block=32x1x1")


def test_shapes_of_a_trace() -> None:
    """One grid, two operators: two problems. What no operator launched is told apart by its grid alone."""
    found = shapes_of(frame_of(trace(LANES)))
    assert [(s.kernel, s.grid, s.block, s.operator, s.launches, s.total_ns, s.min_ns, s.max_ns) for s in found] == [
        ("gemm", "8×4×1", "256×1×1", "aten::mm", 2, 55_000, 25_000, 30_000),
        ("gemm", "8×4×1", "256×1×1", "aten::linear", 1, 10_000, 10_000, 10_000),
        ("other_gemm", "2×1×1", "32×1×1", "", 1, 5_000, 5_000, 5_000), ("gemm", "1×1×1", "64×1×1", "", 1, 2_000, 2_000, 2_000)]
    assert [s.bucket for s in found] == [13, 13, 6, 6]              # 8192, 8192, 64 and 64 threads
    assert [s.index for s in found] == [1, 0, 4, 3]
    assert [s.skip for s in found] == [1, 0, 0, 3]                  # ncu's "gemm" finds other_gemm as well, not the other way round


def test_a_floor_is_the_mean_over_the_launches_and_unknown_where_one_is() -> None:
    found = shapes_of(frame_of(trace(LANES)), np.array([4_000.0, 20_000.0, 10_000.0, np.nan, np.nan]))
    assert [(s.grid, s.operator, s.floor_ns) for s in found] == [
        ("8×4×1", "aten::mm", 15_000), ("8×4×1", "aten::linear", 4_000), ("2×1×1", "", None), ("1×1×1", "", None)]


def test_the_launches_of_a_shape_are_found_again() -> None:
    every = launches_of(frame_of(trace(LANES)))
    code = int(every.names[0])
    found = {operator: np.flatnonzero(every.of(code, "8×4×1", "256×1×1", Problem(operator))).tolist()
             for operator in ("aten::mm", "aten::linear", "")}
    assert found == {"aten::mm": [1, 2], "aten::linear": [0], "": []}
    assert np.flatnonzero(every.of(code, "1×1×1", "64×1×1", Problem())).tolist() == [3]


def test_a_slice_of_the_longest_launch_is_named() -> None:
    frame = frame_of(trace(LANES))
    longest = shapes_of(frame)[0]
    row = int(np.flatnonzero(frame["id"] == longest.slice_id)[0])
    assert frame.text(row) == "gemm" and int(frame["dur_ns"][row]) == longest.max_ns


def test_many_shapes_are_bounded_and_nothing_is_lost() -> None:
    count = SHAPES_PER_KERNEL + 7
    geometry = np.array([[n, 1, 1, 32, 1, 1] for n in range(1, count + 1)], np.int64)
    found = group_shapes(np.zeros(count, np.int64), geometry, np.arange(1.0, count + 1), lambda _: "k")
    assert len(found) == SHAPES_PER_KERNEL + 1
    rest = found[-1]
    assert (rest.shapes, rest.launches, rest.total_ns, rest.grid) == (7, 7, sum(range(1, 8)), "")
    assert sum(each.total_ns for each in found) == sum(range(1, count + 1))


def test_one_further_shape_is_itself() -> None:
    count = SHAPES_PER_KERNEL + 1
    geometry = np.array([[n, 1, 1, 32, 1, 1] for n in range(1, count + 1)], np.int64)
    found = group_shapes(np.zeros(count, np.int64), geometry, np.arange(1.0, count + 1), lambda _: "k")
    assert (found[-1].shapes, found[-1].grid, found[-1].index, found[-1].total_ns) == (1, "1×1×1", 0, 1)


def test_groups_are_those_of_numpy_whatever_the_columns_hold() -> None:
    """The packed key against `np.unique` of whole rows, with columns that do not fit into 64 bits together."""
    rng = np.random.default_rng(4)
    geometry = rng.choice([-1, 1, 2, 65_535, 2**31 - 1], size=(5_000, 6)).astype(np.int64)
    names = rng.integers(0, 40, 5_000)
    dur = rng.integers(1, 1_000, 5_000).astype(np.float64)
    whole = np.repeat((geometry.reshape(-1, 2, 3) > 0).all(axis=2), 3, axis=1)      # half a grid is no grid
    table = np.column_stack([names, np.where(whole, geometry, -1)])
    expected: dict[tuple[int, ...], float] = {}
    for row, ns in zip(map(tuple, table.tolist()), dur, strict=True):
        expected[row] = expected.get(row, 0.0) + ns
    found = group_shapes(names, geometry, dur, str)
    kept = [each.total_ns for each in found if each.shapes == 1]
    largest: list[float] = []
    for name in range(40):
        largest += sorted((ns for row, ns in expected.items() if row[0] == name), reverse=True)[:SHAPES_PER_KERNEL]
    assert sorted(kept) == sorted(round(ns) for ns in largest)
    assert sum(each.total_ns for each in found) == round(dur.sum())


@pytest.mark.slow
def test_a_million_launches_are_grouped_within_a_second() -> None:
    rng = np.random.default_rng(1)
    geometry = np.column_stack([rng.integers(1, 400, 1_000_000), *([np.ones(1_000_000, np.int64)] * 5)])
    began = time.process_time()
    group_shapes(rng.integers(0, 60, 1_000_000), geometry, rng.random(1_000_000), str)
    assert time.process_time() - began < 4          # half a second when idle


def test_buckets_and_bare_names() -> None:
    assert bucket([512, 1, 1], [256, 1, 1]) == bucket([1024, 1, 1], [128, 1, 1]) == 17
    assert bucket([0, 1, 1], [256, 1, 1]) is None and bucket([-1, -1, -1], [256, 1, 1]) is None
    assert bare("void at::native::(anonymous namespace)::softmax_warp<float, 4>(float*, int)") == "softmax_warp"
    assert bare("std::enable_if<!(false), void>::type internal::gemvx::kernel<int, float>(cublas<float>)") == "kernel"
    assert bare("triton_poi_fused_add_0") == "triton_poi_fused_add_0"
