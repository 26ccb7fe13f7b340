"""Who is told: places, and one row for each message to each of them.

A message is written with what it is about, in the same transaction; `sending_services` sends it, on a worker.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection, Sequence
from typing import Any

from django.conf import settings
from django.core.exceptions import ValidationError
from django.core.validators import validate_email
from django.db import transaction
from django.db.models import Q
from django.urls import reverse
from django.utils import timezone

from tuner.gates.refusal_services import GateRefused
from tuner.gates.reports import message
from tuner.gates.selectors import gate_document
from tuner.models import Delivery, Gate, Notified, Regression, Suite
from tuner.notify import webhook as notify_webhook
from tuner.notify.secret import opened, sealed
from tuner.notify.sending_services import wake

FAILED, REGRESSION = "FAILED", "REGRESSION"            # a gate that ended with an error; a slowdown that a series shows
EVENTS = ("SLOWER", "AMBIGUOUS", "NO DATA", "FASTER", "PASS", FAILED, REGRESSION)
TOLD = ("SLOWER", REGRESSION)                          # unless a place says otherwise
MAX_PLACES = 100


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
    return Notified.objects.create(kind=kind, address=address, secret=sealed(secret), suite=about, verdicts=_events(verdicts),
                                   author=author)


def secret_of(row: Notified) -> str:
    """In the clear, for the one answer that shows it."""
    return opened(row.secret)


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
    wake(delivery.pk)
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
    first = Delivery.objects.filter(event=event, status="waiting", tries=0, **about).values_list("pk", flat=True).first()
    if first is not None:
        wake(first)
    return len(fresh)


def _page(name: str, *args: Any) -> str:
    return settings.PUBLIC_URL + reverse(name, args=args)
