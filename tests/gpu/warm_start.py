"""Measure on this GPU how soon a tune job has its first trial, and how long jobs take: forks of a warm parent and new processes.

    python tests/gpu/warm_start.py FOLDER [--jobs 10] [--trials 60]

The runner and the search as a worker uses them, without servers: of the product's own job the row, the queue and the page are left
out. Writes warm_start.json after each step. "cold": the parent starts together with the job, as on a worker that has just started.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from profiles.capture.tools.tool import package_version
from tests.gpu.known import of_operator
from tuner.tuning.measure import nvml
from tuner.tuning.operators import find, limits
from tuner.tuning.search.finalists import best_trial, measure_finalists
from tuner.tuning.search.loop import Budget, tune
from tuner.tuning.search.strategies import DEFAULT
from tuner.tuning.trial import Config, Measured, Trial, config_key
from workers.core import gpu, warm
from workers.core.child import PROJECT, Child, safe_environment
from workers.tune.gpu_child import Limits
from workers.tune.sandbox import CHILD, EarlyStart, SandboxRunner

SMALL = ("softmax", "fp16", {"R": 2048, "C": 2048})
QUEUE = [SMALL, ("rmsnorm", "bf16", {"R": 4096, "C": 4096}), ("layernorm", "bf16", {"R": 8192, "C": 1024}),
         ("softmax", "bf16", {"R": 4096, "C": 4096}), ("silu_mul", "bf16", {"R": 4096, "C": 4096}),
         ("rmsnorm", "fp16", {"R": 1024, "C": 8192}), ("row_sum", "bf16", {"R": 4096, "C": 4096}),
         ("softmax", "fp16", {"R": 512, "C": 8192}), ("layernorm", "fp16", {"R": 2048, "C": 4096}),
         ("add_rmsnorm", "bf16", {"R": 4096, "C": 2048})]
LISTED = 12                  # configurations that both ways measure
Problem = tuple[str, str, Mapping[str, int]]


class Report:
    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.path, self.rows = folder / "warm_start.json", dict[str, Any]()

    def put(self, name: str, **values: Any) -> None:
        self.rows[name] = {key: round(value, 4) if isinstance(value, float) else value for key, value in values.items()}
        print(name, json.dumps(self.rows[name]), flush=True)
        self.path.write_text(json.dumps(self.rows, indent=1))

    def attempt(self, name: str, work: Callable[[], Mapping[str, Any]]) -> None:
        """Keep what a step returns, or how it failed: the next ones run all the same."""
        try:
            self.put(name, **work())
        except Exception as error:
            self.put(name, failed=f"{type(error).__name__}: {error}"[:600])


class Job:
    """One tune job of the default strategy, from Start to its finalists."""

    def __init__(self, card: gpu.Gpu, problem: Problem, trials: int, only: list[Config] | None = None) -> None:
        self.card, (self.name, self.dtype, self.shape), self.trials, self.only = card, problem, trials, only
        found = find(self.name)
        assert found is not None
        self.operator = found

    def early(self) -> EarlyStart | None:
        sms, triton = nvml.sm_count(self.card.index, self.card.cc), package_version("triton").get("version")
        if sms is None or not triton:
            return None
        device = limits(self.card.name, self.card.cc, sms)
        space = self.operator.space(self.shape, self.dtype, device)
        default = self.operator.default_config(self.shape, self.dtype, device)
        starts = list(self.operator.published_starts(space, self.shape, self.dtype, device))
        return EarlyStart(self.card.cc, sms, triton, (self.only or [default, *starts])[:6])

    def run(self, began_s: float | None = None, with_early: bool = True) -> dict[str, Any]:
        began_s = time.monotonic() if began_s is None else began_s
        runner = SandboxRunner(self.name, self.shape, self.dtype, self.card.index, gpu_uuid=self.card.uuid, seed=7,
                               turn=gpu.Turn(self.card), early=self.early if with_early else lambda: None)
        try:
            session = runner.open()
            opened_s = time.monotonic() - began_s
            device = limits(session.gpu, session.compute_capability, session.environment.get("sms"))
            default = self.operator.default_config(self.shape, self.dtype, device)
            space = self.operator.space(self.shape, self.dtype, device)
            strategy: Any = DEFAULT
            known = of_operator(self.operator, self.shape, self.dtype, device, default=default)
            trials, first_s = list[Trial](), 0.0
            for trial in tune(space, strategy, runner, Budget(trials=self.trials), 7, first=self.only or [default], known=known):
                first_s = first_s or time.monotonic() - began_s
                trials.append(trial)
            searched_s = time.monotonic() - began_s
            finalists = [] if self.only else measure_finalists(runner, trials, default, space)
            finished_s = time.monotonic() - began_s
            forked = isinstance(runner._child._child.process, warm.ForkedProcess) if runner._child._child else None
            use = runner.use()
        finally:
            runner.close()
        best, first = best_trial(trials), trials[0] if trials else None
        facts = first.outcome.facts if first else {}
        self.outcomes = {config_key(trial.config): trial.outcome for trial in trials}
        self.session = session
        return {"problem": f"{self.name} {self.dtype} {dict(self.shape)}", "forked": forked, "first_trial_s": first_s,
                "opened_s": opened_s, "searched_s": searched_s, "finished_s": finished_s, "whole_s": time.monotonic() - began_s,
                "trials": len(trials), "measured": sum(isinstance(trial.outcome, Measured) for trial in trials),
                "best_us": 1e3 * best.median_ms if best and best.median_ms else None, "finalists": len(finalists),
                "library_us": 1e3 * session.library_ms if session.library_ms else None, "busy_s": use.busy_s,
                "waited_s": use.waited_s, "compile_s": use.compile_s, "compilers": use.compilers, "replaced": use.replaced,
                "first": {name: facts[name] for name in ("compile_s", "load_s", "measure_s", "check_s", "gpu_s") if name in facts}}


def listed(card: gpu.Gpu, problem: Problem) -> list[Config]:
    """Configurations spread over the space, the same for both ways."""
    name, dtype, shape = problem
    operator = find(name)
    assert operator is not None
    configs = list(operator.space(shape, dtype, limits(card.name, card.cc, nvml.sm_count(card.index, card.cc))).configs())
    return configs[::max(1, len(configs) // LISTED)][:LISTED]


def compare(one: Job, other: Job) -> dict[str, Any]:
    """Whether two jobs found the same: outcomes, registers, errors of the same inputs, and how far times differ."""
    same, ratios = True, []
    for key, outcome in one.outcomes.items():
        beside = other.outcomes.get(key)
        same &= type(outcome) is type(beside)
        if isinstance(outcome, Measured) and isinstance(beside, Measured):
            same &= outcome.facts.get("registers") == beside.facts.get("registers")
            if "raced" not in (outcome.facts.get("ended"), beside.facts.get("ended")):
                ratios.append(outcome.median_ms / beside.median_ms)
    hashes = {job.session.environment.get("source_hash") for job in (one, other)}
    return {"same_outcomes_and_registers": same, "configurations": len(one.outcomes), "same_source_hash": len(hashes) == 1,
            "time_ratio": [round(min(ratios), 3), round(max(ratios), 3)] if ratios else None,
            "same_policy": one.session.policy == other.session.policy}


def probe(card: gpu.Gpu) -> dict[str, Any]:
    """Where the time of a fork's opening goes."""
    name, dtype, shape = SMALL
    environ = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": card.uuid}
    request = {"do": "open", "operator": name, "shape": dict(shape), "dtype": dtype, "seed": 1, "gpu_index": card.index,
               "policy": {}}
    began_s = time.monotonic()
    child = Child(CHILD, environ)
    rows: dict[str, Any] = {"forked": isinstance(child.process, warm.ForkedProcess), "fork_s": time.monotonic() - began_s}
    try:
        for label, library in (("open_without_library_s", False), ("again_without_s", False), ("again_with_library_s", True)):
            began_s = time.monotonic()
            answer = child.ask({**request, "library": library}, 120, threading.Event())
            rows[label] = time.monotonic() - began_s
            if "ok" not in answer:
                return {**rows, "failed": str(answer)[:500]}
        began_s = time.monotonic()
    finally:
        child.close()
    return {**rows, "close_s": time.monotonic() - began_s}


def faulty(card: gpu.Gpu) -> dict[str, Any]:
    """A fork that dies of an illegal access, and the next configuration and the next job after it."""
    name, dtype, shape = "matmul", "bf16", {"M": 2048, "N": 2048, "K": 2048}
    operator = find(name)
    assert operator is not None
    config = operator.default_config(shape, dtype, limits(card.name, card.cc, nvml.sm_count(card.index, card.cc)))
    runner = SandboxRunner(name, shape, dtype, card.index, gpu_uuid=card.uuid, seed=3, limits=Limits(compile_s=30, run_s=5),
                           child_module="tests.gpu.faulty_child", compiler_module="tests.gpu.faulty_compiler")
    try:
        runner.open()
        [(_, bad)] = runner.measure([{**config, "fault": "illegal access"}])
        began_s = time.monotonic()
        [(_, good)] = runner.measure([config])
        again_s = time.monotonic() - began_s
    finally:
        runner.close()
    after = Job(card, SMALL, 5).run()
    return {"fault": getattr(bad, "message", "measured")[:120], "next_measured": isinstance(good, Measured),
            "next_after_s": again_s, "next_job_first_trial_s": after["first_trial_s"], "next_job_measured": after["measured"]}


LATE = """
import json, sys, time
from tuner.tuning.measure import child, warm
import os, torch
os.environ["CUDA_VISIBLE_DEVICES"] = "0"
warm.import_kernels(), warm.use_compiler(sys.argv[1])
for _ in warm.prepare_more(): pass
told, bench = {}, child.Bench(torch.device("cuda"))
def step(name, work):
    before, began = set(sys.modules), time.perf_counter()
    try: work()
    except Exception as error: told[name + " failed"] = repr(error)[:200]
    new = sorted(set(sys.modules) - before)
    told[name] = [round(time.perf_counter() - began, 3), len(new), new[:12]]
from tuner.tuning.operators import find, limits
step("context", lambda: (torch.zeros(1, device="cuda"), torch.cuda.synchronize()))
for name, dtype, shape in json.loads(sys.argv[2]):
    config = find(name).default_config(shape, dtype, limits("NVIDIA H200", sys.argv[1], 132))
    ask = {"operator": name, "shape": shape, "dtype": dtype, "seed": 1, "gpu_index": 0, "policy": {}, "library": False}
    step(name + " open", lambda: bench.open(ask))
    step(name + " library", lambda: bench.open({**ask, "library": True}))
    step(name + " compile", lambda: bench.compile({"config": config}))
    step(name + " run", lambda: bench.run({"config": config, "seed": 3}))
    step(name + " run again", lambda: bench.run({"config": config, "seed": 4}))
print(json.dumps(told))
"""


def late(card: gpu.Gpu) -> dict[str, Any]:
    """What a measuring child imports and waits for after everything that the warm parent prepares."""
    problems = [SMALL, ("matmul", "bf16", {"M": 1024, "N": 1024, "K": 1024})]
    done = subprocess.run([sys.executable, "-c", LATE, card.cc, json.dumps(problems)], cwd=PROJECT, capture_output=True, text=True,
                          timeout=120)
    return dict(json.loads(done.stdout.splitlines()[-1])) if done.stdout else {"failed": done.stderr[-600:]}


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("folder", type=Path)
    options.add_argument("--jobs", type=int, default=10)
    options.add_argument("--trials", type=int, default=60)
    given = options.parse_args()
    report, card = Report(given.folder), gpu.gpus()[0]
    report.put("machine", gpu=card.as_json(), sms=nvml.sm_count(card.index, card.cc), date=time.strftime("%Y-%m-%d"),
               triton=package_version("triton"), torch=package_version("torch"))
    keeper = warm.Keeper(safe_environment(), card.cc)
    warm.keep(keeper)
    began_s = time.monotonic()
    keeper.tend()
    report.attempt("cold worker", lambda: Job(card, SMALL, given.trials).run(began_s))
    keeper.tend()
    report.put("parent", **keeper.state(), said=keeper.parent.ready if keeper.parent else None)
    report.attempt("probe of a fork", lambda: probe(card))
    report.attempt("warm", lambda: Job(card, SMALL, given.trials).run())
    report.attempt("warm, nothing early", lambda: Job(card, SMALL, given.trials).run(with_early=False))
    report.attempt("warm matmul", lambda: Job(card, ("matmul", "bf16", {"M": 1024, "N": 1024, "K": 1024}), given.trials).run())
    began_s = time.monotonic()
    for number, problem in enumerate(QUEUE[:given.jobs]):
        report.attempt(f"queued {number}", lambda problem=problem: Job(card, problem, given.trials).run())
    report.put("queue", jobs=given.jobs, whole_s=time.monotonic() - began_s)
    report.attempt("illegal access", lambda: faulty(card))
    configs = listed(card, SMALL)
    forked = Job(card, SMALL, LISTED, configs)
    report.attempt("listed, forked", forked.run)
    keeper.tend()
    report.put("parent at the end", **keeper.state())
    warm.keep(None)
    keeper.close()
    new = Job(card, SMALL, LISTED, configs)
    report.attempt("listed, new processes", lambda: new.run(with_early=False))
    report.attempt("compared", lambda: compare(forked, new))
    report.attempt("late", lambda: late(card))
    report.attempt("new processes", lambda: Job(card, SMALL, given.trials).run(with_early=False))


if __name__ == "__main__":
    main()
