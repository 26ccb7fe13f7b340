"""Links that lead to a filled-in form: computed when they are followed, so that a page may hold any number of them."""

from __future__ import annotations

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect
from django.views.decorators.http import require_safe

from profiles.actions import selectors
from profiles.models import KernelStat


@require_safe
def kernel_tune(request: HttpRequest, pk: int, kernel_pk: int) -> HttpResponse:
    """A tune job of the kernel's operator, shape and type; back to the kernel where none can stand in for it."""
    return _go(request, selectors.tune(_kernel(pk, kernel_pk)), pk, kernel_pk)


@require_safe
def kernel_capture(request: HttpRequest, pk: int, kernel_pk: int) -> HttpResponse:
    """A capture with Nsight Compute of the launch that stands for the kernel."""
    return _go(request, selectors.capture(_kernel(pk, kernel_pk)), pk, kernel_pk)


def _kernel(pk: int, kernel_pk: int) -> KernelStat:
    return get_object_or_404(KernelStat.objects.select_related("profile"), pk=kernel_pk, profile_id=pk)


def _go(request: HttpRequest, action: selectors.Action, pk: int, kernel_pk: int) -> HttpResponse:
    messages.info(request, action.said)
    return redirect(action.url) if action.url else redirect("kernel", pk, kernel_pk)
