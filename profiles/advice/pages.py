"""HTML of advice: what was decided, and the forms that decide."""

from __future__ import annotations

from django.contrib import messages
from django.contrib.auth.decorators import permission_required
from django.core.paginator import Paginator
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.views.decorators.http import require_POST, require_safe

from profiles.advice import selectors, services
from profiles.base.refused import Refused
from profiles.models import AdviceDecision, KernelStat, Profile

PAGE_ROWS = 200


@require_safe
def advice_list(request: HttpRequest) -> HttpResponse:
    """What did we decide to fix, who does it, and did it help?"""
    page = Paginator(selectors.decisions(request.GET), PAGE_ROWS).get_page(request.GET.get("page"))
    counts = {name: AdviceDecision.objects.filter(which).count() for name, which in selectors.FILTERS.items()}
    return render(request, "profiles/kernel/advice.html", {"page": page, "counts": counts, "show": request.GET.get("show", "")})


@permission_required("profiles.change_advicedecision", raise_exception=True)
@require_POST
def advice_decide(request: HttpRequest, pk: int, kernel_pk: int | None = None) -> HttpResponse:
    """`cause`, `state` (or `reopen`), `note`, `assignee`; back to where it was asked."""
    profile = get_object_or_404(Profile, pk=pk, status=Profile.Status.READY)
    kernel = get_object_or_404(KernelStat, pk=kernel_pk, profile=profile) if kernel_pk else None
    back = reverse("kernel", args=[pk, kernel.pk]) + "#advice" if kernel else reverse("profile", args=[pk]) + "#findings"
    fields = {name: request.POST.get(name, "") for name in ("cause", "state", "note", "assignee")}
    if fields["state"] == "reopen":
        services.decisions_reopen(profile, kernel, fields["cause"])
        return redirect(back)
    try:
        decision = services.decide(profile=profile, kernel=kernel, by=request.user, **fields)
    except Refused as error:
        messages.error(request, f"Not kept: {error}.")
        return redirect(back)
    messages.success(request, f"{decision.title}: {decision.get_state_display()}.")
    return redirect(back)
