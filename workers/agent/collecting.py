"""The thread of a job that opens windows: waits for CUDA, asks the controller, collects, measures, hands windows on.

Nothing here may harm the job: whatever goes wrong switches collecting off for good, with the reason in the state. CUPTI is in the
process during a window only: the job's own thread takes it out as it marks its next step. Of jobs with CUDA graphs or several
threads that may call CUDA that is not safe (`docs/fleet-loss.md`). With several threads CUPTI comes and stays where the GPU is busy
all the time, so that being attached costs nothing that could be measured; a job that launches too slowly is not attached to, nor is
one with graphs, and one that is about to capture its first graph waits until CUPTI is out.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from workers.agent.activity import Busy
from workers.agent.controller import Controller, Limits, Outcome, State
from workers.agent.cupti.collector import Collector, CuptiError, Seen
from workers.agent.identity import Identity, framework, other_threads, owner, rocm, torch_profiles
from workers.agent.launches import MOST_WORD, Context, Gpu, Window
from workers.agent.libraries import driver_version, used_gpus
from workers.agent.progress import (
    FEWEST_STEPS,
    Ranges,
    Residue,
    Steps,
    block_means,
    slower_pct,
    time_lost,
    watch_ranges,
    watch_torch,
)

# Whether CUPTI may come into a job, and whether it can be taken out again (docs/fleet-loss.md says what was measured).
#
# Taking it out while other threads launch, or of a loop that replays CUDA graphs, ended processes. A job with several threads
# may keep it where its GPU is busy all the time: what being attached costs at a launch is hidden behind the kernels then.

# of the time a kernel runs: below that a job is launch-bound, and CUPTI never stays in it. Measured (docs/fleet-loss.md): a job of
# two ranks that waits for its GPUs 88 to 95, a small training loop 77, launches of one small kernel after the other 26
BUSY_PCT = 85.0
GRAPHS = ("it replays CUDA graphs: with CUPTI attached a decode loop on an H200 takes 7 to 9 % longer, and taking CUPTI out may "
          "end it")
THREADS = ("several threads may call CUDA ({}): taking CUPTI out meanwhile ended 2 of 12 such processes on an H200")


class Safety:
    """`stay`: keep CUPTI in jobs of which it cannot be taken out, whatever they are; None: where the GPU is busy; False: never."""

    def __init__(self, steps: Steps, stay: bool | None, make_busy: Callable[[list[str]], Any] = Busy) -> None:
        self.steps, self.asked, self.may_stay = steps, bool(stay), stay is not False
        self.stays = ""                     # why CUPTI is not taken out any more
        self.busy_pct: float | None = None  # of the time before the first window
        self.make_busy = make_busy

    def has_graphs(self) -> bool:
        return bool(self.steps.captures or self.steps.replays)

    def why_not(self) -> str:
        """Return why CUPTI could not be taken out of this job; "" where nothing speaks against it, or where it is to stay."""
        if self.asked:
            return ""
        if self.has_graphs():
            return GRAPHS
        return "" if self.stays else self.threads()

    def threads(self) -> str:
        """Return which threads speak against it."""
        names = other_threads(self.steps.thread)
        return THREADS.format(", ".join(names[:3])) if names else ""

    def is_busy(self) -> bool:
        return self.busy_pct is not None and self.busy_pct >= BUSY_PCT

    def say_busy(self) -> str:
        return ("NVML does not say how busy the GPU is" if self.busy_pct is None
                else f"a kernel runs {self.busy_pct:.0f} % of the time, where {BUSY_PCT:.0f} % are asked for")

    def stay(self, why: str) -> None:
        """From now on CUPTI is not taken out."""
        self.stays = f"CUPTI stays attached: {why or 'as asked'}; {self.say_busy()}"


LOOK_S, LOOK_AGAIN_S = 1.0, 30.0    # for a CUDA context; at a job that may not be attached to
SLICE_S = 0.01                      # within a window: how soon it closes when a profiler starts
OFFER_RESERVE_S = 0.12              # of an offered time: to drain
OUT_WAIT_S = 30.0                   # for the job's next step, at which CUPTI is taken out
CALM_S, BLOCK_S = 10.0, 0.25         # before the first window, and what is compared with what comes after
MOST_CALM, FEWEST_CALM = 80, 30      # blocks
CAPTURE_WAIT_S, EXIT_WAIT_S = 3.0, 2.0      # until CUPTI is out: of a job that captures a graph in a window, or that ends
POLL_S = 0.005
NEVER_RARE = 1 << 62                # of Limits.often
Sink = Callable[[list[Window]], None]


class Collecting(threading.Thread):
    """`sink` takes the windows of a cycle, one a GPU. `stay`: attach to jobs of which CUPTI cannot be taken out as well, and stay
    (None: where the GPU is busy all the time); what that costs is measured against the time before. `ranges`: name windows by what
    stays open in them."""

    def __init__(self, identity: Identity, limits: Limits, sink: Sink, steps: Steps | None = None, stay: bool | None = None,
                 make_collector: Callable[[], Any] = Collector, ranges: Ranges | None = None) -> None:
        super().__init__(name="ridgepoint-agent", daemon=True)
        self.identity, self.limits, self.sink = identity, limits, sink
        self.steps = steps or Steps()
        self.safety, self.ranges = Safety(self.steps, stay), ranges
        self.state, self.why = "starting", ""
        self.collector: Any = None
        self.controller: Controller | None = None
        self.outcomes: deque[Outcome] = deque(maxlen=256)
        self.set_aside: dict[str, int] = {}         # why a window's cost is unknown -> how often
        self.calm_ns: list[float] = []              # a step before the first window: means of blocks
        self.quiet_ns: list[float] = []             # and between the first windows
        self._make_collector = make_collector
        self._attaching = threading.Lock()          # or taking out, or about to capture
        self._out = threading.Event()
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
        for event in (self._ended, self._offered, self._free):
            event.set()

    def leave(self) -> None:
        """End it, in a thread of the job that ends as well: CUPTI must not call back into an interpreter that is gone."""
        self.end()
        if self.collector is not None and self.is_alive():
            self._wait_until_out(EXIT_WAIT_S)

    def report(self) -> State | None:
        """Return the controller's numbers, None before the first."""
        state = self.controller.report(time.monotonic()) if self.controller else None
        return replace(state, state=self.state, why=self.why) if state and self.state == "off" else state

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
        if named := owner():
            self._off(f"{named} owns CUPTI in this process")
        while not self._ended.is_set():
            if self._may_attach():
                self._collect()
            else:
                self._ended.wait(LOOK_S)

    def _collect(self) -> None:
        """Window after window, until it ends or threads have come that CUPTI cannot be taken out beside."""
        self.collector = self.collector or self._make_collector()
        self.controller = self.controller or Controller(self.limits, time.monotonic())
        self.steps.before_capture = self._leave
        while not self._ended.is_set():
            self._watch()
            if why := self.safety.why_not():
                if self.safety.has_graphs():
                    self._off(f"{why}: it is left alone from now on")
                elif self.collector.attached:
                    self._keep(why)
                else:
                    return
                continue
            self.controller.residue = self.residue()
            plan = self.controller.plan(time.monotonic())
            self.state, self.why = self.controller.state, self.controller.why or self.safety.stays
            if plan is None:
                self._ended.wait(LOOK_S)
            elif self._wait_until(plan.at_s):
                self._cycle(plan.window_s)

    def _finish(self) -> None:
        """Leave the process as it was, however the work ended."""
        own = self.collector
        if own is not None and own.attached and not own.broken:
            if own.is_open:
                own.close()
                own.drain()
            self._take_out(EXIT_WAIT_S)

    def _may_attach(self) -> bool:
        """Return whether the job made a context, marks steps, CUPTI may come, and its speed before that is known now."""
        self._watch()
        if rocm():
            self._off(f"an AMD GPU (HIP {rocm()}): its kernel records come from rocprofiler-sdk's buffered dispatch tracing, which "
                      "has to be set up before HIP starts; this agent speaks CUPTI only")
            return False
        if not used_gpus():
            self.state, self.why = "waiting", "the job made no CUDA context yet"
            return False
        if self._is_profiled():
            return False
        if self.steps.count < FEWEST_STEPS:
            self.state, self.why = "not collected", "the job marks no steps: what collecting costs could not be measured"
            return False
        safety = self.safety
        why = safety.why_not()
        if why and (safety.has_graphs() or not safety.may_stay):
            return self._wait(f"{why} (RIDGEPOINT_AGENT_STAY=1 attaches all the same, and stays)")
        self.state, self.why = "starting", "steps are measured before the first window"
        self.calm_ns, safety.busy_pct = self._measure_calm()
        if len(self.calm_ns) < FEWEST_CALM or self._is_profiled():
            return False
        if why and not safety.is_busy():
            return self._wait(f"{why}, and it is launch-bound: {safety.say_busy()} (RIDGEPOINT_AGENT_STAY=1 attaches all the same)")
        if why or safety.asked:
            self._stay(why)
        return True

    def _wait(self, why: str) -> bool:
        self.state, self.why = "not collected", why
        self._ended.wait(LOOK_AGAIN_S)
        return False

    def _measure_calm(self) -> tuple[list[float], float | None]:
        """Return what a step takes before CUPTI comes, means of blocks in ns, and how busy the GPU is, in %."""
        busy, began_ns, looked_s = self.safety.make_busy(used_gpus()), time.perf_counter_ns(), 0.0
        while not self._ended.is_set() and time.perf_counter_ns() - began_ns < CALM_S * 1e9:
            self._ended.wait(0.1)
            if not self._free.is_set():
                self._free.wait()
                began_ns = time.perf_counter_ns()
            if time.monotonic() - looked_s > CALM_S / 12:
                looked_s = time.monotonic()
                busy.look()
        return block_means(self.steps.since(began_ns), BLOCK_S), busy.pct()

    def _stay(self, why: str) -> None:
        """From now on CUPTI is not taken out, and leaves nothing behind."""
        self.safety.stay(why)
        self.limits = replace(self.limits, often=NEVER_RARE)
        if self.controller is not None:
            self.controller.limits = self.limits

    def _keep(self, why: str) -> None:
        """CUPTI is attached and cannot be taken out any more."""
        if self.safety.may_stay and self.safety.is_busy():
            self._stay(why)
        else:
            self._off(f"{why}: CUPTI stays attached until the process ends")

    def _watch(self) -> None:
        watch_torch(self.steps)
        if self.ranges is not None:
            watch_ranges(self.ranges)

    def _leave(self) -> None:
        """In the job's thread, before it captures a CUDA graph: wait until CUPTI is out. No graph made under it outlives that."""
        with self._attaching:
            attached = not self.safety.stays and self.collector is not None and self.collector.attached
        if attached:
            self._wait_until_out(CAPTURE_WAIT_S)

    def _wait_until_out(self, wait_s: float) -> None:
        """In the job's thread, between two of its CUDA calls as a step's end is."""
        end_s = time.monotonic() + wait_s
        while self.collector.attached and not self.collector.broken and time.monotonic() < end_s:
            do, self.steps.at_step = self.steps.at_step, None
            if do is not None:
                do()
            time.sleep(POLL_S)

    def _out_here(self) -> None:
        """In the job's thread: take CUPTI out, whatever happens without harm to it."""
        try:
            with self._attaching:
                if not (self.collector.is_open or self.steps.replays or self.safety.threads()):
                    self.collector.take_out()
        except BaseException as error:
            self._off(f"{type(error).__name__}: {error}")
        self._out.set()

    def residue(self) -> Residue:
        """Return what is lost where CUPTI stays attached, in % of a step: the time between the first windows against that before,
        so a drift of the job meanwhile counts as well."""
        is_known = self.safety.stays and len(self.quiet_ns) >= FEWEST_CALM
        return slower_pct(self.calm_ns, self.quiet_ns) if is_known else Residue()

    def _is_profiled(self) -> bool:
        if torch_profiles():
            self._off("a torch profiler runs: CUPTI is left to it in this process")
        return self._ended.is_set()

    def _wait_until(self, at_s: float) -> bool:
        """Return whether a window may open; False where the plan is to be made anew."""
        assert self.controller is not None
        while not self._is_profiled():
            if self.steps.captures and not self.safety.asked:
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
        if self._closed_ns and len(self.quiet_ns) < MOST_CALM:
            self.quiet_ns.extend(block_means(self.steps.since(max(self._closed_ns, opened_ns - int(2e9))), BLOCK_S))
        until_s = min(opened_s + window_s, self._offer_until_s - OFFER_RESERVE_S) if self._offers else opened_s + window_s
        with self._attaching:
            if self.safety.why_not():
                return
            self.steps.at_step = None           # CUPTI is there yet: the job marked no step since the last window
            collector.open()
        begun_ns, captures = time.time_ns(), self.steps.captures
        while time.monotonic() < until_s and self._free.is_set() and self.steps.captures == captures and not self._is_profiled():
            time.sleep(min(SLICE_S, max(0.0, until_s - time.monotonic())))
        closed_ns, cut = time.time_ns(), time.monotonic() < until_s or self._offers
        label = self.ranges.label(opened_ns) if self.ranges is not None else ""
        collector.close()
        drained = collector.drain()
        sums: Seen = collector.sums()
        if drained:
            self._take_out(OUT_WAIT_S)
        held_s, close_ns = time.monotonic() - opened_s, time.perf_counter_ns()
        observed_ns = max(0, closed_ns - max(begun_ns, sums.first_ns)) if sums.records else 0
        self._ended.wait(min(10.0, held_s * 1.2))       # steps beside the window come after it as well
        lost = time_lost(self.steps.since(opened_ns - int(12e9) - (close_ns - opened_ns)), opened_ns, close_ns)
        self._closed_ns = close_ns
        if lost.seconds is None:
            self.set_aside[lost.why] = self.set_aside.get(lost.why, 0) + 1
        outcome = Outcome(opened_s, held_s, observed_ns / 1e9, lost.seconds, sums.records, lost.why, cut)
        self.controller.tell(outcome)
        self.outcomes.append(outcome)
        if sums.records:
            self.sink(self._windows(sums, observed_ns, label))

    def _take_out(self, wait_s: float) -> None:
        """Have CUPTI taken out at the job's next step, unless graphs ran in the window, threads or a profiler have come."""
        if self.safety.stays or torch_profiles():
            pass
        elif self.collector.saw_graphs or self.steps.replays:
            self._off(f"CUDA graphs ran in a window, so CUPTI stays attached until the process ends: {GRAPHS}")
        elif why := self.safety.threads():
            self._keep(why)
        else:
            self._out.clear()
            self.steps.at_step = self._out_here
            end_s = time.monotonic() + wait_s
            while not self._out.wait(4 * POLL_S) and time.monotonic() < end_s:
                if self._ended.is_set() and wait_s > EXIT_WAIT_S:
                    return              # `_finish` asks once more

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
