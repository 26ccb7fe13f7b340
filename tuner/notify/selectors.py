"""Who is told of verdicts, and what became of the messages. Secrets are never read from here."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.db.models import Count, Max, OuterRef, Q, QuerySet, Subquery
from django.utils import timezone

from tuner.models import Delivery, Notified
from tuner.notify.sending_services import KEPT_IN_FILES, QUEUE, WAITS
from tuner.notify.services import EVENTS, MAX_PLACES, TOLD
from workers import jobs

__all__ = ["EVENTS", "MAX_PLACES", "TOLD", "WAITS"]
DELIVERIES = 100
LATELY = timedelta(hours=24)


def places() -> QuerySet[Notified]:
    """Each with its newest message and how many failed lately; one query."""
    newest = Delivery.objects.filter(to=OuterRef("pk")).order_by("-created", "-id")
    since = timezone.now() - LATELY
    return (Notified.objects.select_related("suite", "author")
            .annotate(newest_status=Subquery(newest.values("status")[:1]), newest_at=Max("deliveries__created"),
                      newest_error=Subquery(newest.values("error")[:1]), newest_answer=Subquery(newest.values("answer")[:1]),
                      failed_lately=Count("deliveries", filter=Q(deliveries__status="failed", deliveries__created__gte=since)))
            .order_by("kind", "address", "pk")[:MAX_PLACES])


def deliveries(to: int | None = None) -> Sequence[Delivery]:
    """The newest messages."""
    rows = Delivery.objects.select_related("to", "gate__suite", "gate__build", "regression").order_by("-created", "-id")
    return list((rows.filter(to=to) if to is not None else rows)[:DELIVERIES])


def lately() -> dict[str, int]:
    """Status -> messages of the last 24 hours."""
    rows = Delivery.objects.filter(created__gte=timezone.now() - LATELY).order_by()
    return dict(rows.values_list("status").annotate(number=Count("id")))


def address_shown(row: Notified, whole: bool) -> str:
    """Paths of webhooks are often their password (chat systems), and mailboxes are people's: owners see them whole."""
    if whole:
        return row.address
    if row.kind == Notified.Kind.EMAIL:
        return f"…@{row.address.rpartition('@')[2]}"
    parts = urlsplit(row.address)
    return f"{parts.scheme}://{parts.hostname}/…"


def error_shown(row: Delivery, whole: bool) -> str:
    """What a receiver answered may hold more of its address than everybody should see."""
    return row.error if whole or not row.error else "it did not arrive; owners see why"


def events_shown(row: Notified) -> list[str]:
    return list(row.verdicts) or list(TOLD)


def outlook() -> dict[str, Any]:
    """What stands in the way of messages, as the settings and the workers are now."""
    return {"mail_files": str(settings.EMAIL_FILE_PATH) if settings.EMAIL_BACKEND == KEPT_IN_FILES else "",
            "public_url": settings.PUBLIC_URL, "private_allowed": settings.WEBHOOK_PRIVATE,
            "worker": any(QUEUE in worker.get("queues", ()) for worker in jobs.workers())}


def place_json(row: Notified, whole: bool = False) -> dict[str, Any]:
    return {"id": row.pk, "kind": row.kind, "address": address_shown(row, whole), "suite": row.suite.name if row.suite else None,
            "verdicts": events_shown(row), "enabled": row.enabled, "signed": bool(row.secret), "created": row.created.isoformat()}


def delivery_json(row: Delivery, whole: bool = False) -> dict[str, Any]:
    return {"id": row.pk, "to": row.to_id, "kind": row.to.kind, "event": row.event, "subject": row.body.get("subject", ""),
            "gate": row.gate_id, "regression": row.regression_id, "status": row.status, "tries": row.tries,
            "answer": row.answer, "error": error_shown(row, whole), "created": row.created.isoformat(),
            "next_try": row.due.isoformat() if row.due else None, "sent": row.sent.isoformat() if row.sent else None}
