"""The child process that owns a GPU, and spares that have imported torch, where no warm parent forks another at once."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tuner.tuning.trial import Reason, Rejected
from workers.core import warm
from workers.core.child import Child, ChildDied, ChildHung, SandboxError, Stopped

SPARES = 2                      # two crashes may follow each other closely
Spawn = Callable[[str, Mapping[str, str]], Child]       # module, environment


@dataclass(frozen=True)
class Limits:
    """Seconds that a child may take before it is killed."""

    open_s: float = 180.0
    compile_s: float = 60.0
    run_s: float = 30.0
    finalists_s: float = 120.0
    max_opens: int = 3              # in a row that fail before the job does


class GpuChild:
    """Asks the child and replaces it when it dies; `opening` is sent to each new child."""

    def __init__(self, module: str, environ: Mapping[str, str], limits: Limits, spawn: Spawn = Child) -> None:
        self._module, self._environ, self.limits, self._start = module, environ, limits, spawn
        self._child: Child | None = None
        self.spares: list[Child] = []
        self.opening: dict[str, Any] = {}
        self.stopping = threading.Event()
        self.replaced = 0               # children that died or hung

    @property
    def is_open(self) -> bool:
        """Return whether a child has opened the session."""
        return self._child is not None

    @property
    def pids(self) -> list[int]:
        return [child.process.pid for child in (self._child, *self.spares) if child is not None]

    def start(self) -> None:
        """Start a child that `open` then opens."""
        if self._child is None and not self.spares and not self.stopping.is_set():
            self.spares.append(self._spawn())

    def ask(self, message: dict[str, Any], limit_s: float) -> Any:
        """Return the answer, or Rejected where the child refused, died or hung."""
        if self.stopping.is_set():
            raise Stopped
        child = self._child or self.ready_child()
        try:
            answer = child.ask(message, limit_s, self.stopping)
        except ChildHung as hung:
            self._bury()
            return Rejected(Reason.TIMEOUT, f"{message['do']}: {hung}")
        except ChildDied as died:
            self._bury()
            return Rejected(Reason.CRASH, f"{message['do']}: the child {died}")
        if answer.get("fatal"):
            self._bury()
        if "rejected" in answer:
            return rejection_of(answer)
        if "failed" in answer:
            raise SandboxError(answer["failed"]["what"], answer["failed"]["hint"])
        return answer["ok"]

    def ready_child(self) -> Child:
        """Return an opened child; after a crash one of the spares."""
        if self._child is None and not self.stopping.is_set():
            if not self.opening:
                raise SandboxError("the session is not open")
            self.open(library=False)
        if self._child is None:
            raise Stopped
        return self._child

    def open(self, library: bool) -> dict[str, Any]:
        """Open the session in the child, a spare or a new one; then start new spares, which import torch while it measures.

        Not before: where cores are few, they would keep the first trial waiting.
        """
        why = ""
        for _ in range(self.limits.max_opens):
            self._child = self._child or (self.spares.pop(0) if self.spares else self._spawn())
            try:
                answer = self._child.ask({"do": "open", **self.opening, "library": library}, self.limits.open_s, self.stopping)
            except (ChildDied, ChildHung) as error:
                why = str(error)
                self._bury()
                continue
            if "ok" not in answer:
                failed = answer.get("failed") or {"what": answer["rejected"]["message"], "hint": ""}
                raise SandboxError(failed["what"], failed["hint"])
            if not isinstance(self._child.process, warm.ForkedProcess):
                self.spares += [self._spawn() for _ in range(SPARES - len(self.spares))]
            return dict(answer["ok"])
        raise SandboxError(f"the GPU child did not start {self.limits.max_opens} times in a row: {why}",
                           "on the worker, try: python -c 'import torch, triton; torch.cuda.init()'")

    def close(self) -> None:
        """End child and spares."""
        for child in (self._child, *self.spares):
            if child is not None:
                child.close()
        self._child, self.spares = None, []

    def _bury(self) -> None:
        self.replaced += 1
        if self._child is not None:
            self._child.close()
        self._child = None

    def _spawn(self) -> Child:
        return self._start(self._module, self._environ)


def rejection_of(answer: Mapping[str, Any]) -> Rejected:
    """Return what the child would not measure, and why."""
    rejection = answer["rejected"]
    return Rejected(Reason(rejection["reason"]), rejection["message"], rejection["facts"])
