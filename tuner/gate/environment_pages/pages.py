"""`/environments/`: the same suite across toolkits, drivers and GPUs; what a new one made doubtful in the cache."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.contrib import messages
from django.contrib.auth.decorators import permission_required
from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.http import require_POST, require_safe

from profiles.band import NamedRows, RatioAxis
from profiles.base.refused import Refused
from tuner.gate.environments import observation_selectors, selectors
from tuner.gate.stats.attribution import largest_effect
from tuner.gate.stats.effects import Effect
from tuner.models import GpuEnvironment, Suite
from tuner.revalidation import policy_services, search_services
from tuner.revalidation.policy_services import environment_forget

LEFT, RIGHT = 36.0, 84.0
ROW_PX, TOP_PX, BOTTOM_PX = 26, 8, 26
LEAST = 0.015                  # half of the axis at least: ±1.5 %
MOST = 0.5                     # logarithm; what lies beyond is cut
MOST_ROWS = 40
STEPS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5)


@dataclass(frozen=True)
class Row:
    effect: Effect
    name: str
    y: int
    at: float | None
    low_at: float | None
    high_at: float | None
    beyond: str                # "left" | "right": the point lies outside the axis
    text: str                  # "▲ +5.08 %"


@dataclass(frozen=True)
class Plot(NamedRows):
    rows: list[Row]
    ticks: list[tuple[float, str]]
    one_at: float
    top: int
    axis_y: int
    height: int


def effect_plot(effects: Sequence[tuple[str, Effect]]) -> Plot | None:
    """Named effects in the order given, those that can be told; None where there is none."""
    shown = [(name, effect) for name, effect in effects if effect.ratio is not None][:MOST_ROWS]
    if not shown:
        return None
    logs = [abs(math.log(value)) for _, effect in shown for value in (effect.ratio, effect.low, effect.high) if value]
    half = min(MOST, max(LEAST, *logs) * 1.08)
    axis = RatioAxis(LEFT, RIGHT, -half, half)
    rows = [Row(effect, name, TOP_PX + ROW_PX * n + ROW_PX // 2, axis.at(effect.ratio), axis.at(effect.low), axis.at(effect.high),
                "" if axis.holds(effect.ratio or 1) else "right" if (effect.ratio or 1) > 1 else "left",
                (("▲ " if (effect.ratio or 1) > 1 else "▼ ") if effect.sure else "") + effect.text)
            for n, (name, effect) in enumerate(shown)]
    bottom = TOP_PX + ROW_PX * len(rows)
    return Plot(rows, axis.changes(STEPS, "same"), axis.at(1.0) or LEFT, TOP_PX, bottom, bottom + BOTTOM_PX)


MOST_SUITES = 200


@require_safe
def environments(request: HttpRequest) -> HttpResponse:
    """?suite=&kernel=&runs=measured|recorded&before=&after=, the last two as `selectors.cell_names` gives them."""
    suites = list(Suite.objects.order_by("-enabled", "name")[:MOST_SUITES])
    suite = next((candidate for candidate in suites if candidate.name == request.GET.get("suite")), suites[0] if suites else None)
    context = picture_context(suite, request.GET) if suite else {}
    overview = policy_services.overview()
    newest = {row.environment.gpu: row.environment for row in overview["seen"] if row.newest}
    return render(request, "gate/environments/list.html", {
        **overview, "searches": search_services.overview(overview["policy"], newest), "suites": suites, "suite": suite, **context,
        "may_measure": request.user.has_perm("tuner.add_tunejob"),
        "may_switch": request.user.has_perm("tuner.change_revalidationpolicy")})


def picture_context(suite: Suite, query: QueryDict) -> dict[str, Any]:
    counts = observation_selectors.runs_by_kind(suite)
    recorded = observation_selectors.reads_recorded(counts, query.get("runs", ""))
    keys = list(suite.kernels.filter(enabled=True).values_list("key", flat=True)[:observation_selectors.MOST_KERNELS])
    kernel = query.get("kernel", "") if query.get("kernel", "") in keys else ""
    picture = selectors.load_picture(suite, kernel=kernel, recorded=recorded, before=query.get("before", ""),
                                     after=query.get("after", ""))
    kernels = picture.attribution.kernels
    rows = [(entry, effect) for entry in kernels for effect in entry.effects]
    return {
        "picture": picture, "counts": counts, "recorded": recorded, "kernel": kernel, "keys": keys,
        "plot": effect_plot([(effect.factor if "+" in effect.factor else f"{effect.factor} {effect.level}", effect)
                             for effect in picture.attribution.suite]),
        "effects": [(effect, largest_effect(effect, kernels)) for effect in picture.attribution.suite],
        "by_kernel": rows if len(kernels) > 1 else [], "cells": selectors.cell_names(picture)}


@require_POST
@permission_required("tuner.add_tunejob", raise_exception=True)
def revalidate(request: HttpRequest) -> HttpResponse:
    jobs = policy_services.revalidate_now(request.user)
    if jobs:
        number = sum(len(job.about["entries"]) for job in jobs)
        messages.success(request, f"{number} winner{'s' * (number != 1)} will be measured again in {len(jobs)} "
                         f"job{'s' * (len(jobs) != 1)}: each in turn with what came next and the default.")
    else:
        messages.info(request, "Nothing to queue: every doubtful winner that can be measured again is being measured already.")
    return redirect("environments")


@require_POST
@permission_required("tuner.change_revalidationpolicy", raise_exception=True)
def policy(request: HttpRequest) -> HttpResponse:
    try:
        now = policy_services.set_policy(by=request.user, by_itself=request.POST.get("by_itself") == "1",
                                  most_entries=_number(request.POST.get("most_entries")),
                                  most_seconds=_number(request.POST.get("most_seconds")))
    except Refused as error:
        messages.error(request, str(error))
    else:
        messages.success(request, "Auto-revalidate is on." if now.by_itself else
                         "Auto-revalidate is off.")
    return redirect("environments")


@require_POST
@permission_required("tuner.change_revalidationpolicy", raise_exception=True)
def searches(request: HttpRequest) -> HttpResponse:
    limits = {name: _number(request.POST.get(name)) for name in ("most_searches", "search_seconds", "from_hour", "until_hour")}
    try:
        now = search_services.set_searches(by=request.user, searches=request.POST.get("searches") == "1", **limits)
    except Refused as error:
        messages.error(request, str(error))
    else:
        messages.success(request, f"Searches after a new toolkit are {'on' if now.searches else 'off'}.")
    return redirect("environments")


@require_POST
@permission_required("tuner.change_revalidationpolicy", raise_exception=True)
def forget(request: HttpRequest, pk: int) -> HttpResponse:
    environment = get_object_or_404(GpuEnvironment, pk=pk)
    back = environment_forget(environment, request.user)
    messages.success(request, f"Forgotten: {environment}. {back} winner{' is' if back == 1 else 's are'} verified again.")
    return redirect("environments")


def _number(text: str | None) -> Any:
    """A whole number, else what was typed: the service says what would be right. None: as it was."""
    if text is None or text == "":
        return None
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else text
