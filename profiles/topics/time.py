"""What the page of the topic "time" shows beside its tables: classes, bars, steps, and where to go on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from profiles.charts import time as charts
from profiles.charts.trace import cause_lines, cause_parts, time_bars
from profiles.models import Profile
from profiles.theme import cached_figure

LEAST_PCT = 0.5                 # of the wall time: causes with less stand on the topic's own page alone
# Part of the time -> (topic that looks into it, what its button says). The first is offered whose topic there is.
NEXT: dict[str, tuple[str, str]] = {
    "compute": ("operators", "Which operators compute, and on tensor cores?"),
    "memory": ("sequences", "Which kernels could be one, and move less?"),
    "unknown": ("operators", "Which operators launch these kernels?"),
    "small": ("launches", "What would fewer launches win back?"),
    "communication": ("communication", "Who waits for whom?"),
    "transfers": ("critical-path", "What does the step wait for?"),
    "host_slow": ("launches", "What does launching cost?"),
    "synchronisation": ("critical-path", "What does the step wait for?"),
    "data_loading": ("critical-path", "What does the step wait for?"),
    "kernel_wait": ("critical-path", "What does the step wait for?"),
    "other": ("launches", "What does launching cost?"),
}


def time_context(profile: Profile, document: dict[str, Any], params: Mapping[str, str]) -> dict[str, Any]:
    if not document["applies"]:
        return {}
    numbers = document["numbers"]
    devices, phases = charts.device_bars(numbers), charts.phase_bars(numbers)
    steps = numbers["steps"]["rows"]
    return {
        "cards": charts.class_cards(numbers), "bars": devices, "legend": charts.legend(devices), "phases": phases,
        "phase_legend": charts.legend(phases), "next": next_topic(numbers),
        "steps_figure": cached_figure(("time", profile.pk, document["version"], document["written"]),
                                      lambda: charts.steps_figure(numbers)),
        "longest": max(steps, key=lambda step: step["dur_ns"], default=None),
        "drawn": min(len(steps), charts.DRAWN_STEPS),
        "longest_gap": next((table for table in document["tables"] if table["title"] == "Longest gaps"), None),
    }


def next_topic(numbers: Mapping[str, Any]) -> dict[str, str]:
    """Return the topic of the largest part of the class that holds the GPU back."""
    classes = numbers["classes"]
    parts = {key: ns for key, ns in classes["parts_ns"].items() if key in NEXT and numbers["parts"][key]["of"] == classes["bound"]}
    if not parts:
        return {}
    largest = max(parts, key=lambda key: parts[key])
    return {"topic": NEXT[largest][0], "label": NEXT[largest][1], "part": numbers["parts"][largest]["label"]}


def overview(profile: Profile, account: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the profile's own page shows of the account: its causes, and the bars. `account` {}: not made."""
    stated = profile.metadata.get("devices") if profile.metadata.get("ranks") else None
    labels = {index: str(label) for index, label in enumerate(stated)} if isinstance(stated, list) else {}
    lines = cause_lines(account)
    return {"causes": [line for line in lines if line.share_pct >= LEAST_PCT or line.leads] or lines[:1],
            "causes_ranks": any(line.rank for line in lines),
            "time": time_bars(profile.summary, cause_parts(account), labels)}
