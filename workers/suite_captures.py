"""A suite of what an owner's target launches: one capture for each run, its kernels' launches are the samples.

A capture is a fresh process of the target under torch.profiler. Rows say which are there: a killed worker's job goes on.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from datetime import timedelta

from django.db import IntegrityError, transaction
from django.db.models import Q
from django.utils import timezone

from profiles.capture.launch_selectors import Launched, launched
from profiles.capture.options import TorchOptions
from profiles.capture.services import capture_stop
from profiles.models import Capture, Profile
from tuner import cache
from tuner.models import KernelRun, SuiteCapture, SuiteJob, SuiteKernel
from tuner.suites import services
from tuner.suites.counter_selectors import COUNTERS
from workers import capture, facts, gpu, jobs, suite_counters
from workers.child import SandboxError
from workers.heartbeat import beating
from workers.stopping import Stop

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


def measure(job: SuiteJob, worker: str, stop: Stop) -> None:
    """Every capture in turn, then their runs. Raises Pending, SandboxError, Stopped."""
    if job.suite.target is None or not job.suite.target.enabled:
        raise SandboxError("the suite's capture target is gone or switched off",
                           "an owner switches it on, or the suite names another")
    for build, number in _order(job):
        stop.check()
        row = _asked(job, build, number, Capture.Tool.TORCH, OPTIONS)
        _ran(row.capture, worker, stop)
        _settle(job, worker)
    counters(job, worker, stop, lambda: _settle(job, worker))
    if job.reason != COUNTERS and not KernelRun.objects.filter(job=job, rejected="").exists():
        raise SandboxError(f"nothing could be measured: {_why(job)}", "the captures' pages have their logs")


def counters(job: SuiteJob, worker: str, stop: Stop, settled: Callable[[], bool] = lambda: True) -> None:
    """Counters and timelines that the job is for, or that its suite gates. No lease may be held: each capture takes its own.

    Raises Pending, SandboxError, Stopped.
    """
    suite_counters.measure(job, worker, stop, _ran)
    end = time.monotonic() + WAIT_S
    while not settled() or suite_counters.pending(job):
        stop.check()
        if time.monotonic() > end:
            raise Pending
        stop.wait(LOOK_S)
    suite_counters.settle(job)


def _order(job: SuiteJob) -> Iterator[tuple[str, int]]:
    """A B, B A, …: drift meets all builds alike."""
    for number in range(job.runs):
        for each in job.builds if number % 2 == 0 else reversed(job.builds):
            yield each["build"], number


def _asked(job: SuiteJob, build: str, number: int, tool: str, options: TorchOptions) -> SuiteCapture:
    """The capture of one run; made once, whoever asks."""
    found = SuiteCapture.objects.filter(job=job, build=build, number=number).select_related("capture").first()
    if found is not None:
        return found
    try:
        with transaction.atomic():
            made = Capture.objects.create(target=job.suite.target, tool=tool, options=options.as_json(), owner=job.owner,
                                          build=build[:80], tags=["suite", job.suite.name])
            return SuiteCapture.objects.create(job=job, build=build, number=number, capture=made)
    except IntegrityError:
        return SuiteCapture.objects.select_related("capture").get(job=job, build=build, number=number)


class _Stops:
    def __init__(self, capture_id: int) -> None:
        self._id = capture_id

    def stop(self) -> None:
        capture_stop(Capture.objects.get(pk=self._id))


def _ran(asked: Capture, worker: str, stop: Stop) -> None:
    """Until the capture has ended: by this worker, or by the one that has it.

    That one may have been killed a moment ago, and nobody else may be there to take the row once its heartbeat is too old.
    """
    stop.tell(_Stops(asked.pk))
    live = Capture.objects.filter(pk=asked.pk, status__in=LIVE)
    while live.exists():
        stop.check()
        if live.filter(Q(status=Capture.Status.QUEUED) | jobs.dead()).exists():
            with beating(Capture, asked.pk, worker):
                capture.run(asked.pk, worker)
        if live.exists():
            stop.wait(LOOK_S)
    stop.check()


def _settle(job: SuiteJob, worker: str) -> bool:
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
            _record(job, worker, row, profile)
    return waiting == 0


def _record(job: SuiteJob, worker: str, row: SuiteCapture, profile: Profile) -> None:
    """A run of each kernel of the capture; those of the suite that it did not launch are rejected, and say so."""
    found = {_key(one): one for one in launched(profile)}
    kernels = _kernels(job, found)
    if not kernels:
        return
    about = _environment(row.capture, profile)
    for kernel in kernels:
        one = found.get(kernel.key)
        details = {"launches": one.launches, "capture": row.capture_id, "registers": one.registers, "smem_bytes": one.smem_bytes,
                   "config_from": "target"} if one else {"capture": row.capture_id}
        services.run_record(
            job, kernel, row.build, number=row.number, run=f"capture {row.capture_id}", us=one.us.tolist() if one else [],
            rejected="" if one else "the target did not launch it in this capture",
            facts={name: value for name, value in details.items() if value is not None}, profile=profile, worker=worker, **about)


def _kernels(job: SuiteJob, found: dict[str, Launched]) -> list[SuiteKernel]:
    """The job's kernels: those the suite has, and new ones of this capture, longest first."""
    known = {kernel.key: kernel for kernel in job.suite.kernels.all()}
    if job.kernels is None:
        for key, one in list(found.items())[:KERNELS]:
            if key not in known and len(known) < MOST_KERNELS:
                known[key], _ = SuiteKernel.objects.get_or_create(suite=job.suite, key=key, defaults={
                    "op": one.name, "shape": {name: value for name, value in (("grid", one.grid), ("block", one.block)) if value},
                    "family": (one.family or one.name)[:200], "declared": False, "place": len(known)})
    return [kernel for kernel in known.values() if kernel.enabled and (job.kernels is None or kernel.key in job.kernels)]


def _key(one: Launched) -> str:
    shape = " ".join(f"{name} {value}" for name, value in (("grid", one.grid), ("block", one.block)) if value)
    return f"{one.name} {shape}".strip()[:300]


def _reject(job: SuiteJob, worker: str, row: SuiteCapture, why: str) -> None:
    for kernel in _kernels(job, {}):
        services.run_record(job, kernel, row.build, number=row.number, run=f"capture {row.capture_id}", rejected=why,
                            facts={"capture": row.capture_id}, worker=worker)


def _environment(asked: Capture, profile: Profile) -> dict[str, object]:
    """As the trace states it; the driver and Triton are those of this worker, which ran the target."""
    said = profile.metadata.get(CUDA)
    cuda = f"{said // 1000}.{said % 1000 // 10}" if isinstance(said, int) and said > 0 else ""
    own = asked.target.argv[:1] == ["{python}"]
    triton = facts.package("triton").get("version", "") if own else ""
    card = next((one for one in gpu.gpus() if one.name == profile.gpu), None)
    return {"gpu": profile.gpu, "gpu_uuid": card.uuid if card else "", "driver": card.driver if card else "",
            "toolkit": cache.toolkit({"cuda": cuda, "triton": triton}), "recorded": profile.recorded,
            "environment": {"cuda": cuda, "triton": triton, "torch": facts.package("torch").get("version", "") if own else ""}}


def _why(job: SuiteJob) -> str:
    for row in SuiteCapture.objects.filter(job=job).select_related("capture__profile"):
        error = row.capture.error or (row.capture.profile.error if row.capture.profile else None)
        if error:
            return f"capture {row.capture_id}: {error['what']}"
    return "the captures hold no kernel launches"
