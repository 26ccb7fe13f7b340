"""Hardware counters and timelines of the builds that a suite measures: captures of a job, and what becomes of their numbers.

A job may be for them alone (reason "counters": everything ncu can count, and a timeline of an operator suite's kernels). Else it
measures, and its suite gates a metric that ncu alone knows: one small capture for each build, in the same session. Counters of one
binary hardly vary: what one capture says goes to all runs of its build in this job. Where ncu is missing or may not read counters
they stay unknown, and each run says why.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence

from django.db import IntegrityError, transaction

from profiles.base.refused import Refused
from profiles.capture.suite_selectors import counters_by_kernel, counters_in, launches_of
from profiles.capture.tools.ncu import NcuOptions, installed_ncu
from profiles.capture.tools.options import Options
from profiles.models import Capture, Profile
from tuner.gate.suites.counters import NCU, TIMELINE, capture_error
from tuner.gate.suites.job_services import job_publish
from tuner.gate.suites.selectors import COUNTERS, job_kernels
from tuner.models import KernelRun, Suite, SuiteCapture, SuiteJob
from workers.core.child import SandboxError
from workers.core.periodic import Stop
from workers.fresh import captured

TARGET_LAUNCHES = 200
TIME = "gpu__time_duration.sum"
WHY = "counters_unknown"                     # in a run's facts
Make = Callable[[list[float]], float]
Ran = Callable[[Capture, str, Stop], None]
HOPPER = 9                                   # compute capability from which on there are warp-group MMAs
_TENSOR = "sm__inst_executed_pipe_tensor_op_{}.avg.pct_of_peak_sustained_active"
_GMMA, _HMMA = _TENSOR.format("gmma"), _TENSOR.format("hmma")
# Metric of a suite → counters of ncu, and what makes one number of them for one launch.
KNOWN: Mapping[str, tuple[tuple[str, ...], Make]] = {
    "dram_bytes": (("dram__bytes_read.sum", "dram__bytes_write.sum"), sum),
    "tensor_use_pct": ((_GMMA, _HMMA), max),
}


def gated_metrics(job: SuiteJob) -> dict[str, tuple[tuple[str, ...], Make]]:
    """Return metrics that the suite or a kernel of it gates and that only ncu knows.

    ncu's own names stand for themselves.
    """
    named = set(job.suite.metrics).union(*(kernel.metrics for kernel in job.suite.kernels.all()))
    return {name: KNOWN.get(name, ((name,), max)) for name in sorted(named) if name in KNOWN or "__" in name}


def counter_names(job: SuiteJob) -> list[str]:
    """Return what ncu is asked for.

    A name that a GPU does not have ends the whole capture: warp-group MMA came with Hopper.
    """
    major = str(job.environment.get("compute_capability") or "").partition(".")[0]
    older = major.isdecimal() and int(major) < HOPPER
    return sorted({TIME, *(name for names, _ in gated_metrics(job).values() for name in names if not (older and name == _GMMA))})


# ---- which captures ----

def planned_captures(job: SuiteJob) -> list[tuple[int, Options]]:
    """Return (number of the SuiteCapture, options) for each build; [] where nobody asks for counters.

    Raises Refused.
    """
    operators = job.suite.kind != Suite.Kind.TARGET
    number, cold = len(job_kernels(job)), captured.timed_as(job) == "cold"
    if job.reason == COUNTERS:
        if operators:
            return [(NCU, captured.full_counters(number, cold)), (TIMELINE, captured.STEPS)]
        return [(NCU, NcuOptions(kernel=_by_name(job), launch_count=captured.LAUNCHES * number))]
    if job.recorded or not gated_metrics(job) or "missing" in installed_ncu():
        return []
    if operators:
        checked = NcuOptions.parse(captured.few_counters(counter_names(job), number, cold).as_json())
        return [(NCU, checked)] if KernelRun.objects.filter(job=job, rejected="").exists() else []
    return [(NCU, NcuOptions.parse({"set": "none", "sections": ["LaunchStats"], "metrics": counter_names(job),
                                    "launch_count": TARGET_LAUNCHES, "import_source": False}))]


def are_needed(job: SuiteJob) -> bool:
    try:
        return bool(planned_captures(job))
    except Refused:
        return False


def _by_name(job: SuiteJob) -> str:
    """An expression for the kernels of a target that were asked for; "" (every kernel) where that would be too long."""
    names = {re.escape(kernel.op.partition(" #")[0]) for kernel in job_kernels(job)}
    pattern = "|".join(sorted(names))
    return pattern if len(pattern) <= 300 else ""


def run_captures(job: SuiteJob, worker: str, stop: Stop, ran: Ran) -> None:
    """Run each capture of each build, unless it is there. Where the tool fails, its row says why."""
    try:
        asked_for = planned_captures(job)
    except Refused:
        return
    for number, options in asked_for:
        for build in job.builds:
            stop.check()
            ran(ensure_capture(job, build["build"], number, options).capture, worker, stop)
            job_publish(job)


def ensure_capture(job: SuiteJob, build: str, number: int, options: Options) -> SuiteCapture:
    """Return the capture of this number of one build, made once, whoever asks."""
    rows = SuiteCapture.objects.filter(job=job, build=build, number=number).select_related("capture")
    if (row := rows.first()) is not None:
        return row
    target = job.suite.target if job.suite.kind == Suite.Kind.TARGET else captured.ensure_target()
    assert target is not None           # a suite of a target has one
    try:
        with transaction.atomic():      # a capture that no suite asked for would be run by itself, and launch nothing
            capture = Capture.objects.create(target=target, owner=job.owner, build=build[:80], options=options.as_json(),
                                             tool=options.TOOL, tags=["suite", job.suite.name])
            return SuiteCapture.objects.create(job=job, build=build, number=number, capture=capture)
    except IntegrityError:
        return rows.get()


def is_pending(job: SuiteJob) -> bool:
    return SuiteCapture.objects.filter(job=job, number__lt=0,
                                       capture__profile__status__in=[Profile.Status.UPLOADED, Profile.Status.INGESTING]).exists()


# ---- their numbers ----

def store_counters(job: SuiteJob) -> None:
    """Store each metric's value, or why there is none, in the facts of the job's runs. Twice does no harm.

    A job that is for counters alone has no runs; it fails where no build has a report that can be read. Raises SandboxError.
    """
    rows = list(SuiteCapture.objects.filter(job=job, number=NCU).select_related("capture__profile", "capture__target"))
    if job.reason == COUNTERS:
        if not any(_is_ready(row.capture) for row in rows):
            raise SandboxError(f"no counters: {next((why for row in rows if (why := _why(row.capture))), 'nothing was captured')}",
                               next((hint for row in rows if (hint := _hint(row.capture))), "the captures' pages have their logs"))
        return
    metrics = gated_metrics(job)
    if not metrics:
        return
    captures = {row.build: row.capture for row in rows}
    for build in job.builds:
        capture = captures.get(build["build"])
        metrics_by_key = dict(_metrics_by_kernel(job, capture, metrics)) if capture is not None and _is_ready(capture) else {}
        why = _why(capture) if capture is not None else _why_not(job)
        for run in KernelRun.objects.filter(job=job, build__name=build["build"], rejected="").select_related("kernel"):
            numbers = metrics_by_key.get(run.kernel.key) or {}
            run.facts = {**run.facts, **numbers} if numbers else {**run.facts, WHY: why or _unseen(capture, run.kernel.key)}
            run.save(update_fields=["facts"])


def _metrics_by_kernel(job: SuiteJob, capture: Capture, metrics: Mapping[str, tuple[tuple[str, ...], Make]]
             ) -> Iterator[tuple[str, dict[str, float]]]:
    """(kernel key, metric → value) of one build's report."""
    profile, names = capture.profile, counter_names(job)
    if profile is None:
        return
    if job.suite.kind == Suite.Kind.TARGET:
        by_shape = counters_by_kernel(profile, names)
        for kernel in job_kernels(job):
            counters = by_shape.get((kernel.op, kernel.shape.get("grid", ""), kernel.shape.get("block", "")), {})
            yield kernel.key, {name: make([counters[counter] for counter in of if counter in counters])
                               for name, (of, make) in metrics.items() if any(counter in counters for counter in of)}
        return
    mine = launches_of(profile, [kernel.key for kernel in captured.build_kernels(job, capture.build)])
    raw = counters_in(profile, names, [index for indexes in mine.values() for index in indexes])
    for key, indexes in mine.items():
        launches = [raw[index] for index in indexes if index in raw]
        if launches and len(launches) % captured.LAUNCHES == 0:       # else ncu was cut short: part of a launch is no launch
            yield key, {name: value for name, (of, make) in metrics.items()
                        if (value := _per_launch(launches, of, make)) is not None}


def _per_launch(launches: Sequence[Mapping[str, float]], of: Sequence[str], make: Make) -> float | None:
    """One number for a launch of the operator, which may be several GPU kernels: sums add up, the rest is weighted by time."""
    pairs = [(make([launch[counter] for counter in of if counter in launch]), launch.get(TIME, 1.0)) for launch in launches
             if any(counter in launch for counter in of)]
    if not pairs:
        return None
    if all(counter.endswith(".sum") for counter in of):
        return sum(value for value, _ in pairs) / captured.LAUNCHES
    return sum(value * ns for value, ns in pairs) / sum(ns for _, ns in pairs)


def _is_ready(capture: Capture) -> bool:
    return capture.profile is not None and capture.profile.status == Profile.Status.READY


def _why(capture: Capture) -> str:
    return str(capture_error(capture).get("what", ""))[:300]


def _hint(capture: Capture) -> str:
    return str(capture_error(capture).get("hint", ""))[:300]


def _unseen(capture: Capture | None, key: str) -> str:
    """Why the report has nothing of one kernel: what the program printed of it."""
    match = re.search(rf"ridgepoint: {re.escape(key)} cannot be launched: (.+)", capture.log) if capture is not None else None
    return match[1][:300] if match else "ncu did not see a launch of it"


def _why_not(job: SuiteJob) -> str:
    if job.recorded:
        return "these runs were recorded: nothing can be launched under ncu again"
    return installed_ncu().get("missing", "ncu was not asked")[:300]
