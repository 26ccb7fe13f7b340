"""What the time of each GPU was for, as bars: they need no script and say their exact values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from profiles.analysis.trace.needed.needs import PARTS
from profiles.analysis.trace.needed.topic import LEAST_TAIL, part_title
from profiles.charts.trace import Part

# Part -> category whose colour it has, and the pattern of `time.css` where the colour is not its own. A kind has KIND_LOOK.
LOOKS = {"needed": "compute", "slower": "compute part-small", "not_known": "compute part-unknown", "communication": "communication",
         "copies": "memory", "idle": "idle"}
KIND_LOOK = "other part-host_slow"
FIRST = ("needed", "slower")        # of the bar; then kinds, then the rest
LEAST_LOST_PCT = 1.0                # of the time, that a slow kernel is named beside the bar


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


@dataclass(frozen=True)
class SlowRow:
    """One kernel that the work needs and that is slower than its ceiling. Times are of a step of one GPU, else of the trace."""

    kernel: str
    short_name: str
    sizes: str
    launches: int
    takes_ns: float
    least_ns: float
    of_ceiling_pct: float
    lost_pct: float                 # of the time
    tune: str                       # query of a filled-in tune form, "" where the tuner has no such problem
    choice: str                     # what else is tried, code between backticks
    slice_id: int


def slow_rows(numbers: Mapping[str, Any], most: int) -> list[SlowRow]:
    """Return the kernels that lose LEAST_LOST_PCT of the time or more, most first."""
    gpus = numbers.get("gpus", ())
    wall_ns = max(1, sum(gpu["wall_ns"] for gpu in gpus))
    count = max(1, sum(gpu["steps"] for gpu in gpus))
    return [SlowRow(row["kernel"], row["short_name"], row["sizes"], row["launches"], row["takes_ns"] / count,
                    row["least_ns"] / count, row["of_ceiling_pct"], 100 * row["lost_ns"] / wall_ns, urlencode(row["tune"]),
                    row["choice"], row["longest"])
            for row in numbers.get("slow", ()) if 100 * row["lost_ns"] >= LEAST_LOST_PCT * wall_ns][:most]


@dataclass(frozen=True)
class RangeRow:
    """One module or range within the steps, inner ones included. `least_ns` None: unknown work takes more than a tenth."""

    name: str                       # "" outside of any
    within: str
    takes_ns: int
    least_ns: int | None
    needed_pct: float | None        # of its time
    width: str                      # of its bar in percent of the longest, and of the least time within it
    least_width: str


def range_rows(numbers: Mapping[str, Any], most: int) -> list[RangeRow]:
    """Return the modules or ranges of most time with their least times."""
    rows = sorted(numbers.get("ranges", ()), key=lambda row: -row["takes_ns"])[:most]
    longest = max((row["takes_ns"] for row in rows), default=0) or 1
    has_least = numbers.get("has_least", False)
    out = []
    for row in rows:
        least = row["least_ns"] if has_least and 10 * row["unknown_ns"] <= row["takes_ns"] else None
        out.append(RangeRow(row["name"], row["within"], row["takes_ns"], least,
                            None if least is None else 100 * least / max(1, row["takes_ns"]),
                            f"{100 * row['takes_ns'] / longest:.3f}", f"{100 * (least or 0) / longest:.3f}"))
    return out


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
