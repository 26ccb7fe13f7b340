"""Captures that the server ordered in a receipt: each once, whatever comes again; what became of them goes with the next batch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

import msgspec

from workers.agent.deep.captures import Captures
from workers.agent.deep.kineto import KinetoDaemon

MOST_TOLD = 64
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
        if order.id in self.refused or any(each.order == order.id for each in self.captures.every):
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
        known = any(each.order == order for each in self.captures.every)
        self.captures.stop(order)
        if not known and order not in self.refused:
            self._refuse(order, "stopped")
            self.news = True

    def _refuse(self, order: int, why: str) -> None:
        self.refused = dict([*self.refused.items(), (order, why)][-MOST_TOLD:])

    def state(self) -> list[dict[str, Any]]:
        """Return what became of the last orders, and of captures that were ordered on the host."""
        told = [{"order": order, "state": "failed", "why": why} for order, why in self.refused.items()]
        told += [{"order": each.order, "state": each.state, "why": each.why, "took_s": round(each.took_s, 1), "bytes": each.bytes,
                  "profile": each.profile, "job": each.job, "pid": each.pid, "cost": each.cost}
                 for each in self.captures.every[-MOST_TOLD:]]
        return told

    def mark_told(self) -> None:
        self.news, self._told = False, self._states()

    def changed(self) -> bool:
        """Return whether an order's state is another than was told last."""
        return self.news or self._states() != self._told

    def _states(self) -> dict[int, tuple[str, str, bool]]:
        return {each.order: (each.state, each.why, each.cost is None) for each in self.captures.every if each.order is not None}
