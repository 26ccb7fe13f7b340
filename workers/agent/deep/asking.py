"""Processes that ask for captures, what is told of them and what was ordered of them: for the node agent, and for a GPU worker
where no agent runs."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from workers.agent.deep.captures import Captures
from workers.agent.deep.kineto import Asking, KinetoDaemon, launchers
from workers.agent.deep.orders import Orders
from workers.agent.deep.processes import command_of, holds_gpu
from workers.agent.identity import Identity, identity_of

MOST_TOLD = 256                     # processes in the state
GPUS_EVERY_S = 10.0
WORKER, LAUNCHER = "worker", "launcher"


@dataclass(frozen=True)
class _Known:
    identity: Identity
    command: str


class Askers:
    """`job_told(pid)`: what a process said of itself, None where it has no agent. `gpus()`: GPU (its UUID) by process."""

    def __init__(self, daemon: KinetoDaemon, captures: Captures, host: str,
                 job_told: Callable[[int], Mapping[str, Any] | None] = lambda pid: None,
                 gpus: Callable[[], Mapping[int, str]] = dict) -> None:
        self.daemon, self.captures, self.host = daemon, captures, host
        self._job_told, self._gpus = job_told, gpus
        self.orders = Orders(captures, daemon, self.job_of, host)
        self._known: dict[int, _Known] = {}
        self._gpu_of: Mapping[int, str] = {}
        self._asked_gpus_s = 0.0
        self.run = int(time.time() * 1e3)       # tells the server that what was under way before is lost

    def tend(self) -> None:
        """Answer what lies in the socket, look after captures."""
        self.daemon.poll()
        self.daemon.forget()
        self.captures.poll()

    def job_of(self, pid: int) -> dict[str, Any]:
        """Return job, build, model and rank of a process, as far as they are known."""
        told = self._job_told(pid)
        if told is not None:
            return dict(told)
        own = self._know(pid).identity
        return {"job": own.job, "build": own.build, "model": own.model, **({"rank": own.rank} if own.rank >= 0 else {})}

    def state(self) -> dict[str, Any]:
        """Return {"run", "asking": processes, "captures": what became of orders}."""
        every = list(self.daemon.processes.values())
        starting = launchers(every)
        return {"run": self.run, "asking": [self._told(each, each.pid in starting) for each in every[:MOST_TOLD]],
                "captures": self.orders.state()}

    def pids(self) -> frozenset[int]:
        return frozenset(self.daemon.processes)

    def _told(self, own: Asking, is_launcher: bool) -> dict[str, Any]:
        job, gpu = self.job_of(own.pid), self._gpu_uuid(own.pid)
        on_gpu = True if gpu or own.gpu is not None else holds_gpu(own.pid)
        role = LAUNCHER if is_launcher and not on_gpu else WORKER
        return {"pid": own.pid, **{name: job[name] for name in ("job", "rank", "build") if job.get(name) not in (None, "")},
                "command": self._know(own.pid).command, "role": role, "gpu": gpu or "", "index": own.gpu, "on_gpu": on_gpu}

    def _gpu_uuid(self, pid: int) -> str:
        if time.monotonic() - self._asked_gpus_s > GPUS_EVERY_S:
            self._asked_gpus_s, self._gpu_of = time.monotonic(), self._gpus()
        return self._gpu_of.get(pid, "")

    def _know(self, pid: int) -> _Known:
        own = self._known.get(pid)
        if own is None:
            self._known = {known: each for known, each in self._known.items() if known in self.daemon.processes}
            own = self._known[pid] = _Known(identity_of(pid), command_of(pid))
        return own
