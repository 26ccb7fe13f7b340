"""Hardware counters that a suite of a capture target gates: one ncu capture for each build, where they can be read at all.

Counters of one binary hardly vary: what one capture says goes to all runs of its build in this job. Where ncu is missing or may
not read counters, they stay unknown, and each run says why.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from profiles.capture.launch_selectors import counters_of
from profiles.capture.options import NcuOptions, OptionsError
from profiles.models import Capture, Profile
from tuner.models import KernelRun, SuiteCapture, SuiteJob
from workers import facts
from workers.stopping import Stop

NUMBER = -1                                  # of the SuiteCapture of a build's counters
LAUNCHES = 200
WHY = "counters_unknown"                     # in a run's facts
# Metric of a suite → counters of ncu, and what makes one number of them.
COUNTERS: Mapping[str, tuple[tuple[str, ...], Callable[[list[float]], float]]] = {
    "dram_bytes": (("dram__bytes_read.sum", "dram__bytes_write.sum"), sum),
    "tensor_use_pct": (("sm__inst_executed_pipe_tensor_op_gmma.avg.pct_of_peak_sustained_active",
                        "sm__inst_executed_pipe_tensor_op_hmma.avg.pct_of_peak_sustained_active"), max),
}
Ran = Callable[[Capture, str, Stop], None]


def wanted(job: SuiteJob) -> dict[str, tuple[tuple[str, ...], Callable[[list[float]], float]]]:
    """Metrics that the suite or a kernel of it gates and that only ncu knows; ncu's own names stand for themselves."""
    named = set(job.suite.metrics).union(*(kernel.metrics for kernel in job.suite.kernels.all()))
    return {name: COUNTERS.get(name, ((name,), max)) for name in sorted(named) if name in COUNTERS or "__" in name}


def measure(job: SuiteJob, worker: str, stop: Stop, ran: Ran) -> None:
    """A capture of each build, unless it is there."""
    metrics = wanted(job)
    if not metrics or "missing" in facts.ncu():
        return
    try:
        options = NcuOptions.parse({"set": "none", "metrics": sorted({one for names, _ in metrics.values() for one in names}),
                                    "launch_count": LAUNCHES, "import_source": False})
    except OptionsError:
        return
    for each in job.builds:
        stop.check()
        found = SuiteCapture.objects.filter(job=job, build=each["build"], number=NUMBER).select_related("capture").first()
        if found is None:
            made = Capture.objects.create(target=job.suite.target, tool=Capture.Tool.NCU, options=options.as_json(),
                                          owner=job.owner, build=each["build"][:80], tags=["suite", job.suite.name])
            found = SuiteCapture.objects.create(job=job, build=each["build"], number=NUMBER, capture=made)
        ran(found.capture, worker, stop)


def pending(job: SuiteJob) -> bool:
    return SuiteCapture.objects.filter(job=job, number=NUMBER,
                                       capture__profile__status__in=[Profile.Status.UPLOADED, Profile.Status.INGESTING]).exists()


def settle(job: SuiteJob) -> None:
    """Into the facts of the job's runs: each metric's value, or why there is none. Twice does no harm."""
    metrics = wanted(job)
    if not metrics:
        return
    asked_for = SuiteCapture.objects.filter(job=job, number=NUMBER).select_related("capture__profile")
    captures = {row.build: row.capture for row in asked_for}
    for each in job.builds:
        asked = captures.get(each["build"])
        profile = asked.profile if asked is not None else None
        ready = profile is not None and profile.status == Profile.Status.READY
        found = counters_of(profile, sorted({one for names, _ in metrics.values() for one in names})) if ready else {}
        why = _why(asked)
        for run in KernelRun.objects.filter(job=job, build__name=each["build"], rejected="").select_related("kernel"):
            counted = found.get((run.kernel.op, run.kernel.shape.get("grid", ""), run.kernel.shape.get("block", "")), {})
            said = {name: make([counted[one] for one in names if one in counted])
                    for name, (names, make) in metrics.items() if any(one in counted for one in names)}
            run.facts = {**run.facts, **said} if said else {**run.facts, WHY: why or "ncu did not see a launch of it"}
            run.save(update_fields=["facts"])


def _why(asked: Capture | None) -> str:
    if asked is None:
        return facts.ncu().get("missing", "ncu was not asked")[:300]
    error = asked.error or (asked.profile.error if asked.profile else None)
    return str(error["what"])[:300] if error else ""
