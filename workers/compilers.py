"""Processes that compile ahead while the GPU measures: each for one configuration at a time, killed when it hangs.

The binaries lie in a Triton cache folder that the measuring child reads too; what travels back here are facts.
"""

from __future__ import annotations

import logging
import os
import queue
import shutil
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

from tuner.bench.runner import Compiled
from tuner.trial import Config, Reason, Rejected
from workers.child import Child, ChildDied, ChildHung, Stopped

log = logging.getLogger(__name__)
FOLDER = "ridgepoint-triton-"
LOOK_S = 0.1
MAX_OPENS = 3                 # in a row that fail before a process gives up
SPARE_CORES = 2               # of the host: for the measuring child and the worker itself
MAX_PROCESSES = 14


def cores() -> int:
    """Processes that may compile at the same time for one GPU: all cores of the host but two, at least one.

    A host with several GPUs and few cores divides them: RIDGEPOINT_COMPILERS says how many there are for each.
    """
    told = os.environ.get("RIDGEPOINT_COMPILERS", "")
    if told.isdigit() and int(told) > 0:
        return int(told)
    return max(1, min(MAX_PROCESSES, len(os.sched_getaffinity(0)) - SPARE_CORES))


def cache_folder() -> Path:
    """A new folder for the binaries of one session. Those of processes that were killed are removed."""
    for left in Path(tempfile.gettempdir()).glob(f"{FOLDER}*"):
        owner = left.name.removeprefix(FOLDER).partition("-")[0]
        if owner.isdigit() and not Path(f"/proc/{owner}").exists():
            shutil.rmtree(left, ignore_errors=True)
    return Path(tempfile.mkdtemp(prefix=f"{FOLDER}{os.getpid()}-"))


class Asked(Protocol):
    """What answers a request of tuner.bench.compiler: a process here, or one on another host."""

    @property
    def alive(self) -> bool: ...

    def ask(self, message: dict[str, Any], limit_s: float, stop: threading.Event) -> dict[str, Any]: ...

    def close(self) -> None: ...


class Away(Exception):
    """Nobody answers there: what was asked goes to somebody else."""


class Compilers:
    """`count` processes of `module`. They import torch from the start and compile once `aim` has said for what.

    limit_s  for one configuration; what takes longer is killed and is an outcome
    helpers  makers of others that answer as such a process does; one that is Away is not asked again
    """

    def __init__(self, module: str, environ: Mapping[str, str], count: int, *, limit_s: float, open_s: float,
                 helpers: Sequence[Callable[[], Asked]] = ()) -> None:
        self._environ, self._limit_s, self._open_s = dict(environ), limit_s, open_s
        self._tasks: queue.SimpleQueue[tuple[int, Config] | None] = queue.SimpleQueue()
        self._answers: queue.SimpleQueue[tuple[int, Config, Mapping[str, Any] | Rejected]] = queue.SimpleQueue()
        self._round = 0                          # tasks and answers of an earlier one are of no interest
        self._opening: dict[str, Any] = {}
        self._aim = 0                            # which of the openings that were asked for is the present one
        self._aimed, self._stop, self._lock = threading.Event(), threading.Event(), threading.Lock()
        places = [*[lambda: Child(module, self._environ)] * count, *helpers]
        self.count = self._serving = len(places)
        self.compiled, self.compile_s, self.replaced = 0, 0.0, 0
        self.useless = ""                        # why no process could be opened: the measuring child compiles then
        self._threads = [threading.Thread(target=self._place, args=(spawn,), name=f"compiler-{number}", daemon=True)
                         for number, spawn in enumerate(places)]
        for thread in self._threads:
            thread.start()

    def aim(self, opening: Mapping[str, Any]) -> None:
        """What to compile and for which GPU: the `open` request of tuner.bench.compiler. Again, for another shape."""
        self.forget()
        self._opening, self.useless = dict(opening), ""
        self._aim += 1
        self._aimed.set()

    def put(self, configs: Sequence[Config]) -> None:
        for config in configs:
            self._tasks.put((self._round, config))
        if not self._serving:
            self._give_up()

    def ready(self, wait_s: float) -> list[Compiled] | None:
        """What was compiled since the last call; waits up to `wait_s` for the first. None: told to stop."""
        found: list[Compiled] = []
        while not self._stop.is_set():
            try:
                asked, config, answer = self._answers.get(timeout=0 if found else wait_s) if wait_s else self._answers.get_nowait()
            except queue.Empty:
                return found
            if asked == self._round:
                found.append((config, answer))
                wait_s = 0
        return None

    def forget(self) -> None:
        """Compile nothing more of what was put; what a process is at is finished, and nobody hears of it."""
        self._round += 1
        with suppress(queue.Empty):
            while True:
                self._tasks.get_nowait()

    def stop(self) -> None:
        """From any thread, at once: the processes are killed."""
        self._stop.set()
        for _ in self._threads:
            self._tasks.put(None)

    def close(self) -> None:
        self.stop()
        for thread in self._threads:
            thread.join(timeout=15)

    def _place(self, spawn: Callable[[], Asked]) -> None:
        try:
            self._serve(spawn)
        except (Stopped, Away):
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
        """Nobody is left who compiles: the measuring child does."""
        self.useless = self.useless or "no compiler is left"
        with suppress(queue.Empty):
            while True:
                task = self._tasks.get_nowait()
                if task is not None:
                    self._answers.put((*task, {}))

    def _serve(self, spawn: Callable[[], Asked]) -> None:
        """One process and what it is asked."""
        child: Asked | None = spawn()
        opened = 0                               # the aim that it was opened for
        try:
            while not self._aimed.wait(LOOK_S):
                if self._stop.is_set():
                    return
            while (task := self._tasks.get()) is not None and not self._stop.is_set():
                asked, config = task
                if asked != self._round:
                    continue
                try:
                    aim = self._aim
                    if child is None or opened != aim:
                        child, opened = self._open(spawn, child), aim
                    answer = {} if child is None else self._one(child, config)
                except Stopped:
                    raise
                except Exception:
                    self._tasks.put(task)
                    raise
                self._answers.put((asked, config, answer))
                if child is not None and not child.alive:
                    child.close()
                    child, opened = spawn(), 0                 # imports torch before it is needed again
        finally:
            if child is not None:
                child.close()

    def _open(self, spawn: Callable[[], Asked], child: Asked | None) -> Asked | None:
        """An opened process; None when there can be none, and the measuring child has to compile."""
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
                self.useless = _said(answer)        # of the operator, not of this process: the others need not try
            child.close()
            child = None
        self.useless = self.useless or why
        if child is not None:
            child.close()
        return None

    def _one(self, child: Asked, config: Config) -> Mapping[str, Any] | Rejected:
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
        refused = answer.get("rejected") or {"reason": Reason.OTHER, "message": _said(answer), "facts": {}}
        self._count(refused["facts"])
        return Rejected(Reason(refused["reason"]), refused["message"], refused["facts"])

    def _count(self, facts: Mapping[str, Any], lost: bool = False) -> None:
        with self._lock:
            self.compiled += 1
            self.compile_s += float(facts.get("compile_s") or 0.0)
            self.replaced += lost


def _said(answer: Mapping[str, Any]) -> str:
    """Why a process refused, in its own words."""
    failed, rejected = answer.get("failed") or {}, answer.get("rejected") or {}
    return str(failed.get("what") or rejected.get("message") or "it gave no reason")
