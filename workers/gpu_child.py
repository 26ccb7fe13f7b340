"""The one child process that owns a GPU, and the spares that have imported torch and wait to take its place."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tuner.trial import Reason, Rejected
from workers.child import Child, ChildDied, ChildHung, SandboxError, Stopped

SPARES = 2                      # two crashes may follow each other closely


@dataclass(frozen=True)
class Limits:
    """Seconds that a child may take, after which it is killed."""

    open_s: float = 180.0
    compile_s: float = 60.0
    run_s: float = 30.0
    finalists_s: float = 120.0
    max_opens: int = 3              # in a row that fail before the job does


class GpuChild:
    """Asks the child, and replaces it when it dies or hangs. `opening` is its `open` request, sent to each new child."""

    def __init__(self, module: str, environ: Mapping[str, str], limits: Limits) -> None:
        self._module, self._environ, self.limits = module, environ, limits
        self._child: Child | None = None
        self.spares: list[Child] = []
        self.opening: dict[str, Any] = {}
        self.stopping = threading.Event()
        self.replaced = 0               # children that died or hung

    @property
    def opened(self) -> bool:
        return self._child is not None

    @property
    def pids(self) -> list[int]:
        return [child.process.pid for child in (self._child, *self.spares) if child is not None]

    def ask(self, message: dict[str, Any], limit_s: float) -> Any:
        """Its answer, or Rejected where it refused, died or hung; the next question then goes to a new child."""
        if self.stopping.is_set():
            raise Stopped
        child = self._child or self.ready()
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
            return refused(answer)
        if "failed" in answer:
            raise SandboxError(answer["failed"]["what"], answer["failed"]["hint"])
        return answer["ok"]

    def ready(self) -> Child:
        """The child, opened; after a crash that is one of the spares."""
        if self._child is None and not self.stopping.is_set():
            if not self.opening:
                raise SandboxError("the session is not open")
            self.open(library=False)
        if self._child is None:
            raise Stopped
        return self._child

    def open(self, library: bool) -> dict[str, Any]:
        """Open the session in the child that is there, in a spare or in a new one, while new spares start."""
        why = ""
        self._child = self._child or (self.spares.pop(0) if self.spares else self._spawn())
        self.spares += [self._spawn() for _ in range(SPARES - len(self.spares))]       # they import torch meanwhile
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
            return dict(answer["ok"])
        raise SandboxError(f"the GPU child did not start {self.limits.max_opens} times in a row: {why}",
                           "on the worker, try: python -c 'import torch, triton; torch.cuda.init()'")

    def close(self) -> None:
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
        return Child(self._module, self._environ)


def refused(answer: Mapping[str, Any]) -> Rejected:
    """What the child would not measure, and why."""
    told = answer["rejected"]
    return Rejected(Reason(told["reason"]), told["message"], told["facts"])
