"""In what order builds came, and whether one holds the code of another.

Builds of one branch follow each other by their time. `main`, `master`, `trunk` and no branch at all are one line. What a branch
took from another is told by parents; without them nothing is known, and the answer says so.
"""

from __future__ import annotations

from django.db import connection

from tuner.models import Build

MAIN = ("", "main", "master", "trunk")
MOST_ANCESTORS = 500
_ANCESTORS = """
    WITH RECURSIVE up(id, parent, depth) AS (
        SELECT id, parent, 0 FROM tuner_build WHERE id = %s
        UNION
        SELECT b.id, b.parent, up.depth + 1 FROM tuner_build b JOIN up ON b.name = up.parent
        WHERE up.parent <> '' AND up.depth < %s
    ) SELECT DISTINCT id FROM up"""


def line(build: Build) -> str:
    """The branch that a build stands on; "": the main line."""
    return "" if build.branch in MAIN else build.branch


def position(build: Build) -> tuple[float, int]:
    """Sorts builds: commit time, then in the order they became known."""
    return build.at.timestamp(), build.pk


def holds(build: Build, other: Build) -> bool | None:
    """Whether `build` has the code of `other` in it; None where nobody said what it was made from."""
    if line(build) == line(other):
        return position(other) <= position(build)
    if line(build) == "":
        return other.pk in ancestor_ids(build)           # a branch that was merged, as far as parents tell
    ancestors = list(Build.objects.filter(pk__in=ancestor_ids(build)))
    if any(each.pk == other.pk for each in ancestors):
        return True
    shared = [position(each) for each in ancestors if line(each) == line(other)]
    if shared:
        return position(other) <= max(shared)
    return None if position(other) <= position(build) else False


def ancestor_ids(build: Build) -> set[int]:
    """The build and what it was made from, as far as rows say, at most MOST_ANCESTORS steps."""
    with connection.cursor() as cursor:
        cursor.execute(_ANCESTORS, [build.pk, MOST_ANCESTORS])
        return {row[0] for row in cursor.fetchall()}
