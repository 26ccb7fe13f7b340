"""All builds: those that have rows and those that only profiles name, newest first, with what is known of each."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from django.db.models import Count, Q

from profiles.models import Profile
from profiles.selectors.builds import build_heat
from profiles.selectors.lists import build_list
from tuner.models import Build, Gate, KernelRun, Regression

__all__ = ["build_heat", "build_json", "find", "names", "row_json", "rows"]
WATCHED = (Regression.State.OPEN, Regression.State.ACKNOWLEDGED)


def names(text: str = "", branch: str = "", profiled: bool = False) -> list[tuple[str, datetime]]:
    """(name, time) of every build, newest first; `text` is part of its name or title; `profiled`: only those with profiles."""
    found = Build.objects.all()
    if profiled:
        found = found.filter(name__in=[group["build"] for group in build_list()])
    if text and "\0" not in text:
        found = found.filter(Q(name__icontains=text) | Q(title__icontains=text))
    if branch and "\0" not in branch:
        found = found.filter(branch=branch)
    known = list(found.order_by("-at", "-pk").values_list("name", "at"))
    if branch:
        return known
    here = set(Build.objects.values_list("name", flat=True)) if text or profiled else {name for name, _ in known}
    only = [(group["build"], group["first"]) for group in build_list()
            if group["build"] not in here and text.lower() in group["build"].lower()]
    return sorted([*known, *only], key=lambda each: each[1], reverse=True)


def rows(page: list[tuple[str, datetime]]) -> list[dict[str, Any]]:
    """What is known of the builds of one page of the list: a handful of queries for all of them."""
    wanted = [name for name, _ in page]
    known = {build.name: build for build in Build.objects.filter(name__in=wanted)}
    profiles = {group["build"]: group for group in build_list(wanted)}
    of = {build.pk: name for name, build in known.items()}
    runs = {of[build]: count for build, count in KernelRun.objects.filter(build__in=of, rejected="").order_by()
            .values_list("build").annotate(count=Count("pk"))}
    verdicts: dict[str, Gate] = {}
    for gate in Gate.objects.filter(build__name__in=wanted).exclude(verdict="").select_related("build", "suite").order_by("pk"):
        verdicts[gate.build.name] = gate
    slower = dict(Regression.objects.filter(build__name__in=wanted, state__in=WATCHED).order_by().values_list("build__name")
                  .annotate(count=Count("pk")))
    return [{"name": name, "at": at, "build": known.get(name), "profiles": profiles.get(name), "runs": runs.get(name, 0),
             "gate": verdicts.get(name), "regressions": slower.get(name, 0)} for name, at in page]


def find(name: str) -> Build | None:
    """The build, also one that only profiles name: then it has no row, and no id."""
    if "\0" in name or any("\ud800" <= char <= "\udfff" for char in name):
        return None
    build = Build.objects.filter(name=name).first()
    if build is not None:
        return build
    first = Profile.objects.filter(build=name).order_by("created").first() if name else None
    return Build(name=name, at=first.created) if first else None


def build_json(build: Build) -> dict[str, Any]:
    return {"name": build.name, "parent": build.parent, "branch": build.branch, "title": build.title, "author": build.author,
            "url": build.url, "at": build.at.isoformat()}


def row_json(row: Mapping[str, Any]) -> dict[str, Any]:
    build, gate, profiles = row["build"], row["gate"], row["profiles"]
    return {**(build_json(build) if build else {"name": row["name"], "at": row["at"].isoformat()}), "kernel_runs": row["runs"],
            "profiles": profiles["profiles"] if profiles else 0, "open_regressions": row["regressions"],
            "gate": {"id": gate.pk, "suite": gate.suite.name, "verdict": gate.verdict} if gate else None}
