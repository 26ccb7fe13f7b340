"""What forges send here: verified, taken once, and an issue that was closed resolves its thread."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from django.db import transaction

from profiles.base.refused import Refused
from webapp.forges.speech import Arrived, Unsigned
from webapp.forges.table import FORGES
from webapp.models import Forge, ForgeArrival, IssueLink
from webapp.threads import services as thread_services
from webapp.threads import subjects
from workers.scope import project_of, within
from workers.secret import Unreadable, unseal

MOST_BYTES = 64 << 10


def arrive(forge: Forge, headers: Mapping[str, str], body: bytes) -> str:
    """Take a message; return what became of it: "taken", "known" or "not for us". Raises Unsigned.

    Nothing of a body is looked at before it is verified.
    """
    kind = FORGES.get(forge.kind)
    if kind is None:
        raise Unsigned("a kind of forge that is not known here")
    try:
        key = kind.verify(unseal(forge.hook_secret), headers, body)
    except Unreadable as error:
        raise Unsigned(str(error)) from error
    if not forge.enabled:
        return "not for us"
    try:
        said = json.loads(body)
    except (ValueError, RecursionError):
        return "not for us"
    found = kind.arrived(headers, said) if isinstance(said, dict) else None
    if found is None or found.place.lower() != forge.place.lower():
        return "not for us"
    with within(project_of(forge) or 0), transaction.atomic():
        _, fresh = ForgeArrival.objects.get_or_create(forge=forge, key=key[:80], defaults={"event": found.event[:60]})
        if fresh:
            _take(forge, found)
    return "taken" if fresh else "known"


def _take(forge: Forge, found: Arrived) -> None:
    for link in IssueLink.objects.filter(forge=forge, number=found.number).select_related("thread"):
        state = "closed" if found.closed else "open"
        if link.state == state:
            continue
        IssueLink.objects.filter(pk=link.pk).update(state=state)
        thread = link.thread
        thread_services.event_add(thread, f"issue {link.number} {state} at {forge.name}")
        if found.closed and forge.resolves and thread.is_open:
            _resolve(thread, f"issue {link.number} closed at {forge.name}")


def _resolve(thread: Any, note: str) -> None:
    try:
        with transaction.atomic():
            thread_services.status_set(thread, subjects.KINDS[thread.kind].resolved, by=None,
                                       note=note if thread.kind == "regression" else "")
    except Refused as refused:
        thread_services.event_add(thread, f"could not be resolved: {refused}")
