"""What the page of the topic "launches" shows beside its tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from profiles.charts.kept import kept
from profiles.charts.launching import delay_figure, queue_figure
from profiles.models import Profile


def context(profile: Profile, document: dict[str, Any], params: Mapping[str, str]) -> dict[str, Any]:
    if not document["applies"]:
        return {}
    numbers, key = document["numbers"], (profile.pk, document["written"], document["version"])
    return {"delays": kept(("launch delays", *key), lambda: delay_figure(numbers)),
            "queues": kept(("launch queues", *key), lambda: queue_figure(numbers))}
