"""What the time of each GPU was for, as bars: they need no script and say their exact values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from profiles.analysis.trace.needed.needs import PARTS
from profiles.analysis.trace.needed.topic import LEAST_TAIL, part_title
from profiles.charts.trace import Part

# Part -> category whose colour it has, and the pattern of `time.css` where the colour is not its own. A kind has KIND_LOOK.
LOOKS = {"needed": "compute", "slower": "compute part-small", "not_known": "compute part-unknown", "communication": "communication",
         "copies": "memory", "idle": "idle"}
KIND_LOOK = "other part-host_slow"
FIRST = ("needed", "slower")        # of the bar; then kinds, then the rest


@dataclass(frozen=True)
class NeededBar:
    """One GPU. `parts` add up to `wall_ns`; `step_ns` None where no steps are known, `needed_pct` where the least time is not.

    `tail_ns`: of the last step, what ran on behind its end on the CPU; 0 where that is too little to matter.
    """

    label: str
    wall_ns: int
    steps: int
    step_ns: float | None
    needed_pct: float | None
    tail_ns: int
    parts: list[Part]


def needed_bars(numbers: Mapping[str, Any]) -> list[NeededBar]:
    """Return a bar for each GPU of the topic's numbers."""
    return [NeededBar(gpu["label"], gpu["wall_ns"], gpu["steps"], gpu["wall_ns"] / gpu["steps"] if gpu["steps"] else None,
                      gpu["needed_pct"], _tail_ns(gpu), _parts(gpu)) for gpu in numbers.get("gpus", ())]


def _tail_ns(gpu: Mapping[str, Any]) -> int:
    tail_ns: int = gpu.get("tail_ns", 0)
    return tail_ns if gpu["steps"] and tail_ns >= LEAST_TAIL * gpu["wall_ns"] / gpu["steps"] else 0


def _parts(gpu: Mapping[str, Any]) -> list[Part]:
    kinds = sorted((name for name in gpu["parts"] if name not in PARTS), key=lambda name: -gpu["parts"][name])
    names = [*FIRST, *kinds, *(name for name in PARTS if name not in FIRST)]
    count = max(1, gpu["steps"])
    return [Part(LOOKS.get(name, KIND_LOOK), part_title(name), ns, 100 * ns / max(1, gpu["wall_ns"]),
                 f"{ns / count / 1e6:,.3f} ms a step" if gpu["steps"] else "")
            for name in names if (ns := gpu["parts"].get(name))]
