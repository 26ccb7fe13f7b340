"""What the page of the topic "critical-path" shows beside its tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from profiles.charts.critical import MOST_BARS, path_bars
from profiles.models import Profile


def context(profile: Profile, document: dict[str, Any], params: Mapping[str, str]) -> dict[str, Any]:
    if not document["applies"]:
        return {}
    bars, numbers = path_bars(document["numbers"]), document["numbers"]
    return {"bars": bars, "more_bars": max(0, len(numbers["paths"]) - MOST_BARS),
            "main_bar": next((bar for bar in bars if bar.is_main), bars[0] if bars else None)}
