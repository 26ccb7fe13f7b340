"""Destinations and their newest deliveries, for pages and JSON. Secrets are never read from here."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Any, TypedDict

from django.conf import settings
from django.db.models import Count, Max, OuterRef, Q, QuerySet, Subquery
from django.utils import timezone

from profiles.base.answers import make_answer
from tuner.gate.channels.kinds import KINDS
from tuner.gate.channels.kinds.mail import KEPT_IN_FILES
from tuner.gate.channels.sending_services import QUEUE
from tuner.gate.channels.services import DEFAULT_EVENTS, MAX_DESTINATIONS
from tuner.models import Delivery, Notified
from workers import jobs

DELIVERIES = 100
LATELY = timedelta(hours=24)


def list_destinations() -> QuerySet[Notified]:
    """Return destinations, each with its newest delivery and how many failed lately; one query."""
    newest = Delivery.objects.filter(to=OuterRef("pk")).order_by("-created", "-id")
    since = timezone.now() - LATELY
    return (Notified.objects.select_related("suite", "author")
            .annotate(newest_status=Subquery(newest.values("status")[:1]), newest_at=Max("deliveries__created"),
                      newest_error=Subquery(newest.values("error")[:1]), newest_answer=Subquery(newest.values("answer")[:1]),
                      failed_lately=Count("deliveries", filter=Q(deliveries__status="failed", deliveries__created__gte=since)))
            .order_by("kind", "address", "pk")[:MAX_DESTINATIONS])


def newest_deliveries(to: int | None = None) -> Sequence[Delivery]:
    """Return the newest messages, of one destination or of all."""
    rows = Delivery.objects.select_related("to", "gate__suite", "gate__build", "regression").order_by("-created", "-id")
    return list((rows.filter(to=to) if to is not None else rows)[:DELIVERIES])


def recent_status_counts() -> dict[str, int]:
    """Return status -> messages of the last 24 hours."""
    rows = Delivery.objects.filter(created__gte=timezone.now() - LATELY).order_by()
    return dict(rows.values_list("status").annotate(number=Count("id")))


def visible_address(row: Notified, whole: bool) -> str:
    """Return the address, whole for owners: webhook paths are often passwords, mailboxes are people's."""
    return row.address if whole else KINDS[row.kind].visible(row.address)


def visible_error(row: Delivery, whole: bool) -> str:
    """Return the error; the text of a receiver is for owners, as it may hold more of its address."""
    return row.error if whole or not row.error else "it did not arrive; owners see why"


def destination_events(row: Notified) -> list[str]:
    """Return the events that a destination is told."""
    return list(row.verdicts) or list(DEFAULT_EVENTS)


def sending_conditions() -> dict[str, Any]:
    """Return what stands in the way of messages, as the settings and the workers are now."""
    return {"mail_files": str(settings.EMAIL_FILE_PATH) if settings.EMAIL_BACKEND == KEPT_IN_FILES else "",
            "public_url": settings.PUBLIC_URL, "private_allowed": settings.WEBHOOK_PRIVATE,
            "worker": any(QUEUE in worker.get("queues", ()) for worker in jobs.workers())}


def counts_by_kind(rows: Iterable[Notified]) -> list[str]:
    """Return "2 webhooks", "1 mailbox" … in the order of the kinds, those without a channel left out."""
    counts = Counter(row.kind for row in rows)
    return [f"{counts[name]} {kind.noun if counts[name] == 1 else kind.nouns}" for name, kind in KINDS.items() if counts[name]]


class PlaceJson(TypedDict):
    """Where messages go; `suite` null: of all suites; `verdicts`: the events it is told."""

    id: int
    kind: str
    address: str
    suite: str | None
    verdicts: list[str]
    enabled: bool
    signed: bool
    created: str


def destination_json(row: Notified, whole: bool = False) -> PlaceJson:
    """Return the JSON of a destination; `whole`: its address too."""
    return make_answer(PlaceJson, row, address=visible_address(row, whole), suite=row.suite.name if row.suite else None,
                       verdicts=destination_events(row), signed=bool(row.secret))


class DeliveryJson(TypedDict):
    """A message to a place; `answer`: of who took it."""

    id: int
    to: int
    kind: str
    event: str
    subject: str
    gate: int | None
    regression: int | None
    production: int | None
    status: str
    tries: int
    answer: str
    error: str
    created: str
    next_try: str | None
    sent: str | None


def delivery_json(row: Delivery, whole: bool = False) -> DeliveryJson:
    """Return the JSON of a delivery; `whole`: its error too."""
    return make_answer(DeliveryJson, row, to=row.to_id, kind=row.to.kind, subject=row.body.get("subject", ""), gate=row.gate_id,
                       regression=row.regression_id, production=row.production_id, error=visible_error(row, whole),
                       next_try=row.due)
