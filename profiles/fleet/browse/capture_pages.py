"""HTML of the fleet's deep captures: which processes can be captured, and what became of each order."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.contrib.auth.decorators import permission_required
from django.core.paginator import Paginator
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.utils.http import urlencode
from django.views.decorators.http import require_POST, require_safe

from profiles.base.refused import Refused
from profiles.fleet import capture_services as services
from profiles.fleet.browse import capture_selectors
from profiles.models import FleetCapture

PAGE_ROWS = 50
CHOSEN = ("job", "host", "gpu")


@require_safe
def fleet_captures(request: HttpRequest) -> HttpResponse:
    """Which running jobs can be captured, and what became of the captures?"""
    return _page(request, {"how": "milliseconds", "steps": services.STEPS, "milliseconds": services.MILLISECONDS,
                           "process": request.GET.getlist("process")[:services.MOST_PROCESSES], "shapes": True, "stacks": False})


@require_POST
@permission_required("profiles.add_fleetcapture", raise_exception=True)
def fleet_capture_order(request: HttpRequest) -> HttpResponse:
    """Fields: process (several), how (steps or milliseconds), steps, milliseconds, shapes, stacks.

    What was chosen is kept where it is refused."""
    fields: dict[str, Any] = {
        "shapes": "shapes" in request.POST, "stacks": "stacks" in request.POST,
        "how": request.POST.get("how", ""), "steps": request.POST.get("steps", ""),
        "milliseconds": request.POST.get("milliseconds", ""), "process": request.POST.getlist("process")}
    counted = fields["how"] == "steps"
    number = request.POST.get(fields["how"], "") if fields["how"] in ("steps", "milliseconds") else ""
    try:
        if not (number.isdecimal() and len(number) < 9):
            raise Refused({"steps" if counted else "milliseconds": "a whole number"})
        rows = services.order(fields["process"], int(number) if counted else None, None if counted else int(number), request.user,
                              shapes=fields["shapes"], stacks=fields["stacks"])
    except Refused as refused:
        return _page(request, {**fields, "error": refused.fields}, 400)
    messages.success(request, f"{len(rows)} capture{'s' if len(rows) > 1 else ''} ordered.")
    return _back(request)


@require_POST
@permission_required("profiles.add_fleetcapture", raise_exception=True)
def fleet_capture_stop(request: HttpRequest, pk: int) -> HttpResponse:
    """Ends an order, with those that were ordered together with it."""
    services.stop(services.with_others(get_object_or_404(FleetCapture, pk=pk)))
    return _back(request)


def _back(request: HttpRequest) -> HttpResponse:
    choices = {name: request.GET[name] for name in CHOSEN if request.GET.get(name)}
    return redirect(f"{reverse('fleet-captures')}{'?' + urlencode(choices) if choices else ''}")


def _page(request: HttpRequest, kept: dict[str, Any], status: int = 200) -> HttpResponse:
    chosen = {name: request.GET.get(name, "")[:200] for name in CHOSEN}
    page = Paginator(capture_selectors.captures(chosen), PAGE_ROWS).get_page(request.GET.get("page"))
    lines = [capture_selectors.line_of(row) for row in page]
    every = services.processes(launchers=True)
    asking = [process for process in every if (not chosen["job"] or process.job == chosen["job"])
              and (not chosen["host"] or process.agent.host == chosen["host"])]
    on_gpu = [process for process in asking if chosen["gpu"] and process.gpu == chosen["gpu"]]
    asking = on_gpu or asking           # where no driver says which process is on which GPU, those of the host are shown
    if request.method != "POST" and any(chosen.values()) and not kept["process"]:
        able = [process.key for process in asking if not process.launcher]
        kept["process"] = able[:services.MOST_PROCESSES if on_gpu else 1]
    return render(request, "profiles/fleet/captures.html", {
        "here": "fleet-captures", "lines": lines, "page": page, "processes": asking, "more": len(every) - len(asking), "kept": kept,
        "gpu_unknown": bool(chosen["gpu"]) and not on_gpu, "chosen": chosen, "any_open": any(line.is_open for line in lines),
        "most_steps": services.MOST_STEPS,
        "kept_query": urlencode({name: word for name, word in chosen.items() if word}),
        "most_ms": services.MOST_MS, "together_s": services.together_s(process.agent for process in asking),
        "only": sum(not process.launcher for process in asking) == 1},
        status=status)
