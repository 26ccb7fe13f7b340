"""Rows that one worker holds at a time: claimed by a conditional update, kept by a heartbeat, free again without one.

Imports nothing of ours, as `workers.jobs`. A feature's job is a `LeasedJob`: its columns beside what only it has, a `status`, and
`leases`, through which its rows are claimed, held, handed back and ended.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, ClassVar, Generic, TypeVar

from django.db.models import CharField, DateTimeField, F, IntegerField, JSONField, Model, Q, QuerySet, TextChoices
from django.db.models.functions import Greatest, Now
from django.utils import timezone

Row = TypeVar("Row", bound=Model)
BEAT_EVERY_S = 2.0
STALE_AFTER = timedelta(seconds=8)          # a running row whose heartbeat is older belongs to nobody
AHEAD_AT_MOST = timedelta(minutes=2)        # a heartbeat that lies further ahead is from before the clock was set back
FORGOTTEN_AFTER = timedelta(seconds=5)      # a waiting row this young may be on its way into the queue
NAME_CHARACTERS = 120                       # of a worker, in its column


class Superseded(Exception):
    """Another worker holds the row, or it has ended or is gone: stop without writing anything more."""


def is_alive() -> Q:
    """Match rows whose worker beat lately. Hosts' clocks differ: the database's alone writes and compares.

    A beat of the future is from before that clock was set back, and says nothing of now.
    """
    return Q(heartbeat__gte=Now() - STALE_AFTER, heartbeat__lte=Now() + AHEAD_AT_MOST)


def is_dead() -> Q:
    """Match rows whose worker gave no sign of life for too long."""
    return Q(heartbeat=None) | Q(heartbeat__lt=Now() - STALE_AFTER) | Q(heartbeat__gt=Now() + AHEAD_AT_MOST)


@dataclass(eq=False)
class Leases(Generic[Row]):
    """The leases of one kind of row: in state `waiting` it is free, in state `running` a worker holds it while it beats."""

    waiting: str
    running: str
    model: type[Row] = field(init=False)

    def contribute_to_class(self, model: type[Row], name: str) -> None:
        """Become the leases of the model that names them (Django's hook)."""
        self.model = model
        setattr(model, name, self)

    def is_lost(self) -> Q:
        """Match rows that a worker took and that nobody holds any more."""
        return Q(status=self.running) & is_dead()

    def is_free(self) -> Q:
        """Match rows that a worker may claim."""
        return Q(status=self.waiting) | self.is_lost()

    def claim(self, row_id: int, worker: str, /, *, free: Q | None = None, **fields: Any) -> bool:
        """Give the row to `worker`, count the attempt and set `fields`. False where it is not free (`free`: a rule of its own)."""
        return bool(self.model._default_manager.filter(self.is_free() if free is None else free, pk=row_id).update(
            status=self.running, worker=worker[:NAME_CHARACTERS], heartbeat=Now(), attempts=F("attempts") + 1, **fields))

    def rows_held_by(self, worker: str) -> QuerySet[Row]:
        """Return the rows that `worker` holds."""
        return self.model._default_manager.filter(status=self.running, worker=worker[:NAME_CHARACTERS])

    def write(self, row_id: int, worker: str, /, **fields: Any) -> bool:
        """Change the row while `worker` holds it; False when it no longer does."""
        return bool(self.rows_held_by(worker).filter(pk=row_id).update(**fields))

    def is_held(self, row_id: int, worker: str) -> bool:
        """Return whether `worker` still has the row: not stopped, ended, deleted or taken by another."""
        return self.rows_held_by(worker).filter(pk=row_id).exists()

    def lock(self, row_id: int, worker: str) -> Row | None:
        """Return the row, locked until the transaction ends; None where `worker` no longer holds it."""
        return self.rows_held_by(worker).select_for_update().filter(pk=row_id).first()

    def stop(self, row_id: int, status: str, /, **fields: Any) -> bool:
        """End a row that waits or runs, whoever holds it: its worker finds it no longer its own. False: it had ended already."""
        live = self.model._default_manager.filter(pk=row_id, status__in=(self.waiting, self.running))
        return bool(live.update(**{**self.ended(), "status": status, **fields}))

    def end(self, row_id: int, worker: str, status: str, /, **fields: Any) -> bool:
        """End a row that `worker` holds, now; False when it no longer does."""
        return self.write(row_id, worker, **{**self.ended(), "status": status, **fields})

    def ended(self) -> dict[str, Any]:
        """Return the columns of a row that ends now, but for its status."""
        has_finished = any(field.name == "finished" for field in self.model._meta.get_fields())
        return {"heartbeat": None, **({"finished": timezone.now()} if has_finished else {})}

    def hand_back(self, worker: str, row_id: int | None = None) -> list[int]:
        """Let rows wait again, as if `worker` had not taken them; by default all that it holds. Return their ids.

        A stop is nobody's fault: the attempt does not count.
        """
        mine = self.rows_held_by(worker) if row_id is None else self.rows_held_by(worker).filter(pk=row_id)
        ids = list(mine.values_list("pk", flat=True))
        mine.filter(pk__in=ids).update(
            status=self.waiting, worker="", heartbeat=None, attempts=Greatest(F("attempts") - 1, 0))
        return ids

    def abandoned_rows(self, woken: Collection[int] = ()) -> QuerySet[Row]:
        """Return rows that nobody holds and that no queue entry is to wake (`woken`: ids of those that have one)."""
        now = timezone.now()
        young = Q(created__gte=now - FORGOTTEN_AFTER, created__lte=now + FORGOTTEN_AFTER)      # later: before a clock was set back
        forgotten = Q(status=self.waiting) & ~young
        return self.model._default_manager.filter(self.is_lost() | forgotten).exclude(pk__in=woken)


class JobStatus(TextChoices):
    """How far a job is that people may cancel, and nothing else."""

    QUEUED = "queued"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


class LeasedRow(Model):
    """The columns of a row that one worker holds at a time."""

    worker = CharField(max_length=NAME_CHARACTERS, blank=True)
    heartbeat = DateTimeField(null=True)
    attempts = IntegerField(default=0)

    leases: ClassVar[Leases[Any]]

    class Meta:
        abstract = True


class LeasedJob(LeasedRow):
    """A leased row that is made, begun and ended once."""

    error = JSONField(null=True, blank=True)            # {"where", "what", "hint"}
    created = DateTimeField(auto_now_add=True)
    started = DateTimeField(null=True)
    finished = DateTimeField(null=True)

    class Meta:
        abstract = True
