"""The frame of a profile's pages: the tabs that it has, its chips and its actions. A new tab is a line in `TABS`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from django.urls import reverse

from profiles.models import Profile
from profiles.profile.selectors import comparable_profiles, profile_row
from profiles.topics.selectors import topics_of
from profiles.topics.table import TOPICS

COMPARABLE = 50                 # profiles that the menu offers to compare with


@dataclass(frozen=True)
class Tab:
    """A tab of the bar."""

    title: str
    url: str
    is_current: bool = False


@dataclass(frozen=True)
class _Page:
    """A page that a profile may have, or several; `tabs` takes the profile, the title and the current path."""

    title: str
    tabs: Callable[[Profile, str, str], list[Tab]]


def _route(name: str, has: Callable[[Profile], bool]) -> Callable[[Profile, str, str], list[Tab]]:
    return lambda profile, title, path: [Tab(title, reverse(name, args=[profile.pk]))] if has(profile) else []


def _analyses(profile: Profile, title: str, path: str) -> list[Tab]:
    """One tab for each analysis that has something to say of this trace, and for the one that is open."""
    applying = topics_of(profile)
    pairs = ((topic, reverse("topic", args=[profile.pk, topic.name])) for topic in TOPICS)
    return [Tab(topic.title, url) for topic, url in pairs if topic in applying or url == path]


def _sql(profile: Profile, title: str, path: str) -> list[Tab]:
    return [Tab(title, f"{reverse('sql')}?profiles={profile.pk}")]


TABS = (
    _Page("Overview", _route("profile", lambda profile: True)),
    _Page("Timeline", _route("timeline", lambda profile: profile.kind == Profile.Kind.TRACE)),
    _Page("Kernels", _route("profile-kernels", lambda profile: bool(profile.launches or profile.gpu_time_ns))),
    _Page("Analyses", _analyses),
    _Page("Roofline", _route("roofline", lambda profile: profile.kind == Profile.Kind.COUNTERS or (
        profile.kind == Profile.Kind.TRACE and bool(profile.launches)))),
    _Page("SQL", _sql),
    _Page("Report", _route("report", lambda profile: True)),
)


def tabs(profile: Profile, path: str) -> list[Tab]:
    """Return the tabs of a ready profile, that of `path` marked: the one with the longest address that `path` begins with."""
    if profile.status != Profile.Status.READY:
        return []
    choices = [tab for page in TABS for tab in page.tabs(profile, page.title, path)]
    current = max((tab for tab in choices if path.startswith(_path(tab))), key=lambda tab: len(_path(tab)), default=None)
    return [Tab(tab.title, tab.url, tab is current) for tab in choices]


def _path(tab: Tab) -> str:
    return tab.url.partition("?")[0]


def header(profile: Profile) -> dict[str, Any]:
    """Return what the chips and the menu of actions show, the same on every page of the profile."""
    others = comparable_profiles(profile).only("pk", "name", "build")[:COMPARABLE] if (
        profile.status == Profile.Status.READY and profile.kind != Profile.Kind.SUMMARY) else []
    return {"profile": profile, "row": profile_row(profile), "others": others}
