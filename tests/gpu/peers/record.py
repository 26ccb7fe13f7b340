"""Time the winners of record_ratios.py beside the library and every peer, in turn, in one process.

    python -m tests.gpu.peers.record RATIOS.json --out PEERS.json [--seconds S]

Each is a CUDA graph of one call, L2 cold. A peer whose result is not the reference's is not timed. `best_peer` is the fastest of
library and peers; `served` is what a team is told to launch: our kernel where it is at least as fast as the library, else that.
Operators come in turn, so that a run that ends after S seconds has some shapes of each.
"""

from __future__ import annotations

import argparse
import importlib
import json
import time
from collections import defaultdict
from itertools import zip_longest
from pathlib import Path
from typing import Any

import torch

from tests.gpu.peers.table import PEERS, Launch
from tuner.measure import accuracy, timers, timing
from tuner.measure.policy import Policy
from tuner.operators import OPERATORS

POLICY = {"max_samples": 40}


def winner_of(row: dict[str, Any]) -> dict[str, Any] | None:
    """Return the configuration that won its finals, or the search."""
    finals = [each for each in row.get("finalists", []) if each.get("median_ms")]
    return finals[0]["config"] if finals else row.get("best")


def captured(call: Launch) -> Launch:
    """Return the replay of a CUDA graph of one call: what Python does before a launch is the same nothing for all."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            call()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    replay: Launch = graph.replay
    return replay


def time_shape(row: dict[str, Any], device: torch.device) -> dict[str, Any]:
    """Return times in ms by name, relative errors of the peers, and what could not be had."""
    operator, config = OPERATORS[row["operator"]], winner_of(row)
    problem = importlib.import_module(operator.kernel_module).PROBLEMS[operator.name](row["shape"], row["dtype"], device, 7)
    policy = Policy.read(POLICY)
    sampler = timing.Sampler(timers.make_timer(device, policy, 0), policy)
    tolerance = operator.tolerance.get(row["dtype"]) or accuracy.TOLERANCE[row["dtype"]]
    reference, lacking = problem.reference(), dict[str, str]()
    launches: dict[str, Launch] = {"library": problem.library}
    errors: dict[str, float] = {}
    if config is not None:
        problem.out.fill_(float("nan"))
        problem.launch(config)
        errors["ours"] = accuracy.compare_output(problem.out, reference, tolerance).relative_error
        launches["ours"] = lambda: problem.launch(config)
    torch._dynamo.reset()
    for peers in PEERS.get(operator.name, ()):
        for name, make in peers(problem):
            try:
                call = make()
                verdict = accuracy.compare_output(call().reshape(reference.shape), reference, tolerance)
            except Exception as error:              # a back end that does not take this shape
                lacking[name] = f"{type(error).__name__}: {error}"[:200]
                continue
            if verdict.right:
                launches[name], errors[name] = call, verdict.relative_error
            else:
                lacking[name] = f"wrong: {verdict.message}"
    for name in list(launches):
        try:
            launches[name] = captured(launches[name])
        except Exception as error:
            lacking[name] = f"no CUDA graph: {type(error).__name__}: {error}"[:200]
            del launches[name]
    taken = sampler.measure_in_turn(list(launches.values()))
    times_ms = {name: times.median_ms for name, times in zip(launches, taken, strict=True)}
    others = {name: ms for name, ms in times_ms.items() if name != "ours"}
    best_peer = min(others, key=lambda name: others[name])
    ours_ms = times_ms.get("ours")
    serves_ours = ours_ms is not None and ours_ms <= times_ms["library"]
    served_ms = ours_ms if serves_ours and ours_ms is not None else times_ms["library"]
    return {"operator": operator.name, "dtype": row["dtype"], "shape": row["shape"], "config": config, "times_ms": times_ms,
            "relative_errors": errors, "lacking": lacking, "best_peer": best_peer, "served": "ours" if serves_ours else "library",
            "ours_ratio": others[best_peer] / ours_ms if ours_ms else None, "served_ratio": others[best_peer] / served_ms}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("ratios", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=540)
    given = parser.parse_args()
    by_operator: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in json.loads(given.ratios.read_text())["shapes"]:
        by_operator[row["operator"]].append(row)
    rows = [row for turn in zip_longest(*by_operator.values()) for row in turn if row]
    began_s, found = time.monotonic(), []
    for row in rows:
        if time.monotonic() - began_s > given.seconds:
            break
        try:
            found.append(time_shape(row, torch.device("cuda")))
        except Exception as error:                  # the next shape may work
            found.append({"operator": row["operator"], "dtype": row["dtype"], "shape": row["shape"],
                          "error": f"{type(error).__name__}: {error}"[:400]})
        each = found[-1]
        said = [each.get(name) for name in ("times_ms", "best_peer", "served_ratio", "lacking", "error")]
        print(each["operator"], each["shape"], *said, round(time.monotonic() - began_s), flush=True)
        given.out.write_text(json.dumps({"gpu": torch.cuda.get_device_name(), "torch": torch.__version__, "policy": POLICY,
                                         "date": time.strftime("%Y-%m-%d"), "asked": len(rows), "shapes": found}, indent=1))


if __name__ == "__main__":
    main()
