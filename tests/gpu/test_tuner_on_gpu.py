"""The tuner on a real GPU, without servers: search loop, compile ahead, the child that measures.

Each shape of the recorded landscapes is tuned cold (no history, no other shape) and held against the best of its
exhaustive recording; a hostile space ends with each fault named. All trials come back as tuner_trials.json.gz.
"""

from __future__ import annotations

import gzip
import json
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from tuner.tuning.measure.landscape import Landscape, RecordedShape
from tuner.tuning.operators import OPERATORS, limits
from tuner.tuning.search.finalists import best_trial, measure_finalists
from tuner.tuning.search.loop import Budget, tune
from tuner.tuning.search.strategies import DEFAULT
from tuner.tuning.search.strategies.prior_knowledge import PriorKnowledge
from tuner.tuning.space import Space
from tuner.tuning.trial import Config, Measured, Reason, Rejected, Trial, config_key
from workers.core import gpu
from workers.tune.gpu_child import Limits
from workers.tune.sandbox import SandboxRunner

FOLDER = Path(__file__).parents[1] / "data" / "h200" / "landscapes"
SHAPES = [(path.name.partition(".")[0], index) for path in sorted(FOLDER.glob("*.json.gz"))
          for index in range(len(Landscape.load(path).shapes))]
BUDGET = Budget(trials=200, seconds=9, plateau=80)       # of one shape; the bar allows three minutes
REACHED = 0.98
FACTS = ("registers", "spills", "smem_bytes", "occupancy_pct", "compile_s", "load_s", "measure_s", "gpu_s", "check_s", "ended",
         "relative_error", "racing")


@pytest.fixture(scope="module")
def card() -> gpu.Gpu:
    return gpu.gpus()[0]


@pytest.fixture(scope="module")
def runner(card) -> Iterator[SandboxRunner]:
    """One session that moves from shape to shape, as a job of many shapes does."""
    runner = SandboxRunner("matmul", {"M": 1, "N": 1, "K": 1}, "bf16", card.index, gpu_uuid=card.uuid, seed=5)
    yield runner
    runner.close()


@pytest.fixture(scope="module")
def kept(report) -> Iterator[list[dict[str, Any]]]:
    jobs: list[dict[str, Any]] = []
    yield jobs
    with gzip.open(report.folder / "tuner_trials.json.gz", "wt") as file:
        json.dump(jobs, file)


@contextmanager
def utilisation(card: gpu.Gpu) -> Iterator[list[int]]:
    """What NVML says of the GPU meanwhile: percent of each sampling period in which a kernel ran."""
    import pynvml

    pynvml.nvmlInit()
    handle, seen, done = pynvml.nvmlDeviceGetHandleByIndex(card.index), [], threading.Event()

    def look() -> None:
        while not done.wait(0.1):
            seen.append(pynvml.nvmlDeviceGetUtilizationRates(handle).gpu)

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    yield seen
    done.set()
    thread.join()


def recorded(name: str, index: int) -> tuple[RecordedShape, str, float, Config]:
    """The shape, its dtype, and the best time and configuration of its exhaustive recording."""
    landscape = Landscape.load(FOLDER / f"{name}.json.gz")
    one, operator = landscape.at(index), OPERATORS[name]
    fastest_ms, config = min(((o.median_ms, c) for c, o in one.outcomes.values() if isinstance(o, Measured)),
                             key=lambda found: found[0])
    return one, landscape.dtype or operator.dtypes[0], fastest_ms, operator.complete(config)


def reasons(trials: list[Trial]) -> dict[str, int]:
    return dict(Counter(str(t.outcome.reason) for t in trials if isinstance(t.outcome, Rejected)))


def first_within(trials: list[Trial], limit_ms: float) -> dict[str, float] | None:
    """The first trial as fast as `limit_ms`: how many it took, and when."""
    place = next((n for n, t in enumerate(trials, 1) if t.median_ms is not None and t.median_ms <= limit_ms), None)
    return None if place is None else {"trials": place, "seconds": round(trials[place - 1].at_s, 2)}


def spent(before: Any, after: Any) -> dict[str, float]:
    """What one search used of a session that is used again and again."""
    took = {name: value - asdict(before)[name] for name, value in asdict(after).items() if name != "compilers"}
    searched_s = took["wall_s"] - took["open_s"]
    return {**{name: round(value, 3) for name, value in took.items()}, "compilers": after.compilers,
            "held_share": round(took["busy_s"] / searched_s, 3)}


def working_share(trials: list[Trial]) -> float | None:
    """Of the time in which a configuration held the GPU: checking against the reference and timing, both on the GPU."""
    facts = [t.outcome.facts for t in trials if isinstance(t.outcome, Measured)]
    held_s = sum(fact["measure_s"] for fact in facts)
    return round(sum(fact.get("gpu_s", 0) + fact.get("check_s", 0) for fact in facts) / held_s, 3) if held_s else None


def row(trial: Trial) -> dict[str, Any]:
    outcome = trial.outcome
    return {"config": dict(trial.config), "median_ms": trial.median_ms, "at_s": round(trial.at_s, 3),
            "reason": str(outcome.reason) if isinstance(outcome, Rejected) else None,
            "message": outcome.message[:200] if isinstance(outcome, Rejected) else "",
            **{name: outcome.facts[name] for name in FACTS if name in outcome.facts}}


@pytest.mark.parametrize(("name", "index"), SHAPES, ids=[f"{name}-{index}" for name, index in SHAPES])
def test_a_cold_tune_reaches_the_recorded_best(report, kept, card, runner, name, index):
    one, dtype, recorded_ms, recorded_config = recorded(name, index)
    operator, shape = OPERATORS[name], dict(one.shape)
    before = runner.use()
    runner.move(name, shape, dtype)
    session = runner.open()
    gpu_limits = limits(session.gpu, session.compute_capability, session.environment.get("sms"))
    space, default = operator.space(shape, dtype, gpu_limits), operator.default_config(shape, dtype, gpu_limits)
    known = PriorKnowledge(operator=name, shape=shape, dtype=dtype, gpu=gpu_limits, flops=one.flops or 0, bytes=one.bytes or 0,
                           default=default)
    first = [default, *operator.published_starts(space, shape, dtype, gpu_limits)]
    with utilisation(card) as seen:
        trials = list(tune(space, DEFAULT, runner, BUDGET, 1, first=first, known=known))
    searched = spent(before, runner.use())
    found = measure_finalists(runner, trials, default)
    measured = [t for t in trials if isinstance(t.outcome, Measured)]
    [(_, again)] = [*runner.measure([recorded_config])] if recorded_config in space else [(None, None)]
    saved = [t.outcome.facts["racing"]["saved_s"] for t in measured if "racing" in t.outcome.facts]
    fastest = found[0]
    report.add(
        f"cold {name} {index}", shape=shape, dtype=dtype, space=len(space), trials=len(trials), measured=len(measured),
        rejected=reasons(trials), raced=len(saved), racing_saved_s=round(sum(saved), 3), best_ms=fastest.median_ms,
        best_config=dict(fastest.config), recorded_best_ms=recorded_ms, reached=round(recorded_ms / fastest.median_ms, 4),
        recorded_config_today_ms=getattr(again, "median_ms", None), library_ms=session.library_ms,
        library_ratio=round(session.library_ms / fastest.median_ms, 3),
        default_ms=next((t.median_ms for t in trials if config_key(t.config) == config_key(default)), None),
        within_5=first_within(trials, recorded_ms * 1.05), within_2=first_within(trials, recorded_ms / REACHED),
        use=searched, working_share=working_share(trials), budget=asdict(BUDGET),
        nvml_busy_pct=round(sum(seen) / max(1, len(seen)), 1), finalists=[f.as_json() for f in found])
    kept.append({"operator": name, "shape": shape, "dtype": dtype, "gpu": session.gpu, "environment": session.environment,
                 "library_ms": session.library_ms, "trials": [row(t) for t in trials]})
    assert all(t.outcome.facts["relative_error"] < operator.tolerance[dtype] for t in measured)
    assert recorded_ms / fastest.median_ms >= REACHED, (fastest, recorded_ms, again)


def test_binaries_of_the_compile_processes_are_found_by_the_child(kept):
    """What it takes to put a configuration onto the GPU that a compile process made: no compiling."""
    loads = sorted(t["load_s"] for job in kept for t in job["trials"] if "load_s" in t)
    assert len(loads) > 100 and loads[len(loads) // 2] < 0.05 and loads[int(len(loads) * 0.95)] < 0.3, loads[-20:]


def test_a_hostile_space_ends_with_each_fault_named_and_none_winning(report, kept, card):
    shape, operator = {"M": 1024, "N": 1024, "K": 1024}, OPERATORS["matmul"]
    base = {**operator.default_config(shape, "bf16", limits(card.name, card.cc)), "fault": ""}
    good = [{**base, "BM": bm, "BN": bn, "BK": bk, "num_stages": stages}
            for bm, bn in ((64, 64), (64, 128), (128, 64)) for bk in (32, 64) for stages in (3, 4)]
    spilling = {**base, "BM": 256, "BN": 256, "BK": 32, "num_warps": 4, "num_stages": 3}
    bad = {"compiler hangs": (Reason.TIMEOUT, {}), "compiler dies": (Reason.CRASH, {}), "illegal access": (Reason.CRASH, {}),
           "hang": (Reason.TIMEOUT, {}), "wrong": (Reason.WRONG, {}), "dies": (Reason.CRASH, {})}
    between = [config for fault, fine in zip(bad, good, strict=False) for config in ({**base, "fault": fault}, fine)]
    too_big = {**base, "BM": 256, "BN": 256, "BK": 128, "num_stages": 5, "num_warps": 8}
    space = Space.listed([base, *between, spilling, too_big, *good[len(bad):]])
    runner = SandboxRunner("matmul", shape, "bf16", card.index, gpu_uuid=card.uuid, seed=3, limits=Limits(compile_s=10, run_s=3),
                           child_module="tests.gpu.faulty_child", compiler_module="tests.gpu.faulty_compiler")
    try:
        runner.open()
        trials = list(tune(space, "exhaustive", runner, Budget(), 0, first=[base]))
        use, found = runner.use(), measure_finalists(runner, trials, base)
    finally:
        runner.close()
    by_key = {config_key(t.config): t for t in trials}
    outcomes = {fault: by_key[config_key({**base, "fault": fault})].outcome for fault in bad}
    outcomes["spilling"] = by_key[config_key(spilling)].outcome
    gaps = replaced_after_s(trials)
    report.add("hostile space", trials=len(trials), rejected=reasons(trials), replaced_after_s=gaps, use=asdict(use),
               said={fault: f"{o.reason}: {o.message[:160]}" for fault, o in outcomes.items() if isinstance(o, Rejected)},
               finalists=[f.as_json() for f in found])
    kept.append({"operator": "matmul (hostile)", "shape": shape, "trials": [row(t) for t in trials]})
    assert len(trials) == len(space)
    assert by_key[config_key(too_big)].outcome.reason is Reason.RESOURCES
    expected = {**{fault: reason for fault, (reason, _) in bad.items()}, "spilling": Reason.SPILLS}
    assert {fault: getattr(o, "reason", "measured") for fault, o in outcomes.items()} == expected
    winner = best_trial(trials)
    assert winner is not None and winner.config["fault"] == "" and found[0].config["fault"] == ""
    assert len([t for t in trials if t.median_ms is not None]) >= len(good)
    assert min(gaps.values()) < 1.5, gaps        # to the next trial that is finished, not only to a child that stands there


def replaced_after_s(trials: list[Trial]) -> dict[str, float]:
    """From a fault that killed the measuring child to the next time that was taken."""
    gaps = {}
    for place, trial in enumerate(trials):
        fault = str(trial.config["fault"])
        following = next((t for t in trials[place + 1:] if t.median_ms is not None), None)
        if fault in ("illegal access", "hang", "dies") and following is not None:
            gaps[fault] = round(following.at_s - trial.at_s, 2)
    return gaps


def test_compiling_ahead_makes_more_trials_of_the_same_time(report, card, runner):
    """The same random search for as long, compiled ahead of the child and by the child itself."""
    shape, operator, made = {"M": 2048, "N": 2048, "K": 2048}, OPERATORS["matmul"], {}
    alone = SandboxRunner("matmul", shape, "bf16", card.index, gpu_uuid=card.uuid, seed=3, compilers=0)
    try:
        for label, one in (("ahead", runner), ("in the child", alone)):
            one.move("matmul", shape, "bf16")
            session, before = one.open(), one.use()
            space = operator.space(shape, "bf16", limits(session.gpu, session.compute_capability, session.environment["sms"]))
            trials = list(tune(space, "random", one, Budget(seconds=5), 7))
            made[label] = {"trials": len(trials), "rejected": reasons(trials), **spent(before, one.use())}
    finally:
        alone.close()
    report.add("compile ahead", **made, times_more=round(made["ahead"]["trials"] / made["in the child"]["trials"], 2))
    assert made["ahead"]["trials"] > 2 * made["in the child"]["trials"]
