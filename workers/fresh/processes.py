"""Runs in fresh processes on one GPU. No Django: the recorder and the GPU test use it as the worker does.

The next process imports torch while the one before measures; it opens the GPU only at its turn.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tuner.tuning.measure.fresh import POLICY, KernelRequest, KernelSamples
from tuner.tuning.operators import find, limits
from tuner.tuning.trial import Config
from workers.core.child import Child, ChildDied, ChildHung, Stopped

CHILD = "tuner.tuning.measure.child"
MESSAGE_CHARS = 280


@dataclass(frozen=True)
class Limits:
    """Seconds that one answer of a process may take, after which it is killed."""

    open_s: float = 180.0
    compile_s: float = 120.0
    run_s: float = 60.0
    deaths: int = 3                  # of one run, after which the rest of its kernels is not tried


@dataclass(frozen=True)
class Side:
    """What distinguishes the processes of one build: where its code lies, and its folder of compiled kernels."""

    name: str
    code: Path | None = None                    # first on PYTHONPATH
    compiled: Path | None = None                # TRITON_CACHE_DIR: only the first process compiles

    def environ(self) -> dict[str, str]:
        variables = {}
        if self.code is not None:
            variables["PYTHONPATH"] = os.pathsep.join([str(self.code), *filter(None, [os.environ.get("PYTHONPATH")])])
        if self.compiled is not None:
            variables["TRITON_CACHE_DIR"] = str(self.compiled)
        return variables


class FreshRuns:
    """Times kernels in one new process after the other. `module` is the child's program; tests give their own.

    spawn  starts a process of it, behind walls where its code is not ours
    """

    def __init__(self, gpu_index: int = 0, *, gpu_uuid: str = "", module: str = CHILD, policy: Mapping[str, Any] = POLICY,
                 limits: Limits | None = None, environ: Mapping[str, str] | None = None,
                 spawn: Callable[[str, Mapping[str, str]], Child] = Child) -> None:
        self.gpu_index, self.module, self.policy = gpu_index, module, dict(policy)
        self.limits, self._start = limits or Limits(), spawn
        self._environ = {**(environ or {}), "CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": gpu_uuid or str(gpu_index)}
        self._child: Child | None = None
        self._spare: tuple[Side, Child] | None = None
        self._stop = threading.Event()

    def prepare(self, side: Side, requests: Sequence[KernelRequest]) -> dict[str, str]:
        """Compile everything in a process that measures nothing, so that all that measure find it compiled.

        Key → why the compiler refuses it; what died, hung or did not open is tried again by the runs.
        """
        refused = {}
        try:
            for request in requests:
                opened = self._opened(side, request)
                if "rejected" in opened:
                    continue
                answer = self._ask({"do": "compile", "config": opened["config"]}, self.limits.compile_s)
                if "rejected" in answer and not answer.get("died"):
                    refused[request.key] = answer["rejected"]
        finally:
            self._end()
        return refused

    def run(self, side: Side, requests: Sequence[KernelRequest], *, seed: int = 0,
            then: Side | None = None) -> Iterator[KernelSamples]:
        """Every kernel once in a new process; `then` is whose process may get ready meanwhile. Raises Stopped.

        A process that dies costs the kernel it died of; a new one takes the others.
        """
        process, deaths = 0, 0
        try:
            for request in requests:
                if deaths >= self.limits.deaths:
                    why = f"not tried: {deaths} processes of this run died before it"
                    yield KernelSamples(request.key, rejected=why, process=process)
                    continue
                if self._child is None and then is not None:
                    self._child = self._taken_over(side)
                    self._spare = (then, self._spawn(then))
                samples = self._one(side, request, seed, process)
                yield samples
                if self._child is None:
                    process, deaths = process + 1, deaths + 1
        finally:
            self._end()

    def _one(self, side: Side, request: KernelRequest, seed: int, process: int) -> KernelSamples:
        opened = self._opened(side, request, seed)
        if "rejected" in opened:
            return KernelSamples(request.key, rejected=opened["rejected"], config=request.config, process=process)
        session, config = opened["session"], opened["config"]
        about: dict[str, Any] = {"config": config, "process": process, "session": session,
                                 "source_hash": str(session.get("source_hash") or "")}
        compiled = self._ask({"do": "compile", "config": dict(config)}, self.limits.compile_s)
        if "rejected" in compiled:
            return KernelSamples(request.key, rejected=compiled["rejected"], facts=compiled.get("facts", {}), **about)
        answer = self._ask({"do": "run", "config": dict(config), "seed": seed}, self.limits.run_s)
        if "rejected" in answer:
            return KernelSamples(request.key, rejected=answer["rejected"], facts={**compiled, **answer.get("facts", {})}, **about)
        us = [round(1000 * float(ms), 3) for ms in answer["samples_ms"]]
        return KernelSamples(request.key, us, facts={**compiled, **answer["facts"], "ended": answer["ended"]}, **about)

    def _opened(self, side: Side, one: KernelRequest, seed: int = 0) -> dict[str, Any]:
        """{"session", "config"} of a kernel, or {"rejected"}."""
        if self._child is None:
            self._child = self._taken_over(side)
        request = {"do": "open", "operator": one.operator, "shape": dict(one.shape), "dtype": one.dtype, "seed": seed,
                   "gpu_index": self.gpu_index, "policy": self.policy, "library": False}
        session = self._ask(request, self.limits.open_s)
        if "rejected" in session:
            return session
        config = one.config or (one.choose(session) if one.choose else None) or _default(one, session)
        if config is None:
            return {"rejected": f"no operator {one.operator} is known to this worker, so there is no default configuration"}
        return {"session": session, "config": dict(config)}

    def _ask(self, request: dict[str, Any], limit_s: float) -> dict[str, Any]:
        """The answer, or {"rejected": why, "facts"}; after a death `_child` is None."""
        if self._stop.is_set() or self._child is None:
            raise Stopped
        try:
            answer = self._child.ask(request, limit_s, self._stop)
        except (ChildHung, ChildDied) as error:
            self._end()
            who = "the process " if isinstance(error, ChildDied) else ""
            return {"rejected": f"{request['do']}: {who}{error}"[:MESSAGE_CHARS], "died": True}
        if answer.get("fatal"):
            self._end()
        if "ok" in answer:
            return dict(answer["ok"])
        if "failed" in answer:
            failure = answer["failed"]
            return {"rejected": f"{failure['what']}; {failure['hint']}".strip("; ")[:MESSAGE_CHARS]}
        failure = answer["rejected"]
        return {"rejected": f"{failure['reason']}: {failure['message']}"[:MESSAGE_CHARS], "facts": failure["facts"]}

    def _taken_over(self, side: Side) -> Child:
        """The spare, when it is this side's and lives, else a new process."""
        if self._spare is not None:
            whose, child = self._spare
            self._spare = None
            if whose == side and child.alive:
                return child
            child.close()
        return self._spawn(side)

    def _spawn(self, side: Side) -> Child:
        return self._start(self.module, {**self._environ, **side.environ()})

    def _end(self) -> None:
        if self._child is not None:
            with suppress(OSError):
                self._child.close()
        self._child = None

    def stop(self) -> None:
        """From another thread: the process is killed, and `run` ends by Stopped."""
        self._stop.set()

    def close(self) -> None:
        self._end()
        if self._spare is not None:
            self._spare[1].close()
        self._spare = None


def _default(request: KernelRequest, session: Mapping[str, Any]) -> Config | None:
    operator = find(request.operator)
    if operator is None:
        return None
    device = limits(str(session.get("gpu") or ""), session.get("compute_capability"), session.get("sms"))
    return operator.default_config(request.shape, request.dtype, device)
