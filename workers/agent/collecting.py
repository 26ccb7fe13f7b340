"""The thread of a job that opens windows: waits for CUDA, asks the controller, collects, measures, hands windows on.

Nothing here may harm the job: whatever goes wrong switches collecting off for good, with the reason in the state. CUPTI stays
attached once it is (see `cupti`), so it is attached only to a job that keeps its GPU busy and whose speed is known: what stays
between windows is measured against the time before the first."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from workers.agent.activity import sm_pct
from workers.agent.controller import Controller, Limits, Outcome, State
from workers.agent.cupti import Collector, CuptiError, Seen, cupti_version
from workers.agent.identity import Identity, framework, owner, rocm, torch_profiles
from workers.agent.launches import MOST_WORD, Context, Gpu, Window
from workers.agent.libraries import driver_version, used_devices, used_gpus
from workers.agent.progress import FEWEST_STEPS, Ranges, Steps, block_means, time_lost, watch_ranges, watch_torch
from workers.agent.residue.given import Residue, find_residue, kind_of

LOOK_S, LOOK_AGAIN_S = 1.0, 30.0    # for a CUDA context; at a job that may not be attached to
SLICE_S = 0.01                      # within a window: how soon it closes when a profiler starts
OFFER_RESERVE_S = 0.12              # of an offered time: to drain
RETRY_S = 0.2
LEAST_SM_PCT = 30.0                 # a job whose SMs are less active may be bound by its launches
CALM_S, BLOCK_S = 10.0, 0.25         # before the first window, and what is compared with what comes after
MOST_CALM, FEWEST_CALM = 80, 30      # blocks
MOST_DRIFT_PCT = 3.5                # that steps of an untouched job grew longer by themselves (docs/fleet-loss.md)
Sink = Callable[[list[Window]], None]


class Collecting(threading.Thread):
    """`sink` takes the windows of a cycle, one a GPU. `detaches`: take CUPTI out after each window, an experiment
    that ended jobs. `graphs`: collect from jobs that replay CUDA graphs. `residues`: what stays while attached,
    as measured before. `ranges`: name windows by what stays open in them."""

    def __init__(self, identity: Identity, limits: Limits, sink: Sink, steps: Steps | None = None, detaches: bool = False,
                 graphs: bool = False, make_collector: Callable[[], Any] = Collector,
                 sms: Callable[[list[str]], float | None] = sm_pct, residues: Sequence[Residue] = (),
                 ranges: Ranges | None = None) -> None:
        super().__init__(name="ridgepoint-agent", daemon=True)
        self.identity, self.limits, self.sink = identity, limits, sink
        self.steps = steps or Steps()
        self.detaches, self.graphs = detaches, graphs
        self.state, self.why = "starting", ""
        self.collector: Any = None
        self.controller: Controller | None = None
        self.outcomes: deque[Outcome] = deque(maxlen=256)
        self.set_aside: dict[str, int] = {}         # why a window's cost is unknown -> how often
        self.calm_ns: list[float] = []              # a step before the first window: means of blocks
        self.quiet_ns: deque[float] = deque(maxlen=MOST_CALM)       # and between windows
        self.residues, self.ranges = residues, ranges
        self.given: Residue | None = None           # of these the one for this job
        self._make_collector, self._sms = make_collector, sms
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

    def report(self) -> State | None:
        """Return the controller's numbers, None before the first."""
        found = self.controller.report(time.monotonic()) if self.controller else None
        return replace(found, state=self.state, why=self.why) if found and self.state == "off" else found

    # ---- the thread

    def run(self) -> None:
        try:
            self._work()
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
        while not self._ended.is_set():
            self._watch()
            self.controller.residue_pct, self.controller.residue_is_given = self._residue()
            plan = self.controller.plan(time.monotonic())
            self.state, self.why = self.controller.state, self.controller.why
            if plan is None:
                self._ended.wait(LOOK_S)
            elif self._wait_until(plan.at_s):
                self._cycle(plan.window_s)

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
        why = self._too_costly(gpus)
        if why:
            self.state, self.why = "not collected", why
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

    def _too_costly(self, gpus: list[str]) -> str:
        """Return why this job would lose too much once CUPTI is attached, "" where it would not."""
        graphs = self.steps.replays and not self.graphs
        refused = ("it replays CUDA graphs: on an H200 an attached CUPTI alone cost a decode loop 5.8 % of a step "
                   "(RIDGEPOINT_AGENT_GRAPHS=1 collects all the same)")
        if graphs and not self.residues:
            return refused
        active_pct = self._sms(gpus)
        if self.residues:
            kind = kind_of(self.steps.replays, self.steps.updates, active_pct, LEAST_SM_PCT)
            models = [model for _, model in used_devices()]
            self.given = find_residue(self.residues, models, driver_version(), cupti_version(), kind)
        if self.given is not None:
            return "" if self.given.high_pct < self.limits.loss_pct else (
                f"an attached CUPTI takes {self.given.low_pct:.2f} to {self.given.high_pct:.2f} % of {self.given.kind} jobs, as "
                f"measured for this GPU, driver and CUPTI; the limit is {self.limits.loss_pct:g} %")
        if graphs:
            return refused
        if active_pct is None:
            return "no GPM metrics say whether launches bound this job (nvidia-ml-py, Hopper or later)"
        return "" if active_pct >= LEAST_SM_PCT else (
            f"its SMs are {active_pct:.0f} % active: idle, or launch-bound, where CUPTI costs 7 to 13 % while it is attached")

    def residue_pct(self) -> tuple[float, float]:
        """Return (estimate, upper end of its 95 % interval) of what is lost while attached but off, in % of a step."""
        return self._residue()[0]

    def _residue(self) -> tuple[tuple[float, float], bool]:
        """Return the residue, and whether it is one that was measured before: the job's own drift is not in it.

        Such a row is left where the job grew slower than it and any drift explain: the row is not of this kind of job then.
        """
        low_pct, own_pct, high_pct = self._own_residue()
        given = self.given
        if given is not None and low_pct <= given.high_pct + MOST_DRIFT_PCT:
            return (max(0.0, given.loss_pct), max(0.0, given.high_pct)), True
        return (max(0.0, own_pct), max(0.0, high_pct)), False

    def _own_residue(self) -> tuple[float, float, float]:
        """Return (low, estimate, high) against the steps before the first window; a drift of the job counts as well."""
        if self.detaches or len(self.quiet_ns) < FEWEST_CALM:
            return 0.0, 0.0, 0.0
        before, now = np.array(self.calm_ns), np.array(self.quiet_ns)
        half = 2.1 * float(np.sqrt(before.var(ddof=1) / before.size + now.var(ddof=1) / now.size))
        more, scale = float(now.mean() - before.mean()), 100 / float(before.mean())
        return (more - half) * scale, more * scale, (more + half) * scale

    def _is_profiled(self) -> bool:
        if torch_profiles():
            self._off("a torch profiler runs: CUPTI is left to it in this process")
        return self._ended.is_set()

    def _wait_until(self, at_s: float) -> bool:
        """Return whether a window may open; False where the plan is to be made anew."""
        assert self.controller is not None
        while not self._is_profiled():
            if self.detaches and self.collector.attached:       # the job made no CUDA call when the window closed
                self.collector.detach(RETRY_S)
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
        collector.open()
        begun_ns = time.time_ns()
        while time.monotonic() < until_s and self._free.is_set() and not self._is_profiled():
            time.sleep(min(SLICE_S, max(0.0, until_s - time.monotonic())))
        closed_ns, cut = time.time_ns(), time.monotonic() < until_s or self._offers
        label = self.ranges.label(opened_ns) if self.ranges is not None else ""
        collector.close()
        drained = collector.drain()
        seen: Seen = collector.sums()
        if drained and self.detaches:
            collector.detach()
        held_s, close_ns = time.monotonic() - opened_s, time.perf_counter_ns()
        observed_ns = max(0, closed_ns - max(begun_ns, seen.first_ns)) if seen.records else 0
        self._ended.wait(min(10.0, held_s * 1.2))       # steps beside the window come after it as well
        lost = time_lost(self.steps.since(opened_ns - int(12e9) - (close_ns - opened_ns)), opened_ns, close_ns)
        self._closed_ns = close_ns
        if lost.seconds is None:
            self.set_aside[lost.why] = self.set_aside.get(lost.why, 0) + 1
        outcome = Outcome(opened_s, held_s, observed_ns / 1e9, lost.seconds, seen.records, seen.busy_ns, seen.in_graphs, lost.why,
                          cut)
        self.controller.tell(outcome)
        self.outcomes.append(outcome)
        if seen.records:
            self.sink(self._windows(seen, observed_ns, label))

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
