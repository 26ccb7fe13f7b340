"""Reads for the topics' pages: the document, its tables as cells, and what all topics of a profile say."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from profiles.models import Profile
from profiles.selectors.profile import code_pieces
from profiles.store.timeline import timeline
from profiles.store.topics import topic_read
from profiles.topics.table import TOPICS, Topic

SHOWN_ROWS = 1_000          # of a table on a page; files hold them all


@dataclass(frozen=True)
class TopicLine:
    """A topic as the profile page lists it; `answer` in pieces (text, is code), empty while it is not made."""

    topic: Topic
    answer: list[tuple[str, bool]]
    applies: bool


def topic_lines(profile: Profile) -> list[TopicLine]:
    """Every topic, and its answer where it is made: this makes nothing."""
    if profile.kind != Profile.Kind.TRACE:
        return []
    try:
        written = int(timeline(profile.pk).document["written"])
    except FileNotFoundError:
        return []
    lines = []
    for topic in TOPICS:
        document = topic_read(profile.pk, topic.name, topic.version, written) or {}
        lines.append(TopicLine(topic, code_pieces(document.get("answer", "")), document.get("applies", True)))
    return lines


def shown_tables(document: dict[str, Any]) -> list[dict[str, Any]]:
    """Tables with cells as (value, unit, is text), the first rows of each."""
    return [{
        **table, "number": number, "total": len(table["rows"]),
        "rows": [[(cell, column["unit"], column["text"]) for cell, column in zip(row, table["columns"], strict=True)]
                 for row in table["rows"][:SHOWN_ROWS]],
    } for number, table in enumerate(document["tables"])]
