"""Processes that ask for captures, what is told of them and what was ordered of them: for the node agent, and for a GPU worker
where no agent runs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

import msgspec

from workers.agent.deep.captures import Captures
from workers.agent.deep.kineto import Asking, KinetoDaemon, launchers
from workers.agent.deep.processes import command_of, holds_gpu
from workers.agent.identity import Identity, identity_of

# Captures that the server ordered in a receipt: each once, whatever comes again; what became of them goes with the next batch.

MOST_ORDERS_TOLD = 64
_Count = Annotated[int, msgspec.Meta(ge=0, lt=2**62)]


class Order(msgspec.Struct):
    """`pid` 0: any process of the job. `steps` 0: a time of `milliseconds`. `start_ms` 0: at once. `stop`: end that order."""

    id: _Count
    pid: _Count = 0
    job: str = ""
    steps: _Count = 0
    milliseconds: _Count = 0
    start_ms: _Count = 0
    shapes: bool = True
    stacks: bool = False
    stop: bool = False


@dataclass
class Orders:
    """`job_of(pid)`: what is known of a process. `news`: something changed that the server does not know yet."""

    captures: Captures
    daemon: KinetoDaemon
    job_of: Callable[[int], Mapping[str, Any]]
    host: str
    refused: dict[int, str] = field(default_factory=dict)       # order -> why it was not begun
    news: bool = False
    _told: dict[int, tuple[str, str, bool]] = field(default_factory=dict)

    def take(self, given: object) -> None:
        """Begin what was ordered, unless it is known already."""
        try:
            order = msgspec.convert(given, Order)
        except msgspec.ValidationError:
            return
        if order.stop:
            self._stop(order.id)
            return
        if order.id in self.refused or any(capture.order == order.id for capture in self.captures.every):
            return
        pid = order.pid or next((pid for pid in self.daemon.processes if self.job_of(pid).get("job") == order.job), 0)
        why = f"no process of {order.job!r} asks for captures"
        if pid:
            why = self.captures.ask(pid, {"host": self.host, **self.job_of(pid)}, order.steps, "ordered", order.milliseconds,
                                    order.start_ms, order.id, order.shapes, order.stacks)
        if why:
            self._refuse(order.id, why)
        self.news = True

    def _stop(self, order: int) -> None:
        is_known = any(capture.order == order for capture in self.captures.every)
        self.captures.stop(order)
        if not is_known and order not in self.refused:
            self._refuse(order, "stopped")
            self.news = True

    def _refuse(self, order: int, why: str) -> None:
        self.refused = dict([*self.refused.items(), (order, why)][-MOST_ORDERS_TOLD:])

    def state(self) -> list[dict[str, Any]]:
        """Return what became of the last orders, and of captures that were ordered on the host."""
        told = [{"order": order, "state": "failed", "why": why} for order, why in self.refused.items()]
        told += [{"order": each.order, "state": each.state, "why": each.why, "took_s": round(each.took_s, 1), "bytes": each.bytes,
                  "profile": each.profile, "job": each.job, "pid": each.pid, "cost": each.cost}
                 for each in self.captures.every[-MOST_ORDERS_TOLD:]]
        return told

    def mark_told(self) -> None:
        self.news, self._told = False, self._states()

    def changed(self) -> bool:
        """Return whether an order's state is another than was told last."""
        return self.news or self._states() != self._told

    def _states(self) -> dict[int, tuple[str, str, bool]]:
        return {each.order: (each.state, each.why, each.cost is None) for each in self.captures.every if each.order is not None}


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
        job = self._job_told(pid)
        if job is not None:
            return dict(job)
        own = self._know(pid).identity
        return {"job": own.job, "build": own.build, "model": own.model, **({"rank": own.rank} if own.rank >= 0 else {})}

    def state(self) -> dict[str, Any]:
        """Return {"run", "asking": processes, "captures": what became of orders}."""
        every = list(self.daemon.processes.values())
        starting = launchers(every)
        return {"run": self.run, "asking": [self._told(process, process.pid in starting) for process in every[:MOST_TOLD]],
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
            self._known = {other_pid: entry for other_pid, entry in self._known.items() if other_pid in self.daemon.processes}
            own = self._known[pid] = _Known(identity_of(pid), command_of(pid))
        return own
