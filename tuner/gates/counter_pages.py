"""POST: counters and timelines of both builds, asked for at a kernel's verdict or at a regression."""

from __future__ import annotations

from django.contrib import messages
from django.contrib.auth.decorators import permission_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect
from django.urls import reverse
from django.views.decorators.http import require_POST

from tuner.gates import counter_services
from tuner.gates.services import GateRefused
from tuner.models import GateKernel, Regression, SuiteJob

may_capture = permission_required("tuner.add_suitejob", raise_exception=True)


@require_POST
@may_capture
def gate_kernel_counters(request: HttpRequest, pk: int, kernel_pk: int) -> HttpResponse:
    row = get_object_or_404(GateKernel.objects.select_related("gate__suite", "gate__build", "gate__against", "kernel"),
                            pk=kernel_pk, gate_id=pk)
    try:
        _said(request, counter_services.counters_of_kernel(row, owner=request.user))
    except GateRefused as refused:
        messages.error(request, f"Not captured: {'; '.join(refused.fields.values()).rstrip('.')}.")
    return redirect(f"{reverse('gate-kernel', args=[pk, kernel_pk])}#counters")


@require_POST
@may_capture
def regression_counters(request: HttpRequest, pk: int) -> HttpResponse:
    row = get_object_or_404(Regression.objects.select_related("suite", "build", "good"), pk=pk)
    try:
        _said(request, counter_services.counters_of_regression(row, owner=request.user))
    except GateRefused as refused:
        messages.error(request, f"Not captured: {'; '.join(refused.fields.values()).rstrip('.')}.")
    return redirect(f"{reverse('regression', args=[pk])}#counters")


def _said(request: HttpRequest, job: SuiteJob) -> None:
    builds = " and ".join(each["build"] for each in job.builds)
    messages.success(request, f"Counters and timelines of {builds} are being captured (job {job.pk}).")
