"""What the page of the topic "memory" shows beside its tables."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from profiles.charts.kept import kept
from profiles.charts.memory import peak_bars, timeline_figure
from profiles.models import Profile


def context(profile: Profile, document: dict[str, Any], params: Mapping[str, str]) -> dict[str, Any]:
    if not document["applies"]:
        return {}
    devices = document["numbers"]["devices"]
    figures = [{"id": f"memory-{number}-json", "label": device["label"], "item": made, "peak_bytes": device["peak_bytes"],
                "peak_ns": device["peak_ns"], "around": _around(device)}
               for number, device in enumerate(devices) if (made := kept(
                   ("memory", profile.pk, document["version"], document["written"], number),
                   partial(timeline_figure, device))) is not None]
    return {"figures": figures, "peaks": peak_bars(devices)}


def _around(device: Mapping[str, Any]) -> str:
    """A window of the timeline around the peak."""
    times = device["series"]["time_ns"]
    half = max((times[-1] - times[0]) // 40, 1000) if times else 1000
    return f"{max(device['peak_ns'] - half, 0)}-{device['peak_ns'] + half}"
