"""A runner whose kernels run in a child that may crash or hang without harm.

Compilers work ahead in processes of their own, and begin with the configurations that come first while the child still opens the
GPU and measures the library. A dead or hung child is replaced within a second: by a fork of the worker's warm parent, or by a spare
that has already imported torch.
"""

from __future__ import annotations

import logging
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tuner.tuning.measure.runner import Compiled, Incumbent, Session, SessionUse
from tuner.tuning.offer import Offer, read_offer
from tuner.tuning.operators import OPERATORS, Operator, find
from tuner.tuning.search.pipeline import foretell_spills
from tuner.tuning.trial import Config, Measured, Outcome, Rejected, config_key
from workers.core.child import Child, SandboxError, Stopped
from workers.core.compilers import CompileProcess, Compilers, cores
from workers.core.gpu import NoLease
from workers.core.warm import cache_folder
from workers.tune.gpu_child import GpuChild, Limits, Spawn, rejection_of

log = logging.getLogger(__name__)
CHILD, COMPILER = "tuner.tuning.measure.child", "tuner.tuning.measure.compiler"
HANG_S, HANG_TIMES = 5.0, 10.0  # no kernel is given less time than this, nor less than so many times the slowest one's
AHEAD = 2                       # configurations in the line above what compiles: compiled, and on the GPU


@dataclass(frozen=True)
class EarlyStart:
    """What compiles while the child opens: configurations for a GPU as its driver describes it, which the child then confirms."""

    compute_capability: str
    sms: int
    triton: str
    configs: Sequence[Config]


class SandboxRunner:
    """Measures configurations of one operator on one GPU in a child process. See tuner.tuning.measure.runner.Runner.

    operator, shape, dtype   an operator that `find` knows and what to measure
    gpu_index                as nvidia-smi numbers it; `gpu_uuid` goes before it where known, of several GPUs all, by commas
    policy                   fields of tuner.tuning.measure.policy.Policy to override
    turn                     entered while something runs on the GPU: others may have it in between
    helpers                  makers of compilers on other hosts
    compilers                processes that compile ahead: None as many as the host has cores for, 0 none
    environment              of the session, beside what the child says of it
    conditions               facts of everything that is measured here
    early                    asked while the child opens: what to compile meanwhile; None where that is not known
    child_module             the program of the child; tests give their own, and their own compiler_module
    spawn                    starts child and compilers, behind walls where their code is not ours
    known                    the operator, where the child's program is not the usual one
    """

    _aimed: dict[str, Any]                          # what the compilers were opened for
    _begun: set[str]                                # given to the compilers and not yet handed on
    _asked: set[str]                                # asked for and not yet handed on
    _answered: list[Compiled]                       # compiled before anybody asked

    def __init__(self, operator: str, shape: Mapping[str, int], dtype: str, gpu_index: int = 0, *, gpu_uuid: str = "",
                 seed: int = 0, limits: Limits | None = None, policy: Mapping[str, Any] | None = None,
                 compilers: int | None = None, child_module: str = CHILD, compiler_module: str = "",
                 environ: Mapping[str, str] | None = None, helpers: Sequence[Callable[[], CompileProcess]] = (),
                 turn: Callable[[], AbstractContextManager[Any]] = nullcontext, environment: Mapping[str, Any] | None = None,
                 conditions: Mapping[str, Any] | None = None, early: Callable[[], EarlyStart | None] = lambda: None,
                 spawn: Spawn = Child, known: Operator | None = None) -> None:
        self._module, self.seed, self._spawn, self._of_child = child_module, seed, spawn, known
        self._compilers: Compilers | None = None
        self.move(operator, shape, dtype)
        self.gpu_index, self.policy = gpu_index, dict(policy or {})
        self._compiler_module = compiler_module or (COMPILER if child_module == CHILD else "")
        self._turn, self._environment, self._conditions = turn, dict(environment or {}), dict(conditions or {})
        self._count, self._helpers = cores() if compilers is None else compilers, helpers
        self._folder: Path | None = None
        self._early, self._has_prepared = early, False
        self._tried = 0
        self._began_s = self._open_s = self._busy_s = self._waited_s = 0.0
        self._load_s = self._compile_s = self._slowest_s = 0.0
        self._environ = {**(environ or {}), "CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": gpu_uuid or str(gpu_index)}
        self._child = GpuChild(child_module, self._environ, limits or Limits(), spawn)

    @property
    def limits(self) -> Limits:
        return self._child.limits

    @property
    def replaced(self) -> int:
        """Return how many children died or hung."""
        return self._child.replaced

    @property
    def ahead(self) -> int:
        """Return 1 where nothing compiles ahead, else what compiles plus AHEAD."""
        pool = self._compilers
        return 1 if pool is None or pool.useless or self._is_compiled else pool.count + AHEAD

    def open(self) -> Session:
        began_s = time.monotonic()
        self._began_s = self._began_s or began_s
        self._make_folder()
        self._child.start()                                     # before the compilers, which then start beside it
        self._prepare()
        self._child.opening = {"operator": self.operator, "shape": self.shape, "dtype": self.dtype, "seed": self.seed,
                               "gpu_index": self.gpu_index, "policy": self.policy}
        with ThreadPoolExecutor(1, thread_name_prefix="open") as opening:
            opened = opening.submit(self._open_child)
            self._compile_early()
            facts = opened.result()
        self._open_s += time.monotonic() - began_s
        self._aim(facts)
        operator = self._known
        flops, moved = (operator.flops(self.shape), operator.bytes(self.shape, self.dtype)) if operator else (None, None)
        named = ("gpu", "compute_capability", "library_ms", "policy", "offer")
        return Session(
            gpu=facts["gpu"], compute_capability=facts["compute_capability"], library_ms=facts["library_ms"],
            policy=facts["policy"], flops=flops, bytes=moved,
            environment={**{name: value for name, value in facts.items() if name not in named}, **self._environment},
            offer=_offer(facts.get("offer")))

    def _open_child(self) -> dict[str, Any]:
        with self._turn():
            return self._child.open(library=True)

    def _compile_early(self) -> None:
        """Compile what comes first while the child opens; what goes wrong here goes wrong, and is said, once it is open."""
        if self._compilers is None or self._is_compiled:
            return
        try:
            start = self._early()
        except Exception as error:
            log.info("nothing compiles while the GPU child opens: %s", error)
            return
        if start is not None and start.configs:
            self._aimed = self._opening(start.compute_capability, start.sms, start.triton)
            self._compilers.aim(self._aimed)
            self._put({config_key(config): config for config in start.configs})

    def move(self, operator: str, shape: Mapping[str, int], dtype: str) -> None:
        """Go to another shape with the same processes: open() then takes 1 s, not 10."""
        self._known = self._of_child or OPERATORS.get(operator) or (find(operator) if self._module == CHILD else None)
        self._is_compiled = self._known is not None and self._known.listed_on_gpu      # a vendor's kernels are
        if self._known is None and self._module == CHILD:
            raise SandboxError(f"unknown operator {operator!r}", f"one of {', '.join(OPERATORS)}")
        self.operator, self.shape, self.dtype = operator, dict(shape), dtype
        self._static: dict[str, Mapping[str, Any]] = {}         # what compiling ahead said of a configuration
        self._aimed = {}
        self.forget()

    def _make_folder(self) -> None:
        """Make the folder of binaries that child and compilers share."""
        if self._compiler_module and (self._count or self._helpers) and self._folder is None and not self._is_compiled:
            self._folder = cache_folder()
            self._environ["TRITON_CACHE_DIR"] = str(self._folder)

    def _prepare(self) -> None:
        """Start compilers while the child opens the GPU."""
        if self._folder is not None and not self._has_prepared:
            self._has_prepared = True
            self._compilers = Compilers(self._compiler_module, self._environ, self._count,
                                        limit_s=self.limits.compile_s, open_s=self.limits.open_s, helpers=self._helpers,
                                        spawn=self._spawn)

    def _aim(self, facts: Mapping[str, Any]) -> None:
        if self._compilers is None or self._is_compiled:
            return
        if not facts["compute_capability"]:
            self._compilers.close()
            self._compilers = None
            return
        opening = self._opening(facts["compute_capability"], facts.get("sms") or 1, str(facts.get("triton") or ""))
        if opening != self._aimed:
            self._begun, self._answered = set(), []
            self._aimed = opening
            self._compilers.aim(opening)

    def _opening(self, compute_capability: str, sms: int, triton: str) -> dict[str, Any]:
        return {"operator": self.operator, "shape": self.shape, "dtype": self.dtype, "seed": self.seed,
                "compute_capability": compute_capability, "sms": sms, **({"triton": triton} if triton else {})}

    def _put(self, configs: Mapping[str, Config]) -> None:
        if self._compilers is not None:
            self._begun |= set(configs)
            self._compilers.put(list(configs.values()))

    def compile_ahead(self, configs: Sequence[Config]) -> None:
        """See CompilingRunner. What began while the child opened is not compiled again."""
        configs_by_key = {config_key(config): config for config in configs}
        self._asked |= set(configs_by_key)
        new = {key: config for key, config in configs_by_key.items() if key not in self._begun}
        refused = {key: outcome for key, config in new.items() if (outcome := self._foretell(config)) is not None}
        self._answered += [(new[key], outcome) for key, outcome in refused.items()]
        self._put({key: config for key, config in new.items() if key not in refused})

    def _foretell(self, config: Config) -> Rejected | None:
        """Return why a configuration is not worth its compile, once another one runs."""
        thread_values = self._known.held if self._known is not None and self._slowest_s else None
        return foretell_spills(thread_values(self.shape, config)) if thread_values is not None else None

    def take_compiled(self, wait_s: float) -> list[Compiled] | None:
        """See CompilingRunner. What waits here is time without work for the GPU."""
        if self._compilers is None or self._child.stopping.is_set():
            return None
        began = time.monotonic()
        compiled = self._compilers.ready(0 if any(self._is_asked(pair) for pair in self._answered) else wait_s)
        self._waited_s += time.monotonic() - began
        if compiled is None:
            return None
        answers = [*self._answered, *compiled]
        self._answered = [pair for pair in answers if not self._is_asked(pair)]      # nobody wants those that were begun early yet
        pairs = [pair for pair in answers if self._is_asked(pair)]
        for config, answer in pairs:
            self._asked.discard(config_key(config))
            self._begun.discard(config_key(config))
            if not isinstance(answer, Rejected):
                self._static[config_key(config)] = answer
        return pairs

    def _is_asked(self, compiled: Compiled) -> bool:
        return config_key(compiled[0]) in self._asked

    def forget(self) -> None:
        self._begun, self._asked, self._answered = set(), set(), []
        if self._compilers is not None:
            self._compilers.forget()

    def use(self) -> SessionUse:
        """Return the use since the first open()."""
        pool = self._compilers
        return SessionUse(
            wall_s=time.monotonic() - self._began_s if self._began_s else 0.0, open_s=self._open_s, busy_s=self._busy_s,
            waited_s=self._waited_s, load_s=self._load_s, compile_s=self._compile_s + (pool.compile_s if pool else 0.0),
            compiled=pool.compiled if pool else 0, compilers=pool.count if pool and not pool.useless else 0,
            replaced=self.replaced + (pool.replaced if pool else 0))

    def measure(self, configs: Sequence[Config], incumbent: Incumbent | None = None) -> Iterator[tuple[Config, Outcome]]:
        for config in configs:
            self._tried += 1
            try:
                outcome = self._measure_one(config, incumbent)
            except (Stopped, NoLease):
                return
            yield config, outcome

    def _measure_one(self, config: Config, incumbent: Incumbent | None) -> Outcome:
        static = self._static.pop(config_key(config), {})
        if not self._child.is_open:
            with self._turn():
                self._child.ready_child()
        loaded = self._child.ask({"do": "compile", "config": dict(config)}, self.limits.compile_s)
        if isinstance(loaded, Rejected):
            return Rejected(loaded.reason, loaded.message, {**static, **loaded.facts})
        compiled, took_s = {**static, **loaded}, float(loaded.get("compile_s") or 0.0)
        if "compile_s" in static:              # what the compile process took; here the binary was only loaded
            compiled |= {"compile_s": static["compile_s"], "load_s": took_s}
            self._load_s += took_s
        else:
            self._compile_s += took_s
        request: dict[str, Any] = {"do": "run", "config": dict(config), "seed": self.seed + self._tried}
        if incumbent is not None:
            request["incumbent"] = {"median_ms": incumbent.median_ms, "samples_ms": list(incumbent.samples_ms)}
        before_s = self._busy_s
        result = self._ask_on_gpu(request, self._run_limit_s())
        compiled["measure_s"] = took_s = round(self._busy_s - before_s, 4)
        if isinstance(result, Rejected):
            return Rejected(result.reason, result.message, {**compiled, **result.facts})
        self._slowest_s = max(self._slowest_s, took_s)
        return _outcome(result, {**compiled, **self._conditions})

    def _run_limit_s(self) -> float:
        """Return the limit of a run: a few times the slowest so far, at most the whole limit."""
        longest_s = self.limits.run_s
        return min(longest_s, max(HANG_S, HANG_TIMES * self._slowest_s)) if self._slowest_s else longest_s

    def _ask_on_gpu(self, request: dict[str, Any], limit_s: float) -> Any:
        """Ask for something that holds the GPU."""
        with self._turn():
            self._child.ready_child()                          # a new child's start is no work of the GPU
            began = time.monotonic()
            try:
                return self._child.ask(request, limit_s)
            finally:
                self._busy_s += time.monotonic() - began

    def finalists(self, configs: Sequence[Config]) -> list[tuple[Config, Outcome]]:
        request = {"do": "finalists", "configs": [dict(config) for config in configs]}
        try:
            answer = self._ask_on_gpu(request, self.limits.finalists_s)
        except (Stopped, NoLease):
            return []
        if isinstance(answer, Rejected):
            return [(config, answer) for config in configs]
        return [(config, _outcome(result, self._conditions)) for config, result in zip(configs, answer, strict=True)]

    def stop(self) -> None:
        """Kill the children from another thread; `measure` yields nothing more."""
        self._child.stopping.set()
        if self._compilers is not None:
            self._compilers.stop()

    def close(self) -> None:
        self._child.close()
        if self._compilers is not None:
            self._compilers.close()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)


def _offer(told: Any) -> Offer | None:
    try:
        return None if told is None else read_offer(told)
    except ValueError as error:
        raise SandboxError(f"the GPU child's list of configurations cannot be read: {error}",
                           "start the worker anew: its code may be older than its child's") from error


def _outcome(answer: dict[str, Any], facts: Mapping[str, Any]) -> Outcome:
    if "rejected" in answer:
        return rejection_of(answer)
    fields: dict[str, Any] = {name: answer[name] for name in ("spread", "ended", "samples_ms") if name in answer}
    return Measured(answer["median_ms"], answer["min_ms"], answer["p90_ms"], answer["n"],
                    {**facts, **answer.get("facts", {}), **fields})
