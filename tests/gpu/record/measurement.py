"""How measuring behaves on a real GPU, without a server: python -m tests.gpu.record.measurement OUT.json [--seconds 4]

policies   one configuration under each policy: cold L2, warm, CUDA graph; and its spread over fresh sessions
racing     a whole space in random order, with racing and without: seconds of the GPU, and whether the winner is the same
rowwise    a cold tune of each shape of the row-wise operators, against torch in the same rounds
Written after every step: what was measured stays when time runs out.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.gpu.known import of_operator
from tuner.tuning.measure.statistics import Entry, standings
from tuner.tuning.operators import OPERATORS, limits
from tuner.tuning.search.finalists import best_trial, is_raced, measure_finalists
from tuner.tuning.search.loop import Budget, tune
from tuner.tuning.search.strategies import DEFAULT
from tuner.tuning.trial import Measured, Trial
from workers.core import gpu
from workers.tune.sandbox import SandboxRunner

ROWWISE = ("softmax", "layernorm", "rmsnorm", "add_rmsnorm", "silu_mul", "row_sum", "transpose")
POLICIES: list[tuple[str, dict[str, int], str]] = [
    ("matmul", {"M": 4096, "N": 4096, "K": 4096}, "bf16"), ("matmul", {"M": 16, "N": 4096, "K": 4096}, "bf16"),
    ("softmax", {"R": 8192, "C": 4096}, "fp16"), ("layernorm", {"R": 64, "C": 16384}, "fp16")]
RACED = [("softmax", {"R": 8192, "C": 4096}, "fp16", 250), ("layernorm", {"R": 65536, "C": 768}, "fp16", 200),
         ("matmul", {"M": 1024, "N": 1024, "K": 1024}, "bf16", 200)]


class Record:
    def __init__(self, path: Path, card: gpu.Gpu) -> None:
        self.path, self.began_s = path, time.monotonic()
        self.document: dict[str, Any] = {"date": datetime.now(UTC).isoformat(timespec="seconds"), "gpu": card.as_json(),
                                         "policies": [], "racing": [], "rowwise": []}

    def add(self, stage: str, row: dict[str, Any]) -> None:
        row["at_s"] = round(time.monotonic() - self.began_s, 1)
        self.document[stage].append(row)
        self.path.write_text(json.dumps(self.document, indent=1, default=str))
        print(stage, json.dumps(row, default=str)[:400], flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--seconds", type=float, default=4.0, help="of search per row-wise shape")
    parser.add_argument("--only", choices=("rowwise", "racing", "policies"), action="append")
    parser.add_argument("--operators", nargs="*", default=ROWWISE, choices=ROWWISE, help="of the row-wise ones")
    options = parser.parse_args()
    card = gpu.gpus()[0]
    record = Record(options.out, card)
    runner = SandboxRunner("softmax", {"R": 1, "C": 1}, "fp16", card.index, gpu_uuid=card.uuid, seed=5)
    stages = {"rowwise": lambda: rowwise(record, runner, card, options.seconds, options.operators),
              "racing": lambda: racing(record, runner, card), "policies": lambda: policies(record, runner, card)}
    try:
        for name in options.only or stages:
            stages[name]()
    finally:
        runner.close()


def policies(record: Record, runner: SandboxRunner, card: gpu.Gpu) -> None:
    for kind in ("cold", "warm", "graph"):
        runner.policy = {"kind": kind}
        for name, shape, dtype in POLICIES:
            runner.move(name, shape, dtype)
            session = runner.open()
            config = OPERATORS[name].default_config(shape, dtype, limits(card.name, card.cc, session.environment["sms"]))
            [(_, first)], [(_, again)] = list(runner.measure([config])), list(runner.measure([config]))
            record.add("policies", {"kind": kind, "operator": name, "shape": shape, "library_ms": session.library_ms,
                                    "policy": session.policy, "first": _told(first), "again": _told(again)})
    runner.policy = {}


def racing(record: Record, runner: SandboxRunner, card: gpu.Gpu) -> None:
    """The same configurations in the same order, measured whole, and raced. The second finds its binaries compiled."""
    for name, shape, dtype, most in RACED:
        operator = OPERATORS[name]
        runs = {}
        for risk in (0.0, 0.01):
            runner.policy = {"risk": risk}
            runner.move(name, shape, dtype)
            session = runner.open()
            device = limits(card.name, card.cc, session.environment["sms"])
            configs = list(operator.space(shape, dtype, device).configs())
            random.Random(3).shuffle(configs)
            trials = list(tune(operator.space(shape, dtype, device), "random", runner, Budget(trials=most), 4,
                               first=configs[:most]))
            again = measure_finalists(runner, trials)
            runs[risk] = (trials, again)
        runner.policy = {}
        whole, fast = runs[0.0], runs[0.01]
        winner = best_trial(whole[0])
        record.add("racing", {
            "operator": name, "shape": shape, "configurations": len(whole[0]), "whole": _spent(whole[0]), "raced": _spent(fast[0]),
            "saved_share": 1 - _spent(fast[0])["sampling_s"] / _spent(whole[0])["sampling_s"],
            "saved_as_told_s": sum(t.outcome.facts.get("racing", {}).get("saved_s", 0.0) for t in fast[0]),
            "winner_raced_away": winner is not None and any(is_raced(t) and t.config == winner.config for t in fast[0]),
            "whole_best_ms": winner.median_ms if winner else None, "raced_best_ms": getattr(best_trial(fast[0]), "median_ms", None),
            "finalists_whole": [one.as_json() for one in whole[1]], "finalists_raced": [one.as_json() for one in fast[1]]})


def _spent(trials: list[Trial]) -> dict[str, Any]:
    measured = [t.outcome for t in trials if isinstance(t.outcome, Measured)]
    return {"gpu_s": sum(one.facts["gpu_s"] for one in measured), "check_s": sum(one.facts["check_s"] for one in measured),
            "sampling_s": sum(sum(one.facts["samples_ms"]) for one in measured) / 1000,
            "samples": sum(one.n for one in measured), "measured": len(measured),
            "ended": dict(Counter(str(one.facts["ended"]) for one in measured)),
            "throttled": sum("throttled" in one.facts for one in measured)}


def rowwise(record: Record, runner: SandboxRunner, card: gpu.Gpu, seconds: float, names: Sequence[str]) -> None:
    for name in names:
        operator = OPERATORS[name]
        dtype = operator.dtypes[0]
        for shape in operator.presets:
            runner.move(name, shape, dtype)
            session = runner.open()
            device = limits(card.name, card.cc, session.environment["sms"])
            space, default = operator.space(shape, dtype, device), operator.default_config(shape, dtype, device)
            known = of_operator(operator, shape, dtype, device, default=default)
            trials = list(tune(space, DEFAULT, runner, Budget(seconds=seconds, plateau=100), 6,
                               first=[default, *operator.published_starts(space, shape, dtype, device)], known=known))
            found = measure_finalists(runner, trials, default)
            record.add("rowwise", {"operator": name, "shape": shape, "dtype": dtype, **_ratio(found, session.bytes, default),
                                   "space": len(space), "trials": len(trials), "spent": _spent(trials),
                                   "rejected": dict(Counter(str(t.outcome.reason) for t in trials
                                                            if not isinstance(t.outcome, Measured))),
                                   "finalists": [one.as_json() for one in found]})


def _ratio(found: list[Any], moved: int | None, default: Any) -> dict[str, Any]:
    if not found or found[0].median_ms is None:
        return {"ratio": None}
    winner = found[0]
    facts = winner.outcome.facts
    library = standings([Entry(winner.median_ms, facts["round_ms"]), Entry(facts["library_ms"], facts["library_round_ms"])])
    own = next((one.median_ms for one in found if one.config == default), None)
    return {"ratio": winner.library, "best_ms": winner.median_ms, "library_ms": facts["library_ms"], "config": dict(winner.config),
            "against_library": library[1].why, "over_default": own / winner.median_ms if own else None,
            "gb_per_s": (moved or 0) / winner.median_ms / 1e6}


def _told(outcome: Any) -> Any:
    if not isinstance(outcome, Measured):
        return {"reason": outcome.reason, "message": outcome.message}
    return {"median_ms": outcome.median_ms, "n": outcome.n,
            **{name: outcome.facts.get(name) for name in ("spread", "ended", "clocks", "gpu_s", "check_s", "registers", "spills")}}


if __name__ == "__main__":
    main()
