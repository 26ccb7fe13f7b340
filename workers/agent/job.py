"""The agent of a job's process: started by `import workers.agent.auto` or by RIDGEPOINT_AGENT=1 in its environment.

    from workers.agent import job
    job.step()                      # a step, or a token, ended: what the loss is measured by
    job.offer(0.5)                  # for half a second latency does not matter: a window may open

Both do nothing where no agent runs. A child that was forked starts its own, unless its parent had used CUDA, which no fork
survives."""

from __future__ import annotations

import atexit
import os
import threading
import time
from collections.abc import Mapping
from typing import Any

from workers.agent import VERSION
from workers.agent.collecting import Collecting
from workers.agent.controller import Limits
from workers.agent.deep.pace import TOLD_S, seconds_of
from workers.agent.identity import Identity, not_sampled, read_identity
from workers.agent.launches import Window
from workers.agent.link import Link, socket_path, window_message
from workers.agent.progress import Ranges, Steps, watch_torch

ON = ("1", "true", "yes", "on")
_lock = threading.Lock()
_job: Job | None = None
_is_hooked = False


class Job:
    """The threads of this process's agent: one opens windows, one talks to the node agent."""

    def __init__(self, identity: Identity, limits: Limits, environ: Mapping[str, str], why: str = "") -> None:
        self.identity, self.environ, self.refused = identity, environ, why
        self.steps = Steps()
        stay = environ.get("RIDGEPOINT_AGENT_STAY", "").lower()
        self.collecting = Collecting(identity, limits, self._sink, self.steps, stay in ON if stay else None,
                                     ranges=read_ranges(environ.get("RIDGEPOINT_AGENT_RANGES", "")))
        self.link = Link(socket_path(environ), self.state)

    def start(self) -> None:
        if not self.refused:
            self.collecting.start()
        self.link.start()

    def state(self) -> dict[str, Any]:
        """Return what is known of this process, as the node agent passes it on. Unknown numbers are None."""
        found, collector = self.collecting.report(), self.collecting.collector
        own = self.collecting
        watch_torch(self.steps)             # of a job that is left to Kineto too: what its captures cost is measured by its steps
        return {"kind": "state", "version": VERSION, "job": self.identity.job, "pid": os.getpid(), "rank": self.identity.rank,
                "state": "not collected" if self.refused else own.state, "why": self.refused or own.why or self.link.why,
                "loss_pct": found and found.loss_pct, "loss_low_pct": found and found.loss_low_pct,
                "loss_high_pct": found and found.loss_high_pct, "coverage_pct": found and found.coverage_pct,
                "windows": found.windows if found else 0, "measured": bool(found and found.measured), "steps": self.steps.source,
                "records": collector.records if collector else 0, "lost_records": collector.dropped if collector else 0,
                "dropped_windows": self.link.dropped, "pace": self._pace()}

    def _pace(self) -> list[tuple[int, int, float]]:
        """Return the steps of the last seconds, by the clock of this host."""
        offset_ns = time.time_ns() - time.perf_counter_ns()
        return seconds_of(self.steps.since(time.perf_counter_ns() - (TOLD_S + 2) * 10**9) + offset_ns)

    def _sink(self, windows: list[Window]) -> None:
        for window in windows:
            self.link.put(window_message(window))


def read_ranges(asked: str) -> Ranges | None:
    """Return what notes ranges: of all names ("1"), of those in a list ("train,eval"), None where nothing is asked for."""
    if asked.lower() in ("", "0", "false", "no", "off"):
        return None
    return Ranges(frozenset() if asked.lower() in ON else frozenset(filter(None, (name.strip() for name in asked.split(",")))))


def start(environ: Mapping[str, str] = os.environ) -> Job | None:
    """Start the agent of this process, once; return it. Nothing is raised: a job runs without its agent as well."""
    global _job, _is_hooked
    with _lock:
        if _job is None:
            try:
                identity = read_identity(environ)
                why = not_sampled(identity, environ.get("RIDGEPOINT_AGENT_SAMPLE", ""), environ.get("RIDGEPOINT_AGENT_SEED", ""))
                limits = Limits(loss_pct=float(environ.get("RIDGEPOINT_AGENT_LOSS_PCT") or 0.5),
                                coverage_pct=float(environ.get("RIDGEPOINT_AGENT_COVERAGE_PCT") or 25.0))
                _job = Job(identity, limits, environ, why)
                _job.start()
            except Exception as error:
                _job = None
                os.write(2, f"ridgepoint-agent: not started: {error}\n".encode(errors="replace"))
        if not _is_hooked:
            os.register_at_fork(after_in_child=_after_fork)
            atexit.register(_leave)
            _is_hooked = True
        return _job


def step() -> None:
    """A step of the job ended."""
    if _job is not None:
        _job.steps.step()


def offer(seconds: float) -> None:
    """A window may open now and is over in so many seconds; from the first offer on windows open in offers only."""
    if _job is not None:
        _job.collecting.offer(seconds)


def state() -> dict[str, Any]:
    """Return the agent's state, {} where none runs."""
    return _job.state() if _job is not None else {}


def _leave() -> None:
    if _job is not None:
        _job.collecting.leave()


def _after_fork() -> None:
    """The child has none of the parent's threads and locks."""
    global _job, _lock
    parent, _job, _lock = _job, None, threading.Lock()
    if parent is not None and parent.collecting.collector is None and not parent.refused:
        start(parent.environ)
