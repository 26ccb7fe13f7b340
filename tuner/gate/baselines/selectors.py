"""What a kernel is compared with: runs of earlier builds on the same GPU, toolkit and driver, newest first.

Rolling: builds that passed or were never judged and at which no open regression holds, from the newest "intended" build on, or from
where the kernel surely became faster (`levels`): a baseline holds one level. Pinned: one build. Builds of the main line count;
where it has none, those of the candidate's own branch do. A rolling baseline takes the newest runs, one build all of its runs. Runs
of another environment are never mixed in.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from statistics import median
from typing import Any

from django.db.models import Count, Exists, F, OuterRef, Q, QuerySet, Window
from django.db.models.functions import RowNumber

from tuner.gate.baselines import levels
from tuner.gate.builds.selectors import ENVIRONMENT, Position, branch_line, position, slow_builds
from tuner.gate.stats.rule import rule_of
from tuner.gate.suites.selectors import environment_totals
from tuner.models import BaselineChange, Build, Gate, GateKernel, KernelRun, SlowerVerdict, Suite, SuiteKernel

MANY = 100                                  # kernels
NOT_A_BASELINE = ("SLOWER", "AMBIGUOUS")    # what a build's last gate said of the kernel
Action = BaselineChange.Action


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
        return asdict(self)

    def differs(self, other: Env) -> list[str]:
        """What changed from `other` to this one, in words: ["driver 580.159 → 590.44"]."""
        return [f"{name} {getattr(other, name) or 'not named'} → {getattr(self, name) or 'not named'}"
                for name in ENVIRONMENT if getattr(self, name) != getattr(other, name)]


@dataclass(frozen=True)
class Baseline:
    """Of one kernel in one environment."""

    kernel: SuiteKernel
    mode: str                                                    # "rolling" | "pinned" | "against"
    runs: list[KernelRun] = field(default_factory=list)          # newest first; none of them rejected
    builds: list[Build] = field(default_factory=list)            # of those runs, newest first
    change: BaselineChange | None = None                         # what a person said, where it is in force
    reason: str = ""                                             # why there are no runs
    since: Build | None = None                                   # which surely made it faster: the baseline begins anew with it
    earlier: list[KernelRun] = field(default_factory=list)       # runs of the level before, newest first
    earlier_builds: list[Build] = field(default_factory=list)

    @property
    def says(self) -> str:
        """For people: "10 runs of 2 builds, 4f2c1e to 77ab01"."""
        if not self.runs:
            return self.reason
        runs = f"{len(self.runs)} run{'s' if len(self.runs) != 1 else ''}"
        began = f", since {self.since.name} made it faster" if self.since is not None else ""
        if len(self.builds) == 1:
            return f"{runs} of {self.builds[0].name}" + (" (pinned)" if self.mode == "pinned" else began)
        return f"{runs} of {len(self.builds)} builds, {self.builds[-1].name} to {self.builds[0].name}{began}"


def environment_of(row: KernelRun | Gate | SlowerVerdict) -> Env:
    """Return where a run was taken, or a gate decided."""
    return Env(row.gpu, row.toolkit, row.driver, row.recorded)


def changes_by_kernel(suite: Suite, kernels: Iterable[SuiteKernel], gpu: str) -> dict[int, list[BaselineChange]]:
    """Return what people said of each kernel on the GPU, newest first, the whole suite's included."""
    rows = list(BaselineChange.objects.filter(suite=suite, gpu__in=["", gpu]).select_related("build", "author"))
    return {kernel.pk: [row for row in rows if row.kernel_id in (None, kernel.pk)] for kernel in kernels}


def choose_builds(kernels: Sequence[SuiteKernel], environment: Env, counts: Mapping[int, Mapping[int, int]], before: Build | None,
            against: Build | None) -> dict[int, Baseline]:
    """Return by kernel the builds whose runs count, without these."""
    suite = kernels[0].suite
    changes = changes_by_kernel(suite, kernels, environment.gpu)
    builds = Build.objects.in_bulk({pk for of in counts.values() for pk in of}).values()
    positions = sorted(((position(build), build) for build in builds), key=lambda each: each[0], reverse=True)
    open_gates = set(suite.gates.filter(status__in=Gate.UNDER_WAY).order_by().values_list("build", flat=True).distinct())
    judged, slow = _last_verdicts(kernels, environment, open_gates), slow_builds(suite, environment.where())
    for key in [(kernel.pk, build) for kernel in kernels for build in open_gates]:
        judged.setdefault(key, ("AMBIGUOUS", None))             # its runs are just being taken: nobody knows yet
    faster = levels.faster_builds(kernels, environment.where(), [build for _, build in positions])
    return {kernel.pk: _choose_for_kernel(kernel, suite, changes[kernel.pk], counts.get(kernel.pk, {}), positions, judged,
                                          slow.get(kernel.key, []), faster.get(kernel.pk, {}), before, against)
            for kernel in kernels}


def timed_runs(kernels: Sequence[SuiteKernel], environment: Env, without: Gate | None) -> QuerySet[KernelRun]:
    """Return runs of these kernels of one suite; of many, all of its kernels: the database joins faster than it looks up."""
    of = {"kernel__suite": kernels[0].suite_id} if len(kernels) > MANY else {"kernel__in": kernels}
    rows = KernelRun.objects.filter(rejected="", **of, **environment.where())
    return rows if without is None else rows.exclude(job__gate=without)


def run_counts(kernels: Sequence[SuiteKernel], environment: Env, without: Gate | None) -> dict[int, dict[int, int]]:
    """Return kernel -> build -> runs."""
    runs = timed_runs(kernels, environment, without).order_by()
    counts: dict[int, dict[int, int]] = defaultdict(dict)
    for kernel, build, number in runs.values_list("kernel", "build").annotate(number=Count("id")):
        counts[kernel][build] = number
    return counts


def _last_verdicts(kernels: Sequence[SuiteKernel], environment: Env, open_gates: Iterable[int]) -> dict[tuple[int, int],
                                                                                                        tuple[str, Any]]:
    """(kernel, build) -> what the build's last gate said of the kernel here, and when; of one that goes on, what it says so far.

    A comparison with a build that somebody named speaks where no gate compared with the baseline: looking at a faster side branch
    makes no build of the main line a slow one.

    Of builds that no gate judges now, only what keeps them out: most passed, and there may be tens of thousands of those.
    """
    here = {f"gate__{name}": value for name, value in environment.where().items()}
    same = GateKernel.objects.filter(kernel=OuterRef("kernel"), gate__build=OuterRef("gate__build"), **here)
    later, ordinary = same.filter(gate__gt=OuterRef("gate")), same.filter(gate__against=None, gate__status=Gate.Status.DONE)
    last = (Q(gate__against=None) & ~Exists(later.filter(gate__against=None))) | (
        Q(gate__against__isnull=False) & ~Exists(later) & ~Exists(ordinary))
    of = {"gate__suite": kernels[0].suite_id} if len(kernels) > MANY else {"kernel__in": kernels}       # as `timed` does
    verdicts = GateKernel.objects.filter(last, Q(verdict__in=NOT_A_BASELINE) | Q(gate__build__in=open_gates), **of, **here)
    return {(kernel, build): (verdict, moment) for kernel, build, verdict, moment in
            verdicts.order_by().values_list("kernel", "gate__build", "verdict", "gate__finished")}


def _choose_for_kernel(kernel: SuiteKernel, suite: Suite, said: Sequence[BaselineChange], counts: Mapping[int, int],
            known: Sequence[tuple[Position, Build]], judged: Mapping[tuple[int, int], tuple[str, Any]],
            slow: Sequence[tuple[Position, Position | None]], faster: Mapping[int, float | None], before: Build | None,
            against: Build | None) -> Baseline:
    """Return whose runs count for one kernel; the runs themselves come later."""
    mode = next((change for change in said if change.action in (Action.PIN, Action.ROLL)), None)
    intended = next((change for change in said if change.action == Action.INTENDED), None)
    if against is not None:
        return Baseline(kernel, "against", builds=[against] if against.pk in counts else [])
    if mode is not None and mode.action == Action.PIN and (intended is None or mode.pk > intended.pk):
        return Baseline(kernel, "pinned", builds=[mode.build] if mode.build and mode.build_id in counts else [], change=mode)
    since = intended.build if intended else None
    open_ones = [span for span in slow if since is None or span[0] > position(since)]        # what began before is accepted as well

    def on_line(of: str) -> Iterator[tuple[Position, Build]]:
        """Newest first; looked at no further than there are runs enough: a suite may have been measured at thousands of builds."""
        for place, build in known:
            if (branch_line(build) == of or (not of and since is not None and build.pk == since.pk)) and build.pk in counts \
                    and (before is None or place < position(before)) and (since is None or place >= position(since)):
                yield place, build

    def passed(of: str) -> Iterator[Build]:
        return (build for place, build in on_line(of)
                if not _is_barred(judged.get((kernel.pk, build.pk)), intended) and not _is_known_slow(place, open_ones))

    for line in dict.fromkeys(["", branch_line(before) if before is not None else ""]):
        start = levels.newest_start(on_line(line), faster) if faster else None
        builds, earlier = levels.split_level(passed(line), start, counts, suite.baseline_runs)
        if builds:
            begins = start if earlier else None             # without builds before it there is nothing that it differs from
            return Baseline(kernel, "rolling", builds=builds, change=intended or mode, since=begins, earlier_builds=earlier)
    return Baseline(kernel, "rolling", change=intended or mode)


def _is_barred(verdict: tuple[str, Any] | None, intended: BaselineChange | None) -> bool:
    """Whether its gate keeps a build out. A verdict from before somebody said "intended" was about the old baseline."""
    if verdict is None or verdict[0] not in NOT_A_BASELINE:
        return False
    return intended is None or verdict[1] is None or verdict[1] > intended.created


def _is_known_slow(at: Position, slow: Sequence[tuple[Position, Position | None]]) -> bool:
    """Whether a regression that nobody accepted holds at the build there: no gate need have said so, the series may."""
    return any(since <= at and (fixed is None or at < fixed) for since, fixed in slow)


MOST_RUNS = 100                             # of one kernel that a comparison takes: exact tests need far fewer
NOT_FOR_TABLES = ("us", "facts", "config", "environment")       # what a table of medians does without: most of a row's bytes


def measured_environments(suite: Suite, **where: str) -> list[Env]:
    """Return where the suite has runs, the newest run first; `where` holds fields that must be equal."""
    return [row["env"] for row in environment_counts(suite, **where)]


def environment_counts(suite: Suite, **where: str) -> list[dict[str, Any]]:
    """Return the same with how much there is: {"env", "runs", "builds"}; runs count per kernel."""
    return [{"env": Env(*(row[name] for name in ENVIRONMENT)), "runs": row["runs"], "builds": row["builds"]}
            for row in environment_totals(suite, None, **where)]


def load_baselines(kernels: Sequence[SuiteKernel], environment: Env, before: Build | None = None,
                 against: Build | None = None, without: Gate | None = None, samples: bool = True) -> dict[int, Baseline]:
    """Return baselines of kernels of one suite, by kernel id: a handful of queries for all of them.

    `before` is the build that is judged: neither it nor a later one counts. `against` takes the place of whatever is in force.
    `without`: runs that this gate's own jobs took do not count. `samples=False`: the runs come with their medians alone.
    """
    if not kernels:
        return {}
    counts = run_counts(kernels, environment, without)
    chosen = choose_builds(kernels, environment, counts, before, against)
    return _load_runs(kernels, environment, chosen, before, without, samples)


def load_next_baselines(kernels: Sequence[SuiteKernel], shown: Sequence[SuiteKernel],
                   environment: Env) -> tuple[list[Expected], dict[int, Baseline]]:
    """Return what the next build is compared with: all `kernels` without runs, those `shown` with medians."""
    if not kernels:
        return [], {}
    counts = run_counts(kernels, environment, None)
    chosen = choose_builds(kernels, environment, counts, None, None)
    baselines = _load_runs(shown, environment, chosen, None, None, False) if shown else {}
    return _expected(counts, chosen), baselines


def _load_runs(kernels: Sequence[SuiteKernel], environment: Env, chosen: Mapping[int, Baseline], before: Build | None,
               without: Gate | None, samples: bool) -> dict[int, Baseline]:
    suite = kernels[0].suite
    builds = {build.pk: build for kernel in kernels for build in chosen[kernel.pk].builds}
    if samples:
        builds |= {build.pk: build for kernel in kernels for build in chosen[kernel.pk].earlier_builds}
    most = max(_run_limit(chosen[kernel.pk], suite) for kernel in kernels)
    rows = _newest_runs(kernels, environment, builds, without, most, samples)
    unsure = any(chosen[kernel.pk].mode == "rolling" and len(chosen[kernel.pk].builds) > 1 for kernel in kernels)
    judged = levels.judged_builds(kernels, environment.where(), builds) if unsure else {}
    return {kernel.pk: _fill(chosen[kernel.pk], rows, suite, environment, before, judged.get(kernel.pk, set()))
            for kernel in kernels}


@dataclass(frozen=True)
class Expected:
    """A baseline before anybody reads its runs."""

    builds: list[Build]                     # newest first
    runs: int
    mode: str = "rolling"
    change: BaselineChange | None = None    # what a person said, where it is in force


def expected_baselines(kernels: Sequence[SuiteKernel], environment: Env, before: Build | None = None,
                       against: Build | None = None) -> list[Expected]:
    """Return how many runs each kernel's baseline would hold, and of which builds: what a plan needs to know."""
    if not kernels:
        return []
    counts = run_counts(kernels, environment, None)
    return _expected(counts, choose_builds(kernels, environment, counts, before, against))


def _expected(counts: Mapping[int, Mapping[int, int]], chosen: Mapping[int, Baseline]) -> list[Expected]:
    totals = {pk: sum(counts[pk][build.pk] for build in choice.builds) for pk, choice in chosen.items()}
    return [Expected(choice.builds, min(totals[pk], _run_limit(choice, choice.kernel.suite)), choice.mode, choice.change)
            for pk, choice in chosen.items()]


def _newest_runs(kernels: Sequence[SuiteKernel], environment: Env, builds: Mapping[int, Build], without: Gate | None,
          most: int, samples: bool) -> dict[tuple[int, int], list[KernelRun]]:
    """(kernel, build) -> its newest `most` runs, newest first."""
    of = {kernel.pk: kernel for kernel in kernels}
    turn = Window(RowNumber(), partition_by=[F("kernel_id"), F("build_id")], order_by=[F("created").desc(), F("id").desc()])
    rows = timed_runs(kernels, environment, without).filter(build__in=builds).annotate(nth=turn).filter(nth__lte=most)
    runs_by_key: dict[tuple[int, int], list[KernelRun]] = defaultdict(list)
    for row in (rows if samples else rows.defer(*NOT_FOR_TABLES)).order_by("-created", "-id"):
        if row.kernel_id in of:
            row.kernel, row.build = of[row.kernel_id], builds[row.build_id]     # a join would make them anew for each run
            runs_by_key[row.kernel_id, row.build_id].append(row)
    return runs_by_key


def _run_limit(choice: Baseline, suite: Suite) -> int:
    """Runs that it may hold: of a rolling baseline the newest `baseline_runs`, of one build all."""
    return min(suite.baseline_runs, MOST_RUNS) if choice.mode == "rolling" else MOST_RUNS


def _fill(choice: Baseline, rows: Mapping[tuple[int, int], list[KernelRun]], suite: Suite, environment: Env,
            before: Build | None, judged: set[int]) -> Baseline:
    """With its runs."""
    def runs_of(builds: Iterable[Build]) -> list[KernelRun]:
        return [run for build in builds for run in rows.get((choice.kernel.pk, build.pk), [])][:_run_limit(choice, suite)]

    believed = _believed_builds(choice, rows, suite, judged)
    runs = runs_of(believed)
    build_ids = {run.build_id for run in runs}
    reason = "" if runs else _why_empty(choice, environment, before)
    return replace(choice, runs=runs, builds=[build for build in believed if build.pk in build_ids], reason=reason,
                   earlier=runs_of(choice.earlier_builds))


def _believed_builds(choice: Baseline, rows: Mapping[tuple[int, int], list[KernelRun]], suite: Suite,
                     judged: set[int]) -> list[Build]:
    """Return builds without those whose unit must be another one, and those of another level that nobody compared with this one.

    Times of the oldest are believed, and before them those of builds that were judged against the baseline of their time.
    """
    if choice.mode != "rolling" or len(choice.builds) < 2:
        return choice.builds
    rule = rule_of(suite.rule, choice.kernel.rule)
    times = {build.pk: us for build in choice.builds
             if (us := [run.p50_us for run in rows.get((choice.kernel.pk, build.pk), []) if run.p50_us])}
    timed = [build.pk for build in choice.builds if build.pk in times]
    basis = [pk for pk in timed if pk in judged] or timed[-1:]
    level = [us for pk in basis for us in times[pk]]
    oldest = median(times[timed[-1]]) if timed else 0.0
    out = {pk for pk in timed if not oldest / rule.believable <= median(times[pk]) <= oldest * rule.believable}
    out |= {pk for pk in timed if pk not in basis and levels.is_apart(times[pk], level, rule.target)}
    return [build for build in choice.builds if build.pk not in out]


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
    """Return what people said, newest first."""
    return suite.baseline_changes.select_related("kernel", "build", "author")
