"""Who is told, and what became of it: places, and one row for each message to each of them.

A message is written with what it is about, in the same transaction; a worker sends it. A try moves `due` ahead before it begins: a
worker that dies over it leaves a row that is due again. So a message may arrive twice: its `delivery` id tells.
"""

from __future__ import annotations

import json
import logging
import secrets
from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from functools import partial
from smtplib import SMTPException
from typing import Any

from django.conf import settings
from django.core.exceptions import ValidationError
from django.core.mail import EmailMessage
from django.core.validators import validate_email
from django.db import transaction
from django.db.models import F, Q
from django.urls import reverse
from django.utils import timezone

from tuner.gates.refusal_services import GateRefused
from tuner.gates.reports import message
from tuner.gates.selectors import gate_document
from tuner.models import Delivery, Gate, Notified, Regression, Suite
from tuner.notify import webhook as notify_webhook
from workers import jobs

log = logging.getLogger(__name__)
FAILED, REGRESSION = "FAILED", "REGRESSION"            # a gate that ended with an error; a slowdown that a series shows
EVENTS = ("SLOWER", "AMBIGUOUS", "NO DATA", "FASTER", "PASS", FAILED, REGRESSION)
TOLD = ("SLOWER", REGRESSION)                          # unless a place says otherwise
WAITS = (timedelta(seconds=30), timedelta(minutes=2), timedelta(minutes=10), timedelta(hours=1), timedelta(hours=6))
LEASE = timedelta(minutes=3)                           # more than a try can take
AT_ONCE = timedelta(seconds=5)                         # so young, a message may be on its way into the queue
KEPT_FOR = timedelta(days=90)
MAX_PLACES = 100
MAX_TRIES = len(WAITS) + 4                             # those that took their worker down included
KEPT_IN_FILES = "django.core.mail.backends.filebased.EmailBackend"


# ---- places ----

def notified_create(*, kind: str, address: str, secret: str = "", suite: str | None = None, verdicts: Sequence[str] = (),
                    author: Any = None) -> Notified:
    """A webhook without a secret gets one: every message is signed."""
    if kind not in Notified.Kind.values:
        raise GateRefused({"kind": f"one of {', '.join(Notified.Kind.values)}"})
    if Notified.objects.count() >= MAX_PLACES:
        raise GateRefused({"address": f"{MAX_PLACES} places are told already: remove one first"}, 409)
    address = _address(kind, address)
    secret = (secret or secrets.token_urlsafe(32)) if kind == Notified.Kind.WEBHOOK else ""
    if kind == Notified.Kind.WEBHOOK and not (12 <= len(secret) <= 120 and secret.isprintable()):
        raise GateRefused({"secret": "12 to 120 printable characters; leave it empty for one of our making"})
    about = Suite.objects.filter(name=suite).first() if suite else None
    if suite and about is None:
        raise GateRefused({"suite": "there is no such suite"})
    return Notified.objects.create(kind=kind, address=address, secret=secret, suite=about, verdicts=_events(verdicts),
                                   author=author)


def notified_change(row: Notified, *, enabled: bool | None = None, verdicts: Sequence[str] | None = None) -> Notified:
    """Switch it on or off, or tell it of other verdicts."""
    if verdicts is not None:
        row.verdicts = _events(verdicts)
    if enabled is not None:
        row.enabled = enabled
    row.save(update_fields=["verdicts", "enabled"])
    return row


def notified_delete(row: Notified) -> None:
    row.delete()


@transaction.atomic
def notified_test(row: Notified, who: str) -> Delivery:
    """Send it a message now, switched on or not."""
    body = message.of_test(who, _page("notified"))
    delivery = Delivery.objects.create(to=row, event="test", body=body, due=timezone.now())
    _wake([delivery.pk])
    return delivery


def _address(kind: str, address: str) -> str:
    address = address.strip()
    try:
        if kind == Notified.Kind.EMAIL:
            validate_email(address)
            if len(address) > 254:
                raise ValidationError("too long")
        else:
            notify_webhook.address_checked(address)
    except ValidationError as error:
        raise GateRefused({"address": "write one mail address: name@team.example"}) from error
    except notify_webhook.Refused as error:
        raise GateRefused({"address": str(error)}) from error
    return address


def _events(asked: Sequence[str]) -> list[str]:
    unknown = [str(each)[:40] for each in asked if each not in EVENTS]
    if unknown:
        raise GateRefused({"verdicts": f"{unknown[0]}: one of {', '.join(EVENTS)}"})
    return [event for event in EVENTS if event in asked]


# ---- messages ----

@transaction.atomic
def gate_told(gate: Gate) -> int:
    """A gate has ended: write what its places are told; how many new messages. The same verdict is told once.

    Who was told another verdict of this gate, before it was measured again, hears what came of that.
    """
    event = gate.verdict or (FAILED if gate.status == Gate.Status.FAILED else "")
    before = set(Delivery.objects.filter(gate=gate, to__enabled=True).exclude(event=event).values_list("to_id", flat=True))
    places = _places(event, gate.suite_id, before) if event else []
    if not places:
        return 0
    Delivery.objects.filter(created__lt=timezone.now() - KEPT_FOR).delete()
    return _written(places, event, message.of_gate(gate_document(gate, base=settings.PUBLIC_URL)), gate=gate)


@transaction.atomic
def regression_told(regression: Regression, event: str = "found") -> int:
    """A series shows a slowdown, or a person said something of one. What a gate found, the gate's own message tells."""
    if event == "found" and regression.found_by == "gate":
        return 0
    places = _places(REGRESSION, regression.suite_id)
    if event != "found":
        places = [place for place in places if REGRESSION in place.verdicts]       # not unless asked for
    row = {"id": regression.pk, "suite": regression.suite.name, "family": regression.family, "build": regression.build.name,
           "good": regression.good.name if regression.good else None, "kernels": regression.kernels, "state": regression.state,
           **{name: getattr(regression, name) for name in ("gpu", "toolkit", "driver", "recorded", "ratio", "low", "high", "note")},
           "page": _page("regression", regression.pk)}
    return _written(places, f"regression {event}"[:24], message.of_regression(row, event), regression=regression)


def _places(event: str, suite_id: int, before: Collection[int] = ()) -> list[Notified]:
    rows = Notified.objects.filter(Q(suite=None) | Q(suite=suite_id), enabled=True)[:MAX_PLACES]
    return [row for row in rows if event in (row.verdicts or TOLD) or row.pk in before]


def _written(places: Sequence[Notified], event: str, body: dict[str, Any], **about: Any) -> int:
    known = set(Delivery.objects.filter(event=event, **about).values_list("to_id", flat=True))
    fresh = [Delivery(to=place, event=event, body=body, due=timezone.now(), **about) for place in places if place.pk not in known]
    Delivery.objects.bulk_create(fresh, ignore_conflicts=True)         # another worker may have ended the same gate
    ids = Delivery.objects.filter(event=event, status="waiting", tries=0, **about).values_list("pk", flat=True)
    _wake(list(ids))
    return len(fresh)


def _page(name: str, *args: Any) -> str:
    return settings.PUBLIC_URL + reverse(name, args=args)


def _wake(ids: Sequence[int]) -> None:
    for pk in ids:
        # robust: where Redis is away the row stays due, and the sweep finds it
        transaction.on_commit(partial(jobs.enqueue, "ingest", "notify", pk), robust=True)


# ---- sending, on a worker ----

def delivery_send(delivery_id: int) -> Delivery | None:
    """One try, where one is due. None: it is another's, or was sent."""
    now = timezone.now()
    due = Delivery.objects.filter(pk=delivery_id, status="waiting", due__lte=now)
    if not due.update(due=now + LEASE, tries=F("tries") + 1):
        return None
    row = Delivery.objects.select_related("to").get(pk=delivery_id)
    try:
        if row.tries > MAX_TRIES:
            raise notify_webhook.NotSent("workers died over it", final=True)
        if not row.to.enabled and row.event != "test":
            raise notify_webhook.NotSent("it was switched off before this could be sent", final=True)
        status, answer = _mailed(row) if row.to.kind == Notified.Kind.EMAIL else _posted(row)
    except notify_webhook.Refused as error:
        return _ended(row, status="failed", error=str(error), due=None)
    except notify_webhook.NotSent as error:
        again = None if error.final or row.tries > len(WAITS) else now + WAITS[row.tries - 1]
        return _ended(row, status="waiting" if again else "failed", error=str(error), due=again)
    return _ended(row, status=status, answer=answer, error="", due=None, sent=timezone.now())


def delivery_again(row: Delivery) -> bool:
    """A person wants it tried again, from the first wait on; False where it is under way."""
    again = Delivery.objects.filter(pk=row.pk).exclude(status="waiting", due__gt=timezone.now())
    if not again.update(status="waiting", tries=0, due=timezone.now(), error=""):
        return False
    _wake([row.pk])
    return True


def deliveries_wake(waiting: Collection[int] = ()) -> list[int]:
    """Those that are due and that nothing wakes (sweep)."""
    due = Delivery.objects.filter(status="waiting", due__lte=timezone.now() - AT_ONCE).exclude(pk__in=waiting)
    ids = list(due.order_by("due").values_list("pk", flat=True)[:100])
    for pk in ids:
        jobs.enqueue("ingest", "notify", pk)
    return ids


def _posted(row: Delivery) -> tuple[str, str]:
    said = {**row.body, "delivery": row.pk, "try": row.tries}
    said.pop("mail", None)
    arrived = notify_webhook.send(
        row.to.address, json.dumps(said).encode(), {"X-Ridgepoint-Event": str(row.body.get("event", "")),
                                                    "X-Ridgepoint-Delivery": str(row.pk)},
        secret=row.to.secret, private=settings.WEBHOOK_PRIVATE)
    return "sent", str(arrived)


def _mailed(row: Delivery) -> tuple[str, str]:
    subject = " ".join(str(row.body.get("subject", "Ridgepoint")).split())[:200]        # one line: a mail's header
    mail = EmailMessage(subject, str(row.body.get("mail", "")), to=[row.to.address],
                        headers={"X-Ridgepoint-Delivery": str(row.pk)})
    try:
        mail.send()
    except (SMTPException, OSError, ValueError) as error:
        raise notify_webhook.NotSent(f"{type(error).__name__}: {error}"[:250]) from error
    if settings.EMAIL_BACKEND == KEPT_IN_FILES:
        return "kept", "written to a file: no mail server is set"
    return "sent", "taken by the mail server"


def _ended(row: Delivery, *, status: str, due: datetime | None, error: str = "", answer: str = "",
           sent: datetime | None = None) -> Delivery:
    row.status, row.due, row.sent = status, due, sent
    row.error, row.answer = _stored(error)[:300], _stored(answer)[:120]
    row.save(update_fields=["status", "due", "error", "answer", "sent"])
    if error:
        log.warning("delivery %s to %s: %s", row.pk, row.to.kind, error)
    jobs.publish("notified", "delivery", {"id": row.pk, "to": row.to_id, "status": row.status})
    return row


def _stored(text: str) -> str:
    """Others' words as PostgreSQL keeps them."""
    return text.replace("\0", "\N{REPLACEMENT CHARACTER}").encode("utf-8", "replace").decode()
