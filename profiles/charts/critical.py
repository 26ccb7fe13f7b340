"""Bars of critical paths, as numbers for HTML: what each path consists of. They need no script and say their exact values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from profiles.charts.trace import Part

MOST_BARS = 24
# key of the kind -> category that colours it, hatch for what is a wait
COLOURS = {"compute": "compute", "communication": "communication", "memory": "memory", "operator": "cpu", "runtime": "runtime",
           "outside": "python",
           "launch": "idle", "between": "idle", "dependency": "annotation", "returning": "annotation", "handed": "other",
           "unexplained": "other"}


@dataclass(frozen=True)
class PathBar:
    key: str
    label: str
    length_ns: int
    start_ns: int
    end_ns: int
    parts: list[Part]
    is_main: bool
    step_ns: float | None = None    # of a step's path: how long the step takes


def path_bars(numbers: Mapping[str, Any]) -> list[PathBar]:
    """Every path, the whole runs first; parts add up to `length_ns` exactly."""
    kinds = {kind["key"]: kind for kind in numbers["kinds"]}
    bars = []
    for path in numbers["paths"][:MOST_BARS]:
        length = max(1, path["length_ns"])
        parts = [Part(COLOURS[key], kind["label"], path[f"{key}_ns"], 100.0 * path[f"{key}_ns"] / length, kind["means"])
                 for key, kind in kinds.items() if path[f"{key}_ns"]]
        label = f"{path['label']} · {path['rank']}" if path["rank"] else path["label"]
        bars.append(PathBar(path["key"], label, path["length_ns"], path["start_ns"], path["end_ns"], parts,
                            path["key"] == numbers["main"], path.get("step_ns")))
    return bars
