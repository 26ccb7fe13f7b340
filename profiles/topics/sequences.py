"""What the page of the topic "sequences" shows beside its tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from profiles.models import Profile


def context(profile: Profile, document: dict[str, Any], params: Mapping[str, str]) -> dict[str, Any]:
    """Bars of the first candidates, in percent of the largest; locale-free texts for style attributes."""
    drawn = document["numbers"].get("drawn", [])
    largest = max((each["saved_ns"] + each["gaps_ns"] for each in drawn), default=0) or 1
    return {"drawn": [{**each, "both_ns": each["saved_ns"] + each["gaps_ns"], "width": f"{100 * each['saved_ns'] / largest:.3f}",
                       "gaps_width": f"{100 * each['gaps_ns'] / largest:.3f}"} for each in drawn]}
