"""Whether CUPTI may come into a job, and whether it can be taken out again (docs/fleet-loss.md says what was measured).

Taking it out while other threads launch, or of a loop that replays CUDA graphs, ended processes. A job with several threads may
keep it where its GPU is busy all the time: what being attached costs at a launch is hidden behind the kernels then."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from workers.agent.activity import Busy
from workers.agent.identity import other_threads
from workers.agent.progress import Steps

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
