"""How far the job is: moments at which its steps ended, what a window cost of them, and which range it was in.

A step is what the job marks (`step()`); where it marks nothing, the end of an optimizer's step or the replay of a CUDA graph, both
counted where torch is loaded already. Without any of these nothing is known of the job's speed, and the controller says so.
"""

from __future__ import annotations

import sys
import threading
import time
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from workers.agent.launches import MOST_WORD

RING = 1 << 17                      # moments that are kept
FEWEST_STEPS = 3                    # on each side of a window
MOST_OPEN, MOST_LABELS = 64, 32     # ranges within each other; different labels of a process
HICCUP = 20.0                       # times the median: such a step is a checkpoint or a pause, and its window is set aside


class Steps:
    """The last RING moments, written by the job's thread, read by the agent's."""

    def __init__(self, clock_ns: Callable[[], int] = time.perf_counter_ns) -> None:
        self.count = self.replays = self.captures = 0       # of CUDA graphs
        self.before_capture: Callable[[], None] = _nothing  # called by the thread that is about to capture one
        self.at_step: Callable[[], None] | None = None      # called once by the thread that marks steps, between two of them
        self.thread = 0             # which that is
        self.source = ""            # who counts: "job", "optimizer", "graph replay"
        self._times = array("q", bytes(8 * RING))
        self._clock_ns = clock_ns

    def step(self, source: str = "job") -> None:
        """Note that a step ended now. What the job says itself is believed before what is found out."""
        if source != self.source:
            if self.source and _ORDER.index(source) > _ORDER.index(self.source):
                return
            self.source, self.count = source, 0
        self._times[self.count % RING] = self._clock_ns()
        self.count += 1
        self.thread = threading.get_ident()
        if self.at_step is not None:
            do, self.at_step = self.at_step, None
            do()

    def since(self, moment_ns: int) -> npt.NDArray[np.int64]:
        """Return the moments from one on, in order."""
        count = self.count
        times = np.frombuffer(self._times, np.int64).copy()
        # of a full ring the oldest may be overwritten meanwhile
        moments = times[:count] if count <= RING else np.roll(times, -(count % RING))[64:]
        return moments[np.searchsorted(moments, moment_ns):]


def _nothing() -> None:
    pass


_ORDER = ["job", "optimizer", "graph replay"]


@dataclass(frozen=True)
class Lost:
    """Time that a window took from the job. `seconds` None: not known, `why` says it."""

    seconds: float | None
    steps: int = 0
    steps_per_s: float = 0.0
    why: str = ""


def time_lost(times_ns: npt.NDArray[np.int64], open_ns: int, close_ns: int) -> Lost:
    """Return what the steps between two moments took longer than as many steps beside them.

    The steps beside are those of as much time before and after, at least FEWEST_STEPS on each side: their mean is what a step takes
    without the window, and a drift of the job cancels.
    """
    if times_ns.size < 2:
        return Lost(None, why="the job marks no steps")
    begin, end = times_ns[:-1], times_ns[1:]
    first, last = int(np.searchsorted(end, open_ns, side="right")), int(np.searchsorted(begin, close_ns, side="left"))
    if first >= last:
        return Lost(None, why="no step ran while the window was open")
    span_ns = max(int(end[last - 1] - begin[first]), 1)
    low = min(int(np.searchsorted(begin, begin[first] - span_ns)), first - FEWEST_STEPS)
    high = max(int(np.searchsorted(end, end[last - 1] + span_ns, side="right")), last + FEWEST_STEPS)
    if low < 0 or high > end.size:
        return Lost(None, why="too few steps beside the window")
    took_ns = (end - begin).astype(np.float64)
    before, own, after = took_ns[low:first], took_ns[first:last], took_ns[last:high]
    median_ns = float(np.median(np.concatenate([before, after])))
    if max(before.max(), own.max(), after.max()) > HICCUP * max(median_ns, span_ns / 100):
        return Lost(None, why="the job paused beside the window")
    usual_ns = (float(before.mean()) + float(after.mean())) / 2
    return Lost((float(own.sum()) - own.size * usual_ns) / 1e9, own.size, 1e9 / usual_ns)


def block_means(times_ns: npt.NDArray[np.int64], block_s: float) -> list[float]:
    """Return the mean length of a step, in ns, of each block of so much time; pauses are left out."""
    if times_ns.size < 2:
        return []
    took_ns = np.diff(times_ns).astype(np.float64)
    block = (times_ns[1:] - times_ns[0]) // int(block_s * 1e9)
    fine = took_ns <= HICCUP * max(float(np.median(took_ns)), block_s * 1e9 / 100)
    edges = np.flatnonzero(np.diff(block[fine], prepend=-1))
    if not edges.size:
        return []
    counts = np.diff(np.append(edges, int(fine.sum())))
    return [float(mean) for mean in np.add.reduceat(took_ns[fine], edges) / counts]


@dataclass(frozen=True)
class Residue:
    """By how many % steps are longer, with a 95 % interval; less than 0 is 0."""

    low_pct: float = 0.0
    pct: float = 0.0
    high_pct: float = 0.0


def slower_pct(before_ns: Sequence[float], now_ns: Sequence[float]) -> Residue:
    """Return by how many % means of blocks grew."""
    before, now = np.array(before_ns), np.array(now_ns)
    half = 2.1 * float(np.sqrt(before.var(ddof=1) / before.size + now.var(ddof=1) / now.size))
    more, scale = float(now.mean() - before.mean()), 100 / float(before.mean())
    return Residue(*(max(0.0, growth * scale) for growth in (more - half, more, more + half)))


class Ranges:
    """Which ranges of the main thread stay open: `record_function` and `torch.cuda.nvtx`, by a list entry each, none a launch.

    `wanted`: names that are told, all where it is empty. Names that differ every time (a step's number) end at MOST_LABELS.
    """

    def __init__(self, wanted: frozenset[str] = frozenset(), clock_ns: Callable[[], int] = time.perf_counter_ns) -> None:
        self.wanted = wanted
        self.labels: set[str] = set()
        self._open: list[tuple[object, str, int]] = []          # key, name, since
        self._clock_ns, self._thread = clock_ns, threading.main_thread().ident

    def enter(self, key: object, name: str) -> None:
        if threading.get_ident() == self._thread and len(self._open) < MOST_OPEN:
            self._open.append((key, name, self._clock_ns()))

    def leave(self, key: object) -> None:
        if threading.get_ident() != self._thread:
            return
        for index in range(len(self._open) - 1, -1, -1):
            if self._open[index][0] == key:
                del self._open[index]
                return

    def label(self, opened_ns: int) -> str:
        """Return the ranges that have been open since a moment, as "train/forward"; "" where none was, or there are too many."""
        names = [str(name) for _, name, since_ns in list(self._open) if since_ns <= opened_ns]
        label = "/".join(name for name in names if not self.wanted or name in self.wanted)[:MOST_WORD]
        if label and label not in self.labels:
            if len(self.labels) >= MOST_LABELS:
                return ""
            self.labels.add(label)
        return label


def watch_ranges(ranges: Ranges) -> list[str]:
    """Note ranges that Python opens where torch is loaded; return what is noted. Those of C++ are not seen.

    Called again, as by the agent of a forked child, it notes them in the ranges that were given last.
    """
    watched = []
    recorded: Any = getattr(sys.modules.get("torch.autograd.profiler"), "record_function", None)
    if recorded is not None and hasattr(recorded, "_ridgepoint_agent"):
        recorded._ridgepoint_agent = ranges
    elif recorded is not None:
        enter, leave = recorded.__enter__, recorded.__exit__

        def entered(self: Any) -> Any:
            result = enter(self)
            recorded._ridgepoint_agent.enter(id(self), self.name)
            return result

        def left(self: Any, *error: Any) -> Any:
            recorded._ridgepoint_agent.leave(id(self))
            return leave(self, *error)

        recorded.__enter__, recorded.__exit__, recorded._ridgepoint_agent = entered, left, ranges
        watched.append("record_function")
    nvtx: Any = sys.modules.get("torch.cuda.nvtx")
    if nvtx is not None and hasattr(nvtx, "_ridgepoint_agent"):
        nvtx._ridgepoint_agent = ranges
    elif nvtx is not None:
        push, pop = nvtx.range_push, nvtx.range_pop

        def pushed(msg: Any) -> Any:
            result = push(msg)
            nvtx._ridgepoint_agent.enter("nvtx", msg)
            return result

        def popped() -> Any:
            nvtx._ridgepoint_agent.leave("nvtx")
            return pop()

        nvtx.range_push, nvtx.range_pop, nvtx._ridgepoint_agent = pushed, popped, ranges
        watched.append("nvtx")
    return watched


def watch_torch(steps: Steps) -> list[str]:
    """Count steps of optimizers, captures and replays of CUDA graphs where torch is loaded; return what is counted.

    Called again, as by the agent of a forked child, it counts in the steps that were given last.
    """
    watched = []
    optimizers: Any = sys.modules.get("torch.optim.optimizer")
    register = getattr(optimizers, "register_optimizer_step_post_hook", None)
    if register is not None and hasattr(optimizers, "_ridgepoint_agent"):
        optimizers._ridgepoint_agent = steps
    elif register is not None:
        def updated(*_: Any) -> None:
            optimizers._ridgepoint_agent.step("optimizer")

        register(updated)
        optimizers._ridgepoint_agent = steps
        watched.append("optimizer")
    graph: Any = getattr(sys.modules.get("torch.cuda.graphs"), "CUDAGraph", None)
    replay = getattr(graph, "replay", None)
    if replay is not None and hasattr(replay, "_ridgepoint_agent"):
        replay._ridgepoint_agent = steps
    elif replay is not None:
        def counted(self: Any) -> None:
            replay(self)
            own: Steps = counted._ridgepoint_agent      # type: ignore[attr-defined]
            own.replays += 1
            own.step("graph replay")

        counted._ridgepoint_agent = steps       # type: ignore[attr-defined]
        graph.replay = counted
        _watch_captures(graph, counted)
        watched.append("graph replay")
    return watched


def _watch_captures(graph: Any, counted: Any) -> None:
    """Tell of a graph before it is captured."""
    begin = graph.capture_begin

    def began(self: Any, *words: Any, **named: Any) -> Any:
        own: Steps = counted._ridgepoint_agent
        own.captures += 1
        own.before_capture()
        return begin(self, *words, **named)

    graph.capture_begin = began
