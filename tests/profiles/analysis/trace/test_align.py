"""One clock for several ranks: stated base times, matched collectives, and what is said when neither holds."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from profiles.analysis.trace.merge import Collectives, RankClock, align

KINDS = [("ncclDevKernel_AllReduce", 4096), ("ncclDevKernel_AllGather", 1024), ("ncclDevKernel_ReduceScatter", 65536)]
PERIOD_NS = 1_000_000


def _rank(label: str, *, clock_ns: int = 0, base_ns: int | None = None, first: int = 0, count: int = 30, jitter_ns: int = 2_000,
          seed: int = 0, steps: bool = True) -> RankClock:
    """Collectives number first … first + count of one job, five a step, as a rank saw them whose clock is `clock_ns` ahead."""
    noise = np.random.default_rng(seed).integers(-jitter_ns, jitter_ns + 1, count)
    at = np.arange(first, first + count)
    numbered = {int(n): int(n) * 5 * PERIOD_NS + clock_ns for n in np.unique(at // 5)} if steps else {}
    signature = tuple(KINDS[n % 3] for n in at.tolist())
    return RankClock(label, base_ns, Collectives(signature, at * PERIOD_NS + clock_ns + noise, numbered))


def test_base_times_stand_where_the_collectives_agree():
    found = align([_rank("rank 0", base_ns=5_000_000), _rank("rank 1", base_ns=4_000_000, clock_ns=1_000_000, seed=1)])
    assert found.rule == "base time"
    assert [rank.shift_ns for rank in found.ranks] == [1_000_000, 0]
    assert found.base_ns == 4_000_000
    assert found.ranks[1].matched == 30 and found.ranks[1].residual_ns < 4_000
    assert "30 matched collectives" in found.sentence


def test_collectives_overrule_base_times_that_they_contradict():
    found = align([_rank("rank 0", base_ns=0), _rank("rank 1", base_ns=0, clock_ns=7_000_000, seed=1)])
    assert found.rule == "collectives"
    assert abs(found.ranks[0].shift_ns - 7_000_000) < 2_000 and found.ranks[1].shift_ns == 0
    assert "contradict them by 7.00 ms" in found.sentence


@given(clock_ns=st.integers(-10**9, 10**9), first=st.integers(0, 12), seed=st.integers(0, 1000))
def test_numbered_steps_find_the_offset_of_recordings_that_begin_apart(clock_ns: int, first: int, seed: int):
    found = align([_rank("rank 0"), _rank("rank 1", clock_ns=clock_ns, first=first, seed=seed)])
    assert found.rule == "collectives"
    assert abs(found.ranks[0].shift_ns - found.ranks[1].shift_ns - clock_ns) <= 2_000
    assert found.ranks[1].residual_ns <= 4_000
    assert found.ranks[1].matched == 30 - first


def test_nothing_is_aligned_without_clocks_and_collectives():
    found = align([_rank("rank 0", count=2), _rank("rank 1", count=2)])
    assert found.rule == "none" and [rank.shift_ns for rank in found.ranks] == [0, 0]
    assert "not aligned" in found.sentence and found.as_json()["residual_ns"] is None


def test_base_times_alone_are_said_to_be_unchecked():
    ranks = [_rank("rank 0", count=0, base_ns=100), _rank("rank 1", count=0, base_ns=40)]
    found = align(ranks)
    assert found.rule == "base time" and [rank.shift_ns for rank in found.ranks] == [60, 0]
    assert "nothing checks it" in found.sentence


def test_other_collectives_are_not_matched():
    strange = _rank("rank 1", count=30)
    renamed = tuple((f"other_{i}", size) for i, (_, size) in enumerate(strange.collectives.signature))
    found = align([_rank("rank 0"), replace(strange, collectives=replace(strange.collectives, signature=renamed))])
    assert found.rule == "none" and found.ranks[1].matched == 0


def test_one_late_rank_does_not_move_the_clock():
    """Ends are compared by their median: a few collectives that one rank left late do not shift it."""
    late = _rank("rank 1", seed=3)
    ends = late.collectives.end_ns.copy()
    ends[::7] += 400_000
    found = align([_rank("rank 0"), replace(late, collectives=replace(late.collectives, end_ns=ends))])
    assert abs(found.ranks[0].shift_ns - found.ranks[1].shift_ns) < 2_500
    assert found.ranks[1].residual_p95_ns > 100_000
