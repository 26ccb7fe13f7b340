"""A kernel file that nobody packaged, from its text to its winner on this machine's GPU, as a worker does it, without a server.

    python -m tests.gpu.bring.own --out own.json        # 2 minutes; the tree, torch, Triton, numpy, scipy, nvidia-ml-py alone

Its call is recorded behind walls, the adapter is written of the record, compilers and the measuring process run behind walls, the
finalists are measured again: by new processes, then by forks of a warm parent, as a worker keeps one, WARM times. Then kernels
whose host computes numbers from its block, lists one configuration or launches others first, then kernels that lie, crash and reach
beyond their tensors.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.gpu.warm_parent import warm_parent
from tests.tuner.bring.own.files import FOLLOWING, NEAR, SOFTMAX, SORTING
from tests.tuner.bring.own.programs import Version, with_text
from tuner.tuning.operators import limits
from tuner.tuning.search.finalists import measure_finalists
from tuner.tuning.search.loop import Budget, tune
from tuner.tuning.team.description import make_operator
from tuner.tuning.trial import Measured, Rejected, Trial
from workers.core import gpu, sandboxed, warm
from workers.tune import own
from workers.tune.sandbox import EarlyStart, SandboxRunner

CALL = "softmax(randn(8192, 4000))"
TRIALS, SECONDS = 24, 60.0
WARM, CHECKS = 3, 5
EARLY = 6
# calls of FOLLOWING, each with its reference; 3,072 columns are a multiple of some blocks and not of others
FOLLOWED = {"row_sums": ("sum_rows(randn(8192, 3072))", "sum_torch"), "scaled": ("scale_rows(randn(8192, 3072))", "scale_torch")}
SORTED = "sort_rows(randn(2048, 1024), randint(0, 7, (2048,), dtype=torch.int32), 7)"      # its last kernel reads what two left
# the same kernel with one thing wrong: what a configuration of it must be rejected for
FAULTS = {
    "writes beyond its rows": ("tl.store(out_ptr + row * stride + at, e / tl.sum(e, axis=0), mask=at < n_cols)",
                               "tl.store(out_ptr + row * stride + at, e / tl.sum(e, axis=0))"),
    "reads beyond its rows": ('tl.load(in_ptr + row * stride + at, mask=at < n_cols, other=-float("inf"))',
                              "tl.load(in_ptr + row * stride + at)"),
    "is wrong by 5 %": ("e / tl.sum(e, axis=0)", "1.05 * e / tl.sum(e, axis=0)"),
    "reads where nothing is": ("tl.load(in_ptr + row * stride + at,", "tl.load(in_ptr + (1 << 40) + row * stride + at,"),
}


def pasted(request: Mapping[str, Any]) -> dict[str, Any]:
    """Return what `python -m tuner.bring.pasted` answers behind walls, where this machine lets them be made."""
    lines: list[bytes] = []
    ending = sandboxed.run(
        [sys.executable, "-m", "tuner.bring.pasted"], json.dumps(request).encode(), read=own.PROGRAMS.read, on_line=lines.append,
        environ={"PYTHONPATH": str(sandboxed.PROJECT), "CUDA_VISIBLE_DEVICES": ""}, walls=not sandboxed.why_not(),
        may_be_fork=True)
    told: dict[str, Any] = next((each for line in reversed(lines) if "operators" in (each := json.loads(line))), {})
    if not told:
        raise SystemExit(f"no answer: {ending.why} {ending.status} {ending.said[-1500:]} {lines[-1:]}")
    return told


def seconds_of_checks() -> list[float]:
    """Return what checks of the file with its call take, as a worker makes them."""
    took_s = []
    for _ in range(CHECKS):
        began_s = time.monotonic()
        pasted(asked_of(SOFTMAX, CALL) | {"compiles": True})
        took_s.append(round(time.monotonic() - began_s, 2))
    return took_s


def asked_of(text: str, call: str) -> dict[str, Any]:
    return {"file": "mine.py", "text": text, "siblings": {"near.py": NEAR}, "folder": "", "shape": {}, "dtype": "fp16",
            "call": call}


def version_of(text: str, reference: str, call: str = CALL, kernel: str = "") -> tuple[Version, dict[str, Any]]:
    """Return what travels with a job of the file, and what its call told."""
    asked = asked_of(text, call)
    told = pasted({**asked, "compiles": True})
    adapters = pasted({**asked, "compiles": False, "recorded": told["recorded"]})["adapters"]
    adapter, = (adapter for adapter in adapters if kernel in ("", adapter["kernel"]))
    written = adapter["references"][reference] if reference else adapter["text"]
    return with_text(text, written, adapter["kernel"], {"near.py": NEAR}), told["operators"][0]


def search(version: Version, card: gpu.Gpu, trials: int, finalists: bool = True) -> dict[str, Any]:
    """Return what a search of the version's space gave."""
    operator = make_operator(json.loads(version.description))
    shape, dtype = dict(operator.presets[0]), operator.dtypes[0]
    began_s = time.monotonic()
    with own.behind_walls(version, operator, card) as walled:
        space = operator.space(shape, dtype, limits(card.name, card.cc))
        default = dict(operator.default_config(shape, dtype, limits(card.name, card.cc)))
        early = EarlyStart(card.cc, 132, __import__("triton").__version__, [default, *list(space.configs())[:EARLY]])
        runner = SandboxRunner(version.name, shape, dtype, card.index, gpu_uuid=card.uuid, early=lambda: early, **walled)
        try:
            session = runner.open()
            opened_s = time.monotonic() - began_s
            found: list[Trial] = []
            for trial in tune(space, "random", runner, Budget(trials, SECONDS), 1, first=[default]):
                found.append(trial)
                if len(found) == 1:
                    first_s = time.monotonic() - began_s
            last = measure_finalists(runner, found, default, space, lambda outcome: outcome) if finalists else []
            use = runner.use()
            child = runner._child._child
            processes = "forks" if child is not None and isinstance(child.process, warm.ForkedProcess) else "new processes"
        finally:
            runner.close()
    rejected = [(trial.outcome.reason.value, trial.outcome.message[:200]) for trial in found if isinstance(trial.outcome, Rejected)]
    times = [{"us": round(1e3 * trial.outcome.median_ms, 2), "config": dict(trial.config)}
             for trial in found if isinstance(trial.outcome, Measured)]
    return {"processes": processes, "walls": not sandboxed.why_not(), "why_no_walls": sandboxed.why_not(),
            "shape": shape, "dtype": dtype,
            "space": len(space), "opened_s": round(opened_s, 2), "first_trial_s": round(first_s, 2),
            "whole_s": round(time.monotonic() - began_s, 2), "trials": len(found), "measured": len(times),
            "rejected": rejected[:6], "default": default, "best": min(times, key=lambda each: each["us"], default=None),
            "finalists": [each.as_json() for each in last], "gpu": session.gpu, "library_ms": session.library_ms,
            "compilers": use.compilers, "compiled": use.compiled, "replaced": use.replaced}


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, default=Path("own.json"))
    parser.add_argument("--trials", type=int, default=TRIALS)
    parser.add_argument("--without-faults", action="store_true")
    options = parser.parse_args()
    card, told = gpu.gpus()[0], {}
    version, found = version_of(SOFTMAX, "softmax_torch")
    told["recorded"] = {"grid": found["recorded"]["grid"], "default": found["default"], "compiled": found["compiled"][:3]}
    told["new processes"] = search(version, card, options.trials)
    told["checks by new processes, s"] = seconds_of_checks()
    with warm_parent(card) as keeper:
        told["warm parent"] = keeper.parent.ready if keeper.parent else keeper.state()
        told["checks by forks, s"] = seconds_of_checks()
        for number in range(WARM):
            told["softmax" if not number else f"softmax, again {number}"] = search(version, card, options.trials)
        print(json.dumps(told, indent=1), flush=True)
        for name, (call, reference) in FOLLOWED.items():
            told[name] = search(version_of(FOLLOWING, reference, call)[0], card, options.trials)
            print(name, told[name]["measured"], told[name]["rejected"], told[name]["best"], flush=True)
        told["rows_kernel"] = rows = search(version_of(SORTING, "", SORTED, "rows_kernel")[0], card, options.trials)
        print("rows_kernel", rows["measured"], rows["rejected"], rows["best"], flush=True)
        for name, (before, after) in {} if options.without_faults else FAULTS.items():
            assert before in SOFTMAX
            faulty = with_text(SOFTMAX.replace(before, after), version.adapter, "softmax_kernel", {"near.py": NEAR})
            told[name] = search(faulty, card, 2, finalists=False)
            print(name, told[name]["measured"], told[name]["rejected"][:2], flush=True)
    options.out.write_text(json.dumps(told, indent=1))
    for name, one in told.items():
        if isinstance(one, dict) and "first_trial_s" in one:
            print(f"{name}: open {one['opened_s']} s, first trial {one['first_trial_s']} s, whole {one['whole_s']} s, "
                  f"{one['processes']}, {one['trials']} trials")
    right = all(told[name]["measured"] > 0 and told[name]["best"] for name in ("softmax", *FOLLOWED, "rows_kernel"))
    right = right and not any(told[name]["measured"] for name in FAULTS if name in told)
    print("right" if right else "WRONG")
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
