"""Reads of a trace's analyses for others: the document of one, its numbers, and what tells one state of it from another."""

from __future__ import annotations

from typing import Any

from profiles.models import Profile
from profiles.topics import services
from profiles.topics.table import topic_of

LAYER = "layer"


def topic_document(profile: Profile, name: str) -> dict[str, Any] | None:
    """Return the topic's document; None where the profile is no trace, has none stored, or a worker makes it."""
    topic = topic_of(name)
    if topic is None or profile.kind != Profile.Kind.TRACE or profile.status != Profile.Status.READY:
        return None
    try:
        return services.document_of(profile, topic)
    except FileNotFoundError:
        return None


def layer_document(profile: Profile) -> dict[str, Any] | None:
    return topic_document(profile, LAYER)


def topic_numbers(profile: Profile, name: str) -> dict[str, Any]:
    """Return what the topic found as numbers, {} where it has no document or does not apply."""
    document = topic_document(profile, name)
    return document["numbers"] if document and document["applies"] else {}


def topic_stamp(profile: Profile, name: str) -> tuple[object, ...]:
    """Return what tells one state of the topic from another, () where there is none."""
    document = topic_document(profile, name)
    return (document["written"], document["version"], document.get("given", "")) if document else ()
