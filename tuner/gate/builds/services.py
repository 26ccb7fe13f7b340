"""A build is known once somebody names it: CI, a profile, a run. What is said of it later adds to the row."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import urlsplit

from django.db.models import Min, Q
from django.utils import timezone

from profiles.base.refused import Refused
from profiles.models import Profile
from tuner.models import Build
from tuner.tuning.trial import storable
from workers import jobs

NAME_CHARS = 80
TEXTS = {"branch": 120, "title": 300, "author": 120, "url": 500}       # field -> characters that its column holds
MAIN_REFS = ("main", "master", "trunk")
MOST_ANCESTORS, MOST_REFS = 100, 50
EARLIEST = datetime(1990, 1, 1, tzinfo=UTC)
NO_COMMIT_TIME = "when the build was committed: after 1990, and not in the future"
AHEAD = timedelta(days=1)          # of a committer's clock
STEP = timedelta(milliseconds=1)
SERIES_QUEUE, SERIES_TASK = jobs.SMALL, "series"        # what works out a suite's changes over its builds


def ensure_build(name: str, *, parent: str = "", branch: str = "", title: str = "", author: str = "", url: str = "",
               at: datetime | None = None, side: bool = False, ancestors: Sequence[str] = ()) -> Build:
    """Return the row of a build, made when it is new. What is given replaces what was known, the rest stays.

    at: when it was committed. A build without it stands where it was first seen, after its parents and before its children, in
    whatever order they become known.
    branch: a build has several; one that is on the main line stays there whatever tag or branch holds it too.
    ancestors: first parents by name, nearest first.
    side: no state of the team's code but a configuration of the cache: such rows show nowhere among builds.
    Raises Refused for a name that no build can have, or a field that cannot be stored. Safe to call twice at once.
    """
    name, parent = _name("build", name), _name("parent", parent) if parent else ""
    ancestors = [_name("ancestors", ancestor) for ancestor in list(ancestors)[:MOST_ANCESTORS]]
    parent = parent or (ancestors[0] if ancestors else "")
    branch = branch_name(branch) if isinstance(branch, str) else branch
    facts: dict[str, Any] = {key: _text(key, value) for key, value in
                             {"branch": branch, "title": title, "author": author, "url": url}.items() if value}
    facts |= {"parent": parent} if parent and parent != name else {}
    facts |= {"at": _moment(at)} if at is not None else {}
    row: Build
    facts |= {"ancestors": ancestors} if ancestors else {}
    if "at" in facts and (before := _nearest_parent("", ancestors)) is not None:
        facts["at"] = max(facts["at"], before + STEP)             # parents decide: clocks of committers and of this server may not
    refs = [facts["branch"]] if "branch" in facts else []
    row, is_new = Build.everything.get_or_create(
        name=name, defaults={"at": facts.get("at") or _first_seen(name, parent, ancestors), "side": side, "refs": refs, **facts})
    if row.side != side:
        raise Refused({"build": f"{name} is what the config cache calls a side of its own measurements; choose another name"})
    if not is_new and refs:
        facts["refs"] = [*row.refs, *(ref for ref in refs if ref not in row.refs)][-MOST_REFS:]
        if any(ref in MAIN_REFS for ref in [*row.refs, row.branch]) and facts["branch"] not in MAIN_REFS:
            del facts["branch"]
    if not is_new and (changed := [key for key, value in facts.items() if getattr(row, key) != value]):
        for key in changed:
            setattr(row, key, facts[key])
        row.save(update_fields=changed)
    return row


def branch_name(branch: str) -> str:
    """Return a branch without where it was fetched from: "origin/main" and "refs/heads/main" are main."""
    name = branch.strip()
    for prefix in ("refs/heads/", "refs/remotes/origin/", "remotes/origin/", "origin/"):
        name = name.removeprefix(prefix)
    return name


def queue_series(suite_id: int) -> None:
    """Have a worker work out a suite's changes anew, once its new runs are committed. Any number of calls do no harm."""
    jobs.enqueue_on_commit(SERIES_QUEUE, SERIES_TASK, suite_id)


def build_of_profile(profile_id: int) -> Build | None:
    """Return the row of the build that a profile names; None where it names none that can be one."""
    name = Profile.objects.filter(pk=profile_id).values_list("build", flat=True).first()
    try:
        return ensure_build(name) if name else None
    except Refused:
        return None


def _nearest_parent(parent: str, ancestors: Sequence[str]) -> datetime | None:
    """Return where the nearest parent that is known stands."""
    names = [parent, *ancestors]
    times = dict(Build.objects.filter(name__in=[name for name in names if name]).values_list("name", "at"))
    return next((times[name] for name in names if name in times), None)


def _first_seen(name: str, parent: str, ancestors: Sequence[str]) -> datetime:
    """When the oldest profile of the build came, else now; after its nearest known parent, before what was made from it."""
    moment = Profile.objects.filter(build=name).aggregate(first=Min("created"))["first"] or timezone.now()
    children = Build.objects.filter(Q(parent=name) | Q(ancestors__contains=[name])).exclude(name=name)
    child = children.aggregate(first=Min("at"))["first"]
    if child is not None and moment >= child:
        moment = child - STEP
    before = _nearest_parent(parent, ancestors)
    if before is None or before < moment:
        return moment
    return before + (child - before) / 2 if child is not None and child > before else before + STEP


def _name(field: str, value: object) -> str:
    if not isinstance(value, str) or not value.strip():
        raise Refused({field: "a commit's sha, or a name"})
    name = value.strip()
    if len(name) > NAME_CHARS or not storable(name) or not name.isprintable():
        raise Refused({field: f"at most {NAME_CHARS} printable characters"})
    if name in {".", ".."} or any(part in {".", ".."} for part in name.split("/")) or name.startswith("/") or name.endswith("/"):
        raise Refused({field: "a name, not a path: no \".\" or \"..\" between slashes, no slash at an end"})
    return name


def _text(field: str, value: object) -> str:
    if not isinstance(value, str) or not storable(value):
        raise Refused({field: "a text of plain characters"})
    if field == "url":
        return _url(value.strip())
    return value.strip()[:TEXTS[field]]


def _url(value: str) -> str:
    try:
        parts = urlsplit(value)
        good = parts.scheme in {"http", "https"} and bool(parts.hostname)
    except ValueError:
        good = False
    if not good or len(value) > TEXTS["url"] or not value.isprintable() or " " in value:
        raise Refused({"url": f"an address that begins with http:// or https://, at most {TEXTS['url']} characters"})
    return value


def _moment(value: object) -> datetime:
    if not isinstance(value, datetime):
        raise Refused({"at": "a date and time, as 2026-11-21T18:30:00+00:00"})
    moment = value if timezone.is_aware(value) else value.replace(tzinfo=UTC)
    try:
        good = EARLIEST <= moment <= timezone.now() + AHEAD
    except OverflowError:
        good = False
    if not good:
        raise Refused({"at": NO_COMMIT_TIME})
    return moment
