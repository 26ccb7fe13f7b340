"""HTML: cached winners that are measured again: asked for, followed, stopped, and what serves from then on."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.contrib import messages
from django.contrib.auth.decorators import permission_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.http import require_POST, require_safe

from profiles.band import RatioAxis
from tuner.clocks.wish import is_asked, told_text
from tuner.gate.stats.results import percent_text
from tuner.gate.verdicts.services import stop_job
from tuner.models import CachedConfig
from tuner.revalidation import selectors, services

LEFT, RIGHT = 31.0, 82.0
ROW_PX, HEAD_PX, TOP_PX, BOTTOM_PX = 22, 26, 10, 40
LEAST, FURTHEST = 0.02, 0.6             # an axis shows at least ±2 %; what lies further out sits on its end
MOST_KERNELS = 12
STEPS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2)


@dataclass(frozen=True)
class Row:
    name: str
    y: int
    dots: list[tuple[float, str]]       # place, what to say on hover
    low_at: float | None                # interval of the ratio to the default
    high_at: float | None
    text: str                           # "▼ −7.1 %"
    kind: str                           # "faster" | "slower" | "pass": of its colour and sign
    serves: bool


@dataclass(frozen=True)
class Group:
    key: str
    y: int
    outcome: str
    rows: list[Row]


@dataclass(frozen=True)
class Plot:
    groups: list[Group]
    ticks: list[tuple[float, str]]
    zero_at: float
    right: float
    axis_y: int
    height: int
    unlisted: int


def side_plot(kernels: Sequence[Mapping[str, Any]]) -> Plot | None:
    """Of the first kernels that were decided; None where none was."""
    shown = [each for each in kernels if any(side.get("p50_us") for side in each["sides"]) and _default_us(each)][:MOST_KERNELS]
    if not shown:
        return None
    logs = [abs(math.log(us / _default_us(each))) for each in shown for side in each["sides"] for us in side.get("p50_us") or ()]
    logs += [abs(math.log(side[end])) for each in shown for side in each["sides"] for end in ("low", "high") if side.get(end)]
    half = min(FURTHEST, max(LEAST, *logs) * 1.06)
    axis = RatioAxis(LEFT, RIGHT, -half, half)
    y, groups = TOP_PX, []
    for each in shown:
        default, rows, head = _default_us(each), [], y + HEAD_PX // 2
        y += HEAD_PX
        for side in each["sides"]:
            dots = [(axis.at(us / default) or LEFT, f"{us:.4g} µs, {percent_text(us / default)}")
                    for us in side.get("p50_us") or ()]
            rows.append(Row(side["name"], y + ROW_PX // 2, dots, axis.at(side.get("low")), axis.at(side.get("high")),
                            *_said(side), serves=side["serves"]))
            y += ROW_PX
        groups.append(Group(each["key"], head, each["outcome"], rows))
    decided = sum(bool(each["found"]) for each in kernels)
    return Plot(groups, axis.changes(STEPS, "default"), axis.at(1.0) or LEFT, RIGHT, y + 6, y + 6 + BOTTOM_PX, decided - len(shown))


def _default_us(kernel: Mapping[str, Any]) -> float:
    return next((side.get("us") or 0.0 for side in kernel["sides"] if "verdict" not in side), 0.0)


def _said(side: Mapping[str, Any]) -> tuple[str, str]:
    """(text, kind)."""
    if not side.get("us"):
        return "no run", "pass"
    if side.get("ratio") is None:
        return f"{side['us']:.4g} µs", "pass"
    sure = "faster" if side["high"] < 1 else "slower" if side["low"] > 1 else "pass"
    return {"faster": "▼ ", "slower": "▲ ", "pass": ""}[sure] + percent_text(side["ratio"]), sure


AT_ONCE = 20                # winners that the button of the list takes
LIST_LIMIT = 100


@require_safe
def revalidation_list(request: HttpRequest) -> HttpResponse:
    waiting = selectors.waiting_entries()
    return render(request, "tuner/revalidation/list.html", {
        "winners": selectors.has_winner(), "waiting": waiting, "at_once": waiting[:AT_ONCE],
        "seconds": selectors.expected_seconds(waiting[:AT_ONCE]),
        "jobs": selectors.job_lines(selectors.recent_jobs(LIST_LIMIT)), "total": selectors.revalidation_jobs().count(),
        "under_way": selectors.jobs_under_way().exists()})


@require_safe
def revalidation(request: HttpRequest, pk: int) -> HttpResponse:
    document = selectors.job_document(get_object_or_404(selectors.revalidation_jobs(), pk=pk))
    job, lock = document["job"], document["job"].environment.get("clock_lock")
    took_s = (job.finished - job.started).total_seconds() if job.started and job.finished else None
    return render(request, "tuner/revalidation/detail.html", {**document, "plot": side_plot(document["kernels"]), "took_s": took_s,
                                                              "clocks": told_text(lock) if is_asked(lock) else ""})


@permission_required("tuner.add_tunejob", raise_exception=True)
@require_POST
def revalidate(request: HttpRequest) -> HttpResponse:
    """Measure unverified entries again: the one that is named, else those with the most at stake."""
    pk = request.POST.get("entry", "")
    if pk:
        entries = CachedConfig.objects.select_related("job")
        chosen = [get_object_or_404(entries, pk=int(pk) if pk.isdecimal() and len(pk) < 19 else 0)]
    else:
        chosen = selectors.waiting_entries()[:AT_ONCE]
    jobs = services.revalidate(chosen, request.user)
    if not jobs:
        why = selectors.why_not(chosen[0]) if pk else ""
        messages.info(request, f"Nothing was queued: {why}." if why else
                      "Nothing was queued: what could be measured again is being measured already.")
        return redirect("cache", pk=chosen[0].pk) if pk else redirect("cache-list")
    number = sum(len(selectors.entry_ids(job)) for job in jobs)
    messages.success(request, f"{number} winner{'s' * (number != 1)} will be measured again in {len(jobs)} "
                     f"job{'s' * (len(jobs) != 1)}.")
    return redirect("cache-revalidation", pk=jobs[0].pk) if len(jobs) == 1 else redirect("cache-revalidations")


@permission_required("tuner.change_suitejob", raise_exception=True)
@require_POST
def revalidation_stop(request: HttpRequest, pk: int) -> HttpResponse:
    """What was measured stays in the rows; the cache is as it was."""
    job = get_object_or_404(selectors.revalidation_jobs(), pk=pk)
    if not stop_job(job):
        messages.info(request, f"It had ended already: {job.status}.")
    return redirect("cache-revalidation", pk=pk)
