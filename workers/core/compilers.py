"""Processes that compile ahead while the GPU measures, each one configuration at a time.

The binaries lie in a Triton cache folder that the measuring child reads too; what travels back here are facts.
"""

from __future__ import annotations

import logging
import os
import queue
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Protocol

from tuner.tuning.measure.runner import Compiled
from tuner.tuning.trial import Config, Reason, Rejected
from workers.core.child import Child, ChildDied, ChildHung, Stopped

log = logging.getLogger(__name__)
LOOK_S = 0.1
MAX_OPENS = 3                 # in a row that fail before a process gives up
SPARE_CORES = 2               # of the host: for the measuring child and the worker itself
MAX_PROCESSES = 14


def cores() -> int:
    """Return processes that may compile at once for one GPU: all cores but two, at least one.

    A host with several GPUs and few cores divides them: RIDGEPOINT_COMPILERS says how many there are for each.
    """
    text = os.environ.get("RIDGEPOINT_COMPILERS", "")
    if text.isdigit() and int(text) > 0:
        return int(text)
    return max(1, min(MAX_PROCESSES, len(os.sched_getaffinity(0)) - SPARE_CORES))


class CompileProcess(Protocol):
    """Answers requests of tuner.tuning.measure.compiler, here or on another host."""

    @property
    def alive(self) -> bool: ...

    def ask(self, message: dict[str, Any], limit_s: float, stop: threading.Event) -> dict[str, Any]: ...

    def close(self) -> None: ...


class NobodyAnswers(Exception):
    """No worker answers there: the request goes elsewhere."""


class Compilers:
    """`count` processes of `module`; they import torch first and compile once `aim` was called.

    limit_s  for one configuration; what takes longer is killed and is an outcome
    helpers  makers of others that answer as such a process does; one that is Away is not asked again
    spawn    starts a process of `module` with its variables
    """

    def __init__(self, module: str, environ: Mapping[str, str], count: int, *, limit_s: float, open_s: float,
                 helpers: Sequence[Callable[[], CompileProcess]] = (),
                 spawn: Callable[[str, Mapping[str, str]], CompileProcess] = Child) -> None:
        self._environ, self._limit_s, self._open_s = dict(environ), limit_s, open_s
        self._tasks: queue.SimpleQueue[tuple[int, Config] | None] = queue.SimpleQueue()
        self._answers: queue.SimpleQueue[tuple[int, Config, Mapping[str, Any] | Rejected]] = queue.SimpleQueue()
        self._round = 0                          # tasks and answers of an earlier one are of no interest
        self._opening: dict[str, Any] = {}
        self._aim = 0                            # which of the openings that were asked for is the present one
        self._aimed, self._stop, self._lock = threading.Event(), threading.Event(), threading.Lock()
        places = [*[lambda: spawn(module, self._environ)] * count, *helpers]
        self.count = self._serving = len(places)
        self.compiled, self.compile_s, self.replaced = 0, 0.0, 0
        self.useless = ""                        # why no process could be opened: the measuring child compiles then
        self._threads = [threading.Thread(target=self._place, args=(spawn,), name=f"compiler-{number}", daemon=True)
                         for number, spawn in enumerate(places)]
        for thread in self._threads:
            thread.start()

    def aim(self, opening: Mapping[str, Any]) -> None:
        """Set problem and GPU: the `open` request of tuner.tuning.measure.compiler; may be repeated."""
        self.forget()
        self._opening, self.useless = dict(opening), ""
        self._aim += 1
        self._aimed.set()

    def put(self, configs: Sequence[Config]) -> None:
        """Queue configurations."""
        for config in configs:
            self._tasks.put((self._round, config))
        if not self._serving:
            self._give_up()

    def ready(self, wait_s: float) -> list[Compiled] | None:
        """Return what compiled since the last call, waiting up to `wait_s`; None: told to stop."""
        compiled: list[Compiled] = []
        while not self._stop.is_set():
            try:
                waiting_s = 0 if compiled else wait_s
                round_number, config, answer = self._answers.get(timeout=waiting_s) if wait_s else self._answers.get_nowait()
            except queue.Empty:
                return compiled
            if round_number == self._round:
                compiled.append((config, answer))
                wait_s = 0
        return None

    def forget(self) -> None:
        """Drop what was put; what a process works on is finished and not reported."""
        self._round += 1
        with suppress(queue.Empty):
            while True:
                self._tasks.get_nowait()

    def stop(self) -> None:
        """Kill the processes; callable from any thread."""
        self._stop.set()
        for _ in self._threads:
            self._tasks.put(None)

    def close(self) -> None:
        """End the processes."""
        self.stop()
        for thread in self._threads:
            thread.join(timeout=15)

    def _place(self, spawn: Callable[[], CompileProcess]) -> None:
        try:
            self._serve(spawn)
        except (Stopped, NobodyAnswers):
            pass
        except Exception as error:                   # no process can be started: the others go on without this one
            log.exception("a compiler is lost")
            self.useless = self.useless or f"{type(error).__name__}: {error}"
        with self._lock:
            self._serving -= 1
            self.count = max(1, self._serving)
        if not self._serving and not self._stop.is_set():
            self._give_up()

    def _give_up(self) -> None:
        """Let the measuring child compile: no process is left."""
        self.useless = self.useless or "no compiler is left"
        with suppress(queue.Empty):
            while True:
                task = self._tasks.get_nowait()
                if task is not None:
                    self._answers.put((*task, {}))

    def _serve(self, spawn: Callable[[], CompileProcess]) -> None:
        """Run one process and its requests."""
        child: CompileProcess | None = spawn()
        opened = 0                               # the aim that it was opened for
        try:
            while not self._aimed.wait(LOOK_S):
                if self._stop.is_set():
                    return
            while (task := self._tasks.get()) is not None and not self._stop.is_set():
                round_number, config = task
                if round_number != self._round:
                    continue
                try:
                    aim = self._aim
                    if child is None or opened != aim:
                        child, opened = self._open(spawn, child), aim
                    answer = {} if child is None else self._compile_one(child, config)
                except Stopped:
                    raise
                except Exception:
                    self._tasks.put(task)
                    raise
                self._answers.put((round_number, config, answer))
                if child is not None and not child.alive:
                    child.close()
                    child, opened = spawn(), 0                 # imports torch before it is needed again
        finally:
            if child is not None:
                child.close()

    def _open(self, spawn: Callable[[], CompileProcess], child: CompileProcess | None) -> CompileProcess | None:
        """Return an opened process; None when there can be none."""
        why = ""
        for _ in range(MAX_OPENS):
            if self.useless:
                break
            child = child or spawn()
            try:
                answer = child.ask({"do": "open", **self._opening}, self._open_s, self._stop)
            except (ChildDied, ChildHung) as error:
                why = str(error)
            else:
                if "ok" in answer:
                    return child
                self.useless = _refusal_text(answer)        # of the operator, not of this process: the others need not try
            child.close()
            child = None
        self.useless = self.useless or why
        if child is not None:
            child.close()
        return None

    def _compile_one(self, child: CompileProcess, config: Config) -> Mapping[str, Any] | Rejected:
        try:
            answer = child.ask({"do": "compile", "config": dict(config)}, self._limit_s, self._stop)
        except ChildHung as hung:
            self._count({"compile_s": self._limit_s}, lost=True)
            return Rejected(Reason.TIMEOUT, f"compile: {hung}", {"compile_s": self._limit_s})
        except ChildDied as died:
            self._count({}, lost=True)
            return Rejected(Reason.CRASH, f"compile: the compiler {died}")
        if "ok" in answer:
            self._count(answer["ok"])
            return dict(answer["ok"])
        refused = answer.get("rejected") or {"reason": Reason.OTHER, "message": _refusal_text(answer), "facts": {}}
        self._count(refused["facts"])
        return Rejected(Reason(refused["reason"]), refused["message"], refused["facts"])

    def _count(self, facts: Mapping[str, Any], lost: bool = False) -> None:
        with self._lock:
            self.compiled += 1
            self.compile_s += float(facts.get("compile_s") or 0.0)
            self.replaced += lost


def _refusal_text(answer: Mapping[str, Any]) -> str:
    """Return why a process refused, in its words."""
    failed, rejected = answer.get("failed") or {}, answer.get("rejected") or {}
    return str(failed.get("what") or rejected.get("message") or "it gave no reason")
