"""Send deliveries that are due: destinations side by side, tried again at growing intervals.

A try moves `due` ahead before it begins, so a worker that dies leaves a row that comes due again: a message may arrive twice, and
its `delivery` id tells. Destinations do not wait for each other; one that does not answer is asked at most every 30 s, however
many messages wait for it.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from datetime import timedelta
from typing import Any

from django.db.models import F
from django.utils import timezone

from profiles.base.refused import Refused
from tuner.gate.channels.kinds import KINDS
from tuner.gate.channels.kinds.kind import ChannelKind, Message
from tuner.models import Delivery
from tuner.tuning.trial import cleaned
from workers import jobs
from workers.outgoing import NotSent
from workers.secret import Unreadable, unseal

log = logging.getLogger(__name__)
QUEUE, TASK = "messages", "notify"
WAITS = (timedelta(seconds=30), timedelta(minutes=2), timedelta(minutes=10), timedelta(hours=1), timedelta(hours=6))
LEASE = timedelta(minutes=3)                           # more than a try can take
AT_ONCE = timedelta(seconds=5)                         # so young, a message may be on its way into the queue
MAX_TRIES = len(WAITS) + 4                             # those that took their worker down included
KEPT_FOR = timedelta(days=90)
SIDE_BY_SIDE = 16                                      # places that are asked at the same time
LOOK_S = 0.5                                           # how often those at work look for what was written meanwhile
DeliveryFields = dict[str, Any]                               # fields of the row after a try


def wake_sender(delivery_id: int) -> None:
    """Wake a worker on commit for what is due; where Redis is away the sweep finds it."""
    jobs.enqueue_on_commit(QUEUE, TASK, delivery_id)


def wake_due_deliveries(waiting: Collection[int] = ()) -> list[int]:
    """Wake a worker by the longest due message where no entry does; return its id. Whoever takes it takes all."""
    due = Delivery.objects.filter(status="waiting", due__lte=timezone.now() - AT_ONCE).order_by("due")
    ids = [] if waiting else list(due.values_list("pk", flat=True)[:1])
    for pk in ids:
        jobs.enqueue(QUEUE, TASK, pk)
    return ids


def retry_delivery(row: Delivery) -> bool:
    """Try a message again from the first wait on; False where it is under way."""
    again = Delivery.objects.filter(pk=row.pk).exclude(status="waiting", due__gt=timezone.now())
    if not again.update(status="waiting", tries=0, due=timezone.now(), error=""):
        return False
    wake_sender(row.pk)
    return True


def send_deliveries() -> list[int]:
    """Try every message that is due, and those written meanwhile; return their ids.

    Rows are read and written by this thread, the others only send: they hold no connection to the database.
    """
    tried: list[int] = []
    going: dict[Future[DeliveryFields], Delivery] = {}
    with ThreadPoolExecutor(SIDE_BY_SIDE, "send") as pool:
        while True:
            for row in _claim({delivery.to_id for delivery in going.values()}, SIDE_BY_SIDE - len(going)):
                going[pool.submit(_try_delivery, row)] = row
                tried.append(row.pk)
            if not going:
                break
            for future in wait(going, LOOK_S, FIRST_COMPLETED).done:
                _store_outcome(going.pop(future), future.result())
    Delivery.objects.filter(created__lt=timezone.now() - KEPT_FOR).delete()
    return tried


def _claim(busy: Collection[int], most: int) -> list[Delivery]:
    """Return, for each free destination, the message due first; another worker's are left to it."""
    now = timezone.now()
    due = Delivery.objects.filter(status="waiting", due__lte=now)
    first = due.exclude(to__in=busy).order_by("to_id", "due", "pk").distinct("to_id").values_list("due", "pk")
    mine = [pk for _, pk in sorted(first)[:most] if due.filter(pk=pk).update(due=now + LEASE, tries=F("tries") + 1)]
    return list(Delivery.objects.filter(pk__in=mine).select_related("to"))


def _try_delivery(row: Delivery) -> DeliveryFields:
    """Return the fields of a delivery after one try."""
    try:
        if row.tries > MAX_TRIES:
            raise NotSent("workers died over it", final=True)
        if not row.to.enabled and row.event != "test":
            raise NotSent("it was switched off before this could be sent", final=True)
        kind = KINDS[row.to.kind]
        status, answer = kind.send(_message(row, kind))
    except Refused as error:
        return {"status": "failed", "error": str(error)}
    except NotSent as error:
        final = error.final or row.tries > len(WAITS)
        return {"status": "failed" if final else "waiting", "error": str(error),
                "due": None if final else timezone.now() + WAITS[row.tries - 1]}
    except Exception as error:                          # a fault of ours: the others' outcomes are still to be written
        log.exception("delivery %s could not be sent", row.pk)
        return {"status": "failed", "error": f"unexpected {type(error).__name__}: {error}"}
    return {"status": status, "answer": answer, "sent": timezone.now()}


def _message(row: Delivery, kind: ChannelKind) -> Message:
    try:
        secret = unseal(row.to.secret) if kind.signed else ""
    except Unreadable as error:
        raise NotSent(str(error), final=True) from error
    return Message(row.body, row.to.address, secret, row.pk, row.tries)


def _store_outcome(row: Delivery, outcome: DeliveryFields) -> None:
    """Written as it is; where the place is to be asked later, its other messages wait for that as well.

    Somebody may have removed the place meanwhile: then there is no row to write to.
    """
    for name, value in {"due": None, "error": "", "answer": "", "sent": None, **outcome}.items():
        setattr(row, name, value)
    row.error, row.answer = cleaned(row.error)[:300], cleaned(row.answer)[:120]
    fields = ("status", "due", "error", "answer", "sent")
    Delivery.objects.filter(pk=row.pk).update(**{name: getattr(row, name) for name in fields})
    if row.status == "waiting":
        calm = timezone.now() + WAITS[0]
        Delivery.objects.filter(to=row.to_id, status="waiting", due__lt=calm).exclude(pk=row.pk).update(due=calm)
    if row.error:
        log.warning("delivery %s to %s: %s at try %s; the page says why", row.pk, row.to.kind, row.status, row.tries)
    jobs.publish("notified", "delivery", {"id": row.pk, "to": row.to_id, "status": row.status})
