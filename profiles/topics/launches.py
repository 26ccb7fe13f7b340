"""What the page of the topic "launches" shows beside its tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from profiles.charts.launching import delay_figure, queue_figure
from profiles.models import Profile


def context(profile: Profile, document: dict[str, Any], params: Mapping[str, str]) -> dict[str, Any]:
    if not document["applies"]:
        return {}
    return {"delays": delay_figure(document["numbers"]), "queues": queue_figure(document["numbers"])}
