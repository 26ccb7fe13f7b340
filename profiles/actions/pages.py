"""Links that lead to a filled-in form: computed when they are followed, so that a page may hold any number of them."""

from __future__ import annotations

from django.contrib import messages
from django.contrib.auth.decorators import permission_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect
from django.views.decorators.http import require_POST, require_safe

from profiles.actions import selectors
from profiles.base.refused import Refused
from profiles.capture.selectors import target_of
from profiles.capture.services import capture_create
from profiles.models import CaptureTarget, KernelStat, Profile


@require_safe
def kernel_tune(request: HttpRequest, pk: int, kernel_pk: int) -> HttpResponse:
    """A tune job of the kernel's operator, shape and type; back to the kernel where none can stand in for it."""
    return _go(request, selectors.tune(KernelStat.find_or_404(pk, kernel_pk)), pk, kernel_pk)


@require_safe
def kernel_capture(request: HttpRequest, pk: int, kernel_pk: int) -> HttpResponse:
    """A capture with Nsight Compute of the launch that stands for the kernel."""
    return _go(request, selectors.capture(KernelStat.find_or_404(pk, kernel_pk)), pk, kernel_pk)


@require_POST
@permission_required("profiles.add_capture", raise_exception=True)
def profile_counters(request: HttpRequest, pk: int) -> HttpResponse:
    """Capture the counters of a profile's slowest kernel: at once where its program is known, else by the filled-in form."""
    profile = get_object_or_404(Profile, pk=pk)
    action = selectors.counters(profile)
    if not action.url:
        messages.info(request, action.said)
        return redirect("profile", pk)
    target = CaptureTarget.objects.filter(pk=target_of(str(pk)) or 0).first()
    options = {name: action.fields[name] for name in ("kernel", "launch_skip", "launch_count")}
    try:
        new_capture = capture_create(owner=request.user, target=target, tool="ncu", options=options, build=profile.build,
                                     model=profile.model, tags=profile.tags)
    except Refused as refused:
        messages.info(request, f"{refused}. {action.said}")
        return redirect(action.url)
    messages.info(request, action.said)
    return redirect("capture", new_capture.pk)


def _go(request: HttpRequest, action: selectors.Action, pk: int, kernel_pk: int) -> HttpResponse:
    messages.info(request, action.said)
    return redirect(action.url) if action.url else redirect("kernel", pk, kernel_pk)
