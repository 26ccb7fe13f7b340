"""HTML of the fleet: what its kernels cost, slow GPUs, utilisation, agents."""

from __future__ import annotations

from typing import Any

from django.core.paginator import Paginator
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from profiles.fleet.browse import agents_selectors, charts, page_selectors, time_selectors
from profiles.fleet.browse.addresses import (
    BY_GROUPS,
    DEFAULT_WINDOW,
    GROUP_WORDS,
    WINDOWS,
    View,
    choices,
    simulated_state,
    view_of,
    window_text,
)
from profiles.fleet.browse.needed_selectors import fleet_needed
from profiles.fleet.browse.utilisation_selectors import DRAWN, HALF_PCT, IDLE_PCT, gpu_lines, utilisation
from profiles.fleet.capture_services import GPU_WORKERS
from profiles.fleet.slow.compared import LEAST_GPUS
from profiles.fleet.slow.gpu_selectors import slow_gpus
from profiles.fleet.slow.slow_gpus import DEVIATIONS, LEAST_LAUNCHES, LEAST_PCT
from profiles.fleet.store import GROUPS
from profiles.models import FleetAgent, FleetGpu

# from here on a page is sent before its numbers are known: they take longer than a second
LARGE_GPUS = 1000               # GPUs, of what jobs make of them
LARGE_GPU_HOURS = 2000          # GPUs × hours of the window, of what is compared
# as docs/fleet.md states it; tests/profiles/fleet/test_slow_gpus.py holds it
FALSE_ALARMS = ("Of simulated healthy fleets at most one in a hundred has any GPU accused: "
                "12 of 1,000 fleets of 4 GPUs that differ by 1.5 %, none of 4,000 of 256 GPUs.")
VERDICTS = (("", "all"), ("SLOWER", "slower"), ("OK", "ok"), ("UNKNOWN", "unknown"))
PAGE_GPUS, PAGE_AGENTS = 200, 100


@require_safe
def fleet(request: HttpRequest) -> HttpResponse:
    """Which kernels own the fleet's GPU-hours, and what can be done about each?"""
    view = view_of(request.GET)
    page = page_selectors.fleet_page(view)
    series = time_selectors.over_time(view, view.by) if view.window else None
    labels = [line.key if line.key else "unknown" if line.key == "" else f"{series.groups - len(series.series) + 1} more"
              for line in series.series] if series else []
    colours = charts.colours(len(labels), bool(series and series.series and series.series[-1].key is None)) if series else []
    return _page(request, "fleet", view, {
        "page": page, "series": series, "needed": fleet_needed(view.asked) if view.window and page.lines else None,
        "figure": charts.hours_figure(series, labels) if series else None,
        "watched_hours": series.coverage.wall_ns / page_selectors.HOUR_NS if series and series.coverage else None,
        "legend": list(zip(series.series, labels, colours, strict=True)) if series else [],
        "groups": [(word, view.link(group="" if name == "kernel" else name), name == view.group)
                   for name, word in GROUP_WORDS.items() if name in GROUPS],
        "bys": [(GROUP_WORDS[name], view.link(by=name), name == view.by) for name in BY_GROUPS],
        "group_word": GROUP_WORDS[view.group], "of_kernels": view.group in ("kernel", "signature")})


@require_safe
def gpus(request: HttpRequest) -> HttpResponse:
    """Which GPU takes longer than the others of its model at the same kernels, and what do its sensors say?"""
    view = view_of(request.GET)
    hours = view.window.to_hour - view.window.from_hour if view.window else 0
    if "whole" not in request.GET and FleetGpu.objects.count() * hours > LARGE_GPU_HOURS:
        return _page(request, "fleet-gpus", view, _waiting())
    judgement = slow_gpus(view.asked) if view.window else None
    rows = judgement.rows if judgement else []
    verdict = request.GET.get("verdict", "")
    counts = {name: sum(row.verdict == name for row in rows) for name in ("SLOWER", "OK", "UNKNOWN")}
    page = Paginator([row for row in rows if verdict not in counts or row.verdict == verdict],
                     PAGE_GPUS).get_page(request.GET.get("page"))
    slow = [row for row in rows[:DRAWN] if row.verdict == "SLOWER"]
    lines = gpu_lines(judgement.window, [*slow, *page.object_list]) if judgement and judgement.window else []
    return _page(request, "fleet-gpus", view, {
        "found": judgement, "slow": lines[:len(slow)], "more_slow": max(0, counts["SLOWER"] - DRAWN), "counts": counts,
        "verdicts": [(name, word, view.link(verdict=name), name == verdict) for name, word in VERDICTS],
        "page": page, "lines": lines[len(slow):], "judged_window": window_text(judgement.window)
        if judgement and judgement.window else "", "rule": {"least_pct": LEAST_PCT, "deviations": DEVIATIONS, "gpus": LEAST_GPUS,
                                                            "launches": LEAST_LAUNCHES, "false_alarms": FALSE_ALARMS}})


@require_safe
def use(request: HttpRequest) -> HttpResponse:
    """What do jobs make of their GPUs, which GPUs are idle, and whose memory lies unused?"""
    view = view_of(request.GET)
    if "whole" not in request.GET and FleetGpu.objects.count() > LARGE_GPUS:
        return _page(request, "fleet-utilisation", view, _waiting())
    return _page(request, "fleet-utilisation", view, {
        "use": utilisation(view) if view.window else None, "idle_pct": IDLE_PCT, "half_pct": HALF_PCT})


@require_safe
def agents(request: HttpRequest) -> HttpResponse:
    """What does every agent send, what does it cost its jobs, and how is one installed?"""
    view = view_of(request.GET)
    page = Paginator(agents_selectors.agents(request.GET), PAGE_AGENTS).get_page(request.GET.get("page"))
    lines = [agents_selectors.line_of(agent) for agent in page]
    server = request.build_absolute_uri("/").rstrip("/")
    return _page(request, "fleet-agents", view, {
        "page": page, "lines": lines, "has_jobs": any(line.jobs for line in lines), "server": server,
        "totals": agents_selectors.totals(),
        "chosen": {name: request.GET.get(name, "") for name in ("q", "state")}, "states": agents_selectors.STATE_WORDS,
        "installs": agents_selectors.installs(server)})


def _waiting() -> dict[str, Any]:
    """What a page shows whose numbers come with a second request, which its script makes."""
    return {"waiting": True, "waiting_text": f"{FleetGpu.objects.count():,} GPUs"}


def _page(request: HttpRequest, name: str, view: View, context: dict[str, Any]) -> HttpResponse:
    question = view.question
    return render(request, f"profiles/fleet/{name.removeprefix('fleet-')}.html", {
        "view": view, "here": name, "windows": WINDOWS, "window_value": view.words.get("window", DEFAULT_WINDOW),
        "window_text": window_text(view.window) if view.window else "", "choices": choices(),
        "simulated": simulated_state(question.where) if question else "", "real_url": view.link(simulated="no"),
        "has_agents": FleetAgent.objects.exclude(name__startswith=GPU_WORKERS).exists(),
        "has_data": view.extent is not None, "demo": agents_selectors.DEMO, "feed": agents_selectors.FEED, **context},
        status=400 if view.error else 200)
