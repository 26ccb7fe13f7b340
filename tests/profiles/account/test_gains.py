"""What there is to win holds what is won: jobs are played with a fault and without it, and the difference is the truth."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from profiles.analysis.core.intervals import Intervals
from profiles.analysis.trace.account.account import Account, account_of
from profiles.analysis.trace.account.host import delayed, stretches
from profiles.analysis.trace.account.result import causes_result
from tests.profiles.account.planted import ADD, Machine, Step, forward_backward, play
from tests.profiles.account.test_account import check, frame

STALLS = {"data_loading": "## dataload ##", "garbage_collection": "gc.collect", "file_io": "save_checkpoint",
          "compilation": "_compile.compile_inner (dynamo_timed)"}
TOLERANCE = 0.03                # of what is won, and ABOUT_NS: launch and wait of the model itself
ABOUT_NS = 100_000
Program = Callable[[Machine, int], Step | None]


def stall(m: Machine, us: float, name: str = STALLS["data_loading"]) -> None:
    with m.slice(name, "user_annotation"):
        m.sleep(us)


def alone(us: float, gpu_us: float, launches: int, name: str = STALLS["data_loading"], late: bool = False,
          waits: bool = False) -> Callable[[bool], list[Program]]:
    """A step of large products, then small launches; the stall before all of it or between the two, a wait for the GPU last."""
    def program(fault: bool) -> Program:
        def step(m: Machine, number: int) -> None:
            if fault and not late:
                stall(m, us, name)
            forward_backward(m, gpu_us)
            if fault and late:
                stall(m, us, name)
            for _ in range(launches):
                m.operator("aten::add_", ADD, 4, 12)
            if waits:
                m.wait()
        return step
    return lambda fault: [program(fault)]


def together(us: Callable[[int, int], float], gpu_us: float = 250, launches: int = 0) -> Callable[[bool], list[Program]]:
    """Two ranks; `us` of stall by rank and step, 0: none."""
    def program(rank: int, fault: bool) -> Program:
        def step(m: Machine, number: int) -> Step:
            if fault and us(rank, number):
                stall(m, us(rank, number))
            forward_backward(m, gpu_us)
            for _ in range(launches):
                m.operator("aten::add_", ADD, 4, 12)
            for _ in range(2):
                yield from m.all_reduce(400)
            m.operator("aten::_foreach_add_", ADD, 150)
        return step
    return lambda fault: [program(rank, fault) for rank in range(2)]


# name -> programs with or without the fault, its cause
JOBS: dict[str, tuple[Callable[[bool], list[Program]], str]] = {
    "hidden by queued work": (alone(3000, 1500, 0), "data_loading"),
    "waited for in each step": (alone(8000, 300, 0, waits=True), "data_loading"),
    "partly hidden": (alone(8000, 300, 150), "data_loading"),
    "hidden, and the launches after it are late": (alone(6000, 300, 250, late=True), "data_loading"),
    "hidden by a wait that follows": (alone(4000, 600, 0, late=True, waits=True), "data_loading"),
    "of a host that never keeps up": (alone(2000, 20, 300), "data_loading"),
    **{f"{cause} behind queued work": (alone(6000, 300, 250, name, late=True), cause) for cause, name in STALLS.items()},
    "one of two ranks": (together(lambda rank, step: 8000 * (rank == 0)), "data_loading"),
    "one of two ranks, and late launches": (together(lambda rank, step: 8000 * (rank == 0), 200, 150), "data_loading"),
    "once, and the rank catches up": (together(lambda rank, step: 20_000 * (rank == 0 and step == 1), 400), "data_loading"),
    "the ranks in turn": (together(lambda rank, step: 8000 * (rank == step % 2)), "data_loading"),
    "both, one for longer": (together(lambda rank, step: 8000 if rank == 0 else 3000), "data_loading"),
    "hidden on one of two ranks": (together(lambda rank, step: 2000 * (rank == 0), 600), "data_loading")}


def played(programs: list[Program], folder: Path) -> Account:
    folder.mkdir()
    account = account_of(frame(*play(folder, programs)))
    check(account)
    return account


@pytest.mark.parametrize("name", JOBS)
def test_without_the_fault_the_run_is_shorter_by_what_it_is_said_to_win(name: str, tmp_path: Path):
    job, cause = JOBS[name]
    account, without = played(job(True), tmp_path / "with"), played(job(False), tmp_path / "without")
    won_ns = account.wall_ns - without.wall_ns
    said_ns = next((group.recoverable_ns or 0 for group in account.groups if group.cause == cause), 0)
    assert won_ns <= said_ns * (1 + TOLERANCE) + ABOUT_NS, (won_ns, said_ns)
    assert said_ns <= 1.25 * won_ns + ABOUT_NS, (won_ns, said_ns)
    if won_ns > 0.25 * account.wall_ns and name != "of a host that never keeps up":
        assert account.lead and account.lead.cause == cause


def test_the_lead_names_what_followed_the_stall(tmp_path: Path):
    """All of the loading is hidden: what it makes late lies behind it, and is called by its name all the same."""
    result = causes_result(frame(*play(tmp_path, JOBS["hidden, and the launches after it are late"][0](True))))
    assert result.answer.startswith("The host loads data 6.00 ms a step (`## dataload ##`)")


def pieces(*ends: tuple[int, int]) -> Intervals:
    return Intervals(*(np.array(each, np.int64) for each in zip(*ends, strict=True))) if ends else Intervals(
        np.empty(0, np.int64), np.empty(0, np.int64))


def ends(each: Intervals) -> list[tuple[int, int]]:
    return list(zip(each.start_ns.tolist(), each.end_ns.tolist(), strict=True))


def test_idle_time_is_owed_to_the_earliest_stall_until_the_next_wait():
    generic = pieces((10, 20), (40, 50), (70, 100))
    waits, stalls = {"synchronisation": pieces((52, 60))}, {"data_loading": pieces((0, 6)), "file_io": pieces((21, 35))}
    found = delayed(generic, waits, stalls, {"file_io": pieces((21, 30))})
    assert ends(found["data_loading"]) == [(10, 16)]
    assert ends(found["file_io"]) == [(40, 45)]                             # 5 of its 14 were hidden
    assert ends(found["synchronisation"]) == [(70, 78)]


def test_what_a_stall_owes_is_void_after_a_wait():
    found = delayed(pieces((70, 100)), {"synchronisation": pieces((52, 60))}, {"data_loading": pieces((0, 50))}, {})
    assert list(found) == ["synchronisation"] and ends(found["synchronisation"]) == [(70, 78)]


@pytest.mark.parametrize("seed", range(20))
def test_stretches_of_time_that_pieces_cover(seed: int):
    chance = np.random.default_rng(seed)
    covered = np.flatnonzero(chance.random(200) < 0.4)                      # ns that are covered, one by one
    cuts = np.unique(chance.integers(0, covered.size + 1, 6))
    edges = np.flatnonzero(np.diff(covered) > 1)
    whole = pieces(*zip(covered[np.r_[0, edges + 1]].tolist(), (covered[np.r_[edges, covered.size - 1]] + 1).tolist(), strict=True))
    found = stretches(whole, cuts[:-1:2], cuts[1::2])
    right = [int(ns) for a, b in zip(cuts[:-1:2], cuts[1::2], strict=False) for ns in covered[a:b]]
    assert [ns for a, b in ends(found) for ns in range(a, b)] == right
