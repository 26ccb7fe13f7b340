"""Pages of measured ceilings: every GPU model with its data sheet beside what was measured; one measurement."""

from __future__ import annotations

from django.contrib import messages
from django.contrib.auth.decorators import permission_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.http import require_POST, require_safe

from profiles.analysis.core import gpus
from profiles.base.refused import Refused
from profiles.ceilings import selectors, services
from profiles.models import CeilingRun


@require_safe
def ceiling_list(request: HttpRequest) -> HttpResponse:
    measured = {gpu.gpu: gpu for gpu in selectors.measured_gpus()}
    cards = [{"gpu": name, "measured": selectors.measured_for(name),
              "rows": selectors.gpu_rows(selectors.measured_for(name), name), "model": gpus.lookup(name)}
             for name in selectors.known_gpus()]
    return render(request, "profiles/ceilings/list.html", {
        "cards": cards, "measured_count": len(measured), "runs": selectors.runs()[:200], "ability": selectors.ability(),
        "version": gpus.VERSION, "may_measure": request.user.has_perm("profiles.add_capture")})


@require_safe
def ceiling_run(request: HttpRequest, pk: int) -> HttpResponse:
    run = get_object_or_404(CeilingRun.objects.select_related("owner"), pk=pk)
    live = run.status in services.LIVE
    measured = selectors.measured_of(run)
    return render(request, "profiles/ceilings/run.html", {
        "run": run, "live": live, "measured": measured, "rows": selectors.gpu_rows(measured, run.gpu),
        "expected": selectors.EXPECTED,
        "version": gpus.VERSION, "results": selectors.results_in_order(run), "ability": selectors.ability(),
        "may_stop": live and request.user.has_perm("profiles.add_capture")})


@require_POST
@permission_required("profiles.add_capture", raise_exception=True)
def ceiling_measure(request: HttpRequest) -> HttpResponse:
    try:
        run = services.ceilings_measure(owner=request.user)
    except Refused as refused:
        messages.error(request, str(refused))
        return redirect("ceilings")
    return redirect("ceiling-run", pk=run.pk)


@require_POST
@permission_required("profiles.add_capture", raise_exception=True)
def ceiling_stop(request: HttpRequest, pk: int) -> HttpResponse:
    run = get_object_or_404(CeilingRun, pk=pk)
    if not services.ceilings_stop(run):
        messages.info(request, f"It had ended already: {run.status}.")
    return redirect("ceiling-run", pk=pk)
