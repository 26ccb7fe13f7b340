"""Batches come in, are acknowledged once they are stored, and merged into hours by a worker; days are summed of hours, months
of days.

Nothing counts twice: a batch is a row (agent, sequence) with the digest of its payload, and the transaction that writes its
sums takes its payload away. Nothing acknowledged is lost: the payload stays until then. Where the sums are in another database,
that transaction cannot hold both: there the batches of a merge are named first (`FleetBatch.merge`), and the store keeps the
rows of one name once.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Collection, Mapping
from datetime import timedelta
from typing import Any, TypedDict

import numpy as np
from django.conf import settings
from django.db import transaction
from django.db.models import F, QuerySet, Sum
from django.db.models.functions import Length
from django.utils import timezone

from profiles.fleet.agent_services import AgentConflict, agent_take, note_conflict, note_refused
from profiles.fleet.capture_services import OrderJson, exchange
from profiles.fleet.days import (
    DAY_HOURS,
    UNSUMMED,
    close_before,
    closed_before,
    closed_days,
    date_of,
    day_number,
    forget_days,
    month_of,
    months_to_sum,
)
from profiles.fleet.merge import merge
from profiles.fleet.models import FleetAgent, FleetBatch, FleetDay
from profiles.fleet.slow.compared_services import compare_rested
from profiles.fleet.stores import fleet_store
from profiles.rows import json_safe
from workers import clock, jobs
from workers.agent.wire import Batch, BatchRefused, unpack

log = logging.getLogger(__name__)
MOST_WAITING_BYTES = 2 << 30        # of batches that no worker merged yet: above it agents are asked to wait
MERGE_BYTES = 32 << 20              # of payloads in one merge
MERGE_BATCHES = 2000
MOST_DAYS = 62                      # that one batch may span
MOST_AHEAD_MINUTES = 10             # of the server's clock
RETRY_S = 30
MOST_LEVELS, MOST_STATE = 20, 200_000               # of what an agent says of itself
# of all rows of a batch: 2^58 ns are nine years of one GPU, and 32 such batches still fit one hour's column
MOST_SUMS = {"launches": 2.0**58, "total_ns": 2.0**58, "observed_ns": 2.0**58, "wall_ns": 2.0**58, "windows": 2.0**58,
             "estimate_launches": 1e24, "estimate_ns": 1e24, "square": 1e48, "log_sum": 1e24}
MERGE_AFTER_S, MERGE_BUSY_AFTER_S = 10, 30          # of waiting: many hosts' minutes are merged at once, more of them under load
BUSY_ROWS = 50_000
SETTLED = timedelta(minutes=10)     # after the last row of a day came, its day is summed
TASK = "fleet"


class FleetBusy(Exception):
    """More waits than workers merge: come again after `retry_s` seconds."""

    def __init__(self, retry_s: int) -> None:
        super().__init__(f"batches wait to be merged; come again in {retry_s} s")
        self.retry_s = retry_s


class MinutesRefused(BatchRefused):
    """Its minutes lie too far from now: the agent's clock is wrong, or it kept them for too long."""


class ReceiptJson(TypedDict):
    """A batch is stored; `duplicate`: it was before; `orders`: captures that its agent shall make."""

    sequence: int
    rows: int
    duplicate: bool
    orders: list[OrderJson]


def batch_receive(payload: bytes, token: Any = None) -> ReceiptJson:
    """Store a batch that an agent sends of what happens now (`batch_accept`); what is refused is counted beside the agent.

    Raises:
        BatchRefused, FleetBusy, AgentConflict: as `batch_accept`.
        MinutesRefused: minutes ahead of now, or from before what is kept of hours.
    """
    batch = unpack(payload)
    try:
        check_minutes(batch)
        return batch_accept(payload, token)
    except MinutesRefused as refused:
        note_refused(batch.agent, batch.state.get("machine"), token, str(refused))
        raise
    except AgentConflict as conflict:
        note_conflict(batch.agent, conflict)
        raise


def check_minutes(batch: Batch) -> None:
    """Raise MinutesRefused for minutes that are ahead of the server's clock, or older than hours are kept."""
    minutes = [table["minute"] for table in batch.tables.values() if table["minute"].size]
    if not minutes:
        return
    now_minute = int(clock.now_s()) // 60
    ahead = max(int(values.max()) for values in minutes) - now_minute
    old = now_minute - min(int(values.min()) for values in minutes)
    if ahead > MOST_AHEAD_MINUTES:
        raise MinutesRefused(f"it holds minutes {ahead:,} min ahead of the server's clock: is the host's clock right?")
    if old > settings.FLEET_KEEP_HOURS_DAYS * 1440:
        raise MinutesRefused(f"it holds minutes {old // 1440:,} days old: hours are kept for {settings.FLEET_KEEP_HOURS_DAYS} days "
                             "(RIDGEPOINT_FLEET_HOURS); is the host's clock right?")


def batch_accept(payload: bytes, token: Any = None) -> ReceiptJson:
    """Store a batch and return {"sequence", "rows", "duplicate", "orders"}: its receipt, and captures that its agent shall make.

    token   whose it is; None: a command feeds it

    Raises:
        BatchRefused: the bytes are no batch; sending them again does not help.
        FleetBusy: too much waits.
        AgentConflict: its agent's name is another token's, or its sequence was acknowledged with another content.
    """
    batch = unpack(payload)
    check_batch(batch)
    check_days(batch)
    digest = hashlib.sha256(payload).hexdigest()
    waiting = FleetBatch.objects.filter(payload__isnull=False).aggregate(bytes=Sum(Length("payload")))["bytes"] or 0
    if waiting > MOST_WAITING_BYTES:
        raise FleetBusy(RETRY_S)
    with transaction.atomic():
        agent = agent_take(batch.agent, batch.state.get("machine"), token)
        minutes = [table["minute"] for table in batch.tables.values() if table["minute"].size]
        newest_s = max(int(values.max()) for values in minutes) * 60 + 60 if minutes else None
        row, is_new = FleetBatch.objects.get_or_create(agent=agent, sequence=batch.sequence, defaults={
            "payload": payload, "rows": batch.rows, "sha256": digest})
        if not is_new and row.sha256 not in ("", digest):
            raise AgentConflict("sequence", f"batch {batch.sequence} of {batch.agent} was acknowledged with another content",
                                "two hosts use one spool's copy: give each its own; the agent sends this one under a new number")
        FleetAgent.objects.filter(pk=agent.pk).update(
            last_seen=timezone.now(), batches=F("batches") + int(is_new),
            received_bytes=F("received_bytes") + len(payload) * int(is_new),
            state=json_safe(batch.state), host=next((gpu.host for gpu in batch.gpus), "") or _host(batch.state) or agent.host,
            simulated=any(context.simulated for context in batch.contexts) or agent.simulated,
            lag_s=None if newest_s is None else max(0.0, clock.now_s() - newest_s))
        orders = exchange(agent, batch.state)
    return {"sequence": batch.sequence, "rows": batch.rows, "duplicate": not is_new, "orders": orders}


def _host(state: Mapping[str, Any]) -> str:
    host = state.get("host")
    return "".join(host.split("\0"))[:200] if isinstance(host, str) else ""


def check_batch(batch: Batch) -> None:
    """Refuse what is well formed and still no minutes of a host: sums of it could not be added to others, or shown.

    Raises:
        BatchRefused: it spans too long, its sums are negative or beyond what adds up, or its state is not small and plain.
    """
    minutes = [table["minute"] for table in batch.tables.values() if table["minute"].size]
    if minutes and max(int(values.max()) for values in minutes) - min(int(values.min()) for values in minutes) > MOST_DAYS * 1440:
        raise BatchRefused(f"its minutes span more than {MOST_DAYS} days")
    for name, table in batch.tables.items():
        for column, values in table.items():
            limit = MOST_SUMS.get(column)
            if limit is not None and values.size and not (column == "log_sum" or values.min() >= 0.0):
                raise BatchRefused(f"{name}.{column} is negative")
            if limit is not None and float(np.abs(values.astype(np.float64)).sum()) > limit:
                raise BatchRefused(f"{name}.{column} adds up to more than {limit:.0e}: no minutes of a host do")
    if _levels(batch.state) > MOST_LEVELS:
        raise BatchRefused(f"its state has more than {MOST_LEVELS} levels")
    try:
        if len(json.dumps(batch.state)) > MOST_STATE:
            raise BatchRefused(f"its state is longer than {MOST_STATE:,} characters")
    except TypeError as error:
        raise BatchRefused(f"its state is no JSON: {error}") from error


def check_days(batch: Batch) -> None:
    """Refuse rows of days whose finer rows are forgotten: their sum could not be made anew with these.

    Raises:
        BatchRefused: it holds such rows.
    """
    minutes = [table["minute"] for table in batch.tables.values() if table["minute"].size]
    days = np.unique(np.concatenate(minutes) // (DAY_HOURS * 60)).tolist() if minutes else []
    closed = closed_days(days)
    if closed:
        raise BatchRefused(f"it holds minutes of {date_of(closed[0])}: only the sum of that day or its month is kept by now "
                           "(RIDGEPOINT_FLEET_HOURS, RIDGEPOINT_FLEET_DAYS), and nothing can be added to it")


def is_shallow(state: Any) -> bool:
    """Return whether a document has no more levels than an agent's state may have."""
    return _levels(state) <= MOST_LEVELS


def _levels(state: Any) -> int:
    """Levels of a document, MOST_LEVELS and one more at most: never deeper than that into what was sent."""
    level, inside = 0, [state]
    while inside and level <= MOST_LEVELS:
        level += 1
        inside = [child for container in inside if isinstance(container, dict | list)
                  for child in (container.values() if isinstance(container, dict) else container)]
    return level


def merge_waiting(limit: int = MERGE_BATCHES) -> int:
    """Merge batches that wait, oldest first; return how many. Several workers may: each takes batches that no other has."""
    done, store = 0, fleet_store()
    while True:
        if not store.shares_transaction:
            _name_merge(limit)
        with transaction.atomic():
            rows = _take(limit) if store.shares_transaction else _take_named()
            if not rows:
                return done
            good: list[FleetBatch] = []
            batches: list[Batch] = []
            for row in rows:
                try:
                    batches.append(unpack(bytes(row.payload or b"")))
                    good.append(row)
                except BatchRefused as error:       # it was read when it came: the format changed since, or the disk lies
                    FleetBatch.objects.filter(pk=row.pk).update(error=str(error)[:300])
                    log.error("fleet batch %s: %s", row.pk, error)
            if batches:
                store.write(merge(batches), "" if store.shares_transaction else f"merge-{rows[0].merge}")
                FleetBatch.objects.filter(pk__in=[row.pk for row in good]).update(payload=None)
        done += len(good)


def _waiting() -> QuerySet[FleetBatch]:
    return FleetBatch.objects.filter(payload__isnull=False, error="")


def _take(limit: int, waiting: QuerySet[FleetBatch] | None = None) -> list[FleetBatch]:
    rows = (_waiting() if waiting is None else waiting).order_by("pk").select_for_update(skip_locked=True)
    chosen: list[int] = []
    size = 0
    for pk, length in rows.values_list("pk", Length("payload"))[:limit]:
        size += length
        if chosen and size > MERGE_BYTES:
            break
        chosen.append(pk)
    return list(FleetBatch.objects.filter(pk__in=chosen).order_by("pk"))


@transaction.atomic
def _name_merge(limit: int) -> None:
    """Put batches that wait into a merge of their own, unless one that nobody works at is there already: that comes first."""
    if _waiting().filter(merge__isnull=False).select_for_update(skip_locked=True).values_list("pk", flat=True)[:1]:
        return
    rows = _take(limit, _waiting().filter(merge=None))
    if rows:
        FleetBatch.objects.filter(pk__in=[row.pk for row in rows]).update(merge=rows[0].pk)


def _take_named() -> list[FleetBatch]:
    """The batches of the oldest merge that nobody works at. Its first batch stands for it: who locks that has them all."""
    named = _waiting().filter(merge=F("pk")).order_by("pk").select_for_update(skip_locked=True).first()
    return [] if named is None else list(_waiting().filter(merge=named.pk).order_by("pk").select_for_update())


def wake_fleet(queued: Collection[int]) -> list[int]:
    """Enqueue a merge where batches waited long enough, or days or months are to be summed; return the batch that woke it, or 0."""
    if queued:
        return []
    waiting = _waiting()
    oldest = waiting.order_by("pk").first()
    if oldest is not None:
        waited_s = (timezone.now() - oldest.received).total_seconds()      # below 0: the clock was set back
        busy = waited_s < MERGE_BUSY_AFTER_S and (waiting.aggregate(rows=Sum("rows"))["rows"] or 0) > BUSY_ROWS
        if waited_s < 0 or waited_s >= (MERGE_BUSY_AFTER_S if busy else MERGE_AFTER_S):
            jobs.enqueue(jobs.SMALL, TASK, oldest.pk)
            return [oldest.pk]
    elif days_to_sum() or months_to_sum(day_number(timezone.now().date())):
        jobs.enqueue(jobs.SMALL, TASK, 0)
        return [0]
    return []


def days_to_sum(now: Any = None) -> list[int]:
    """Return days whose rows changed since they were summed, and rest since SETTLED."""
    before = (now or timezone.now()) - SETTLED
    rows = FleetDay.objects.filter(UNSUMMED, written__lt=before)
    return [day_number(day) for day in rows.order_by("day").values_list("day", flat=True)]


def fleet_tend() -> list[int]:
    """Sum days and months that rest, join parts of hours that ended, compare their GPUs, forget what is older than kept.

    Returns the days summed.
    """
    days, store = days_to_sum(), fleet_store()
    if days:
        store.roll_up(days)
    today = day_number(timezone.now().date())
    months = months_to_sum(today)
    if months:
        store.roll_up_months(months)
    ended = int((timezone.now() - SETTLED).timestamp()) // 3600         # hours that still fill stay as they are
    for row in FleetDay.objects.filter(UNSUMMED, compacted__lt=ended).order_by("day"):
        day = day_number(row.day)
        if row.compacted < min(ended, (day + 1) * DAY_HOURS) and ended > day * DAY_HOURS:
            store.compact(day, ended)
    compare_rested(ended, timezone.now() - SETTLED)
    _forget_old(today)
    return days


def _forget_old(today: int) -> None:
    """Forget hours and days that coarser sums hold, and months: each level once no row can come that its sum would need.

    A day is closed first, and its hours go in a later turn, when every batch that was accepted before is merged.
    """
    now, store = timezone.now(), fleet_store()
    waits = FleetBatch.objects.filter(payload__isnull=False, error="", received__lt=now - SETTLED).exists()
    keep_hours = settings.FLEET_KEEP_HOURS_DAYS                         # a coarser level is kept as long at least
    keep_days = max(keep_hours, settings.FLEET_KEEP_DAYS_DAYS)
    for level, keep in (("hour", keep_hours), ("day", keep_days)):
        until = _kept_from(today, keep)
        close_before(level, until, now)
        if not waits:
            store.drop_before(level, closed_before(level, until, now - SETTLED) * (DAY_HOURS if level == "hour" else 1))
    until = month_of(_kept_from(today, max(keep_days, settings.FLEET_KEEP_MONTHS_DAYS)))
    store.drop_before("month", until)
    forget_days(map(day_number, FleetDay.objects.filter(day__lt=date_of(until)).values_list("day", flat=True)))
    FleetBatch.objects.filter(payload=None, received__lt=now - timedelta(days=keep_hours)).delete()


def _kept_from(today: int, keep: int) -> int:
    """Return the first day that is kept: one that was fed late is kept as long as one of today."""
    rows = FleetDay.objects.filter(written__gte=timezone.now() - timedelta(days=keep)).order_by("day")
    first = rows.values_list("day", flat=True).first()
    return min(today - keep, day_number(first) if first else today)
