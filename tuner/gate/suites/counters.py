"""Counters and timelines of a suite's kernels, build by build: what is there, under way or cannot be had; and asking for them."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TypedDict, cast

from django.db import transaction
from django.db.models import Q
from django.urls import reverse
from django.utils.http import urlencode

from profiles.analysis.compare.why import Why
from profiles.base.answers import ErrorJson, make_answer
from profiles.base.refused import Refused
from profiles.capture import selectors as capture_selectors
from profiles.capture.suite_selectors import (
    CountedJson,
    CounterComparison,
    ReportedKernel,
    compare_counters,
    reported_kernel,
    reported_kernel_by_name,
)
from profiles.models import Capture, Profile
from tuner.devices import REPLAY
from tuner.gate.suites.job_services import job_create
from tuner.gate.suites.selectors import COUNTERS
from tuner.models import KernelRun, Suite, SuiteCapture, SuiteJob, SuiteKernel

NCU, TIMELINE = -1, -2                       # numbers of SuiteCaptures; those from 0 on are runs of a target
MOST = 200                                   # captures that are looked through
TOOLS = {NCU: "counters", TIMELINE: "timeline"}


def capture_error(capture: Capture) -> dict[str, Any]:
    """Return why a capture, or reading its profile, failed: {"what", "hint", …}; {} where neither did."""
    error = capture.error or (capture.profile.error if capture.profile else None)
    return error if isinstance(error, dict) else {}


@dataclass(frozen=True)
class KernelCapture:
    """One capture of one build."""

    build: str
    number: int
    capture: Capture
    job: SuiteJob

    @property
    def tool(self) -> str:
        return TOOLS[self.number]

    @property
    def profile(self) -> Profile | None:
        profile = self.capture.profile
        return profile if profile is not None and profile.status == Profile.Status.READY else None

    @property
    def state(self) -> str:
        """"waits" | "runs" | "being read" | "ready" | "failed" | "stopped"."""
        if self.profile is not None:
            return "ready"
        if self.capture.status == Capture.Status.DONE and self.capture.profile is not None:
            return "failed" if self.capture.profile.status == Profile.Status.FAILED else "being read"
        return {Capture.Status.QUEUED: "waits", Capture.Status.RUNNING: "runs", Capture.Status.CANCELLED: "stopped"}.get(
            Capture.Status(self.capture.status), "failed")

    @property
    def error(self) -> dict[str, Any]:
        return capture_error(self.capture)

    @property
    def keys(self) -> list[str]:
        """Kernels that the capture was of."""
        if self.job.kernels is not None:
            return list(self.job.kernels)
        return list(self.job.suite.kernels.filter(enabled=True).values_list("key", flat=True))

    def as_json(self) -> KernelCaptureJson:
        return {"build": self.build, "tool": self.tool, "state": self.state, "capture": self.capture.pk,
                "profile": self.profile.pk if self.profile else None, "error": cast(ErrorJson | None, self.error or None),
                "job": self.job.pk}


@dataclass(frozen=True)
class Counters:
    """What the evidence of one kernel in two builds holds, and what may be asked for."""

    kernel: SuiteKernel
    old: str                                 # builds; "" where none is known
    new: str
    beside: CounterComparison
    shots: list[KernelCapture]                        # the newest of each build and tool
    job: SuiteJob | None                     # under way for this kernel
    why_not: str                             # why no capture can be asked for now; "": it can
    compare: str = ""                        # pages of both, "" where one lacks
    timelines: str = ""
    failed: list[KernelCapture] = field(default_factory=list)

    @property
    def any(self) -> bool:
        return self.beside.old is not None or self.beside.new is not None


def newest_captures(kernel: SuiteKernel, builds: Sequence[str]) -> tuple[dict[tuple[str, int], KernelCapture], list[KernelCapture]]:
    """Return (build, number) → the newest capture that is ready, else the newest; and the newest that failed.

    Those with everything go before those with a metric.

    And the newest ones that failed or were stopped, whatever is there from before them.
    """
    of_kernel = Q(job__kernels__isnull=True) | Q(job__kernels__contains=[kernel.key])
    rows = SuiteCapture.objects.filter(of_kernel, job__suite=kernel.suite_id, number__lt=0,
                                       build__in=[build for build in builds if build])
    captures_by_key: dict[tuple[str, int], KernelCapture] = {}
    newest: dict[tuple[str, int], KernelCapture] = {}
    rows = rows.select_related("job__suite", "capture__profile", "capture__target").defer("capture__log")
    for row in rows.order_by("-pk")[:MOST]:
        capture = KernelCapture(row.build, row.number, row.capture, row.job)
        standing = captures_by_key.get((row.build, row.number))
        if standing is None or _rank(capture) > _rank(standing):
            captures_by_key[row.build, row.number] = capture
        newest.setdefault((row.build, row.number), capture)
    return captures_by_key, [capture for capture in newest.values() if capture.state in ("failed", "stopped")]


def _rank(one: KernelCapture) -> tuple[bool, bool]:
    return one.state == "ready", one.job.reason == COUNTERS


def kernel_counters(kernel: SuiteKernel, old: str, new: str, gpu: str = "") -> Counters:
    """Return the counters of both builds beside each other.

    `gpu`: the model on which the runs of the evidence were measured.
    """
    both = list(dict.fromkeys([old, new]))
    found, failed = newest_captures(kernel, both)
    sides = [_read_counters(kernel, found.get((build, NCU))) for build in (old, new)]
    if old == new:
        sides[0] = None
    lines = [found[build, number].profile if (build, number) in found else None for number in TOOLS for build in (old, new)]
    reports, traces = lines[:2], lines[2:]
    compare = timelines = ""
    if reports[0] and reports[1] and old != new:
        query: dict[str, str | int] = {"a": reports[0].pk, "b": reports[1].pk, "kind": Profile.Kind.COUNTERS}
        compare = f"{reverse('compare')}?{urlencode(query)}"
    if traces[0] and traces[1] and old != new:
        timelines = reverse("timelines", args=[traces[0].pk, traces[1].pk])
    return Counters(kernel, old, new, compare_counters(*sides), list(found.values()), live_job(kernel, both),
                    why_no_capture(kernel, both, gpu), compare, timelines, failed)


def _read_counters(kernel: SuiteKernel, shot: KernelCapture | None) -> ReportedKernel | None:
    if shot is None or shot.profile is None:
        return None
    if kernel.suite.kind == Suite.Kind.TARGET:
        return reported_kernel_by_name(shot.profile, kernel.op, str(kernel.shape.get("grid", "")),
                                       str(kernel.shape.get("block", "")))
    return reported_kernel(shot.profile, kernel.key, shot.keys)


def live_job(kernel: SuiteKernel, builds: Sequence[str]) -> SuiteJob | None:
    """Return a job that captures this kernel of one of these builds at the moment, or waits to."""
    rows = SuiteJob.objects.filter(kernels__contains=[kernel.key], suite=kernel.suite_id, reason=COUNTERS,
                                   status__in=[SuiteJob.Status.QUEUED, SuiteJob.Status.RUNNING]).order_by("pk")[:20]
    return next((job for job in rows if {build["build"] for build in job.builds} & set(builds)), None)


def why_no_capture(kernel: SuiteKernel, builds: Sequence[str], gpu: str = "") -> str:
    """Return why counters of these builds cannot be captured now, and what to do; "": they can."""
    named = [build for build in builds if build]
    if len(named) < len(builds):
        return "no run of a baseline is stored for this kernel, so there is nothing to put beside it."
    if kernel.suite.kind == Suite.Kind.UPLOADED:
        return ("the runs of this suite were measured elsewhere: capture both builds there with "
                "ncu --set full --import-source yes, and upload the reports under the builds' names.")
    if not kernel.suite.enabled or not kernel.enabled:
        return "the suite or this kernel is switched off."
    runs = KernelRun.objects.filter(kernel=kernel, build__name__in=named, rejected="")
    if kernel.suite.device.startswith(REPLAY) or (runs.exists() and not runs.filter(recorded="").exists()):
        return "these runs were recorded: nothing can be launched again. A suite on a GPU worker has counters of its own builds."
    able = capture_selectors.ability()["ncu"]
    return "" if able.able else able.why


class KernelCaptureJson(TypedDict):
    """A capture of a build's kernel; `profile` null: not ready."""

    build: str
    tool: str
    state: str
    capture: int
    profile: int | None
    error: ErrorJson | None
    job: int


class CauseJson(TypedDict):
    cause: str
    title: str
    fix: str


class LinksJson(TypedDict):
    """Pages of both captures, "" where one lacks."""

    compare: str
    timelines: str


class SuiteCountersJson(TypedDict):
    """One kernel in two builds: counters side by side, why the newer one takes another time, and the captures behind."""

    kernel: str
    baseline: str
    build: str
    numbers: list[CountedJson]
    why: Why | None
    advice: list[CauseJson]
    captures: list[KernelCaptureJson]
    job: int | None
    can_be_captured: bool
    why_not: str
    links: LinksJson


def counters_json(found: Counters) -> SuiteCountersJson:
    """Return counters as the API and the command say them."""
    comparison = found.beside
    return make_answer(
        SuiteCountersJson, found, kernel=found.kernel.key, baseline=found.old, build=found.new,
        numbers=[number.as_json() for number in comparison.numbers], why=comparison.why,
        advice=[{"cause": line.advice.cause, "title": line.advice.title, "fix": line.advice.fix} for line in comparison.advice],
        captures=[shot.as_json() for shot in found.shots], job=found.job.pk if found.job else None,
        can_be_captured=not found.why_not, links={"compare": found.compare, "timelines": found.timelines})


log = logging.getLogger(__name__)
MOST_KERNELS, MOST_BUILDS = 20, 4            # of one job: a kernel takes seconds for each build
AFTER_A_GATE = 4                             # slowest kernels whose counters a gate asks for by itself


def request_counters(suite: Suite, kernels: Sequence[str], builds: Sequence[str], *, owner: Any = None) -> SuiteJob:
    """Queue a capture of these kernels for each build, as its newest run was launched. Refused names each wrong field.

    A job for the same that waits or runs is returned in place of a second one.
    """
    names, keys = list(dict.fromkeys(filter(None, builds))), list(dict.fromkeys(kernels))
    problems = {}
    if not 1 <= len(names) <= MOST_BUILDS:
        problems["builds"] = f"name 1 to {MOST_BUILDS} builds"
    if not 1 <= len(keys) <= MOST_KERNELS:
        problems["kernels"] = f"name 1 to {MOST_KERNELS} kernels"
    rows = list(suite.kernels.filter(key__in=keys, enabled=True).select_related("suite"))
    if missing := [key for key in keys if key not in {row.key for row in rows}]:
        problems["kernels"] = f"no enabled kernel {missing[0][:80]!r} in {suite.name}"
    if not problems and (why := why_no_capture(rows[0], names)):
        problems["suite"] = why
    if problems:
        raise Refused(problems)
    with transaction.atomic():
        Suite.everything.select_for_update().get(pk=suite.pk)            # two who ask at once: one job
        standing = live_job(rows[0], names)
        if standing is not None and _same(standing, keys, names):
            return standing
        job_builds, gpu = _builds(suite, keys, names)
        device = f"gpu:{gpu}" if gpu and suite.device.partition(":")[0] == "gpu" else suite.device
        return job_create(suite, builds=job_builds, runs=0, kernels=keys, reason=COUNTERS, device=device, owner=owner)


def _same(job: SuiteJob, keys: Sequence[str], names: Sequence[str]) -> bool:
    return set(job.kernels or ()) >= set(keys) and {build["build"] for build in job.builds} >= set(names)


def _builds(suite: Suite, keys: Sequence[str], names: Sequence[str]) -> tuple[list[dict[str, Any]], str]:
    """Each build with the configurations of its newest runs, and the GPU that they ran on. Refused where there are none."""
    runs = KernelRun.objects.filter(kernel__suite=suite, kernel__key__in=keys, build__name__in=names, rejected="", recorded="")
    newest = list(runs.order_by("kernel_id", "build_id", "-pk").distinct("kernel_id", "build_id").select_related("kernel", "build")
                  .defer("us"))
    builds = []
    for name in names:
        mine = [run for run in newest if run.build.name == name]
        if not mine:
            raise Refused({"builds": f"{name} has no run of {keys[0] if len(keys) == 1 else 'these kernels'} on a GPU here: "
                                     "its runs say with which configuration a kernel is launched. Measure it first"})
        configs = {run.kernel.key: run.config for run in mine if run.config}
        builds.append({"build": name, "configs": configs})
    return builds, max(newest, key=lambda run: run.pk).gpu


def request_counters_of_slower(suite: Suite, slower: Sequence[str], old: str, new: str, *, owner: Any = None) -> SuiteJob | None:
    """Queue captures of kernels that a gate found SLOWER, worst first, where the suite says so; else None."""
    if not suite.capture_slower or not slower or not old:
        return None
    try:
        return request_counters(suite, slower[:AFTER_A_GATE], [old, new], owner=owner)
    except Refused as refused:
        log.info("suite %s: no counters of %s and %s: %s", suite.name, old, new, refused)
        return None
