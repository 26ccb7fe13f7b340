"""Tune from the page of a checked file, and the page of one version of an own kernel."""

from __future__ import annotations

from django.contrib import messages
from django.contrib.auth.decorators import permission_required
from django.db.models import Sum
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.http import require_POST, require_safe

from profiles.base.refused import Refused
from tuner import devices
from tuner.bring.own import selectors, services
from tuner.jobs.create_services import DEFAULT_EFFORT, EFFORTS
from tuner.models import CachedConfig, KernelCheck, OwnKernel, ServedCount, SuiteKernel, TuneJob
from tuner.tuning.search.strategies import DEFAULT

MAY_TUNE = "tuner.add_kernelcheck"
PARAM = "param-"            # before a parameter's name in the form


@permission_required(MAY_TUNE, raise_exception=True)
@require_POST
def own_tune(request: HttpRequest, pk: int) -> HttpResponse:
    """Start a tune job of a check's kernel and show it."""
    check, fields = get_object_or_404(KernelCheck, pk=pk), request.POST
    params = {name.removeprefix(PARAM): text for name, text in fields.items() if name.startswith(PARAM)}
    effort = fields.get("effort", "")
    try:
        _, job = services.own_tune(
            check, fields.get("kernel", "")[:120], params=params or None,
            constraints=[line.strip() for line in fields.get("constraints", "").splitlines() if line.strip()],
            reference=fields.get("reference", "")[:120], owner=request.user, device=devices.GPU, strategy=DEFAULT,
            effort=effort if effort in EFFORTS else DEFAULT_EFFORT)
    except Refused as refused:
        messages.error(request, f"Not started: {refused}")
        return redirect("kernel-check", pk=check.pk)
    return redirect("tune", pk=job.pk)


@require_safe
def own_detail(request: HttpRequest, name: str) -> HttpResponse:
    """Show what travels with the jobs of one version, its jobs, and the other versions."""
    kernel = selectors.kernel_named(name)
    if kernel is None:
        raise Http404("no own kernel has this name")
    others = OwnKernel.objects.filter(file=kernel.file, kernel=kernel.kernel).exclude(pk=kernel.pk)
    served = ServedCount.objects.filter(operator=kernel.name).aggregate(launches=Sum("launches"))
    return render(request, "tuner/own_kernel.html", {
        "kernel": kernel, "not_independent": selectors.NOT_INDEPENDENT,
        "files": sorted(kernel.sources.items(), key=lambda each: (each[0] != kernel.file, each[0])),
        "newer": others.filter(pk__gt=kernel.pk).first(), "launches": served["launches"] or 0,
        "entries": CachedConfig.objects.filter(operator=kernel.name)[:selectors.MOST_JOBS],
        "guarded": SuiteKernel.objects.filter(op=kernel.name).select_related("suite")[:selectors.MOST_JOBS],
        "jobs": TuneJob.objects.filter(operator=kernel.name)[:selectors.MOST_JOBS], "others": others[:selectors.MOST_JOBS]})
