"""What stays of an attached CUPTI, for four workloads: `python -m tests.gpu.fleet.residue [--minutes 9] [--out FILE]`.

Of each workload one process a variant (`residue_child.VARIANTS`), two untouched ones among them, are alive at once; one at a time
gets a turn of steps, in random order, so a drift of the machine meets all alike. After some rounds all end and a new generation
starts: what differs from process to process is in the interval as well. One JSON line a result:

    residue     a variant against untouched processes
    same        untouched against untouched: its interval should hold 0
    alone       untouched once others had attached, against before: what CUPTI does to the whole GPU (a drift is in it)
    died, refused, missing


    --only training --minutes 9 --variants late early        narrower intervals for one workload: 9 minutes hold ten times the steps
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import json
import math
import multiprocessing
import random
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from tests.gpu.fleet.residue_child import VARIANTS, serve
from tests.gpu.fleet.residue_stats import BASE, Cell, losses

NAMES = ("graph", "gemm", "training", "eager")
KINDS = {"graph": "graphs", "gemm": "gpu-bound", "training": "training", "eager": "launch-bound"}
TURN_S, ROUNDS, READY_S, LATE_S = 0.5, 4, 60.0, 20.0
MOST_DEATHS = 2                     # of a variant and workload: then it is not started again
AGAIN = "none again"
SAME_AS = {AGAIN: BASE}
Tell = Callable[[dict[str, Any]], None]


class Process:
    """A forked child and its pipe. `why`: how it ended before it was told to, "" while it lives."""

    def __init__(self, workload: str, variant: str, folder: Path, target: Callable[..., None] = serve) -> None:
        context = multiprocessing.get_context("fork")
        self.variant, self.why = variant, ""
        self.facts: dict[str, Any] = {}
        self.turns: list[np.ndarray] = []
        self.log = Path(tempfile.mkstemp(dir=folder, suffix=".log")[1])
        self.pipe, theirs = context.Pipe()
        self.child = context.Process(target=target, args=(theirs, workload, SAME_AS.get(variant, variant), str(self.log)),
                                     daemon=True)
        self.child.start()
        theirs.close()

    def take(self, seconds: float) -> Any:
        """Return what it says next; None where it died, refused, or says nothing for so long."""
        try:
            if not self.pipe.poll(seconds):
                self.why = f"silent for {seconds:.0f} s"
            else:
                said = self.pipe.recv()
                if not isinstance(said, dict) or "ready" in said:
                    return said
                self.why = next(f"{word}: {text}" for word, text in said.items())
        except (EOFError, OSError):
            self.child.join(5)
            self.why = f"died, status {self.child.exitcode}"
        self.end()
        return None

    def ready(self) -> bool:
        self.facts = self.take(READY_S) or {}
        return not self.why

    def turn(self, seconds: float, keep: bool = True) -> np.ndarray | None:
        with contextlib.suppress(OSError):          # `take` says why
            self.pipe.send(seconds)
        took: np.ndarray | None = self.take(seconds + LATE_S)
        if took is not None and keep:
            self.turns.append(took)
        return took

    def end(self) -> None:
        with contextlib.suppress(OSError):
            self.pipe.send(None)
        self.child.join(0.1 if self.why else 5)
        if self.child.is_alive():
            self.child.kill()
            self.child.join()
        self.pipe.close()


@dataclass
class Workload:
    """Generations of one workload until its time is over."""

    name: str
    variants: Sequence[str]
    tell: Tell
    start: Callable[[str, str], Process]
    turn_s: float = TURN_S
    rounds: int = ROUNDS
    chance: random.Random = field(default_factory=lambda: random.Random(0))
    deaths: dict[str, int] = field(default_factory=dict)
    means: list[Cell] = field(default_factory=list)
    medians: list[Cell] = field(default_factory=list)
    steps_s: dict[str, list[float]] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)

    def measure(self, seconds: float, least: int = 1) -> None:
        """Measure generations of processes: as many as fit into the time, `least` however long they take."""
        end_s, took_s, generation = time.monotonic() + seconds, 0.0, 0
        while generation < least or time.monotonic() + 1.1 * took_s < end_s:
            began_s = time.monotonic()
            self._generation(generation)
            took_s, generation = time.monotonic() - began_s, generation + 1
            if self.deaths.get(BASE, 0) >= MOST_DEATHS:
                break               # the workload itself does not run
        self._report(generation)

    def _generation(self, number: int) -> None:
        untouched = self._start([BASE, AGAIN])
        alone = self._rounds(untouched, keep=False) if not number else []
        living = untouched + self._start([name for name in self.variants if self.deaths.get(name, 0) < MOST_DEATHS])
        self._rounds(living)
        for process in living:
            if process.turns:
                self._keep(number, process)
            if not process.why:
                process.end()
        for process in living:
            if process.variant.startswith("out"):
                self.tell({"result": "windows", **self._place(), "variant": process.variant,
                           **{name: process.facts.get(name) for name in ("records", "out_ms")}})
        beside = [float(each.mean()) for process in untouched for each in process.turns]
        if alone and beside:
            self.tell({"result": "alone", **self._place(), "against": "the same processes once the others had attached",
                       "loss_pct": 100 * (float(np.mean(beside)) / float(np.mean(alone)) - 1)})

    def _start(self, names: Sequence[str]) -> list[Process]:
        started = [self.start(self.name, name) for name in names]
        return [process for process in started if process.ready() or self._died(process)]

    def _rounds(self, living: list[Process], keep: bool = True) -> list[float]:
        """Give each a turn in every round, in another order; return the mean step of each turn."""
        means = []
        for _ in range(self.rounds):
            order = [process for process in living if not process.why]
            self.chance.shuffle(order)
            for process in order:
                took = process.turn(self.turn_s, keep)
                if took is None:
                    self._died(process)
                else:
                    means.append(float(took.mean()))
        return means

    def _keep(self, generation: int, process: Process) -> None:
        if process.why:
            return                  # what it did before it died is no measurement
        means, medians = ([float(how(each)) for each in process.turns] for how in (np.mean, np.median))
        self.means.append(Cell(generation, process.variant, math.log(float(np.mean(means)))))
        self.medians.append(Cell(generation, process.variant, math.log(float(np.median(medians)))))
        self.steps_s.setdefault(process.variant, []).extend(means)
        self.facts = {name: process.facts.get(name) for name in ("gpu", "driver", "torch", "cupti")}

    def _died(self, process: Process) -> bool:
        refused = process.why.startswith("refused")
        self.deaths[process.variant] = MOST_DEATHS if refused else self.deaths.get(process.variant, 0) + 1
        words = process.log.read_text(errors="replace")[:1500] if process.log.exists() else ""
        self.tell({"result": "refused" if refused else "died", **self._place(), "variant": process.variant, "why": process.why,
                   "words": words})
        return False

    def _place(self) -> dict[str, Any]:
        return {"workload": self.name, "kind": KINDS.get(self.name, ""), **self.facts}

    def _report(self, generations: int) -> None:
        beside = {True: losses(_as_base(self.means)), False: losses(_as_base(self.medians))}
        same = losses([cell for cell in self.means if cell.variant in (BASE, AGAIN)])
        for name in (AGAIN, *self.variants):
            found = (same if name == AGAIN else beside[True]).get(name)
            if found is None:
                self.tell({"result": "missing", **self._place(), "variant": name, "why": "too few processes lived to tell"})
                continue
            median = beside[False].get(name)
            more = {} if median is None or name == AGAIN else {
                "median_pct": median.loss_pct, "median_low_pct": median.low_pct, "median_high_pct": median.high_pct}
            self.tell({"result": "same" if name == AGAIN else "residue", **self._place(), "variant": name, **asdict(found), **more,
                       "generations": generations, "turns": len(self.steps_s[name]), "turn_s": self.turn_s,
                       "step_ms": 1e3 * float(np.mean(self.steps_s[name]))})


def _as_base(cells: Sequence[Cell]) -> list[Cell]:
    return [Cell(cell.generation, SAME_AS.get(cell.variant, cell.variant), cell.log_step) for cell in cells]


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    own = [name for name, variant in VARIANTS.items() if name != BASE and not variant.later]
    asked.add_argument("--minutes", type=float, default=9.0, help="in all (default: %(default)s)")
    asked.add_argument("--only", nargs="*", default=NAMES, choices=NAMES)
    asked.add_argument("--variants", nargs="*", default=own, choices=own)
    asked.add_argument("--turn", type=float, default=TURN_S, help="s of a turn")
    asked.add_argument("--rounds", type=int, default=ROUNDS, help="turns of a process")
    asked.add_argument("--out", type=Path, help="lines are added to this file as well")
    options = asked.parse_args()
    end_s = time.monotonic() + options.minutes * 60 - 5

    def tell(line: dict[str, Any]) -> None:
        text = json.dumps(line, default=float) + "\n"
        sys.stdout.write(text)
        sys.stdout.flush()
        if options.out:
            with options.out.open("a") as file:
                file.write(text)

    importlib.import_module("torch")            # before the fork: the children share it
    with tempfile.TemporaryDirectory(prefix="rp") as folder:
        for number, name in enumerate(options.only):
            share_s = (end_s - time.monotonic()) / (len(options.only) - number)
            Workload(name, options.variants, tell, lambda workload, variant: Process(workload, variant, Path(folder)), options.turn,
                     options.rounds).measure(share_s)


if __name__ == "__main__":
    main()
