"""Time the winners of record/ratios.py beside the library and every peer, in turn, in one process.

    python -m tests.gpu.peers.record RATIOS.json[.gz] --out PEERS.json [--seconds S] [--only OPERATOR …] [--most N]
                                     [--row I …] [--peers WORD …] [--helion S]

--only    these operators; one without a winner in RATIOS is timed at its presets, without a kernel of ours
--most    shapes of each operator
--row     of those chosen these, counted from 0: for a shape that takes the device from its process
--peers   only peers whose name has one of these words: `--peers Helion`
--helion  seconds of search that Helion has at each shape (12), effort "quick"; recorded beside its number

Each is a CUDA graph of one call, L2 cold. A peer whose result is not the reference's is not timed. `best_peer` is the fastest of
library and peers; `served` is what a team is told to launch: our kernel where it is at least as fast as the library, else that.
Operators come in turn, so that a run that ends after S seconds has some shapes of each.
"""

from __future__ import annotations

import argparse
import importlib
import json
import lzma
import time
from collections import defaultdict
from collections.abc import Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any

import torch

from tests.gpu.peers.graphs import captured
from tests.gpu.peers.table import BUDGET, PEERS, Launch, Searched
from tuner.tuning.measure import accuracy, timers, timing
from tuner.tuning.measure.policy import Policy
from tuner.tuning.operators import OPERATORS

POLICY = {"max_samples": 40}


def winner_of(row: dict[str, Any]) -> dict[str, Any] | None:
    """Return the configuration that won its finals, or the search."""
    finals = [each for each in row.get("finalists", []) if each.get("median_ms")]
    return finals[0]["config"] if finals else row.get("best")


def time_shape(row: dict[str, Any], device: torch.device, wanted: Sequence[str] = ()) -> dict[str, Any]:
    """Return times in ms by name, relative errors of the peers, and what could not be had. `wanted`: words of peers' names."""
    operator, config = OPERATORS[row["operator"]], winner_of(row)
    problem = importlib.import_module(operator.kernel_module).PROBLEMS[operator.name](row["shape"], row["dtype"], device, 7)
    policy = Policy.read(POLICY)
    sampler = timing.Sampler(timers.make_timer(device, policy, 0), policy)
    tolerance = operator.tolerance.get(row["dtype"]) or accuracy.TOLERANCE[row["dtype"]]
    reference, lacking, about = problem.reference(), dict[str, str](), dict[str, Any]()
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
            if wanted and not any(word in name for word in wanted):
                continue
            try:
                call = make()
                result = call()
                expected = reference if result.numel() == reference.numel() else reference[0]       # of top-k the values alone
                verdict = accuracy.compare_output(result.reshape(expected.shape), expected, tolerance)
            except Exception as error:              # a back end that does not take this shape
                lacking[name] = f"{type(error).__name__}: {error}"[:200]
                continue
            if verdict.right:
                launches[name], errors[name] = call, verdict.relative_error
                about |= {name: call.about} if isinstance(call, Searched) else {}
            else:
                lacking[name] = f"wrong: {verdict.message}"
    for name in list(launches):
        try:
            launches[name] = captured(launches[name])[0]       # what Python does before a launch is the same nothing for all
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
            "relative_errors": errors, "lacking": lacking, "about": about, "best_peer": best_peer,
            "served": "ours" if serves_ours else "library",
            "ours_ratio": others[best_peer] / ours_ms if ours_ms else None, "served_ratio": others[best_peer] / served_ms}


def rows_of(ratios: Path, only: Sequence[str], most: int) -> list[dict[str, Any]]:
    """Return the recorded shapes with their winners, those of all operators in turn."""
    by_operator: dict[str, list[dict[str, Any]]] = defaultdict(list)
    text = lzma.decompress(ratios.read_bytes()) if ratios.suffix == ".xz" else ratios.read_bytes()
    for row in json.loads(text)["shapes"]:
        if not only or row["operator"] in only:
            by_operator[row["operator"]].append(row)
    for name in only:
        by_operator[name] = by_operator[name] or [{"operator": name, "dtype": OPERATORS[name].dtypes[0], "shape": dict(shape)}
                                                  for shape in OPERATORS[name].presets]
    return [row for turn in zip_longest(*(rows[:most] for rows in by_operator.values())) for row in turn if row]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("ratios", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=540)
    parser.add_argument("--only", nargs="*", default=[], metavar="OPERATOR", choices=list(PEERS))
    parser.add_argument("--most", type=int, default=1000, help="shapes of each operator")
    parser.add_argument("--row", nargs="*", type=int, default=[], metavar="I")
    parser.add_argument("--peers", nargs="*", default=[], metavar="WORD")
    parser.add_argument("--helion", type=int, default=BUDGET.seconds, metavar="S")
    given = parser.parse_args()
    BUDGET.seconds = given.helion
    rows = rows_of(given.ratios, given.only, given.most)
    rows = [rows[number] for number in given.row] if given.row else rows
    began_s, found, lost = time.monotonic(), [], False
    for row in rows:
        if time.monotonic() - began_s > given.seconds:
            break
        try:
            found.append(time_shape(row, torch.device("cuda"), given.peers))
        except Exception as error:                  # the next shape may work, unless the device is lost to this process
            found.append({"operator": row["operator"], "dtype": row["dtype"], "shape": row["shape"],
                          "error": f"{type(error).__name__}: {error}"[:400]})
            lost = isinstance(error, getattr(torch, "AcceleratorError", ()))
        each = found[-1]
        said = [each.get(name) for name in ("times_ms", "best_peer", "served_ratio", "lacking", "error")]
        print(each["operator"], each["shape"], *said, round(time.monotonic() - began_s), flush=True)
        given.out.write_text(json.dumps({"gpu": torch.cuda.get_device_name(), "torch": torch.__version__, "policy": POLICY,
                                         "date": time.strftime("%Y-%m-%d"), "asked": len(rows), "shapes": found}, indent=1,
                                        default=str))
        if lost:
            print("the device is lost to this process: leave this shape out, and start again with the rest", flush=True)
            break


if __name__ == "__main__":
    main()
