"""Which builds a baseline is made of: what people said, what gates and series know, and the order of builds decide.

Rolling: builds that passed or were never judged, and that no open regression holds at, from the newest "intended" build on.
Pinned: one build. Builds of the main line count; where it has none, those of the candidate's own branch do.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from django.db.models import Count, Exists, OuterRef, Q, QuerySet

from tuner.builds.order_selectors import line, position
from tuner.builds.regression_selectors import slow_builds
from tuner.models import BaselineChange, Build, Gate, GateKernel, KernelRun, Suite, SuiteKernel

MANY = 100                                  # kernels
NOT_A_BASELINE = ("SLOWER", "AMBIGUOUS")    # what a build's last gate said of the kernel
UNDER_WAY = (Gate.Status.WAITING, Gate.Status.MEASURING)
Action = BaselineChange.Action
Position = tuple[float, int]                # of a build in the order


@dataclass(frozen=True)
class Env:
    """Where runs were taken. Two that differ in anything are never one baseline."""

    gpu: str = ""
    toolkit: str = ""
    driver: str = ""
    recorded: str = ""

    @property
    def text(self) -> str:
        """For sentences: "NVIDIA H200, cuda 13.0, triton 3.6.0, driver 580.159"."""
        parts = [self.gpu or "a GPU that was not named", self.toolkit if self.toolkit != "unknown" else "",
                 f"driver {self.driver}" if self.driver else ""]
        return ", ".join(part for part in parts if part) + (f" ({self.recorded})" if self.recorded else "")

    def where(self) -> dict[str, str]:
        """As filters of rows."""
        return {"gpu": self.gpu, "toolkit": self.toolkit, "driver": self.driver, "recorded": self.recorded}

    def differs(self, other: Env) -> list[str]:
        """What changed from `other` to this one, in words: ["driver 580.159 → 590.44"]."""
        return [f"{name} {getattr(other, name) or 'not named'} → {getattr(self, name) or 'not named'}"
                for name in ("gpu", "toolkit", "driver", "recorded") if getattr(self, name) != getattr(other, name)]


@dataclass(frozen=True)
class Baseline:
    """Of one kernel in one environment."""

    kernel: SuiteKernel
    mode: str                                                    # "rolling" | "pinned" | "against"
    runs: list[KernelRun] = field(default_factory=list)          # newest first; none of them rejected
    builds: list[Build] = field(default_factory=list)            # of those runs, newest first
    change: BaselineChange | None = None                         # what a person said, where it is in force
    reason: str = ""                                             # why there are no runs

    @property
    def says(self) -> str:
        """For people: "10 runs of 2 builds, 4f2c1e to 77ab01"."""
        if not self.runs:
            return self.reason
        runs = f"{len(self.runs)} run{'s' if len(self.runs) != 1 else ''}"
        if len(self.builds) == 1:
            return f"{runs} of {self.builds[0].name}" + (" (pinned)" if self.mode == "pinned" else "")
        return f"{runs} of {len(self.builds)} builds, {self.builds[-1].name} to {self.builds[0].name}"


def env_of(row: KernelRun | Gate) -> Env:
    return Env(row.gpu, row.toolkit, row.driver, row.recorded)


def changes_of(suite: Suite, kernels: Iterable[SuiteKernel], gpu: str) -> dict[int, list[BaselineChange]]:
    """What people said, of each kernel on the GPU, newest first: that of the kernel itself and that of the whole suite."""
    rows = list(BaselineChange.objects.filter(suite=suite, gpu__in=["", gpu]).select_related("build", "author"))
    return {kernel.pk: [row for row in rows if row.kernel_id in (None, kernel.pk)] for kernel in kernels}


def chosen_builds(kernels: Sequence[SuiteKernel], environment: Env, counts: Mapping[int, Mapping[int, int]], before: Build | None,
            against: Build | None) -> dict[int, Baseline]:
    """Kernel -> the builds whose runs count, without these."""
    suite = kernels[0].suite
    said = changes_of(suite, kernels, environment.gpu)
    builds = Build.objects.in_bulk({pk for of in counts.values() for pk in of}).values()
    known = sorted(((position(build), build) for build in builds), key=lambda each: each[0], reverse=True)
    open_gates = set(suite.gates.filter(status__in=UNDER_WAY).order_by().values_list("build", flat=True).distinct())
    judged, slow = _judged(kernels, environment, open_gates), slow_builds(suite, environment.where())
    for key in [(kernel.pk, build) for kernel in kernels for build in open_gates]:
        judged.setdefault(key, ("AMBIGUOUS", None))             # its runs are just being taken: nobody knows yet
    return {kernel.pk: _choose(kernel, suite, said[kernel.pk], counts.get(kernel.pk, {}), known, judged, slow.get(kernel.key, []),
                               before, against) for kernel in kernels}


def timed(kernels: Sequence[SuiteKernel], environment: Env, without: Gate | None) -> QuerySet[KernelRun]:
    """Runs of these kernels of one suite; where they are many, of all its kernels: the database joins faster than it looks up."""
    of = {"kernel__suite": kernels[0].suite_id} if len(kernels) > MANY else {"kernel__in": kernels}
    rows = KernelRun.objects.filter(rejected="", **of, **environment.where())
    return rows if without is None else rows.exclude(job__gate=without)


def counts_of(kernels: Sequence[SuiteKernel], environment: Env, without: Gate | None) -> dict[int, dict[int, int]]:
    """Kernel -> build -> runs."""
    found = timed(kernels, environment, without).order_by()
    counts: dict[int, dict[int, int]] = defaultdict(dict)
    for kernel, build, number in found.values_list("kernel", "build").annotate(number=Count("id")):
        counts[kernel][build] = number
    return counts


def _judged(kernels: Sequence[SuiteKernel], environment: Env, open_gates: Iterable[int]) -> dict[tuple[int, int], tuple[str, Any]]:
    """(kernel, build) -> what the build's last gate said of the kernel here, and when; of one that goes on, what it says so far.

    Of builds that no gate judges now, only what keeps them out: most passed, and there may be tens of thousands of those.
    """
    here = {f"gate__{name}": value for name, value in environment.where().items()}
    later = GateKernel.objects.filter(kernel=OuterRef("kernel"), gate__build=OuterRef("gate__build"), gate__gt=OuterRef("gate"),
                                      **here)
    of = {"gate__suite": kernels[0].suite_id} if len(kernels) > MANY else {"kernel__in": kernels}       # as `timed` does
    told = GateKernel.objects.filter(Q(verdict__in=NOT_A_BASELINE) | Q(gate__build__in=open_gates), ~Exists(later), **of, **here)
    return {(kernel, build): (verdict, at) for kernel, build, verdict, at in
            told.order_by().values_list("kernel", "gate__build", "verdict", "gate__finished")}


def _choose(kernel: SuiteKernel, suite: Suite, said: Sequence[BaselineChange], counts: Mapping[int, int],
            known: Sequence[tuple[Position, Build]], judged: Mapping[tuple[int, int], tuple[str, Any]],
            slow: Sequence[tuple[Position, Position | None]], before: Build | None, against: Build | None) -> Baseline:
    """Whose runs count; the runs themselves come later."""
    mode = next((change for change in said if change.action in (Action.PIN, Action.ROLL)), None)
    intended = next((change for change in said if change.action == Action.INTENDED), None)
    if against is not None:
        return Baseline(kernel, "against", builds=[against] if against.pk in counts else [])
    if mode is not None and mode.action == Action.PIN and (intended is None or mode.pk > intended.pk):
        return Baseline(kernel, "pinned", builds=[mode.build] if mode.build and mode.build_id in counts else [], change=mode)
    since = intended.build if intended else None
    open_ones = [each for each in slow if since is None or each[0] > position(since)]        # what began before is accepted as well

    def passed(of: str) -> Iterator[Build]:
        """Newest first; looked at no further than there are runs enough: a suite may have been measured at thousands of builds."""
        for at, build in known:
            if (line(build) == of or (not of and since is not None and build.pk == since.pk)) and build.pk in counts \
                    and (before is None or at < position(before)) and (since is None or at >= position(since)) \
                    and not _barred(judged.get((kernel.pk, build.pk)), intended) and not _within(at, open_ones):
                yield build

    taken = _enough(passed(""), counts, suite.baseline_runs)
    if not taken and before is not None:
        taken = _enough(passed(line(before)), counts, suite.baseline_runs)
    return Baseline(kernel, "rolling", builds=taken, change=intended or mode)


def _enough(builds: Iterable[Build], counts: Mapping[int, int], runs: int) -> list[Build]:
    """The first of them that have so many runs together, or all."""
    taken: list[Build] = []
    have = 0
    for build in builds:
        taken.append(build)
        have += counts[build.pk]
        if have >= runs:
            break
    return taken


def _barred(verdict: tuple[str, Any] | None, intended: BaselineChange | None) -> bool:
    """Whether its gate keeps a build out. A verdict from before somebody said "intended" was about the old baseline."""
    if verdict is None or verdict[0] not in NOT_A_BASELINE:
        return False
    return intended is None or verdict[1] is None or verdict[1] > intended.created


def _within(at: Position, slow: Sequence[tuple[Position, Position | None]]) -> bool:
    """Whether a regression that nobody accepted holds at the build there: no gate need have said so, the series may."""
    return any(since <= at and (fixed is None or at < fixed) for since, fixed in slow)
