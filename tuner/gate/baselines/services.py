"""What a person says a kernel is compared with: pin a build, roll on, or "this change was intended". Rows are only added."""

from __future__ import annotations

from typing import Any

from profiles.base.refused import Refused
from tuner.models import BaselineChange, Build, KernelRun, SlowerVerdict, Suite, SuiteKernel
from tuner.tuning.trial import storable

MOST_NOTE = 2000
Action = BaselineChange.Action


def record_baseline_change(suite: Suite, action: str, *, build: Build | None = None, kernel: SuiteKernel | None = None,
                           gpu: str = "", note: str = "", author: Any = None) -> BaselineChange:
    """Say it for one kernel or, with None, for all of the suite; on one GPU model or, with "", on every one.

    Raises Refused: pin and intended need a build; a pinned one needs runs, else every gate would end NO DATA.
    """
    wrong: dict[str, str] = {}
    if action not in Action.values:
        wrong["action"] = f"one of {', '.join(Action.values)}"
    if kernel is not None and kernel.suite_id != suite.pk:
        wrong["kernel"] = f"a kernel of suite {suite.name}"
    if not storable(note) or len(note) > MOST_NOTE:
        wrong["note"] = f"at most {MOST_NOTE:,} plain characters"
    if not storable(gpu) or len(gpu) > 120:
        wrong["gpu"] = "the name of a GPU model, at most 120 characters"
    if action == Action.GONE and kernel is None:
        wrong["kernel"] = "the kernel that is gone"
    if action in (Action.PIN, Action.INTENDED, Action.GONE) and build is None:
        wrong["build"] = "the build whose speed counts"
    if action == Action.INTENDED and not note.strip():
        wrong["note"] = "why the change was intended: whoever looks at the next gate reads it"
    if wrong:
        raise Refused(wrong)
    if action == Action.PIN and build is not None and not _has_runs(suite, build, kernel, gpu):
        raise Refused({"build": f"{build.name} has no runs of this {'kernel' if kernel else 'suite'}"
                                f"{f' on {gpu}' if gpu else ''}: measure it first"})
    if action == Action.PIN and build is not None and (slower := _slower_verdict(suite, build, kernel, gpu)) is not None:
        raise Refused({"build": f"gate {slower.number} called {build.name} SLOWER in {slower.kernel.key}: say \"intended\" with "
                                "the reason, or pin another build"})
    return BaselineChange.objects.create(suite=suite, kernel=kernel, gpu=gpu, action=action, note=note.strip(), author=author,
                                         build=build if action != Action.ROLL else None)


def _slower_verdict(suite: Suite, build: Build, kernel: SuiteKernel | None, gpu: str) -> SlowerVerdict | None:
    """Return the verdict that still stands against a build: a slow build is made the measure by a reason, not by a pin."""
    rows = SlowerVerdict.objects.filter(suite=suite, build=build, over=None).select_related("kernel")
    rows = rows.filter(kernel=kernel) if kernel else rows
    meant = BaselineChange.objects.filter(suite=suite, action=Action.INTENDED, build=build)
    for row in rows.filter(gpu=gpu) if gpu else rows:
        if not any(change.kernel_id in (None, row.kernel_id) and change.gpu in ("", row.gpu) and change.created > row.created
                   for change in meant):
            return row
    return None


def _has_runs(suite: Suite, build: Build, kernel: SuiteKernel | None, gpu: str) -> bool:
    runs = KernelRun.objects.filter(kernel__suite=suite, build=build, rejected="")
    runs = runs.filter(kernel=kernel) if kernel else runs
    return (runs.filter(gpu=gpu) if gpu else runs).exists()
