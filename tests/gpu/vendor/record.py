"""List, search and compare vendors' own kernels on this GPU: python -m tests.gpu.vendor.record OUT.json [--seconds 150]

For each product of CASES: cublasLt's algorithms are listed, the heuristics' choices are timed in turn with torch.matmul, then the
space is searched by local search through the loop and the sandbox, and the finalists are measured again in turn with the
heuristics' first choice and torch.matmul. CUTLASS_CASE is searched as well where a CUTLASS profiler is installed. Needs the tree,
torch, Triton, numpy, scipy and scikit-learn alone. OUT.json is written after every stage; after --seconds no further stage begins.
"""

from __future__ import annotations

import argparse
import json
import time
import traceback
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from profiles.capture.tools.cutlass import installed_cutlass
from tests.gpu.known import of_operator
from tuner.tuning.kernels.vendor.cublaslt import PREFERRED, WORKSPACE_BYTES, CublasLtMatmul
from tuner.tuning.kernels.vendor.lt_space import Limits, list_algorithms
from tuner.tuning.measure import accuracy, timers, timing
from tuner.tuning.measure.policy import Policy
from tuner.tuning.operators import find, limits
from tuner.tuning.search.finalists import measure_finalists
from tuner.tuning.search.loop import Budget, tune
from tuner.tuning.trial import Config, Measured, Trial, config_key
from tuner.tuning.vendor.lt_names import config_of
from workers.core import gpu
from workers.tune.gpu_child import Limits as Seconds
from workers.tune.sandbox import SandboxRunner

CASES: tuple[tuple[str, tuple[int, int, int]], ...] = (
    ("bf16", (1000, 4104, 1000)), ("bf16", (4096, 4096, 4096)), ("bf16", (16, 4096, 4096)), ("bf16", (3000, 5120, 1536)),
    ("fp8", (4096, 4096, 4096)))
CUTLASS_CASE = ("fp16", {"M": 4096, "N": 4096, "K": 4096, "BT": 1})       # what tests/gpu/README.md builds kernels for
QUICK = {"max_ms": 100.0, "max_samples": 20}
LIMITS = Seconds(run_s=8, compile_s=45)
BESIDE = 6                     # of the heuristics' choices, timed in turn before the search
STARTS = 12
STRATEGY = "local"             # a trial takes some 10 ms here: the default strategy would think a hundred times as long
OPENING_S = 14.0               # of a case, beside its search: a listing, inputs, finalists
LEAST_SEARCH_S = 3.0
CUTLASS_SHARE = 0 if "missing" in installed_cutlass() else 1


class Record:
    """The document, written after every stage."""

    def __init__(self, path: Path, seconds: float) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path, self.seconds, self.began_s = path, seconds, time.monotonic()
        self.document: dict[str, Any] = {
            "date": datetime.now(UTC).isoformat(timespec="seconds"), "gpu": torch.cuda.get_device_name(),
            "torch": torch.__version__, "cuda": torch.version.cuda, "cases": []}

    @property
    def left_s(self) -> float:
        return self.seconds - (time.monotonic() - self.began_s)

    def say(self, text: str) -> None:
        self.document["seconds"] = round(time.monotonic() - self.began_s, 1)
        self.path.write_text(json.dumps(self.document, default=str))
        print(f"{self.document['seconds']:6.1f} s  {text}", flush=True)


def look(problem: CublasLtMatmul, row: dict[str, Any]) -> None:
    """List the algorithms; the row gets all that the library accepts, what each can be given, and the heuristics' choices."""
    product, name = problem.product, problem.library_used.name
    preferred = product.preferred(PREFERRED, WORKSPACE_BYTES)
    listing = list_algorithms(product, torch.cuda.get_device_capability(), Limits(workspace_bytes=WORKSPACE_BYTES),
                              {numbers[0] for numbers, _ in preferred})
    able = {number: product.capabilities(number) for number in product.ids()}
    row |= {"library": name, "path": problem.library_used.path, "listed": len(listing.found), "pruned": listing.pruned,
            "by_algorithm": listing.by_algorithm, "whole": listing.whole, "checks": listing.checks,
            "listing_s": round(listing.seconds, 2), "preferred": [numbers for numbers, _ in preferred],
            "preferred_not_listed": sum(numbers not in listing.found for numbers, _ in preferred),
            "capabilities": {number: asdict(can) if can else None for number, can in able.items()},
            "accepted": [[*numbers, check.workspace_bytes, round(check.waves, 4)] for numbers, check in listing.found.items()]}


def compare_preferred(problem: CublasLtMatmul, dtype: str, row: dict[str, Any]) -> None:
    """Time the heuristics' first choices, their first as they wrote it, and torch.matmul, in turn; each is checked first."""
    operator, name = find("cublaslt_matmul"), problem.library_used.name
    assert operator is not None
    preferred = problem.product.preferred(BESIDE, WORKSPACE_BYTES)
    chosen: list[Config] = [{}, *(config_of(numbers, name) for numbers, _ in preferred)]
    fine: list[dict[str, Any]] = []
    wrong: list[dict[str, Any]] = []
    for config in chosen:
        try:
            _, verdict = accuracy.check_config(problem, config, 11, operator.tolerance[dtype])
        except (ValueError, RuntimeError) as error:
            wrong.append({"config": dict(config), "error": str(error)[:300]})
            continue
        (fine if verdict.right else wrong).append({"config": dict(config), "error": verdict.message})
    policy = Policy.read(QUICK)
    sampler = timing.Sampler(timers.make_timer(problem.device, policy, 0), policy)
    launches = [lambda config=each["config"]: problem.launch(config) for each in fine]
    taken = sampler.measure_in_turn([problem.library, *launches])
    row["torch_ms"] = taken[0].median_ms
    row["heuristics"] = [{**each, "ms": times.median_ms} for each, times in zip(fine, taken[1:], strict=True)]
    row["heuristics_wrong"] = wrong


def search(runner: SandboxRunner, name: str, dtype: str, shape: Mapping[str, int], seconds: float, row: dict[str, Any]) -> None:
    """Search one product; the row gets trials, finalists and the ratios."""
    operator = find(name)
    assert operator is not None
    began_s = time.monotonic()
    runner.move(name, shape, dtype)
    session = runner.open()
    offer = session.offer
    assert offer is not None, "the child listed nothing"
    row |= {"environment": session.environment, "policy": session.policy, "library_ms": session.library_ms,
            "open_s": round(time.monotonic() - began_s, 2)}
    row |= {"library": offer.library, "listed": len(offer.space), "pruned": offer.space.pruned}
    default = offer.default_config or offer.space.config(0)
    device = limits(session.gpu, session.compute_capability, session.environment.get("sms"))
    known = of_operator(operator, shape, dtype, device, default=default)
    first = [default, *(offer.space.config(each) for each in offer.starts[:STARTS])]
    trials = list(tune(offer.space, STRATEGY, runner, Budget(seconds=seconds), 5, first=first, known=known))
    finals = measure_finalists(runner, trials, default)
    rejected = Counter(str(trial.outcome.reason) for trial in trials if not isinstance(trial.outcome, Measured))
    row |= {"tried": len(trials), "rejected": dict(rejected), "finalists": [one.as_json() for one in finals],
            "trials": [_trial(trial) for trial in trials], "search_s": round(time.monotonic() - began_s, 2)}
    best = next((one for one in finals if isinstance(one.outcome, Measured)), None)
    chosen = next((one for one in finals if config_key(one.config) == config_key(default)), None)
    if best is not None and best.median_ms is not None:
        row |= {"best": dict(best.config), "best_ms": best.median_ms, "torch_over_best": best.library,
                "default_over_best": chosen.median_ms / best.median_ms if chosen and chosen.median_ms else None}


def _trial(trial: Trial) -> dict[str, Any]:
    row: dict[str, Any] = {"config": dict(trial.config), "at_s": round(trial.at_s, 2)}
    if isinstance(trial.outcome, Measured):
        return {**row, "ms": trial.outcome.median_ms, "n": trial.outcome.n}
    return {**row, "rejected": str(trial.outcome.reason), "message": trial.outcome.message[:300]}


def run_case(record: Record, runner: SandboxRunner, dtype: str, sizes: Sequence[int], seconds: float) -> None:
    """Do all stages of one product; one that fails hides none of the others."""
    shape = dict(zip(("M", "N", "K"), sizes, strict=True))
    row: dict[str, Any] = {"operator": "cublaslt_matmul", "dtype": dtype, "shape": shape}
    record.document["cases"].append(row)
    what = f"{dtype} {'×'.join(map(str, sizes))}"
    try:
        problem = CublasLtMatmul(shape, dtype, torch.device("cuda"), 5)
        look(problem, row)
        record.say(f"{what}: {row['library']}, {row['listed']:,} listed {dict(row['by_algorithm'])} in {row['listing_s']} s "
                   f"({row['checks']:,} checks), whole {row['whole']}, {dict(row['pruned'])}, of the heuristics' "
                   f"{len(row['preferred'])} choices {row['preferred_not_listed']} are not among them")
        compare_preferred(problem, dtype, row)
        record.say(f"{what}: torch {row['torch_ms']:.4f} ms, heuristics {[round(each['ms'], 4) for each in row['heuristics']]}, "
                   f"wrong {row['heuristics_wrong']}")
        del problem
        torch.cuda.empty_cache()
        search(runner, "cublaslt_matmul", dtype, shape, seconds, row)
        record.say(f"{what}: best {row.get('best_ms')} ms, torch ÷ best {row.get('torch_over_best')}, heuristics ÷ best "
                   f"{row.get('default_over_best')}, {row['tried']} tried {row['rejected']} {row.get('best')}")
    except Exception as error:      # the next product may work
        row["error"] = traceback.format_exc()[-3000:]
        record.say(f"{what}: {type(error).__name__}: {error}"[:800])


def run_cutlass(record: Record, runner: SandboxRunner, seconds: float) -> None:
    """Search CUTLASS's kernels where the profiler is installed; the document says why where it is not."""
    found = installed_cutlass()
    dtype, shape = CUTLASS_CASE
    row: dict[str, Any] = {"operator": "cutlass_gemm", "dtype": dtype, "shape": shape, "installed": found}
    record.document["cases"].append(row)
    if "missing" not in found:
        try:
            search(runner, "cutlass_gemm", dtype, shape, seconds, row)
        except Exception:                # what was recorded before is kept
            row["error"] = traceback.format_exc()[-3000:]
    record.say(f"CUTLASS {found}: best {row.get('best_ms')} ms, torch ÷ best {row.get('torch_over_best')}, {row.get('listed')} "
               f"listed {row.get('pruned')}, {row.get('tried')} tried {row.get('rejected')} {row.get('error', '')}")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--seconds", type=float, default=150.0, help="after these no further stage begins")
    given = parser.parse_args(arguments)
    record = Record(given.out, given.seconds)
    card = gpu.gpus()[0]
    runner = SandboxRunner("cublaslt_matmul", {"M": 64, "N": 64, "K": 64}, "bf16", card.index, gpu_uuid=card.uuid, seed=5,
                           limits=LIMITS, policy=QUICK, compilers=0)
    try:
        for number, (dtype, sizes) in enumerate(CASES):
            each_s = record.left_s / (len(CASES) + CUTLASS_SHARE - number) - OPENING_S
            if record.left_s < OPENING_S:
                record.say(f"{dtype} {sizes}: no time was left")
                continue
            run_case(record, runner, dtype, sizes, max(LEAST_SEARCH_S, each_s))
        run_cutlass(record, runner, max(LEAST_SEARCH_S, record.left_s - OPENING_S))
    finally:
        runner.close()
    record.say("done")


if __name__ == "__main__":
    main()
