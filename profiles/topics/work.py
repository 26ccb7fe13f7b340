"""Reads of the topic "layer" for others: its work by kernel and shape."""

from __future__ import annotations

from typing import Any

from profiles.models import Profile
from profiles.topics import services
from profiles.topics.table import topic_of

LAYER = "layer"


def layer_document(profile: Profile) -> dict[str, Any] | None:
    """Return the topic's document; None where the profile is no trace, has none stored, or a worker makes it."""
    topic = topic_of(LAYER)
    if topic is None or profile.kind != Profile.Kind.TRACE or profile.status != Profile.Status.READY:
        return None
    try:
        return services.document_of(profile, topic)
    except FileNotFoundError:
        return None


def layer_work(profile: Profile) -> list[dict[str, Any]]:
    """Return its rows by kernel and shape (`analysis.trace.layer.records.KernelWork` and `ceilings.Judged`), most time first."""
    document = layer_document(profile)
    rows: list[dict[str, Any]] = document["numbers"].get("work", []) if document else []
    return rows


def layer_stamp(profile: Profile) -> tuple[object, ...]:
    """Return what tells one state of the topic from another, () where there is none."""
    document = layer_document(profile)
    return (document["written"], document["version"], document.get("given", "")) if document else ()
