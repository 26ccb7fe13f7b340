"""A Runner whose kernels run in a spawned child process that may crash or hang without harm to the worker.

Compilers work ahead in processes of their own. Spare children that have already imported torch wait, so that a dead or
hung one is replaced within a second.
"""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tuner.bench.runner import Compiled, Incumbent, Session, Use
from tuner.operators import OPERATORS, find
from tuner.trial import Config, Measured, Outcome, Reason, Rejected, config_key
from workers.child import Child, ChildDied, ChildHung, SandboxError, Stopped
from workers.compilers import Compilers, cache_folder, cores

CHILD, COMPILER = "tuner.bench.child", "tuner.bench.compiler"
SPARES = 2                      # children that wait: two crashes may follow each other closely
AHEAD = 2                       # configurations in the line above what compiles: compiled, and on the GPU


@dataclass(frozen=True)
class Limits:
    """Seconds that a child may take, after which it is killed."""

    open_s: float = 180.0
    compile_s: float = 60.0
    run_s: float = 30.0
    finalists_s: float = 120.0
    max_opens: int = 3              # in a row that fail before the job does


class SandboxRunner:
    """Measures configurations of one operator on one GPU in a child process. See tuner.bench.runner.Runner.

    operator, shape, dtype   an operator that `find` knows and what to measure
    gpu_index                as nvidia-smi numbers it; `gpu_uuid` goes before it where known
    policy                   fields of tuner.bench.policy.Policy to override
    compilers                processes that compile ahead: None as many as the host has cores for, 0 none
    child_module             the program of the child; tests give their own, and their own compiler_module
    """

    def __init__(self, operator: str, shape: Mapping[str, int], dtype: str, gpu_index: int = 0, *, gpu_uuid: str = "",
                 seed: int = 0, limits: Limits | None = None, policy: Mapping[str, Any] | None = None,
                 compilers: int | None = None, child_module: str = CHILD, compiler_module: str = "") -> None:
        if find(operator) is None and child_module == CHILD:
            raise SandboxError(f"unknown operator {operator!r}", f"one of {', '.join(OPERATORS)}")
        self.operator, self.shape, self.dtype, self.seed = operator, dict(shape), dtype, seed
        self.gpu_index, self.limits, self.policy = gpu_index, limits or Limits(), dict(policy or {})
        self._module = child_module
        self._compiler_module = compiler_module or (COMPILER if child_module == CHILD else "")
        self._count = cores() if compilers is None else compilers
        self._folder: Path | None = None
        self._compilers: Compilers | None = None
        self._static: dict[str, Mapping[str, Any]] = {}         # what compiling ahead said of a configuration
        self._child: Child | None = None
        self._spares: list[Child] = []
        self._stop = threading.Event()
        self._tried = 0
        self._began_s = self._open_s = self._busy_s = self._waited_s = 0.0
        self._loads: list[float] = []
        self.replaced = 0               # children that died or hung
        self._environ = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": gpu_uuid or str(gpu_index)}

    @property
    def ahead(self) -> int:
        """1 where nothing compiles ahead: no compilers asked for, no GPU to compile for, or a kernel that cannot."""
        pool = self._compilers
        return 1 if pool is None or pool.useless else pool.count + AHEAD

    def open(self) -> Session:
        self._began_s = time.monotonic()
        self._prepare()
        facts = self._begin(library=True)
        self._open_s = time.monotonic() - self._began_s
        self._aim(facts)
        operator = find(self.operator)
        flops, moved = (operator.flops(self.shape), operator.bytes(self.shape, self.dtype)) if operator else (None, None)
        named = ("gpu", "compute_capability", "library_ms", "policy")
        return Session(
            gpu=facts["gpu"], compute_capability=facts["compute_capability"], library_ms=facts["library_ms"],
            policy=facts["policy"], flops=flops, bytes=moved,
            environment={name: value for name, value in facts.items() if name not in named})

    def _prepare(self) -> None:
        """Compilers import torch while the child opens the GPU; all share one folder of binaries."""
        if self._compiler_module and self._count:
            self._folder = cache_folder()
            self._environ["TRITON_CACHE_DIR"] = str(self._folder)
            self._compilers = Compilers(self._compiler_module, self._environ, self._count,
                                        limit_s=self.limits.compile_s, open_s=self.limits.open_s)

    def _aim(self, facts: Mapping[str, Any]) -> None:
        if self._compilers is None:
            return
        if not facts["compute_capability"]:
            self._compilers.close()
            self._compilers = None
            return
        self._compilers.aim({"operator": self.operator, "shape": self.shape, "dtype": self.dtype, "seed": self.seed,
                             "compute_capability": facts["compute_capability"], "sms": facts.get("sms") or 1})

    def compile_ahead(self, configs: Sequence[Config]) -> None:
        if self._compilers is not None:
            self._compilers.put(configs)

    def compiled(self, wait_s: float) -> list[Compiled] | None:
        """See CompilesAhead. What waits here is time in which the GPU has nothing to do."""
        if self._compilers is None or self._stop.is_set():
            return None
        began = time.monotonic()
        found = self._compilers.ready(wait_s)
        self._waited_s += time.monotonic() - began
        for config, answer in found or ():
            if not isinstance(answer, Rejected):
                self._static[config_key(config)] = answer
        return found

    def forget(self) -> None:
        if self._compilers is not None:
            self._compilers.forget()

    def use(self) -> Use:
        pool = self._compilers
        loads = sorted(self._loads)
        return Use(
            wall_s=time.monotonic() - self._began_s if self._began_s else 0.0, open_s=self._open_s, busy_s=self._busy_s,
            waited_s=self._waited_s, compile_s=pool.compile_s if pool else sum(loads), compiled=pool.compiled if pool else 0,
            compilers=pool.count if pool and not pool.useless else 0,
            replaced=self.replaced + (pool.replaced if pool else 0), load_ms=loads[len(loads) // 2] * 1000 if loads else None)

    def measure(self, configs: Sequence[Config], incumbent: Incumbent | None = None) -> Iterator[tuple[Config, Outcome]]:
        for config in configs:
            self._tried += 1
            try:
                outcome = self._one(config, incumbent)
            except Stopped:
                return
            yield config, outcome

    def _one(self, config: Config, incumbent: Incumbent | None) -> Outcome:
        static = self._static.pop(config_key(config), {})
        loaded = self._ask({"do": "compile", "config": dict(config)}, self.limits.compile_s)
        if isinstance(loaded, Rejected):
            return Rejected(loaded.reason, loaded.message, {**static, **loaded.facts})
        self._loads.append(float(loaded.get("compile_s") or 0.0))
        compiled = {**static, **loaded}
        if "compile_s" in static:              # what the compile process took; here the binary was only loaded
            compiled |= {"compile_s": static["compile_s"], "load_s": loaded.get("compile_s")}
        request: dict[str, Any] = {"do": "run", "config": dict(config), "seed": self.seed + self._tried}
        if incumbent is not None:
            request["incumbent"] = {"median_ms": incumbent.median_ms, "samples_ms": list(incumbent.samples_ms)}
        began = time.monotonic()
        result = self._busy(request, self.limits.run_s)
        compiled["measure_s"] = round(time.monotonic() - began, 4)
        if isinstance(result, Rejected):
            return Rejected(result.reason, result.message, {**compiled, **result.facts})
        return _measured(result, compiled)

    def _busy(self, request: dict[str, Any], limit_s: float) -> Any:
        """Ask for something that holds the GPU."""
        if self._child is None and not self._stop.is_set():
            self._begin(library=False)                   # a new child's start is no work of the GPU
        began = time.monotonic()
        try:
            return self._ask(request, limit_s)
        finally:
            self._busy_s += time.monotonic() - began

    def finalists(self, configs: Sequence[Config]) -> list[tuple[Config, Outcome]]:
        request = {"do": "finalists", "configs": [dict(config) for config in configs]}
        try:
            answer = self._busy(request, self.limits.finalists_s)
        except Stopped:
            return []
        if isinstance(answer, Rejected):
            return [(config, answer) for config in configs]
        return [(config, _measured(result, {})) for config, result in zip(configs, answer, strict=True)]

    def stop(self) -> None:
        """From another thread: whatever the children do, they are killed, and `measure` yields nothing more."""
        self._stop.set()
        if self._compilers is not None:
            self._compilers.stop()

    def close(self) -> None:
        for child in (self._child, *self._spares):
            if child is not None:
                child.close()
        self._child, self._spares = None, []
        if self._compilers is not None:
            self._compilers.close()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    def _ask(self, message: dict[str, Any], limit_s: float) -> Any:
        """The child's answer, or Rejected where it died or hung; the next question then goes to a new child."""
        if self._stop.is_set():
            raise Stopped
        if self._child is None:
            self._begin(library=False)
        try:
            answer = self._living().ask(message, limit_s, self._stop)
        except ChildHung as hung:
            self._bury()
            return Rejected(Reason.TIMEOUT, f"{message['do']}: {hung}")
        except ChildDied as died:
            self._bury()
            return Rejected(Reason.CRASH, f"{message['do']}: the child {died}")
        if answer.get("fatal"):
            self._bury()
        if "rejected" in answer:
            refused = answer["rejected"]
            return Rejected(Reason(refused["reason"]), refused["message"], refused["facts"])
        if "failed" in answer:
            raise SandboxError(answer["failed"]["what"], answer["failed"]["hint"])
        return answer["ok"]

    def _living(self) -> Child:
        if self._child is None:
            raise SandboxError("the session is not open")
        return self._child

    def _bury(self) -> None:
        self.replaced += 1
        if self._child is not None:
            self._child.close()
        self._child = None

    def _begin(self, library: bool) -> dict[str, Any]:
        """Take a spare (or spawn) and open the session in it; then have new spares import torch meanwhile."""
        request = {"do": "open", "operator": self.operator, "shape": self.shape, "dtype": self.dtype, "seed": self.seed,
                   "gpu_index": self.gpu_index, "policy": self.policy, "library": library}
        why = ""
        for _ in range(self.limits.max_opens):
            self._child = self._spares.pop(0) if self._spares else self._spawn()
            try:
                answer = self._child.ask(request, self.limits.open_s, self._stop)
            except (ChildDied, ChildHung) as error:
                why = str(error)
                self._bury()
                continue
            if "ok" not in answer:
                failed = answer.get("failed") or {"what": answer["rejected"]["message"], "hint": ""}
                raise SandboxError(failed["what"], failed["hint"])
            self._spares += [self._spawn() for _ in range(SPARES - len(self._spares))]
            return dict(answer["ok"])
        raise SandboxError(f"the GPU child did not start {self.limits.max_opens} times in a row: {why}",
                           "on the worker, try: python -c 'import torch, triton; torch.cuda.init()'")

    def _spawn(self) -> Child:
        return Child(self._module, self._environ)


def _measured(result: dict[str, Any], facts: Mapping[str, Any]) -> Measured:
    kept: dict[str, Any] = {name: result[name] for name in ("spread", "ended", "samples_ms") if name in result}
    return Measured(result["median_ms"], result["min_ms"], result["p90_ms"], result["n"],
                    {**facts, **result.get("facts", {}), **kept})
