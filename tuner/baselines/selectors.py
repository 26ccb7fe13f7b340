"""What a kernel is compared with: runs of earlier builds on the same GPU, toolkit and driver, newest first.

Rolling: the newest runs of builds that passed or were never judged, and that no open regression holds at, from the newest
"intended" build on. Pinned: the runs of one build. Builds of the main line count; where it has none, those of the candidate's own
branch do. Runs of another environment are never mixed in.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from django.db.models import Count, F, Max, QuerySet, Window
from django.db.models.functions import RowNumber

from tuner.builds.order_selectors import line, position
from tuner.builds.regression_selectors import slow_builds
from tuner.models import BaselineChange, Build, Gate, GateKernel, KernelRun, Suite, SuiteKernel

MOST_RUNS = 100                             # of one kernel that a comparison takes: exact tests need far fewer
MOST_ENVIRONMENTS = 50
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


def environments_of(suite: Suite, **where: str) -> list[Env]:
    """In which the suite has runs, the one with the newest run first; `where` holds fields that must be equal."""
    return [each["env"] for each in environment_counts(suite, **where)]


def environment_counts(suite: Suite, **where: str) -> list[dict[str, Any]]:
    """The same with how much there is: {"env", "runs", "builds", "newest"}; runs count per kernel."""
    found = KernelRun.objects.filter(kernel__suite=suite, rejected="", **where).order_by()
    grouped = found.values("gpu", "toolkit", "driver", "recorded").annotate(
        newest=Max("created"), count=Count("id"), builds=Count("build", distinct=True)).order_by("-newest")[:MOST_ENVIRONMENTS]
    return [{"env": Env(each["gpu"], each["toolkit"], each["driver"], each["recorded"]), "runs": each["count"],
             "builds": each["builds"], "newest": each["newest"]} for each in grouped]


def changes_of(suite: Suite, kernels: Iterable[SuiteKernel], gpu: str) -> dict[int, list[BaselineChange]]:
    """What people said, of each kernel on the GPU, newest first: that of the kernel itself and that of the whole suite."""
    rows = list(BaselineChange.objects.filter(suite=suite, gpu__in=["", gpu]).select_related("build", "author"))
    return {kernel.pk: [row for row in rows if row.kernel_id in (None, kernel.pk)] for kernel in kernels}


def baseline_of(kernel: SuiteKernel, gpu: str, toolkit: str, driver: str, recorded: str = "",
                before: Build | None = None) -> Baseline:
    """Of one kernel; `before` is the build to be judged, None: as for the next build."""
    return baselines_of([kernel], Env(gpu, toolkit, driver, recorded), before)[kernel.pk]


def baselines_of(kernels: Sequence[SuiteKernel], environment: Env, before: Build | None = None,
                 against: Build | None = None, without: Gate | None = None) -> dict[int, Baseline]:
    """Of kernels of one suite, by kernel id: a handful of queries for all of them.

    `before` is the build that is judged: neither it nor a later one counts. `against` takes the place of whatever is in force.
    `without`: runs that this gate's own jobs took do not count.
    """
    if not kernels:
        return {}
    suite = kernels[0].suite
    said = changes_of(suite, kernels, environment.gpu)
    counts = _counts(kernels, environment, without)
    builds = Build.objects.in_bulk({build for found in counts.values() for build in found})
    judged, slow = _judged(kernels, environment), slow_builds(suite, environment.where())
    open_gates = set(suite.gates.filter(status__in=UNDER_WAY).order_by().values_list("build", flat=True).distinct())
    for key in [(kernel.pk, build) for kernel in kernels for build in open_gates]:
        judged.setdefault(key, ("AMBIGUOUS", None))             # its runs are just being taken: nobody knows yet
    chosen = {kernel.pk: _choose(kernel, suite, said[kernel.pk], counts[kernel.pk], builds, judged, slow.get(kernel.key, []),
                                 before, against) for kernel in kernels}
    wanted = {build.pk for choice in chosen.values() for build in choice.builds}
    rows = _rows(kernels, environment, wanted, without)
    return {kernel.pk: _filled(chosen[kernel.pk], rows, suite, environment, before) for kernel in kernels}


def _timed(kernels: Sequence[SuiteKernel], environment: Env, without: Gate | None) -> QuerySet[KernelRun]:
    rows = KernelRun.objects.filter(kernel__in=kernels, rejected="", **environment.where())
    return rows if without is None else rows.exclude(job__gate=without)


def _counts(kernels: Sequence[SuiteKernel], environment: Env, without: Gate | None) -> dict[int, dict[int, int]]:
    """Kernel -> build -> runs."""
    found = _timed(kernels, environment, without).order_by()
    counts: dict[int, dict[int, int]] = defaultdict(dict)
    for kernel, build, number in found.values_list("kernel", "build").annotate(number=Count("id")):
        counts[kernel][build] = number
    return counts


def _judged(kernels: Sequence[SuiteKernel], environment: Env) -> dict[tuple[int, int], tuple[str, Any]]:
    """(kernel, build) -> what the build's last gate said of the kernel here, and when; of one that goes on, what it says so far."""
    here = {f"gate__{name}": value for name, value in environment.where().items()}
    found = GateKernel.objects.filter(kernel__in=kernels, **here)
    newest = found.order_by("kernel_id", "gate__build_id", "-gate_id").distinct("kernel_id", "gate__build_id")
    return {(kernel, build): (verdict, at) for kernel, build, verdict, at in
            newest.values_list("kernel", "gate__build", "verdict", "gate__finished")}


def _choose(kernel: SuiteKernel, suite: Suite, said: Sequence[BaselineChange], counts: Mapping[int, int],
            builds: Mapping[int, Build], judged: Mapping[tuple[int, int], tuple[str, Any]],
            slow: Sequence[tuple[Position, Position | None]], before: Build | None, against: Build | None) -> Baseline:
    """Whose runs count; the runs themselves come later."""
    mode = next((change for change in said if change.action in (Action.PIN, Action.ROLL)), None)
    intended = next((change for change in said if change.action == Action.INTENDED), None)
    if against is not None:
        return Baseline(kernel, "against", builds=[against] if against.pk in counts else [])
    if mode is not None and mode.action == Action.PIN and (intended is None or mode.pk > intended.pk):
        return Baseline(kernel, "pinned", builds=[mode.build] if mode.build and mode.build_id in counts else [], change=mode)
    known = sorted((builds[pk] for pk in counts if pk in builds), key=position, reverse=True)
    earlier = [build for build in known if before is None or position(build) < position(before)]
    since = intended.build if intended else None
    if since is not None and intended is not None:
        earlier = [build for build in earlier if position(build) >= position(since)]
    open_ones = [each for each in slow if since is None or each[0] > position(since)]        # what began before is accepted as well
    passed = [build for build in earlier
              if not _barred(judged.get((kernel.pk, build.pk)), intended) and not _within(build, open_ones)]
    main = [build for build in passed if not line(build) or (since is not None and build.pk == since.pk)]
    own = [build for build in passed if before is not None and line(build) == line(before)]
    taken: list[Build] = []
    for build in main or own:
        if sum(counts[each.pk] for each in taken) >= suite.baseline_runs:
            break
        taken.append(build)
    return Baseline(kernel, "rolling", builds=taken, change=intended or mode)


def _barred(verdict: tuple[str, Any] | None, intended: BaselineChange | None) -> bool:
    """Whether its gate keeps a build out. A verdict from before somebody said "intended" was about the old baseline."""
    if verdict is None or verdict[0] not in NOT_A_BASELINE:
        return False
    return intended is None or verdict[1] is None or verdict[1] > intended.created


def _within(build: Build, slow: Sequence[tuple[Position, Position | None]]) -> bool:
    """Whether a regression that nobody accepted holds at the build: no gate need have said so, the series may."""
    return any(since <= position(build) and (fixed is None or position(build) < fixed) for since, fixed in slow)


def _rows(kernels: Sequence[SuiteKernel], environment: Env, builds: set[int],
          without: Gate | None) -> dict[tuple[int, int], list[KernelRun]]:
    """(kernel, build) -> runs, newest first."""
    found: dict[tuple[int, int], list[KernelRun]] = defaultdict(list)
    turn = Window(RowNumber(), partition_by=[F("kernel_id"), F("build_id")], order_by=[F("created").desc(), F("id").desc()])
    rows = _timed(kernels, environment, without).filter(build__in=builds).annotate(nth=turn).filter(nth__lte=MOST_RUNS)
    for row in rows.select_related("kernel", "build").order_by("-created", "-id"):
        found[row.kernel_id, row.build_id].append(row)
    return found


def _filled(choice: Baseline, rows: Mapping[tuple[int, int], list[KernelRun]], suite: Suite, environment: Env,
            before: Build | None) -> Baseline:
    """With its runs: of a rolling baseline the newest `baseline_runs`, of one build all."""
    limit = min(suite.baseline_runs, MOST_RUNS) if choice.mode == "rolling" else MOST_RUNS
    runs = [run for build in choice.builds for run in rows.get((choice.kernel.pk, build.pk), [])][:limit]
    held = {run.build_id for run in runs}
    reason = "" if runs else _why_empty(choice, environment, before)
    return Baseline(choice.kernel, choice.mode, runs, [build for build in choice.builds if build.pk in held], choice.change, reason)


def _why_empty(choice: Baseline, environment: Env, before: Build | None) -> str:
    change = choice.change
    if choice.mode == "pinned" and change is not None:
        return f"the baseline is pinned to build {change.build}, which has no runs on {environment.text}"
    if choice.mode == "against":
        return f"the build to compare with has no runs on {environment.text}"
    if change is not None and change.action == Action.INTENDED:
        return f"the baseline begins with build {change.build} (intended), and no build from there on{_until(before)} has runs " \
               f"that count on {environment.text}"
    return f"no build{_until(before)} that passed or was never judged has runs on {environment.text}"


def _until(before: Build | None) -> str:
    return f" before {before.name}" if before is not None else ""


def baseline_history(suite: Suite) -> QuerySet[BaselineChange]:
    """What people said, newest first."""
    return suite.baseline_changes.select_related("kernel", "build", "author")
