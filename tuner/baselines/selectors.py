"""What a kernel is compared with: runs of earlier builds on the same GPU, toolkit and driver, newest first.

Which builds count is decided in choice_selectors; of a rolling baseline the newest runs are taken, of one build all. Runs of
another environment are never mixed in.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.db.models import F, QuerySet, Window
from django.db.models.functions import RowNumber

from tuner.baselines.choice_selectors import Action, Baseline, Env, changes_of, chosen_builds, counts_of, env_of, timed
from tuner.models import BaselineChange, Build, Gate, KernelRun, Suite, SuiteKernel
from tuner.suites.run_selectors import ENVIRONMENT, environment_totals

__all__ = ["MOST_RUNS", "Baseline", "Env", "Expected", "baseline_history", "baseline_of", "baselines_expected", "baselines_next",
           "baselines_of", "changes_of", "env_of", "environment_counts", "environments_of"]
MOST_RUNS = 100                             # of one kernel that a comparison takes: exact tests need far fewer
NOT_FOR_TABLES = ("us", "facts", "config", "environment")       # what a table of medians does without: most of a row's bytes


def environments_of(suite: Suite, **where: str) -> list[Env]:
    """In which the suite has runs, the one with the newest run first; `where` holds fields that must be equal."""
    return [each["env"] for each in environment_counts(suite, **where)]


def environment_counts(suite: Suite, **where: str) -> list[dict[str, Any]]:
    """The same with how much there is: {"env", "runs", "builds"}; runs count per kernel."""
    return [{"env": Env(*(each[name] for name in ENVIRONMENT)), "runs": each["runs"], "builds": each["builds"]}
            for each in environment_totals(suite, **where)]


def baseline_of(kernel: SuiteKernel, gpu: str, toolkit: str, driver: str, recorded: str = "",
                before: Build | None = None) -> Baseline:
    """Of one kernel; `before` is the build to be judged, None: as for the next build."""
    return baselines_of([kernel], Env(gpu, toolkit, driver, recorded), before)[kernel.pk]


def baselines_of(kernels: Sequence[SuiteKernel], environment: Env, before: Build | None = None,
                 against: Build | None = None, without: Gate | None = None, samples: bool = True) -> dict[int, Baseline]:
    """Of kernels of one suite, by kernel id: a handful of queries for all of them.

    `before` is the build that is judged: neither it nor a later one counts. `against` takes the place of whatever is in force.
    `without`: runs that this gate's own jobs took do not count. `samples=False`: the runs come with their medians alone.
    """
    if not kernels:
        return {}
    counts = counts_of(kernels, environment, without)
    chosen = chosen_builds(kernels, environment, counts, before, against)
    return _with_runs(kernels, environment, chosen, before, without, samples)


def baselines_next(kernels: Sequence[SuiteKernel], shown: Sequence[SuiteKernel],
                   environment: Env) -> tuple[list[Expected], dict[int, Baseline]]:
    """What the next build is compared with: of all `kernels` without their runs, of those `shown` with the runs' medians."""
    if not kernels:
        return [], {}
    counts = counts_of(kernels, environment, None)
    chosen = chosen_builds(kernels, environment, counts, None, None)
    held = _with_runs(shown, environment, chosen, None, None, False) if shown else {}
    return _expected(counts, chosen), held


def _with_runs(kernels: Sequence[SuiteKernel], environment: Env, chosen: Mapping[int, Baseline], before: Build | None,
               without: Gate | None, samples: bool) -> dict[int, Baseline]:
    suite = kernels[0].suite
    wanted = {build.pk: build for kernel in kernels for build in chosen[kernel.pk].builds}
    most = max(_most(chosen[kernel.pk], suite) for kernel in kernels)
    rows = _rows(kernels, environment, wanted, without, most, samples)
    return {kernel.pk: _filled(chosen[kernel.pk], rows, suite, environment, before) for kernel in kernels}


@dataclass(frozen=True)
class Expected:
    """A baseline before anybody reads its runs."""

    builds: list[Build]                     # newest first
    runs: int
    mode: str = "rolling"
    change: BaselineChange | None = None    # what a person said, where it is in force


def baselines_expected(kernels: Sequence[SuiteKernel], environment: Env, before: Build | None = None,
                       against: Build | None = None) -> list[Expected]:
    """How many runs each kernel's baseline would hold, and of which builds: what a plan needs to know."""
    if not kernels:
        return []
    counts = counts_of(kernels, environment, None)
    return _expected(counts, chosen_builds(kernels, environment, counts, before, against))


def _expected(counts: Mapping[int, Mapping[int, int]], chosen: Mapping[int, Baseline]) -> list[Expected]:
    held = {pk: sum(counts[pk][build.pk] for build in choice.builds) for pk, choice in chosen.items()}
    return [Expected(choice.builds, min(held[pk], _most(choice, choice.kernel.suite)), choice.mode, choice.change)
            for pk, choice in chosen.items()]


def _rows(kernels: Sequence[SuiteKernel], environment: Env, builds: Mapping[int, Build], without: Gate | None,
          most: int, samples: bool) -> dict[tuple[int, int], list[KernelRun]]:
    """(kernel, build) -> its newest `most` runs, newest first."""
    of = {kernel.pk: kernel for kernel in kernels}
    turn = Window(RowNumber(), partition_by=[F("kernel_id"), F("build_id")], order_by=[F("created").desc(), F("id").desc()])
    rows = timed(kernels, environment, without).filter(build__in=builds).annotate(nth=turn).filter(nth__lte=most)
    found: dict[tuple[int, int], list[KernelRun]] = defaultdict(list)
    for row in (rows if samples else rows.defer(*NOT_FOR_TABLES)).order_by("-created", "-id"):
        if row.kernel_id in of:
            row.kernel, row.build = of[row.kernel_id], builds[row.build_id]     # a join would make them anew for each run
            found[row.kernel_id, row.build_id].append(row)
    return found


def _most(choice: Baseline, suite: Suite) -> int:
    """Runs that it may hold: of a rolling baseline the newest `baseline_runs`, of one build all."""
    return min(suite.baseline_runs, MOST_RUNS) if choice.mode == "rolling" else MOST_RUNS


def _filled(choice: Baseline, rows: Mapping[tuple[int, int], list[KernelRun]], suite: Suite, environment: Env,
            before: Build | None) -> Baseline:
    """With its runs."""
    runs = [run for build in choice.builds for run in rows.get((choice.kernel.pk, build.pk), [])][:_most(choice, suite)]
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
