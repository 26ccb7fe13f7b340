"""Which waiting row is taken next: projects take turns, whatever one of them has queued.

A queue entry only wakes a worker. The row is that of the project with the fewest rows at work, then of the one that was served
longest ago, then the oldest. When a project was served is kept in Valkey; without it (it was emptied) the oldest row is next.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from django.db.models import Count, Q

from workers import jobs
from workers.leases import Leases

_SERVED, _TAKEN = "ridgepoint:served:{}", "ridgepoint:taken:{}:{}"
_TAKEN_MS = 5000            # between the choice and the claim no other worker chooses the same row
MOST = 1000                 # projects that wait at once
MOST_TAKEN = 64             # rows of a project that other workers choose at this moment


def next_row(leases: Leases[Any], task: str, row_id: int, among: Q | None = None) -> int:
    """Return the id of the row that a worker takes now, woken for `row_id`: that one where no other (of `among`) waits."""
    client = jobs.connection()
    rows = leases.model._base_manager
    free = rows.filter(leases.is_free()).filter(among or Q())
    running = Counter(dict(_counts(rows.filter(status=leases.running))))
    waiting = list(free.order_by("project", "created", "pk").distinct("project").values_list("project", "created", "pk")[:MOST])
    served = {int(project): float(moment) for project, moment in client.hgetall(_SERVED.format(task)).items()}     
    for project, _, first in sorted(waiting, key=lambda row: (running[row[0]], served.get(row[0], 0.0), row[1], row[2])):
        others = free.filter(project=project).exclude(pk=first).order_by("created", "pk").values_list("pk", flat=True)
        for pk in (first, *others[:MOST_TAKEN]):
            if jobs.take_turn(_TAKEN.format(task, pk), _TAKEN_MS):
                seconds, parts = client.time()
                client.hset(_SERVED.format(task), str(project), f"{seconds}.{parts:06}")
                return int(pk)
    return row_id


def _counts(rows: Any) -> Sequence[tuple[int, int]]:
    return list(rows.order_by().values("project").annotate(n=Count("pk")).values_list("project", "n"))
