"""Comparing launches: who meets whom, the exact split of the difference, and what is only noise."""

from __future__ import annotations

import gzip
import itertools
import json
from collections import defaultdict
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from profiles.analysis.compare.comparison import LAUNCHES, Row, launches_of_report, launches_of_trace
from profiles.analysis.compare.kernels import compare
from profiles.analysis.compare.matching import match_shapes
from profiles.analysis.compare.why import counter_changes
from profiles.ingest import read
from profiles.management.commands.compare import mean_text
from tests.builders import trace

H200 = Path(__file__).parents[2] / "data" / "h200"


def launches(*rows: tuple[str, int, float]) -> pa.Table:
    """(kernel, grid_x, µs) in launch order."""
    table = pa.Table.from_pylist([
        {"name": name, "grid_x": grid, "grid_y": 1, "grid_z": 1, "block_x": 128, "block_y": 1, "block_z": 1,
         "registers_per_thread": 32, "smem_bytes": 0, "dur_ns": 1000.0 * us, "index": index}
        for index, (name, grid, us) in enumerate(rows)], LAUNCHES)
    return table


def runs(name: str, *groups: tuple[int, tuple[float, ...]]) -> list[tuple[str, int, float]]:
    return [(name, grid, us) for grid, times in groups for us in times]


def by_label(rows: list[Row]) -> dict[str, Row]:
    return {f"{row.kernel} {row.shape}".strip(): row for row in rows}


def test_builds_a_and_b_three_slower_one_faster_one_unchanged():
    a, b = (launches_of_report(read(H200 / f"build{build}.ncu-rep.zst")) for build in "AB")
    found = by_label(compare(a, b).rows)
    assert {name: row.verdict for name, row in found.items()} == {
        "matmul 1 of 2": "slower", "matmul 2 of 2": "unchanged", "softmax_row": "slower", "layernorm_row": "slower",
        "attn_fwd": "faster"}
    large, small = found["matmul 1 of 2"], found["matmul 2 of 2"]
    assert large.old.grid == (512, 1, 1) and large.new.grid == (4096, 1, 1)      # 4096³: the configuration changed its grid
    assert small.old.grid == small.new.grid == (64, 1, 1)                        # 16×4096×4096 did not change
    assert large.old.total_ns == 185440 + 184768 + 185760 and large.new.total_ns == 420480 + 413920 + 420704
    assert all(row.from_launches_ns == 0 for row in found.values())


def test_the_other_way_round_gives_the_mirrored_verdicts():
    a, b = (launches_of_report(read(H200 / f"build{build}.ncu-rep.zst")) for build in "AB")
    there, back = compare(a, b), compare(b, a)
    assert there.delta_ns == -back.delta_ns
    assert back.verdicts() == {
        "slower": 1, "faster": 3, "unchanged": 1, "unknown": 0, "other_work": 0, "new": 0, "gone": 0}


def test_a_profile_against_itself_is_unchanged():
    made = launches_of_trace(read(H200 / "kineto_train.json.gz"))
    found = compare(made, made)
    assert found.delta_ns == 0 and {row.verdict for row in found.rows} <= {"unchanged", "unknown"}
    assert all(row.delta_ns == 0 for row in found.rows)
    assert found.old_total_ns == 10_876_979


def test_one_shape_a_side_is_the_same_work_whatever_the_grid():
    row, = compare(launches(*runs("k", (8, (10, 11)))), launches(*runs("k", (99, (20, 21, 22))))).rows
    assert row.matched == "name" and row.old.launches == 2 and row.new.launches == 3


def test_two_problems_of_one_name_meet_by_launch_order_when_both_grids_change():
    a = launches(*runs("matmul", (512, (100, 101, 102)), (64, (10, 11, 10))))
    b = launches(*runs("matmul", (4096, (200, 201, 202)), (32, (10, 11, 10))))
    found = compare(a, b).rows
    assert [(row.old.grid[0], row.new.grid[0], row.verdict) for row in found] == [
        (512, 4096, "slower"), (64, 32, "unchanged")]


def test_a_persistent_kernel_that_hides_the_shapes_is_split_by_order():
    a = launches(*runs("matmul", (512, (100, 101, 102)), (64, (10, 11, 10))))
    b = launches(*runs("matmul", (132, (50, 51, 50, 20, 21, 20))))
    found = compare(a, b).rows
    assert [(row.old.grid[0], row.new.p50_ns, row.verdict) for row in found] == [
        (512, 50_000, "faster"), (64, 20_000, "slower")]


def test_interleaved_shapes_meet_by_order_too():
    a = launches(*[("mm", grid, us) for grid, us in itertools.chain.from_iterable([[(8, 10), (4, 5)]] * 5)])
    b = launches(*[("mm", grid, us) for grid, us in itertools.chain.from_iterable([[(16, 30), (2, 5)]] * 5)])
    assert {(row.old.grid[0], row.new.grid[0]) for row in compare(a, b).rows} == {(8, 16), (4, 2)}


def test_same_shapes_meet_whatever_the_order():
    a = launches(("mm", 8, 10), ("mm", 4, 5))
    b = launches(("mm", 4, 5), ("mm", 8, 10))
    assert all(row.old.grid == row.new.grid and row.matched == "launch shape" for row in compare(a, b).rows)


def test_more_launches_of_one_shape_are_told_from_slower_ones():
    a = launches(*runs("mm", (8, (100.0, 100.0)), (4, (10.0, 10.0))))
    b = launches(*runs("mm", (8, (100.0, 100.0, 100.0)), (4, (20.0, 20.0))))
    found = {row.old.grid[0]: row for row in compare(a, b).rows}
    assert (found[8].from_launches_ns, found[8].from_duration_ns) == (100_000, 0)
    assert (found[4].from_launches_ns, found[4].from_duration_ns) == (0, 20_000)


def test_shapes_that_cannot_be_told_apart_are_compared_as_a_whole():
    a = launches(*runs("mm", (1, (10, 10)), (2, (20,)), (3, (30,))))
    b = launches(*runs("mm", (7, (10,)), (8, (20, 20))))
    row, = compare(a, b).rows
    assert "could not be told apart" in row.matched and row.old.launches == 4 and row.new.launches == 3


def test_new_and_gone_kernels_and_renamed_templates():
    a = launches(("void gemm<128, 64>(int)", 1, 10), ("old_only", 1, 3))
    b = launches(("void gemm<256, 64>(int)", 1, 20), ("new_only", 1, 4))
    found = {row.verdict: row for row in compare(a, b).rows}
    assert found["gone"].old.name == "old_only" and found["gone"].delta_ns == -3000
    assert found["new"].new.name == "new_only" and found["new"].delta_ns == 4000
    assert found["gone"].confidence == found["new"].confidence == ""
    renamed = found["slower"]
    assert renamed.old.name == "void gemm<128, 64>(int)" and renamed.new.name == "void gemm<256, 64>(int)"
    assert renamed.confidence == "high" and "family gemm" in renamed.matched


def test_one_launch_a_side_tells_a_large_change_and_no_small_one():
    def verdict(new_ms: float) -> tuple[str, float]:
        row, = compare(launches(("k", 1, 10)), launches(("k", 1, new_ms))).rows
        return row.verdict, row.noise_pct

    assert verdict(12.5)[0] == "slower" and verdict(7.5)[0] == "faster"
    assert verdict(11)[0] == verdict(10)[0] == "unknown" and 17 < verdict(11)[1] < 19


def test_per_step_divides_times_and_launches():
    a, b = launches(*runs("k", (1, (10, 10)))), launches(*runs("k", (1, (10, 10, 10, 10))))
    row, = compare(a, b, old_units=1, new_units=2).rows
    assert (row.delta_ns, row.from_launches_ns, row.from_duration_ns) == (0, 0, 0)


def test_nothing_on_either_side():
    empty = LAUNCHES.empty_table()
    assert compare(empty, empty).rows == []
    assert [row.verdict for row in compare(empty, launches(("k", 1, 1))).rows] == ["new"]


@given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(1, 3), st.integers(1, 10**6)), max_size=20),
       st.lists(st.tuples(st.sampled_from("bc"), st.integers(1, 3), st.integers(1, 10**6)), max_size=20))
def test_every_launch_is_in_exactly_one_row_and_the_split_is_exact(old, new):
    a, b = launches(*old), launches(*new)
    found = compare(a, b)
    assert sum(row.old.launches for row in found.rows if row.old) == len(old)
    assert sum(row.new.launches for row in found.rows if row.new) == len(new)
    assert sum(row.delta_ns for row in found.rows) == pytest.approx(found.delta_ns)
    for row in found.rows:
        assert row.from_launches_ns + row.from_duration_ns == pytest.approx(row.delta_ns, abs=1e-6)
        assert row.delta_ns == row.new_total_ns - row.old_total_ns


def test_match_shapes_covers_all_launches_once():
    for old, new in itertools.product(itertools.product(range(3), repeat=4), repeat=2):
        pairs = match_shapes(np.array(old), np.array(new) + 1)
        assert sorted(np.concatenate([a for a, _, _ in pairs]).tolist()) == [0, 1, 2, 3]
        assert sorted(np.concatenate([b for _, b, _ in pairs]).tolist()) == [0, 1, 2, 3]


@pytest.mark.slow
def test_identical_code_in_other_processes_is_rarely_called_changed():
    """24 processes of 13 kernels, all pairs of processes: the false alarms that the docstring of the noise states."""
    groups = defaultdict(list)
    with gzip.open(H200 / "timing_runs.jsonl.gz", "rt") as file:
        for line in map(json.loads, file):
            groups[line["op"], str(line["shape"]), str(sorted(line["config"].items()))].append(line["us"])
    assert len(groups) == 13

    def verdict(old: list[float], new: list[float]) -> str:
        return compare(launches(*runs("k", (1, old))), launches(*runs("k", (1, new)))).rows[0].verdict

    rng = np.random.default_rng(0)
    for taken, most_pct in ((3, 3.0), (100, 2.0)):
        verdicts = []
        for processes in groups.values():
            for at in rng.choice(len(processes), (30, 2)):
                if at[0] != at[1]:
                    verdicts.append(verdict(*(processes[i][:taken] for i in at)))
        assert 100 * sum(each != "unchanged" for each in verdicts) / len(verdicts) <= most_pct


def test_columns_are_read_once_however_many_kernels_there_are(monkeypatch):
    read_columns = []
    monkeypatch.setattr(pc, "fill_null", lambda column, value, real=pc.fill_null: read_columns.append(1) or real(column, value))
    old = launches(*((f"k{at}", at + 1, 10.0) for at in range(300)))
    new = launches(*((f"k{at}", 2 * at + 1, 20.0) for at in range(300)))
    found = compare(old, new)
    assert [row.change_pct for row in found.rows] == [100.0] * 300 and {row.confidence for row in found.rows} == {"certain"}
    assert len(read_columns) <= 2 * len(LAUNCHES)


def test_launches_of_a_trace_leave_out_what_is_no_kernel():
    made = launches_of_trace(trace("""
    GPU 0 / stream 7:    b 20-30 | a 0-10 regs=40 smem=1024 | a 40-41 | Memcpy HtoD 50-60 | ProfilerStep#0@gpu_annotation 0-60
    """))
    assert made["name"].to_pylist() == ["a", "a", "b"] and made["dur_ns"].to_pylist() == [10_000, 1_000, 10_000]
    assert made["index"].to_pylist() == [0, 2, 1] and made["registers_per_thread"].to_pylist() == [40, None, None]


def test_counter_changes_are_medians_and_leave_out_what_nobody_measured():
    old = [{"sol": {"sm_pct": value}} for value in (10, 30, 20)]
    found = counter_changes(old, [{"sol": {}}], [("sol.sm_pct", "Compute", "%"), ("sol.dram_pct", "DRAM", "%")])
    assert [(change.name, change.old, change.new) for change in found] == [("Compute", 20, None)]


def test_the_per_cent_of_a_kernel_stands_beside_the_means_that_it_is_of():
    """Two shapes, neither changed, in another proportion: the mean of a launch grows all the same, and that is said."""
    a = launches(*runs("k", (8, (10, 10, 10)), (4, (100, 100))))
    b = launches(*runs("k", (8, (10, 10)), (4, (100, 100, 100))))
    kernel, = compare(a, b, new_units=2).kernels
    assert (kernel.verdict, kernel.old_total_ns, kernel.new_total_ns) == ("unchanged", 230_000, 160_000)       # of a step
    assert mean_text(kernel) == "46.0 µs → 64.0 µs, +39.1 % (other mix of shapes)"
    slower, = compare(launches(*runs("k", (8, (10, 10)))), launches(*runs("k", (8, (14, 14))))).kernels
    assert mean_text(slower) == "10.0 µs → 14.0 µs, +40.0 %"
    gone = compare(launches(("k", 1, 10)), launches(("other_name_altogether", 4, 10))).kernels
    assert {mean_text(each) for each in gone} == {"10.0 µs → none", "none → 10.0 µs"}
