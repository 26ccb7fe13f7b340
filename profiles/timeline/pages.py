"""The pages of timelines: one, and two with linked time axes."""

from __future__ import annotations

import re

from django.conf import settings
from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.views.decorators.http import require_safe

from profiles.library import selectors
from profiles.models import Profile
from profiles.profile import selectors as selectors_profile

LISTED = 200
_QUERIES = re.compile(r"[a-z0-9-]{1,40}(,[a-z0-9-]{1,40}){0,7}")        # of the team by number, examples by key


def has_timeline(profile: Profile) -> bool:
    return profile.status == Profile.Status.READY and profile.kind == Profile.Kind.TRACE


@require_safe
def timeline(request: HttpRequest, pk: int) -> HttpResponse:
    """What happened when? The viewer fetches tiles; only the frame comes from here. `?with=2` sets another one beside it."""
    profile = get_object_or_404(Profile, pk=pk)
    if not has_timeline(profile):
        return redirect("profile", profile.pk)
    if request.GET.get("with", "").isdecimal():
        return redirect("timelines", profile.pk, int(request.GET["with"][:18]))
    return _opening_perfetto(render(request, "profiles/timeline/timeline.html", {
        "profile": profile, "api": _api(profile, request.GET.get("sql", "")), "perfetto": settings.PERFETTO_URL,
        "others": selectors_profile.comparable_profiles(profile)[:LISTED]}))


def _opening_perfetto(response: HttpResponse) -> HttpResponse:
    """The page may talk to a tab that it opens (to hand a trace to Perfetto); nobody may do so to the page."""
    response["Cross-Origin-Opener-Policy"] = "same-origin-allow-popups"
    return response


def _api(profile: Profile, queries: str) -> str:
    """Where the viewer asks: the profile's addresses, or with `?sql=3,5` those that add results of saved queries as tracks."""
    own = reverse("api-profile", args=[profile.pk])
    return f"{own}sql/{queries}/" if _QUERIES.fullmatch(queries) else own


@require_safe
def timelines_choose(request: HttpRequest) -> HttpResponse:
    """`?a=1&b=2` or `?build_a=…&build_b=…` (the newest trace of each), as forms send it, to the address of the pair."""
    pair = []
    for side in "ab":
        pk, build = request.GET.get(side, ""), request.GET.get(f"build_{side}", "")
        if pk.isdecimal() and len(pk) < 19:
            pair.append(int(pk))
        elif build and (newest := selectors.build_profiles(build, Profile.Kind.TRACE).first()):
            pair.append(newest.pk)
        else:
            messages.error(request, f"Build {build} has no trace." if build else "Choose two profiles, or two builds with traces.")
            return redirect("build-list" if build else "compare")
    return redirect("timelines", *pair)


@require_safe
def timelines(request: HttpRequest, a: int, b: int) -> HttpResponse:
    """What differs between two runs, on one time axis?"""
    pair = [get_object_or_404(Profile, pk=pk) for pk in (a, b)]
    for profile in pair:
        if not has_timeline(profile):
            messages.error(request, f"{profile.name} has no timeline to set beside another.")
            return redirect("profile", profile.pk)
    return _opening_perfetto(render(request, "profiles/timeline/pair.html", {
        "a": pair[0], "b": pair[1], "swapped": reverse("timelines", args=[b, a]), "perfetto": settings.PERFETTO_URL}))
