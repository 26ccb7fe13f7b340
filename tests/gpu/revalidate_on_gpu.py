"""Cached winners measured again on a real GPU, without Django: default, winner and a near tie in turn, a fresh process each.

    python tests/gpu/revalidate_on_gpu.py OUT.json [--seconds 110]

Four winners: three that landscapes of an H200 found, and one that is worse than its default, as a cache after an upgrade may hold.
Says what serves from then on, and what processes, kernels and compiling cost.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import numpy as np

from tuner.gate.stats.runs import KernelRuns, Run
from tuner.gate.stats.winner import Contender, Problem, choose, runs_needed
from tuner.tuning.measure.fresh import KernelRequest, KernelSamples
from tuner.tuning.operators import OPERATORS, limits
from workers.core import gpu
from workers.fresh.processes import FreshRuns, Side

DEFAULT, SERVED, RIVAL = "operator's default", "cached winner", "near tie 1"
LARGE, SMALL = {"R": 8192, "C": 4096}, {"R": 1024, "C": 1024}
MATMUL = {"KERNEL": "tiles", "SPLIT_K": 1, "STORE": "direct"}
SOFTMAX = {"ROWS": 1, "BLOCK": 0}
WINNERS = [      # operator, shape, dtype, what is served, what came next
    ("matmul", {"M": 4096, "N": 4096, "K": 4096}, "bf16",
     {"BM": 128, "BN": 256, "BK": 64, "GM": 8, "num_warps": 8, "num_stages": 3, **MATMUL},
     {"BM": 128, "BN": 256, "BK": 64, "GM": 8, "num_warps": 8, "num_stages": 4, **MATMUL}),
    ("matmul", {"M": 16, "N": 4096, "K": 4096}, "bf16",
     {"BM": 16, "BN": 64, "BK": 128, "GM": 8, "num_warps": 4, "num_stages": 4, **MATMUL},
     {"BM": 16, "BN": 32, "BK": 128, "GM": 8, "num_warps": 4, "num_stages": 4, **MATMUL}),
    ("softmax", LARGE, "fp16", {"STEPS": 3, "PER_SM": 32, "num_warps": 8, **SOFTMAX},
     {"STEPS": 3, "PER_SM": 16, "num_warps": 8, **SOFTMAX}),
    ("softmax", SMALL, "fp16", {"STEPS": 2, "PER_SM": 2, "num_warps": 4, **SOFTMAX}, None),
]
EXPECTED = {"softmax R=1024 C=1024 fp16": ""}               # worse than its default on every card so far


def key_of(operator: str, shape: Mapping[str, int], dtype: str) -> str:
    return " ".join([operator, *(f"{name}={size}" for name, size in shape.items()), dtype])


def sides(card: str) -> dict[str, dict[str, KernelRequest]]:
    """Side → kernel → what is launched."""
    found: dict[str, dict[str, KernelRequest]] = {DEFAULT: {}, SERVED: {}, RIVAL: {}}
    for operator, shape, dtype, served, rival in WINNERS:
        key = key_of(operator, shape, dtype)
        default = OPERATORS[operator].complete(OPERATORS[operator].default_config(shape, dtype, limits(card)))
        for name, config in ((DEFAULT, default), (SERVED, served), (RIVAL, rival)):
            if config is not None:
                found[name][key] = KernelRequest(key, operator, shape, dtype, dict(config))
    return found


def measured(fresh: FreshRuns, wanted: Mapping[str, Mapping[str, KernelRequest]], runs: int, folder: Path,
             deadline_s: float) -> tuple[dict[tuple[str, str], list[KernelSamples]], dict[str, float]]:
    """Runs by side and kernel, sides in turn A B C, C B A …; and what it cost, in seconds."""
    places = {name: Side(name, None, folder / "compiled") for name in wanted}
    (folder / "compiled").mkdir()
    began_s = time.monotonic()
    for name, kernels in wanted.items():
        for key, why in fresh.prepare(places[name], list(kernels.values())).items():
            print(f"{name}, {key}: {why}", flush=True)
    compiled_s = time.monotonic() - began_s
    taken: dict[tuple[str, str], list[KernelSamples]] = {}
    order = [name for number in range(runs) for name in (list(wanted) if number % 2 == 0 else list(wanted)[::-1])]
    began_s, processes = time.monotonic(), 0
    for at, name in enumerate(order):
        if time.monotonic() > deadline_s and processes % len(wanted) == 0:
            print(f"out of time after {processes} processes", flush=True)
            break
        then = places[order[at + 1]] if at + 1 < len(order) else None
        for one in fresh.run(places[name], list(wanted[name].values()), seed=at, then=then):
            taken.setdefault((name, one.key), []).append(one)
        processes += 1
    ran_s = time.monotonic() - began_s
    configs = sum(map(len, wanted.values()))
    print(f"{configs} configurations compiled in {compiled_s:.1f} s, {processes} processes in {ran_s:.1f} s", flush=True)
    return taken, {"configs": configs, "compile_s": compiled_s, "processes": processes, "runs_s": ran_s}


def problem(key: str, wanted: Mapping[str, Mapping[str, KernelRequest]],
            taken: Mapping[tuple[str, str], list[KernelSamples]]) -> Problem:
    def runs(name: str) -> KernelRuns:
        one = wanted[name][key]
        return KernelRuns(one.operator, one.shape, one.config, key, tuple(
            Run(f"{name} {at}", np.asarray(each.us), each.sm_clock_mhz, str(each.session.get("gpu")))
            for at, each in enumerate(taken.get((name, key), [])) if not each.rejected))

    def refused(name: str) -> list[str]:
        return [each.rejected for each in taken.get((name, key), []) if each.rejected]

    names = [name for name in (SERVED, RIVAL) if key in wanted[name]]
    return Problem(key, runs(DEFAULT), [Contender(name, runs(name), refused(name)) for name in names], served=SERVED,
                   default_refused=refused(DEFAULT))


def main() -> int:
    asked = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    asked.add_argument("out", type=Path)
    asked.add_argument("--seconds", type=float, default=110.0)
    options = asked.parse_args()
    began_s = time.monotonic()
    card = gpu.gpus()[0]
    wanted = sides(card.name)
    keys = list(wanted[DEFAULT])
    comparisons = sum(key in wanted[name] for key in keys for name in (SERVED, RIVAL))
    runs = runs_needed(comparisons)
    fresh = FreshRuns(card.index, gpu_uuid=card.uuid)
    try:
        with tempfile.TemporaryDirectory() as folder:
            taken, cost = measured(fresh, wanted, runs, Path(folder), began_s + options.seconds)
    finally:
        fresh.close()
    choices = choose([problem(key, wanted, taken) for key in keys])
    rows: list[dict[str, Any]] = [
        {"side": name, "kernel": key, "number": number, "us": list(one.us), "rejected": one.rejected,
         "config": dict(one.config or {}), "sm_clock_mhz": one.sm_clock_mhz, "gpu": one.session.get("gpu"),
         "triton": one.session.get("triton"), "cuda": one.session.get("cuda")}
        for (name, key), mine in taken.items() for number, one in enumerate(mine)]
    found = [{"kernel": choice.key, "serves": choice.serves, "open": choice.open, "says": choice.says,
              "against_default": {name: asdict(verdict.p50) for name, verdict in choice.against_default.items() if verdict.p50}}
             for choice in choices]
    options.out.write_text(json.dumps({"gpu": card.as_json(), "cost": cost, "runs_each": runs, "choices": found, "runs": rows}))
    for choice in choices:
        print(f"{choice.key}: {choice.says}", flush=True)
    wrong = [key for key, serves in EXPECTED.items() if next(each.serves for each in choices if each.key == key) != serves]
    print(f"{time.monotonic() - began_s:.0f} s; {f'not as expected: {wrong}' if wrong else 'all is well'}", flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
