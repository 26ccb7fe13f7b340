"""Destinations of notifications, and one delivery row for each message to each of them.

A message is written in the transaction of what it is about; `sending_services` sends it, on a worker.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Collection, Sequence
from typing import Any

from django.conf import settings
from django.db import transaction
from django.db.models import Q
from django.urls import reverse
from django.utils import timezone

from profiles.base.refused import Refused
from tuner.gate.channels.kinds import KINDS
from tuner.gate.channels.sending_services import wake_sender
from tuner.gate.reports import message
from tuner.models import Delivery, Gate, Notified, ProductionRegression, Regression, Suite
from workers.secret import seal, unseal

FAILED, REGRESSION = "FAILED", "REGRESSION"            # a gate that ended with an error; a slowdown that a series shows
EVENTS = ("SLOWER", "AMBIGUOUS", "NO DATA", "FASTER", "PASS", FAILED, REGRESSION)
DEFAULT_EVENTS = ("SLOWER", REGRESSION)                          # unless a place says otherwise
MAX_DESTINATIONS = 100


# ---- places ----

def add_destination(*, kind: str, address: str, secret: str = "", suite: str | None = None, verdicts: Sequence[str] = (),
                    author: Any = None) -> Notified:
    """Add a channel of one of the KINDS; one that signs and has no secret gets one. Raises Refused."""
    if kind not in KINDS:
        raise Refused({"kind": f"one of {', '.join(KINDS)}"})
    if Notified.objects.count() >= MAX_DESTINATIONS:
        raise Refused({"address": f"{MAX_DESTINATIONS} places are told already: remove one first"})
    address = _checked_address(kind, address)
    signed = KINDS[kind].signed
    secret = (secret or secrets.token_urlsafe(32)) if signed else ""
    if signed and not (12 <= len(secret) <= 120 and secret.isprintable()):
        raise Refused({"secret": "12 to 120 printable characters; leave it empty for one of our making"})
    about = Suite.objects.filter(name=suite).first() if suite else None
    if suite and about is None:
        raise Refused({"suite": "there is no such suite"})
    return Notified.objects.create(kind=kind, address=address, secret=seal(secret), suite=about, verdicts=_checked_events(verdicts),
                                   author=author)


def secret_of(row: Notified) -> str:
    """Return the secret in the clear, for the one answer that shows it."""
    return unseal(row.secret)


def change_destination(row: Notified, *, enabled: bool | None = None, verdicts: Sequence[str] | None = None) -> Notified:
    """Switch a destination on or off, or change its verdicts. Raises Refused."""
    if verdicts is not None:
        row.verdicts = _checked_events(verdicts)
    if enabled is not None:
        row.enabled = enabled
    row.save(update_fields=["verdicts", "enabled"])
    return row


@transaction.atomic
def send_test(row: Notified, who: str) -> Delivery:
    """Write a test message now, whether the destination is switched on or not."""
    body = message.trial_message(who, _page_url("notified"))
    delivery = Delivery.objects.create(to=row, event="test", body=body, due=timezone.now())
    wake_sender(delivery.pk)
    return delivery


def _checked_address(kind: str, address: str) -> str:
    address = address.strip()
    try:
        KINDS[kind].check(address)
    except Refused as error:
        raise Refused({"address": error.what}) from error
    return address


def _checked_events(asked: Sequence[str]) -> list[str]:
    unknown = [str(name)[:40] for name in asked if name not in EVENTS]
    if unknown:
        raise Refused({"verdicts": f"{unknown[0]}: one of {', '.join(EVENTS)}"})
    return [event for event in EVENTS if event in asked]


# ---- messages ----

@transaction.atomic
def write_gate_messages(gate: Gate, event: str, body: Callable[[], dict[str, Any]]) -> int:
    """Write the messages of a gate's event; return how many are new. The same verdict is told once.

    Who was told another verdict of this gate, before it was measured again, hears what came of that. `body` is made only when
    somebody is told.
    """
    before = set(Delivery.objects.filter(gate=gate, to__enabled=True).exclude(event=event).values_list("to_id", flat=True))
    places = _destinations_for(event, gate.suite_id, before)
    return _write_deliveries(places, event, body(), gate=gate) if places else 0


@transaction.atomic
def write_regression_messages(regression: Regression, event: str = "found") -> int:
    """Write the messages of a regression; return how many are new. What a gate found its own message tells."""
    if event == "found" and regression.found_by == "gate":
        return 0
    places = _destinations_for(REGRESSION, regression.suite_id)
    if event != "found":
        places = [place for place in places if REGRESSION in place.verdicts]       # not unless asked for
    row = {"id": regression.pk, "suite": regression.suite.name, "family": regression.family, "kind": regression.kind,
           "build": regression.build.name,
           "good": regression.good.name if regression.good else None, "kernels": regression.kernels, "state": regression.state,
           **{name: getattr(regression, name) for name in ("gpu", "toolkit", "driver", "recorded", "ratio", "low", "high", "note")},
           "page": _page_url("regression", regression.pk)}
    return _write_deliveries(places, f"regression {event}"[:24], message.regression_message(row, event), regression=regression)


@transaction.atomic
def write_production_messages(row: ProductionRegression) -> int:
    """Write the messages of a kernel that production found slower; return how many are new. Places of one suite do not hear it."""
    places = [place for place in _destinations_for(REGRESSION, None) if place.suite_id is None]
    facts = {name: getattr(row, name) for name in ("short_name", "kernel", "shape", "gpu_model", "model", "simulated", "from_build",
                                                   "to_build", "ratio", "low", "high", "before_us", "after_us", "state")}
    body = message.production_message({"id": row.pk, "since": row.since.isoformat(), **facts,
                                       "page": _page_url("production-regression", row.pk)})
    return _write_deliveries(places, "production found", body, production=row)


def _destinations_for(event: str, suite_id: int | None, before: Collection[int] = ()) -> list[Notified]:
    rows = Notified.objects.filter(Q(suite=None) | Q(suite=suite_id), enabled=True)[:MAX_DESTINATIONS]
    return [row for row in rows if event in (row.verdicts or DEFAULT_EVENTS) or row.pk in before]


def _write_deliveries(places: Sequence[Notified], event: str, body: dict[str, Any], **about: Any) -> int:
    pks = set(Delivery.objects.filter(event=event, **about).values_list("to_id", flat=True))
    fresh = [Delivery(to=place, event=event, body=body, due=timezone.now(), **about) for place in places if place.pk not in pks]
    Delivery.objects.bulk_create(fresh, ignore_conflicts=True)         # another worker may have ended the same gate
    first = Delivery.objects.filter(event=event, status="waiting", tries=0, **about).values_list("pk", flat=True).first()
    if first is not None:
        wake_sender(first)
    return len(fresh)


def _page_url(name: str, *args: Any) -> str:
    return settings.PUBLIC_URL + reverse(name, args=args)
