"""What can be put side by side, to choose from: profiles and builds, searched and bounded, the likeliest first."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from django.contrib.postgres.aggregates import ArrayAgg
from django.db.models import Case, Count, IntegerField, Max, Q, QuerySet, Value, When

from profiles.base.answers import Choice
from profiles.models import Profile

LISTED = 100             # options of a form, which works without a script
FOUND = 30               # answers to a search
WORDS, CHARACTERS = 6, 200


def profile_choices(find: str = "", beside: str = "", kind: str = "", limit: int = FOUND) -> list[Choice]:
    """Return ready profiles that have every word of `find`; those most like the profile `beside` (an id) first, then the newest."""
    rows = _with_words(_ready(), find, ("name", "build", "gpu", "model", "kind"))
    rows = rows.filter(kind=kind) if kind else rows
    other = Profile.objects.filter(pk=int(beside)).first() if beside.isdecimal() and len(beside) < 19 else None
    if other is not None:
        rows = rows.exclude(pk=other.pk).annotate(like=_likeness(other)).order_by("-like", "-created", "-pk")
    return [profile_choice(row) for row in rows[:limit]]


def build_choices(find: str = "", beside: str = "", limit: int = FOUND) -> list[Choice]:
    """Return builds that have ready profiles and every word of `find`, the newest first."""
    rows = _with_words(_ready().exclude(build=""), find, ("build", "gpu", "model"))
    builds = rows.exclude(build=beside).order_by().values("build").annotate(
        newest=Max("created"), profiles=Count("pk"), gpus=ArrayAgg("gpu", distinct=True)).order_by("-newest", "build")[:limit]
    return [Choice(row["build"], row["build"], _note([
        ", ".join(filter(None, row["gpus"])), f"{row['profiles']} profile{'s' * (row['profiles'] != 1)}",
        f"{row['newest']:%Y-%m-%d}"])) for row in builds]


def profile_choice(profile: Profile) -> Choice:
    """Return a profile as a line of a list."""
    return Choice(str(profile.pk), profile.name, _note([
        profile.build[:14], profile.gpu, profile.kind, f"{profile.created:%Y-%m-%d %H:%M}"]))


def likely_pair() -> tuple[str, str]:
    """Return the ids of the newest profile and of the newest before it that is most like it, older first; "" for none."""
    newest = _ready().first()
    if newest is None:
        return "", ""
    older = _ready().exclude(pk=newest.pk).filter(kind=newest.kind, gpu=newest.gpu).exclude(sha256=newest.sha256)
    before = older.annotate(like=_likeness(newest)).order_by("-like", "-created").first()
    return (str(before.pk), str(newest.pk)) if before else ("", "")


def form_choices(query: Mapping[str, str]) -> dict[str, Any]:
    """Return what the form offers and what stands in it: what `query` names, else the pair that is likeliest."""
    named = any(query[name] for name in ("a", "b", "build_a", "build_b"))
    left, right = (query["a"], query["b"]) if named else likely_pair()
    builds = build_choices(limit=LISTED)
    chosen = [name for name in (query["build_a"], query["build_b"]) if name and name not in {build.value for build in builds}]
    newest = [build.value for build in builds[:2]]
    left_build, right_build = (query["build_a"], query["build_b"]) if named or len(newest) < 2 else (newest[1], newest[0])
    return {"profiles": with_chosen(profile_choices(limit=LISTED), (left, right)), "left": left, "right": right,
            "builds": [*builds, *(Choice(name, name, "") for name in chosen)], "left_build": left_build, "right_build": right_build,
            "by_build": bool(query["build_a"] or query["build_b"])}


def with_chosen(choices: list[Choice], values: Iterable[str]) -> list[Choice]:
    """Return the choices with those of `values` (ids of profiles) that they lack: what is chosen always stands in the list."""
    lacking = {int(value) for value in values if value.isdecimal() and len(value) < 19} - {int(choice.value) for choice in choices}
    return [*choices, *(profile_choice(row) for row in _ready().filter(pk__in=lacking))] if lacking else choices


def _ready() -> QuerySet[Profile]:
    return Profile.objects.filter(status=Profile.Status.READY).exclude(kind=Profile.Kind.UNKNOWN).order_by("-created", "-pk")


def _with_words(rows: QuerySet[Profile], find: str, fields: Iterable[str]) -> QuerySet[Profile]:
    names = list(fields)
    for word in find[:CHARACTERS].split()[:WORDS]:
        anywhere = Q()
        for name in names:
            anywhere |= Q(**{f"{name}__icontains": word})
        rows = rows.filter(anywhere)
    return rows


def _likeness(other: Profile) -> Any:
    """Points for the same kind, GPU, model and name: what can be compared stands first."""
    def points(number: int, **same: str) -> Case:
        return Case(When(**same, then=Value(number)), default=Value(0), output_field=IntegerField())

    total = points(8, kind=other.kind) + points(4, gpu=other.gpu) + points(1, name=other.name)
    return total + points(2, model=other.model) if other.model else total


def _note(parts: Iterable[str]) -> str:
    return " · ".join(part for part in parts if part)
