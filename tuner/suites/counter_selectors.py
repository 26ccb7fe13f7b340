"""Counters and timelines that were captured of a suite's kernels, build by build: what is there, under way, or cannot be had."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from django.db.models import Q
from django.urls import reverse
from django.utils.http import urlencode

from profiles.capture import selectors as capture_selectors
from profiles.capture.counted_selectors import Beside, Seen, beside, seen, seen_named
from profiles.models import Capture, Profile
from tuner.jobs.devices import REPLAY
from tuner.models import KernelRun, Suite, SuiteCapture, SuiteJob, SuiteKernel
from tuner.suites.selectors import COUNTERS

NCU, TIMELINE = -1, -2                       # numbers of SuiteCaptures; those from 0 on are runs of a target
MOST = 200                                   # captures that are looked through
TOOLS = {NCU: "counters", TIMELINE: "timeline"}


@dataclass(frozen=True)
class Shot:
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
        made = self.capture.profile
        return made if made is not None and made.status == Profile.Status.READY else None

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
        found = self.capture.error or (self.capture.profile.error if self.capture.profile else None)
        return found if isinstance(found, dict) else {}

    @property
    def keys(self) -> list[str]:
        """Kernels that the capture was of."""
        if self.job.kernels is not None:
            return list(self.job.kernels)
        return list(self.job.suite.kernels.filter(enabled=True).values_list("key", flat=True))

    def as_json(self) -> dict[str, Any]:
        return {"build": self.build, "tool": self.tool, "state": self.state, "capture": self.capture.pk,
                "profile": self.profile.pk if self.profile else None, "error": self.error or None, "job": self.job.pk}


@dataclass(frozen=True)
class Counters:
    """What the evidence of one kernel in two builds holds, and what may be asked for."""

    kernel: SuiteKernel
    old: str                                 # builds; "" where none is known
    new: str
    beside: Beside
    shots: list[Shot]                        # the newest of each build and tool
    job: SuiteJob | None                     # under way for this kernel
    why_not: str                             # why no capture can be asked for now; "": it can
    compare: str = ""                        # pages of both, "" where one lacks
    timelines: str = ""
    failed: list[Shot] = field(default_factory=list)

    @property
    def any(self) -> bool:
        return self.beside.old is not None or self.beside.new is not None


def shots(kernel: SuiteKernel, builds: Sequence[str]) -> tuple[dict[tuple[str, int], Shot], list[Shot]]:
    """(build, number) → the newest capture that is ready, else the newest; those with everything go before those with a metric.

    And the newest ones that failed or were stopped, whatever is there from before them.
    """
    of_kernel = Q(job__kernels__isnull=True) | Q(job__kernels__contains=[kernel.key])
    rows = SuiteCapture.objects.filter(of_kernel, job__suite=kernel.suite_id, number__lt=0,
                                       build__in=[build for build in builds if build])
    found: dict[tuple[str, int], Shot] = {}
    newest: dict[tuple[str, int], Shot] = {}
    rows = rows.select_related("job__suite", "capture__profile", "capture__target").defer("capture__log")
    for row in rows.order_by("-pk")[:MOST]:
        one = Shot(row.build, row.number, row.capture, row.job)
        standing = found.get((row.build, row.number))
        if standing is None or _rank(one) > _rank(standing):
            found[row.build, row.number] = one
        newest.setdefault((row.build, row.number), one)
    return found, [one for one in newest.values() if one.state in ("failed", "stopped")]


def _rank(one: Shot) -> tuple[bool, bool]:
    return one.state == "ready", one.job.reason == COUNTERS


def counters_of(kernel: SuiteKernel, old: str, new: str, gpu: str = "") -> Counters:
    """Both builds beside each other. `gpu`: the model on which the runs of the evidence were measured."""
    both = list(dict.fromkeys([old, new]))
    found, failed = shots(kernel, both)
    sides = [_seen(kernel, found.get((build, NCU))) for build in (old, new)]
    if old == new:
        sides[0] = None
    lines = [found[build, number].profile if (build, number) in found else None for number in TOOLS for build in (old, new)]
    reports, traces = lines[:2], lines[2:]
    compare = timelines = ""
    if reports[0] and reports[1] and old != new:
        compare = f"{reverse('compare')}?" + urlencode({"a": reports[0].pk, "b": reports[1].pk, "kind": Profile.Kind.COUNTERS})
    if traces[0] and traces[1] and old != new:
        timelines = reverse("timelines", args=[traces[0].pk, traces[1].pk])
    return Counters(kernel, old, new, beside(*sides), list(found.values()), live_job(kernel, both), why_not(kernel, both, gpu),
                    compare, timelines, failed)


def _seen(kernel: SuiteKernel, shot: Shot | None) -> Seen | None:
    if shot is None or shot.profile is None:
        return None
    if kernel.suite.kind == Suite.Kind.TARGET:
        return seen_named(shot.profile, kernel.op, str(kernel.shape.get("grid", "")), str(kernel.shape.get("block", "")))
    return seen(shot.profile, kernel.key, shot.keys)


def live_job(kernel: SuiteKernel, builds: Sequence[str]) -> SuiteJob | None:
    """One that captures this kernel of one of these builds at the moment, or waits to."""
    rows = SuiteJob.objects.filter(kernels__contains=[kernel.key], suite=kernel.suite_id, reason=COUNTERS,
                                   status__in=[SuiteJob.Status.QUEUED, SuiteJob.Status.RUNNING]).order_by("pk")[:20]
    return next((job for job in rows if {each["build"] for each in job.builds} & set(builds)), None)


def why_not(kernel: SuiteKernel, builds: Sequence[str], gpu: str = "") -> str:
    """Why counters of these builds cannot be captured now, and what to do; "": they can."""
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


def counters_json(found: Counters) -> dict[str, Any]:
    """For the API and the command."""
    told = found.beside
    return {"kernel": found.kernel.key, "baseline": found.old, "build": found.new,
            "numbers": [number.as_json() for number in told.numbers], "why": told.why.as_json() if told.why else None,
            "advice": [{"cause": line.advice.cause, "title": line.advice.title, "fix": line.advice.fix} for line in told.advice],
            "captures": [shot.as_json() for shot in found.shots], "job": found.job.pk if found.job else None,
            "can_be_captured": not found.why_not, "why_not": found.why_not,
            "links": {"compare": found.compare, "timelines": found.timelines}}
