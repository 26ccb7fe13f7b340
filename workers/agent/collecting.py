"""The thread of a job that opens windows: waits for CUDA, asks the controller, collects, measures, hands windows on.

Nothing here may harm the job: whatever goes wrong switches collecting off for good, with the reason in the state. CUPTI is in the
process during a window only, and taken out at the end of one of the job's CUDA calls. Of jobs with CUDA graphs that is not possible
(`docs/fleet-loss.md`): they are not attached to, and a job that is about to capture its first waits until CUPTI is out."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from workers.agent.controller import Controller, Limits, Outcome, State
from workers.agent.cupti import Collector, CuptiError, Seen
from workers.agent.identity import Identity, framework, owner, rocm, torch_profiles
from workers.agent.launches import MOST_WORD, Context, Gpu, Window
from workers.agent.libraries import call_driver, driver_version, used_gpus
from workers.agent.progress import FEWEST_STEPS, Ranges, Steps, block_means, time_lost, watch_ranges, watch_torch

LOOK_S, LOOK_AGAIN_S = 1.0, 30.0    # for a CUDA context; at a job that may not be attached to
SLICE_S = 0.01                      # within a window: how soon it closes when a profiler starts
OFFER_RESERVE_S = 0.12              # of an offered time: to drain
OUT_WAIT_S, RETRY_S = 2.0, 1.0      # for a launch of the job in which CUPTI is taken out
CALM_S, BLOCK_S = 10.0, 0.25         # before the first window, and what is compared with what comes after
MOST_CALM, FEWEST_CALM = 80, 30      # blocks
CAPTURE_WAIT_S, EXIT_WAIT_S = 3.0, 2.0      # until CUPTI is out: of a job that captures a graph in a window, or that ends
CALL_AGAIN_S, CALLS = 0.005, 10
GRAPHS = ("it replays CUDA graphs: while CUPTI is attached a decode loop on an H200 takes 7 to 9 % longer, and taking CUPTI out "
          "ends such a job")
Sink = Callable[[list[Window]], None]


class Collecting(threading.Thread):
    """`sink` takes the windows of a cycle, one a GPU. `graphs`: attach to jobs that replay CUDA graphs as well, and stay: what that
    costs is measured against the time before. `ranges`: name windows by what stays open in them."""

    def __init__(self, identity: Identity, limits: Limits, sink: Sink, steps: Steps | None = None, graphs: bool = False,
                 make_collector: Callable[[], Any] = Collector, ranges: Ranges | None = None) -> None:
        super().__init__(name="ridgepoint-agent", daemon=True)
        self.identity, self.limits, self.sink = identity, limits, sink
        self.steps = steps or Steps()
        self.graphs, self.ranges = graphs, ranges
        self.state, self.why = "starting", ""
        self.collector: Any = None
        self.controller: Controller | None = None
        self.outcomes: deque[Outcome] = deque(maxlen=256)
        self.set_aside: dict[str, int] = {}         # why a window's cost is unknown -> how often
        self.calm_ns: list[float] = []              # a step before the first window: means of blocks
        self.quiet_ns: deque[float] = deque(maxlen=MOST_CALM)       # and between windows
        self._make_collector = make_collector
        self._attaching = threading.Lock()          # or about to capture
        self._ended = threading.Event()
        self._free = threading.Event()              # cleared: the job asks for no windows
        self._free.set()
        self._offer_until_s, self._offers, self._offered = 0.0, False, threading.Event()
        self._last_ns, self._closed_ns = time.time_ns(), 0

    # ---- what the job may say

    def hold(self) -> None:
        """Open no window until `release`; that time earns none either."""
        self._free.clear()

    def release(self) -> None:
        self._free.set()

    def offer(self, seconds: float) -> None:
        """A window may open now and is over in `seconds`. From the first offer on windows open in offers only."""
        self._offers, self._offer_until_s = True, time.monotonic() + seconds
        self._offered.set()

    def end(self) -> None:
        for each in (self._ended, self._offered, self._free):
            each.set()

    def leave(self) -> None:
        """End it, in a thread of the job that ends as well: CUPTI must not call back into an interpreter that is gone."""
        self.end()
        if self.collector is not None and self.is_alive():
            self._call_until_out(EXIT_WAIT_S)

    def report(self) -> State | None:
        """Return the controller's numbers, None before the first."""
        found = self.controller.report(time.monotonic()) if self.controller else None
        return replace(found, state=self.state, why=self.why) if found and self.state == "off" else found

    # ---- the thread

    def run(self) -> None:
        for do in (self._work, self._finish):
            try:
                do()
            except CuptiError as error:
                self._off(f"another profiler owns CUPTI ({error})" if error.busy else str(error))
            except BaseException as error:              # it must not end the job, whatever it is
                self._off(f"{type(error).__name__}: {error}")

    def _off(self, why: str) -> None:
        self.state, self.why = "off", why
        self._ended.set()

    def _work(self) -> None:
        named = owner()
        if named:
            self._off(f"{named} owns CUPTI in this process")
        while not self._ended.is_set() and not self._may_attach():
            self._ended.wait(LOOK_S)
        if self._ended.is_set():
            return
        self.collector = self._make_collector()
        self.controller = Controller(self.limits, time.monotonic())
        self.steps.before_capture = self._leave
        while not self._ended.is_set():
            self._watch()
            if self._made_graphs():
                self._off(f"{GRAPHS}: it is left alone from now on")
                return
            self.controller.residue_pct = self.residue_pct()
            plan = self.controller.plan(time.monotonic())
            self.state, self.why = self.controller.state, self.controller.why
            if plan is None:
                self._ended.wait(LOOK_S)
            elif self._wait_until(plan.at_s):
                self._cycle(plan.window_s)

    def _finish(self) -> None:
        """Leave the process as it was, however the work ended."""
        if self.collector is not None and self.collector.attached and not self.collector.broken:
            if self.collector.is_open:
                self.collector.close()
                self.collector.drain()
            self._take_out(EXIT_WAIT_S)

    def _may_attach(self) -> bool:
        """Return whether the job made a context, marks steps, keeps its GPU busy, and its speed before CUPTI is known now."""
        self._watch()
        if rocm():
            self._off(f"an AMD GPU (HIP {rocm()}): its kernel records come from rocprofiler-sdk's buffered dispatch tracing, which "
                      "has to be set up before HIP starts; this agent speaks CUPTI only")
            return False
        gpus = used_gpus()
        if not gpus:
            self.state, self.why = "waiting", "the job made no CUDA context yet"
            return False
        if self._is_profiled():
            return False
        if self.steps.count < FEWEST_STEPS:
            self.state, self.why = "not collected", "the job marks no steps: what collecting costs could not be measured"
            return False
        if self._made_graphs():
            self.state, self.why = "not collected", f"{GRAPHS} (RIDGEPOINT_AGENT_GRAPHS=1 attaches all the same, and stays)"
            self._ended.wait(LOOK_AGAIN_S)
            return False
        self.state, self.why = "starting", "steps are measured before the first window"
        began_ns = time.perf_counter_ns()
        while not self._ended.is_set() and time.perf_counter_ns() - began_ns < CALM_S * 1e9:
            self._ended.wait(0.1)
            if not self._free.is_set():
                self._free.wait()
                began_ns = time.perf_counter_ns()
        self.calm_ns = block_means(self.steps.since(began_ns), BLOCK_S)
        return len(self.calm_ns) >= FEWEST_CALM and not self._is_profiled()

    def _watch(self) -> None:
        watch_torch(self.steps)
        if self.ranges is not None:
            watch_ranges(self.ranges)

    def _made_graphs(self) -> bool:
        return bool(self.steps.captures or self.steps.replays) and not self.graphs

    def _leave(self) -> None:
        """In the job's thread, before it captures a CUDA graph: wait until CUPTI is out. No graph made under it outlives that."""
        with self._attaching:
            collector = self.collector
            if self.graphs or collector is None or not collector.attached:
                return
        self._call_until_out(CAPTURE_WAIT_S)

    def _call_until_out(self, wait_s: float) -> None:
        """Make calls of the driver that CUPTI is taken out in."""
        end_s = time.monotonic() + wait_s
        while self.collector.attached and not self.collector.broken and time.monotonic() < end_s:
            for _ in range(CALLS):
                call_driver()
            time.sleep(CALL_AGAIN_S)

    def residue_pct(self) -> tuple[float, float]:
        """Return (estimate, upper end of its 95 % interval) of what is lost where CUPTI stays attached between windows, in % of a
        step: against the steps before the first window, so a drift of the job counts as well."""
        if not self._stays() or len(self.quiet_ns) < FEWEST_CALM:
            return 0.0, 0.0
        before, now = np.array(self.calm_ns), np.array(self.quiet_ns)
        half = 2.1 * float(np.sqrt(before.var(ddof=1) / before.size + now.var(ddof=1) / now.size))
        more, scale = float(now.mean() - before.mean()), 100 / float(before.mean())
        return max(0.0, more * scale), max(0.0, (more + half) * scale)

    def _stays(self) -> bool:
        return self.graphs and bool(self.steps.captures or self.steps.replays or (self.collector and self.collector.saw_graphs))

    def _is_profiled(self) -> bool:
        if torch_profiles():
            self._off("a torch profiler runs: CUPTI is left to it in this process")
        return self._ended.is_set()

    def _wait_until(self, at_s: float) -> bool:
        """Return whether a window may open; False where the plan is to be made anew."""
        assert self.controller is not None
        while not self._is_profiled():
            if self.collector.attached:         # the job made no CUDA call when the window closed
                self._take_out(RETRY_S)
            if self._made_graphs():
                return False
            now = time.monotonic()
            if not self._free.is_set():
                self._free.wait()
                self.controller.shift(time.monotonic() - now)
                self._closed_ns = time.perf_counter_ns()
                return False
            if now < at_s:
                self._ended.wait(min(0.05, at_s - now))
            elif self._offers and now > self._offer_until_s - 2 * OFFER_RESERVE_S:
                self._offered.clear()
                self._offered.wait(0.05)
            else:
                return True
        return False

    def _cycle(self, window_s: float) -> None:
        """Open one window, tell the controller and the sink of it."""
        assert self.controller is not None
        collector, opened_s, opened_ns = self.collector, time.monotonic(), time.perf_counter_ns()
        if self._closed_ns:
            self.quiet_ns.extend(block_means(self.steps.since(max(self._closed_ns, opened_ns - int(2e9))), BLOCK_S))
        until_s = min(opened_s + window_s, self._offer_until_s - OFFER_RESERVE_S) if self._offers else opened_s + window_s
        with self._attaching:
            if self._made_graphs():
                return
            collector.open()
        begun_ns, captures = time.time_ns(), self.steps.captures
        while time.monotonic() < until_s and self._free.is_set() and self.steps.captures == captures and not self._is_profiled():
            time.sleep(min(SLICE_S, max(0.0, until_s - time.monotonic())))
        closed_ns, cut = time.time_ns(), time.monotonic() < until_s or self._offers
        label = self.ranges.label(opened_ns) if self.ranges is not None else ""
        collector.close()
        drained = collector.drain()
        seen: Seen = collector.sums()
        if drained:
            self._take_out()
        held_s, close_ns = time.monotonic() - opened_s, time.perf_counter_ns()
        observed_ns = max(0, closed_ns - max(begun_ns, seen.first_ns)) if seen.records else 0
        self._ended.wait(min(10.0, held_s * 1.2))       # steps beside the window come after it as well
        lost = time_lost(self.steps.since(opened_ns - int(12e9) - (close_ns - opened_ns)), opened_ns, close_ns)
        self._closed_ns = close_ns
        if lost.seconds is None:
            self.set_aside[lost.why] = self.set_aside.get(lost.why, 0) + 1
        outcome = Outcome(opened_s, held_s, observed_ns / 1e9, lost.seconds, seen.records, lost.why, cut)
        self.controller.tell(outcome)
        self.outcomes.append(outcome)
        if seen.records:
            self.sink(self._windows(seen, observed_ns, label))

    def _take_out(self, wait_s: float = OUT_WAIT_S) -> None:
        """Take CUPTI out after a window, unless graphs ran in it or a profiler has come."""
        if self._stays() or torch_profiles():
            return
        if self.collector.saw_graphs or self.steps.replays:
            self._off("CUDA graphs ran in a window: CUPTI stays attached until the process ends, because taking it out would end "
                      "the job; graphs take some 7 to 9 % longer")
        else:
            self.collector.detach(wait_s)

    def _windows(self, seen: Seen, observed_ns: int, label: str = "") -> list[Window]:
        now_ns = time.time_ns()
        stands_for_ns = max(observed_ns, now_ns - self._last_ns)
        self._last_ns = now_ns
        windows, named = [], " · ".join(filter(None, (self.identity.model, label)))[:MOST_WORD]
        for device, kernels in seen.kernels.items():
            uuid, model = self.collector.gpu(device)
            context = Context(self.identity.job, self.identity.build, model, named, framework(), driver_version())
            windows.append(Window(context, Gpu(uuid or f"device {device}", model, self.identity.host), seen.first_ns, observed_ns,
                                  stands_for_ns, kernels, self.identity.rank))
        return windows
