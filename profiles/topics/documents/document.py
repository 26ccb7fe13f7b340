"""What the documents of all topics share."""

from __future__ import annotations

from typing import NotRequired, TypedDict

from profiles.base.answers import FindingJson
from profiles.ingest.trace import SummaryTable

Times = dict[str, float]                    # part of a time → ns


class TopicDocument(TypedDict):
    """What one analysis of the whole trace found; names in `answer` stand in backticks."""

    version: int
    written: int
    applies: bool
    answer: str
    tables: list[SummaryTable]
    findings: list[FindingJson]
    seconds: float
    given: NotRequired[str]
    refused_mb: NotRequired[float]              # it exceeded so much memory, or time: not tried again until more is allowed
    refused_s: NotRequired[float]
