"""The roofline page: of one profile, or of several together."""

from __future__ import annotations

from django.contrib import messages
from django.contrib.auth.decorators import permission_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.views.decorators.http import require_POST, require_safe

from profiles.base.refused import Refused
from profiles.charts.roofline import roofline_figure
from profiles.models import KernelStat, Profile
from profiles.rooflines import page_selectors
from profiles.rooflines.page_selectors import choosable, roofline_page
from profiles.rooflines.selectors import requested_profiles
from profiles.theme import cached_figure


@require_safe
def roofline(request: HttpRequest, pk: int) -> HttpResponse:
    """How far from which roof? `?profiles=2,3` puts others beside it, `?before=1&after=2` joins them by arrows."""
    profile = get_object_or_404(Profile, pk=pk)
    if profile.status != Profile.Status.READY:
        return redirect("profile", profile.pk)
    return _page(request, requested_profiles(request.GET, profile), profile)


@require_safe
def rooflines(request: HttpRequest) -> HttpResponse:
    """The same of any profiles; without any, what can be chosen."""
    return _page(request, requested_profiles(request.GET), None)


def _page(request: HttpRequest, profiles: list[Profile], profile: Profile | None) -> HttpResponse:
    page = roofline_page(profiles, request.GET)
    key = (page["version"], page["per"], page["colour"], page["family"], tuple(page["dot_pairs"]))
    figure = cached_figure(key,
                           lambda: roofline_figure(page["dots"], page["ceilings"], colour=page["colour"], pairs=page["dot_pairs"],
                                               family=page["family"])) if profiles else None
    others = [other for other in choosable() if other.pk not in {shown.pk for shown in profiles}]
    return render(request, "profiles/kernel/roofline.html", page | {
        "figure": figure, "others": others, "profile": profile or (profiles[0] if profiles else None), "own": profile is not None,
        "api": reverse("api-roofline", args=[profile.pk]) if profile else reverse("api-rooflines"),
        "can_have": profile is None or profile.kind in (Profile.Kind.COUNTERS, Profile.Kind.TRACE)})


@require_POST
@permission_required("profiles.add_profile", raise_exception=True)
def typed_work(request: HttpRequest, pk: int) -> HttpResponse:
    """Keep an operator's shape that a person typed for a kernel of a trace, and go back to its roofline."""
    number = request.POST.get("kernel", "")
    kernel = get_object_or_404(KernelStat, profile_id=pk, pk=int(number) if number.isdecimal() and len(number) < 18 else 0)
    try:
        page_selectors.typed_set(kernel, operator=request.POST.get("operator", ""), dims=request.POST.get("dims", ""),
                           dtype=request.POST.get("dtype", ""))
        messages.success(request, "Saved." if request.POST.get("dims", "").strip() else "Forgotten.")
    except Refused as error:
        messages.error(request, f"Not saved: {error}.")
    return redirect(f"{reverse('roofline', args=[pk])}#typed")
