"""Measure on this GPU what shape buckets cost: the winner of each shape of a bucket, run at every other shape of it.

    python tests/gpu/record/buckets.py FOLDER [--seconds S]

Each shape is searched cold for S seconds by the default strategy; then every shape's few fastest configurations are measured
in full at every shape. Writes buckets.json after each step; `tuner.cache.portability` says what each bucket policy costs.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from tests.gpu.known import of_operator
from tuner.cache.buckets import STEPS, Buckets
from tuner.cache.portability import MeasuredSpace, cells_by_distance, shape_steps, shared_bucket_cell
from tuner.tuning.operators import find, limits
from tuner.tuning.search.finalists import is_raced
from tuner.tuning.search.loop import Budget, tune
from tuner.tuning.search.strategies import DEFAULT
from tuner.tuning.trial import Config, Measured, config_key
from workers.core import gpu
from workers.tune.sandbox import SandboxRunner

NK = {"N": 4096, "K": 4096}
# Multiples of 16, as models have them, from one edge of a bucket to the other; two buckets of matmul, one of softmax.
SHAPES: list[tuple[str, str, dict[str, int]]] = [
    *(("matmul", "bf16", {"M": m, **NK}) for m in (2912, 3408, 4096, 4816, 5776)),
    *(("matmul", "bf16", {"M": m, **NK}) for m in (48, 64, 80)),
    *(("softmax", "fp16", {"R": 8192, "C": c}) for c in (2912, 4096, 5776))]
TAKEN = 3                    # fastest configurations of each shape that are run at every other


class Recorder:
    def __init__(self, folder: Path, seconds: float) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.path, self.seconds, self.began_s = folder / "buckets.json", seconds, time.monotonic()
        card = gpu.gpus()[0]
        self.runner = SandboxRunner("matmul", SHAPES[0][2], "bf16", card.index, gpu_uuid=card.uuid, seed=3)
        self.document: dict[str, Any] = {"arguments": sys.argv[1:]}
        self.times: list[dict[str, float | None]] = [{} for _ in SHAPES]

    def search(self, index: int) -> list[Config]:
        """The fastest configurations of a cold search of one shape."""
        name, dtype, shape = SHAPES[index]
        operator = find(name)
        assert operator is not None
        self.runner.move(name, shape, dtype)
        session = self.runner.open()
        self.document |= {"gpu": session.gpu, "environment": session.environment, "policy": session.policy}
        device = limits(session.gpu, session.compute_capability, session.environment.get("sms"))
        default = operator.default_config(shape, dtype, device)
        known = of_operator(operator, shape, dtype, device, default=default)
        trials = list(tune(operator.space(shape, dtype, device), DEFAULT, self.runner, Budget(seconds=self.seconds), 3,
                           first=[default], known=known))
        timed = sorted((trial.median_ms, trial.number, trial) for trial in trials if trial.median_ms and not is_raced(trial))
        return [trial.config for _, _, trial in timed[:TAKEN]] + [default]

    def cross(self, index: int, configs: list[Config]) -> None:
        """Every configuration at one shape, in full: no racing."""
        name, dtype, shape = SHAPES[index]
        self.runner.move(name, shape, dtype)
        self.runner.open()
        for config, outcome in self.runner.measure(configs):
            self.times[index][config_key(config)] = outcome.median_ms if isinstance(outcome, Measured) else None
        self.write()

    def write(self) -> None:
        self.document["shapes"] = [{"operator": name, "dtype": dtype, "shape": shape, "times_ms": self.times[index]}
                                   for index, (name, dtype, shape) in enumerate(SHAPES)]
        self.document["costs"] = costs(self.document)
        self.document["seconds"] = round(time.monotonic() - self.began_s, 1)
        self.path.write_text(json.dumps(self.document, indent=1, default=str))


def costs(document: dict[str, Any]) -> list[dict[str, Any]]:
    """What each bucket policy costs, and what each step to another bucket does, by operator."""
    found = []
    for name in dict.fromkeys(row["operator"] for row in document["shapes"]):
        pairs = shape_steps([MeasuredSpace(name, row["dtype"], row["shape"], document.get("gpu", ""), "", row["times_ms"])
                       for row in document["shapes"] if row["operator"] == name and row["times_ms"]])
        for step, word in STEPS.items():
            cell = shared_bucket_cell(pairs, Buckets(steps_per_doubling=step))
            found.append({"operator": name, "nearest": word, "pairs": len(cell.known), "mean": cell.efficiency,
                          "worst": cell.worst})
        found += [{"operator": name, "powers_of_two_away": limit, "pairs": len(cell.known), "mean": cell.efficiency,
                   "worst": cell.worst} for limit, cell in cells_by_distance(pairs)]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seconds", type=float, default=4.0, help="of search at each shape")
    given = parser.parse_args()
    recorder = Recorder(given.folder, given.seconds)
    try:
        winners = [recorder.search(index) for index in range(len(SHAPES))]
        for index, (name, _, _) in enumerate(SHAPES):
            same = [config for other, (operator, _, _) in enumerate(SHAPES) if operator == name for config in winners[other]]
            recorder.cross(index, list({config_key(config): config for config in same}.values()))
            print(SHAPES[index], f"{len(recorder.times[index])} measured", flush=True)
    finally:
        recorder.runner.close()
    for row in recorder.document["costs"]:
        if row["pairs"]:
            print(row, flush=True)


if __name__ == "__main__":
    main()
