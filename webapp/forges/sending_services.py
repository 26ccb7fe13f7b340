"""Says at forges what is due, tried again at the intervals of channels' messages."""

from __future__ import annotations

import json
import logging
from collections.abc import Collection, Mapping
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.db import transaction
from django.db.models import F
from django.utils import timezone

from profiles.base.refused import Refused
from tuner.gate.channels.sending_services import KEPT_FOR, WAITS
from webapp.forges.speech import Request, Speaker
from webapp.forges.table import FORGES
from webapp.models import ForgeArrival, ForgePost, IssueLink
from webapp.threads import services as thread_services
from webapp.threads.notices import QUEUE, TASK
from workers import jobs
from workers.outgoing import NotSent, exchange, is_public, parse_address, resolve_host
from workers.scope import EVERYTHING, project_of, within
from workers.secret import Unreadable, unseal

log = logging.getLogger(__name__)
LEASE = timedelta(minutes=3)
ANSWER_BYTES = 1 << 20
RETRIED = {403, 408, 409, 425, 429}         # of 4xx: rate limits (GitHub says 403) and those that say "later"


def wake_due(waiting: Collection[int] = ()) -> list[int]:
    """Wake a worker for the longest due, where no entry of the queue does; return its id."""
    due = ForgePost._base_manager.filter(status="waiting", due__lte=timezone.now()).order_by("due")
    ids = [] if waiting else list(due.values_list("pk", flat=True)[:1])
    for pk in ids:
        jobs.enqueue(QUEUE, TASK, pk)
    return ids


def send_due() -> int:
    """Say everything that is due; return how many were tried."""
    tried = 0
    with within(EVERYTHING):
        while (claim := _claim()) is not None:
            row, lease = claim
            with within(project_of(row) or 0):
                _store(row, lease, _try(row))
            tried += 1
        ForgePost.objects.filter(status="sent", what__in=["note", "issue"], sent__lt=timezone.now() - KEPT_FOR).delete()
        ForgeArrival.objects.filter(created__lt=timezone.now() - KEPT_FOR).delete()
    return tried


@transaction.atomic
def _claim() -> tuple[ForgePost, datetime] | None:
    now = timezone.now()
    row = (ForgePost.objects.filter(status="waiting", due__lte=now).select_related("forge").order_by("due")
           .select_for_update(skip_locked=True, of=("self",)).first())
    if row is None:
        return None
    lease = now + LEASE
    ForgePost.objects.filter(pk=row.pk).update(due=lease, tries=F("tries") + 1)
    row.tries += 1
    return row, lease


def _try(row: ForgePost) -> dict[str, Any]:
    """Return the fields of a post after one try."""
    forge = row.forge
    kind = FORGES.get(forge.kind)
    try:
        if kind is None or not forge.enabled:
            raise NotSent("the forge is switched off", final=True)
        who = Speaker(forge.api, forge.place, forge.account, unseal(forge.key))

        def call(request: Request, headers: Mapping[str, str]) -> Mapping[str, Any]:
            return ask(who.api, request, headers)

        answer = call(kind.say(who, row.what, row.body, row.remote_id), kind.ready(who, call))
        remote, address = kind.read(row.what, answer)
    except (Refused, Unreadable, ValueError) as error:
        return {"status": "failed", "error": str(error)[:300]}
    except NotSent as error:
        final = error.final or row.tries > len(WAITS)
        return {"status": "failed" if final else "waiting", "error": str(error)[:300],
                "due": None if final else timezone.now() + WAITS[row.tries - 1]}
    except Exception as error:                          # a fault of ours: others are still to be sent
        log.exception("post %s could not be sent", row.pk)
        return {"status": "failed", "error": f"unexpected {type(error).__name__}"}
    return {"status": "sent", "error": "", "due": None, "sent": timezone.now(), "remote_id": remote[:80] or row.remote_id,
            "address": address}


def ask(api: str, request: Request, headers: Mapping[str, str]) -> Mapping[str, Any]:
    """Send one request of a forge's API; return the JSON of its answer. Raises Refused, NotSent."""
    address = api + request.path
    parts = parse_address(address)
    host, port = parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)
    ips = resolve_host(host.encode("idna").decode(), port)
    if not ips:
        raise NotSent(f"{host} has no address")
    if not settings.WEBHOOK_PRIVATE and any(not is_public(ip) for ip in ips):
        raise Refused(f"{host} is inside this network; RIDGEPOINT_WEBHOOK_PRIVATE=1 allows such addresses")
    body = None if request.body is None else json.dumps(request.body).encode()
    answer = exchange(request.method, address, body, {"Accept": "application/json", **headers, "Content-Type": "application/json"},
                      found=ips, most_bytes=ANSWER_BYTES)
    if not 200 <= answer.status < 300:
        text = answer.body.decode("utf-8", "replace")[:160]
        raise NotSent(f"{answer.status} of {urlsplit(address).path[:80]}: {text}",
                      final=answer.status < 500 and answer.status not in RETRIED)
    try:
        content = json.loads(answer.body) if answer.whole else None
    except (ValueError, RecursionError):
        content = None
    if not isinstance(content, dict):
        raise NotSent("its answer is no JSON object", final=True)
    return content


def _store(row: ForgePost, lease: datetime, outcome: dict[str, Any]) -> None:
    """Keep the outcome; what was changed while it was sent stays due, with the id that it has there now."""
    address = outcome.pop("address", "")
    with transaction.atomic():
        if outcome.get("remote_id"):
            ForgePost.objects.filter(pk=row.pk).update(remote_id=outcome["remote_id"])
        ForgePost.objects.filter(pk=row.pk, due=lease).update(**{"due": None, **outcome})
        link = IssueLink.objects.select_related("thread").filter(pk=row.link_id or 0).first() if row.what == "issue" else None
        if link is not None and outcome["status"] == "sent":
            link.address, link.number, link.state = address, outcome["remote_id"], "open"
            link.save(update_fields=["address", "number", "state"])
            thread_services.event_add(link.thread, f"issue {address or link.number}")
        elif link is not None and outcome["status"] == "failed":
            IssueLink.objects.filter(pk=link.pk).update(state="failed")
            thread_services.event_add(link.thread, f"issue was not made: {outcome['error']}")
    if outcome["error"]:
        log.warning("post %s at forge %s: %s", row.pk, row.forge_id, outcome["status"])
