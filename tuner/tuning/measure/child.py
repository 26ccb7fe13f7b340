"""The process that owns CUDA: compiles, checks and times configurations; it may die of one.

Started by workers.tune.sandbox as `python -m tuner.tuning.measure.child READ_FD WRITE_FD PARENT_PID`; speaks tuner.tuning.wire.
Only operators of the OPERATORS table can be named, and those of team packages that the worker names as enabled.
"""

from __future__ import annotations

import importlib
import math
import os
import platform
import sys
import time
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

import torch
import triton

from tuner.tuning import wire
from tuner.tuning.kernels.problem import ChecksItself, OffersSpace, Problem, ProgramTime, PutsBack, Unavailable
from tuner.tuning.measure import accuracy, nvml, timers, timing
from tuner.tuning.measure.device import is_alive
from tuner.tuning.measure.policy import Policy
from tuner.tuning.measure.statistics import Noise, Race, reference_ms
from tuner.tuning.measure.timers import Launch, PreparedLaunch
from tuner.tuning.measure.timing import Sampler, Times
from tuner.tuning.operators import OPERATORS, Operator, find
from tuner.tuning.sources import hash_sources
from tuner.tuning.team import packages
from tuner.tuning.trial import Config, Reason, error_text

# Times that a program took itself: one number a run, the mean of its own launches, beside the library's as it is sampled here.

ROUNDS = 5                   # of finalists: as many runs of the program
ENDED = "program"


class ProgramSampler:
    """A sampler (tuner.tuning.measure.timing) for launches of which some are runs of a program that times itself."""

    def __init__(self, inner: Sampler) -> None:
        self._inner = inner

    def measure(self, launch: Launch, race: Race | None = None) -> Times:
        """Return the time of one run, or samples of a launch that is none. Nothing is raced: a run is not given up half-way."""
        began = time.perf_counter()
        result = launch()
        if not isinstance(result, ProgramTime):
            return self._inner.measure(launch)
        return _times([result.ms], time.perf_counter() - began)

    def measure_in_turn(self, launches: Sequence[Launch]) -> list[Times]:
        """Run programs in turn, ROUNDS times, with a batch of each other launch in between."""
        rounds: list[list[float]] = [[] for _ in launches]
        began = time.perf_counter()
        for _ in range(ROUNDS):
            for place, launch in enumerate(launches):
                result = launch()
                rounds[place].append(result.ms if isinstance(result, ProgramTime) else self._inner.measure(launch).median_ms)
        each_s = (time.perf_counter() - began) / max(1, len(launches))
        return [_times(times_ms, each_s, tuple(times_ms)) for times_ms in rounds]


def _times(samples_ms: Sequence[float], took_s: float, round_ms: tuple[float, ...] = ()) -> Times:
    return Times(tuple(samples_ms), ENDED, {"rounds": len(samples_ms)}, None, took_s, took_s, round_ms)


# ---- the process that owns a GPU ----

FINALIST_SEED = 1_000_003      # their inputs are not those of the trials
KERNELS = "tuner.tuning.kernels."
NO_KERNELS = ("tuner.tuning.kernels.problem", "tuner.tuning.kernels.device")
_RESOURCES = ("OutOfResources", "OutOfMemoryError")


MakeTimer = Callable[[torch.device, Policy, int], timers.Timer]


class Bench:
    """One operator, shape and dtype on one device; methods are the protocol's requests."""

    def __init__(self, device: torch.device, timer: MakeTimer = timers.make_timer) -> None:
        self.device, self._make_timer = device, timer
        self.problem: Problem
        self.operator: Operator
        self.sampler: timing.Sampler | ProgramSampler

    def handlers(self) -> dict[str, wire.Handler]:
        return {"open": self.open, "compile": self.compile, "run": self.run, "finalists": self.finalists}

    def open(self, request: dict[str, Any]) -> dict[str, Any]:
        """Build inputs, reference and timer; return device facts. Raises wire.Failure where impossible."""
        operator = find(request["operator"])
        if operator is None:
            raise wire.Failure(f"unknown operator {request['operator']!r}", f"one of {', '.join(OPERATORS)}")
        if self.device.type == "cuda" and not torch.cuda.is_available():
            raise wire.Failure("torch sees no CUDA GPU", "install a CUDA build of torch; try nvidia-smi on this worker")
        self.operator = operator
        self.tolerance = self.operator.tolerance.get(request["dtype"]) or accuracy.TOLERANCE[request["dtype"]]
        try:
            self.policy = Policy.read(request.get("policy", {}))
        except ValueError as error:
            raise wire.Failure(str(error), "give a policy's fields as docs/measurement.md names them") from error
        self.gpu_index = int(request.get("gpu_index", 0))
        module = importlib.import_module(self.operator.kernel_module)
        make = module.PROBLEMS[self.operator.name]
        library_ms = None
        try:
            self.problem = self._made(lambda: make(request["shape"], request["dtype"], self.device, request["seed"]))
            self.timer = self._make_timer(self.device, self.policy, self.gpu_index)
            sampler = timing.Sampler(self.timer, self.policy)
            self.sampler = ProgramSampler(sampler) if isinstance(self.problem, ChecksItself) else sampler
            self.noise = Noise()
            if request["library"]:
                library_ms = self.sampler.measure(self.problem.library).median_ms
            offered = self._offered(listed=request["library"])
        except Unavailable as error:
            raise wire.Failure(error.what, error.hint) from error
        except ValueError as error:
            raise wire.Failure(str(error), "choose another shape") from error
        except torch.cuda.OutOfMemoryError as error:
            raise wire.Failure(f"the GPU has too little free memory: {error_text(error)}",
                               "choose a smaller shape, or free the GPU") from error
        return {**self._device_facts(), **offered, "library_ms": library_ms,
                "policy": {**self.policy.as_json(), **self.timer.about(), "tolerance": self.tolerance},
                "source_hash": source_hash(module, operator.name)}

    def _made(self, make: Callable[[], Problem]) -> Problem:
        """Return the problem that `make` makes."""
        return make()

    def _offered(self, listed: bool) -> dict[str, Any]:
        """Return versions and, where `listed`, the space of a problem that lists its own; {} of every other."""
        if not isinstance(self.problem, OffersSpace):
            return {}
        return {**self.problem.environment(), **({"offer": self.problem.offer().as_json()} if listed else {})}

    def _device_facts(self) -> dict[str, Any]:
        facts: dict[str, Any] = {"torch": torch.__version__, "triton": triton.__version__, "cuda": torch.version.cuda,
                                 "python": platform.python_version(), "clocks": nvml.reading(self.gpu_index)}
        if self.device.type != "cuda":
            return {**facts, "gpu": platform.processor() or "CPU", "compute_capability": None}
        properties = torch.cuda.get_device_properties(self.device)
        driver = next((gpu["driver"] for gpu in nvml.devices()), None)
        return {**facts, "gpu": properties.name, "compute_capability": f"{properties.major}.{properties.minor}",
                "sms": properties.multi_processor_count, "l2_bytes": properties.L2_cache_size,
                "memory_bytes": properties.total_memory, "driver": driver}

    def compile(self, request: dict[str, Any]) -> dict[str, Any]:
        """Compile and load onto the GPU; return registers, spills and shared memory."""
        started = time.perf_counter()
        try:
            facts = _load_kernels(self.problem.compile(request["config"])) if self.device.type == "cuda" else {}
        except Exception as error:
            reason = Reason.RESOURCES if _is_resources(error) else Reason.COMPILE
            raise wire.Rejection(reason, error_text(error), compile_s=round(time.perf_counter() - started, 3)) from error
        return {"compile_s": round(time.perf_counter() - started, 3), **facts}

    def run(self, request: dict[str, Any]) -> dict[str, Any]:
        """Check on fresh inputs, then time, racing the incumbent if named; a wrong result is not timed."""
        config, started = request["config"], time.perf_counter()
        kernel, facts = self._check(config, request["seed"])
        check_s = time.perf_counter() - started
        race = self._make_race(request.get("incumbent"))
        times = self._run_guarded(lambda: self.sampler.measure(self._make_launch(config), race))
        if race is not None and times.lost is not None:
            facts["racing"] = timing.race_savings(times, race, self.policy)
        else:
            self.noise.learn(times.samples_ms)
        return {**times.as_json(), "facts": {**facts, **kernel_facts(kernel), **times.as_facts(), "check_s": round(check_s, 6)}}

    def _make_launch(self, config: dict[str, Any]) -> Launch:
        problem = self.problem
        if isinstance(problem, PutsBack):
            return PreparedLaunch(problem.put_back, lambda: problem.start(config))
        return lambda: problem.launch(config)

    def _make_race(self, incumbent: dict[str, Any] | None) -> Race | None:
        """Return a race against the upper bound of the incumbent's median; None without incumbent."""
        if not incumbent or not self.policy.risk or not float(incumbent["median_ms"]) > 0:
            return None
        samples = [float(ms) for ms in incumbent.get("samples_ms", ())]
        return Race(reference_ms(samples, float(incumbent["median_ms"])), self.noise, self.policy.risk)

    def finalists(self, request: dict[str, Any]) -> list[dict[str, Any]]:
        """Check again on other inputs, then time in turn with the vendor library."""
        answers: list[dict[str, Any]] = []
        for number, config in enumerate(request["configs"]):
            try:
                kernel, facts = self._check(config, FINALIST_SEED + int(request.get("seed", 0)) + number)
                answers.append({"facts": {**facts, **kernel_facts(kernel)}})
            except wire.Rejection as refused:
                if refused.fatal:
                    raise
                answers.append(refused.as_json())
        fine = [(answer, config) for answer, config in zip(answers, request["configs"], strict=True) if "rejected" not in answer]
        launches = [self._make_launch(config) for _, config in fine]
        *all_times, library = self._run_guarded(lambda: self.sampler.measure_in_turn([*launches, self.problem.library]))
        beside = {"interleaved": len(fine) + 1, "library_ms": library.median_ms, "library_round_ms": library.as_facts()["round_ms"]}
        for (answer, _), times in zip(fine, all_times, strict=True):
            answer["facts"] |= {**times.as_facts(), **beside}
            answer |= times.as_json()
        return answers

    def _check(self, config: Config, seed: int) -> tuple[Any, dict[str, Any]]:
        """Return Triton's kernel and the facts of a configuration that is right. Raises wire.Rejection."""
        if isinstance(self.problem, ChecksItself):
            return None, self._let_check(self.problem, config, seed)
        kernel, verdict = self._run_guarded(lambda: accuracy.check_config(self.problem, config, seed, self.tolerance))
        if not verdict.right:
            raise wire.Rejection(Reason.WRONG, verdict.message, **kernel_facts(kernel), inputs_seed=seed,
                               relative_error=verdict.relative_error if math.isfinite(verdict.relative_error) else None)
        return kernel, {"relative_error": verdict.relative_error, "worst_error": verdict.worst, "inputs_seed": seed}

    def _let_check(self, problem: ChecksItself, config: Config, seed: int) -> dict[str, Any]:
        """Return the facts of a configuration that its own program found right. Raises wire.Rejection."""
        wrong, facts = self._run_guarded(lambda: problem.check(config, seed))
        if wrong:
            raise wire.Rejection(Reason.WRONG, wrong, **facts)
        return dict(facts)

    def _run_guarded(self, work: Callable[[], Any]) -> Any:
        """Run `work`; turn GPU errors into a refusal that says whether the CUDA context survived."""
        try:
            return work()
        except wire.Rejection:
            raise
        except Exception as error:
            if not is_alive(self.device):
                raise wire.Rejection(Reason.CRASH, error_text(error), fatal=True) from error
            reason = Reason.RESOURCES if _is_resources(error) else Reason.OTHER
            raise wire.Rejection(reason, error_text(error)) from error


def source_hash(module: ModuleType, operator: str) -> str:
    """Return the hash of the files that the operator's kernels are written in. Raises OSError."""
    if hasattr(module, "source_hash"):
        return str(module.source_hash(operator))
    return hash_sources(module, lambda name: name.startswith(KERNELS) and name not in NO_KERNELS)


def _load_kernels(kernels: Any) -> dict[str, Any]:
    """Return the facts of compiled kernels. Raises Triton's OutOfResources where one cannot load."""
    for kernel in _as_list(kernels):
        load = getattr(kernel, "_init_handles", None)
        if load is not None:
            load()
    return kernel_facts(kernels)


def kernel_facts(kernels: Any) -> dict[str, Any]:
    """Return registers per thread, spills and shared memory as Triton reports once loaded.

    Of several kernels that one configuration launches the one with the most registers speaks.
    """
    rows = [_facts(kernel) for kernel in _as_list(kernels)]
    return max(rows, key=lambda facts: (facts.get("registers", 0), facts.get("smem_bytes", 0)), default={})


def _as_list(kernels: Any) -> list[Any]:
    return list(kernels) if isinstance(kernels, list | tuple) else [kernels]


def _facts(kernel: Any) -> dict[str, Any]:
    metadata = getattr(kernel, "metadata", None)
    facts = {"registers": getattr(kernel, "n_regs", None), "spills": getattr(kernel, "n_spills", None),
             "smem_bytes": getattr(metadata, "shared", None), **getattr(kernel, "facts", {})}
    return {name: value for name, value in facts.items() if value is not None}


def _is_resources(error: Exception) -> bool:
    return any(name in (cls.__name__ for cls in type(error).__mro__) for name in _RESOURCES)


def main(argv: list[str]) -> None:
    """Serve requests until the worker closes its end."""
    read_fd, write_fd, parent_pid = (int(arg) for arg in argv)
    wire.enter_child(parent_pid)
    packages.provide()
    wire.serve(Bench(torch.device("cuda")).handlers(), read_fd, write_fd)
    os._exit(0)                     # no teardown of a CUDA context that may be poisoned


if __name__ == "__main__":
    main(sys.argv[1:])
