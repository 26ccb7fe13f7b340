"""The roofline page: of one profile, or of several together."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.http import require_safe

from profiles.charts.figure_cache import cached_figure
from profiles.charts.roofline import roofline_figure
from profiles.models import Profile
from profiles.rooflines.page_selectors import choosable, roofline_page
from profiles.rooflines.selectors import requested_profiles


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
    others = [each for each in choosable() if each.pk not in {shown.pk for shown in profiles}]
    return render(request, "profiles/kernel/roofline.html", page | {
        "figure": figure, "others": others, "profile": profile or (profiles[0] if profiles else None), "own": profile is not None,
        "has_counters": profile is None or profile.kind == Profile.Kind.COUNTERS})
