"""A suite of what an owner's target launches: one capture for each run, its kernels' launches are the samples.

A capture is a fresh process of the target under torch.profiler. Rows say which are there: a killed worker's job goes on.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from django.utils import timezone

from profiles.capture.services import capture_stop
from profiles.capture.suite_selectors import KernelLaunches, launches_by_kernel
from profiles.capture.tools.tool import package_version
from profiles.capture.tools.torch_profiler import TorchOptions
from profiles.models import Capture, Profile
from tuner.cache import rules
from tuner.clocks.wish import locked_text
from tuner.gate.suites import job_services, run_services
from tuner.gate.suites.counters import capture_error
from tuner.gate.suites.selectors import COUNTERS, interleaved_builds
from tuner.models import KernelRun, SuiteCapture, SuiteJob, SuiteKernel
from workers.capture import run
from workers.clocks import hold
from workers.core import gpu
from workers.core.child import SandboxError
from workers.core.periodic import Stop, keep_heartbeat
from workers.gate import counters as suite_counters

log = logging.getLogger(__name__)
KERNELS = 32                                 # of one capture, those that took longest in all …
MOST_KERNELS = 200                           # … and of the suite, over all captures
LOOK_S, WAIT_S = 0.25, 20.0                  # for ingest, before the row is handed back and looked at again
INGEST_WITHIN = timedelta(minutes=30)
LIVE = (Capture.Status.QUEUED, Capture.Status.RUNNING)
OPTIONS = TorchOptions(wait=2, warmup=1, active=5)       # the first steps compile and allocate
CUDA = "cuda_runtime_version"                # of a torch.profiler trace: 13000 is 13.0


class Pending(Exception):
    """All captures are made; ingest still reads some."""


def measure_target(job: SuiteJob, worker: str, stop: Stop) -> None:
    """Run every capture in turn, then store their runs. Raises Pending, SandboxError, Stopped."""
    if job.suite.target is None or not job.suite.target.enabled:
        raise SandboxError("the suite's capture target is gone or switched off",
                           "an owner switches it on, or the suite names another")
    for number, build in interleaved_builds(job):
        stop.check()
        row = suite_counters.ensure_capture(job, build["build"], number, OPTIONS)
        _run_capture(row.capture, worker, stop)
        _store_runs(job, worker)
    measure_counters(job, worker, stop, lambda: _store_runs(job, worker))
    if job.reason != COUNTERS and not KernelRun.objects.filter(job=job, rejected="").exists():
        raise SandboxError(f"nothing could be measured: {_why(job)}", "the captures' pages have their logs")


def measure_counters(job: SuiteJob, worker: str, stop: Stop, settled: Callable[[], bool] = lambda: True) -> None:
    """Capture the counters and timelines that the job is for, or that its suite gates.

    No lease may be held: each capture takes its own.

    Raises Pending, SandboxError, Stopped.
    """
    suite_counters.run_captures(job, worker, stop, _run_capture)
    end = time.monotonic() + WAIT_S
    while not settled() or suite_counters.is_pending(job):
        stop.check()
        if time.monotonic() > end:
            raise Pending
        stop.wait(LOOK_S)
    suite_counters.store_counters(job)


class _Stops:
    def __init__(self, capture_id: int) -> None:
        self._id = capture_id

    def stop(self) -> None:
        capture_stop(Capture.objects.get(pk=self._id))


def _run_capture(capture: Capture, worker: str, stop: Stop) -> None:
    """Until the capture has ended: by this worker, or by the one that has it.

    That one may have been killed a moment ago, and nobody else may be there to take the row once its heartbeat is too old.
    """
    stop.tell(_Stops(capture.pk))
    live = Capture.objects.filter(pk=capture.pk, status__in=LIVE)
    while live.exists():
        stop.check()
        if live.filter(Capture.leases.is_free()).exists():
            with keep_heartbeat(Capture.leases, capture.pk, worker):
                run.run(capture.pk, worker)
        if live.exists():
            stop.wait(LOOK_S)
    stop.check()


def _store_runs(job: SuiteJob, worker: str) -> bool:
    """Make runs of every capture that has a ready profile; True when none is left."""
    done = set(KernelRun.objects.filter(job=job).values_list("build__name", "number").distinct())
    waiting = 0
    for row in SuiteCapture.objects.filter(job=job, number__gte=0).select_related("capture__profile"):
        if (row.build, row.number) in done or row.capture.status in LIVE:
            continue
        profile = row.capture.profile
        if profile is not None and profile.status in (Profile.Status.UPLOADED, Profile.Status.INGESTING):
            overdue = row.capture.finished is not None and timezone.now() - row.capture.finished > INGEST_WITHIN
            waiting += not overdue
            if overdue:
                _reject(job, worker, row, f"its profile was not read within {INGEST_WITHIN.seconds // 60} minutes")
        elif profile is None or profile.status != Profile.Status.READY:
            error = (profile.error if profile is not None else row.capture.error) or {}
            _reject(job, worker, row, f"capture {row.capture_id}: {error.get('what') or 'it was stopped'}")
        else:
            _store_capture(job, worker, row, profile)
    return waiting == 0


def _store_capture(job: SuiteJob, worker: str, row: SuiteCapture, profile: Profile) -> None:
    """A run of each kernel of the capture; those of the suite that it did not launch are rejected, and say so."""
    launches_by_key = {_key(launches): launches for launches in launches_by_kernel(profile)}
    kernels = _kernels(job, launches_by_key)
    if not kernels:
        return
    about, lock = _environment(row.capture, profile), row.capture.facts.get("clock_lock") or {}
    if lock and job.environment.get("clock_lock") != lock:
        job_services.job_set_session(job, worker, environment={**job.environment, "clock_lock": lock}, recorded=job.recorded)
    for kernel in kernels:
        one = launches_by_key.get(kernel.key)
        details = {"launches": one.launches, "capture": row.capture_id, "registers": one.registers, "smem_bytes": one.smem_bytes,
                   "config_from": "target"} if one else {"capture": row.capture_id}
        run_services.run_record(
            job, kernel, row.build, number=row.number, run=f"capture {row.capture_id}", us=one.us.tolist() if one else [],
            rejected="" if one else "the target did not launch it in this capture",
            facts={name: value for name, value in (details | hold.compact(lock)).items() if value is not None}, profile=profile,
            worker=worker, **about)


def _kernels(job: SuiteJob, found: dict[str, KernelLaunches]) -> list[SuiteKernel]:
    """The job's kernels: those the suite has, and new ones of this capture, longest first."""
    kernels_by_key = {kernel.key: kernel for kernel in job.suite.kernels.all()}
    if job.kernels is None:
        for key, one in list(found.items())[:KERNELS]:
            if key not in kernels_by_key and len(kernels_by_key) < MOST_KERNELS:
                kernels_by_key[key], _ = SuiteKernel.objects.get_or_create(suite=job.suite, key=key, defaults={
                    "op": one.name, "shape": {name: value for name, value in (("grid", one.grid), ("block", one.block)) if value},
                    "family": (one.family or one.name)[:200], "declared": False, "place": len(kernels_by_key)})
    return [kernel for kernel in kernels_by_key.values() if kernel.enabled and (job.kernels is None or kernel.key in job.kernels)]


def _key(one: KernelLaunches) -> str:
    shape = " ".join(f"{name} {value}" for name, value in (("grid", one.grid), ("block", one.block)) if value)
    return f"{one.name} {shape}".strip()[:300]


def _reject(job: SuiteJob, worker: str, row: SuiteCapture, why: str) -> None:
    for kernel in _kernels(job, {}):
        run_services.run_record(job, kernel, row.build, number=row.number, run=f"capture {row.capture_id}", rejected=why,
                            facts={"capture": row.capture_id}, worker=worker)


def _environment(capture: Capture, profile: Profile) -> dict[str, Any]:
    """As the trace states it; the driver and Triton are those of this worker, which ran the target."""
    version = profile.metadata.get(CUDA)
    cuda = f"{version // 1000}.{version % 1000 // 10}" if isinstance(version, int) and version > 0 else ""
    own = capture.target.argv[:1] == ["{python}"]
    triton = package_version("triton").get("version", "") if own else ""
    card = next((device for device in gpu.gpus() if device.name == profile.gpu), None)
    locked = locked_text(capture.facts.get("clock_lock"))
    return {"gpu": profile.gpu, "gpu_uuid": card.uuid if card else "", "driver": card.driver if card else "",
            "toolkit": rules.toolkit_text({"cuda": cuda, "triton": triton}), "recorded": profile.recorded,
            "environment": {"cuda": cuda, "triton": triton, "torch": package_version("torch").get("version", "") if own else "",
                            **({"timing": f"captured, {locked}"} if locked else {})}}


def _why(job: SuiteJob) -> str:
    for row in SuiteCapture.objects.filter(job=job).select_related("capture__profile"):
        if error := capture_error(row.capture):
            return f"capture {row.capture_id}: {error['what']}"
    return "the captures hold no kernel launches"
