"""What the launchers share: run a program in this interpreter, time its steps, end it when asked. The standard library alone.

A launcher loads it by its path under a name of its own, so that the program's modules stay the program's.
"""

from __future__ import annotations

import json
import os
import runpy
import signal
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

FACTS = "ridgepoint.json"       # as workers.capture.facts reads it
MOST_STEPS = 10_000             # of a phase that are kept


class Finished(SystemExit):
    """The result is written, or somebody asked for what there is: the program need not go on."""


def say(text: str) -> None:
    print(f"ridgepoint: {text}", flush=True)


def run(program: list[str]) -> int:
    """Run the program as `python program…` would; return its exit status. What it raises passes through."""
    as_module = program[0] == "-m"
    sys.argv = program[1:] if as_module else program
    sys.path.insert(0, os.getcwd() if as_module else os.path.dirname(os.path.abspath(program[0])))
    try:
        if as_module:
            runpy.run_module(program[1], run_name="__main__", alter_sys=True)
        else:
            runpy.run_path(program[0], run_name="__main__")
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    return 0


class Stop:
    """Lets SIGTERM end the program as if it had called sys.exit: what was recorded is written afterwards."""

    def __init__(self) -> None:
        self.asked = False
        signal.signal(signal.SIGTERM, self._ask)

    def _ask(self, number: int, _: Any) -> None:
        self.asked = True
        say("asked to stop: writing what was recorded")
        raise Finished(0)

    def ignore(self) -> None:
        """The program is over: what is written now is not interrupted."""
        signal.signal(signal.SIGTERM, signal.SIG_IGN)


def attempt(what: str, do: Callable[[], object]) -> None:
    """Do one of several last things; one that fails says so and keeps none of the others from being done."""
    try:
        do()
    except Exception as error:
        say(f"{what} could not be written: {type(error).__name__}: {error}")


class StepTimes:
    """Durations of a program's steps by phase: what recording costs. On the host, as the program itself sees its steps."""

    def __init__(self) -> None:
        self.seconds: dict[str, list[float]] = {}
        self._began: float | None = None
        self._first = True

    def begin(self) -> None:
        """A step begins: what the launcher itself did before is not counted."""
        self._began = time.perf_counter()

    def end(self, phase: str) -> None:
        """A step has ended in a phase; the process's first, which compiles and allocates, has a phase of its own."""
        if self._began is None:
            return
        times = self.seconds.setdefault("first" if self._first else phase, [])
        if len(times) < MOST_STEPS:
            times.append(time.perf_counter() - self._began)
        self._began, self._first = None, False

    def count(self, phase: str) -> int:
        return len(self.seconds.get(phase, ()))

    def facts(self) -> dict[str, Any]:
        """Return {phase: {"n", "median_ms", "min_ms", "max_ms"}}."""
        return {phase: {"n": len(times), "median_ms": round(statistics.median(times) * 1e3, 4),
                        "min_ms": round(min(times) * 1e3, 4), "max_ms": round(max(times) * 1e3, 4)}
                for phase, times in self.seconds.items()}


def facts_write(out: str, facts: dict[str, Any]) -> None:
    """Write what was measured beside the result `out`."""
    with open(os.path.join(os.path.dirname(out), FACTS), "w", encoding="utf-8") as stream:
        json.dump(facts, stream)
