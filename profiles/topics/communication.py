"""What the page of the topic "communication" shows beside its tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from profiles.analysis.communication.advice import LIMITS
from profiles.charts.communication import bandwidth_figure, cause_bars, matrix, rank_bars, waits_figure
from profiles.charts.kept import kept
from profiles.models import Profile


def context(profile: Profile, document: dict[str, Any], params: Mapping[str, str]) -> dict[str, Any]:
    if not document["applies"]:
        return {}
    numbers, key = document["numbers"], ("communication", profile.pk, document["version"], document["written"])
    return {"bandwidth": kept((*key, "bandwidth"), lambda: bandwidth_figure(numbers["sizes"])),
            "waits": kept((*key, "waits"), lambda: waits_figure(numbers)), "ranks": rank_bars(numbers),
            "causes": cause_bars(numbers), "matrix": matrix(numbers), "limits": LIMITS}
