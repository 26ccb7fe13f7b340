"""The account of a trace as bars: each GPU's wall time by cause. They need no script and say their exact values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from profiles.analysis.trace.account.causes import CAUSES
from profiles.charts.trace import Part
from profiles.ingest.naming.names import short_name

# Cause -> category whose colour it has, and the pattern of `time.css` where the colour is not its own.
LOOKS: dict[str, tuple[str, str]] = {
    "compute": ("compute", ""), "no_tensor_cores": ("compute", "host_slow"), "memory_traffic": ("compute", "memory"),
    "unknown_kernels": ("compute", "unknown"), "small_kernels": ("compute", "small"), "serial_streams": ("compute", "host_slow"),
    "pageable_copies": ("memory", "host_slow"), "copies": ("memory", ""), "memset": ("memory", "small"),
    "communication": ("communication", ""), "slow_gpu": ("communication", "host_slow"), "more_work": ("communication", "small"),
    "data_loading": ("python", ""), "synchronisation": ("runtime", ""), "allocation": ("other", ""),
    "compilation": ("annotation", ""), "garbage_collection": ("python", "host_slow"), "file_io": ("python", "small"),
    "queue_full": ("runtime", "host_slow"), "host_launch": ("cpu", ""), "host_code": ("cpu", "host_slow"),
    "warm_up": ("annotation", "small"),
    "rank_sync": ("communication", "unknown"), "stream_wait": ("idle", "host_slow"), "launch_latency": ("idle", "small"),
    "profiler": ("other", "host_slow"), "unknown": ("idle", "unknown"), "outside": ("idle", ""),
}


@dataclass(frozen=True)
class CauseLine:
    """One cause over all GPUs, as the profile page lists it."""

    cause: str
    label: str
    category: str                   # class names of its swatch
    where: str
    label_of_where: str             # a kernel's short name
    rank: str
    wall_ns: int
    share_pct: float
    recoverable_ns: int | None
    means: str
    leads: bool

    @property
    def css(self) -> str:
        """Return the share for a style attribute: locale-free."""
        return f"{self.share_pct:.4f}"


def looks(cause: str) -> str:
    category, pattern = LOOKS[cause]
    return f"{category} part-{pattern}" if pattern else category


def cause_parts(numbers: Mapping[str, Any]) -> dict[int, list[Part]]:
    """Return the parts of each GPU's bar, in the order of CAUSES; they add up to its wall time exactly."""
    sums: dict[int, dict[str, int]] = {}
    for row in numbers.get("causes", ()):
        mine = sums.setdefault(row["gpu"], {})
        mine[row["cause"]] = mine.get(row["cause"], 0) + row["wall_ns"]
    wall = max(1, numbers.get("wall_ns") or 0)
    return {gpu: [Part(looks(cause), CAUSES[cause].label, mine[cause], 100 * mine[cause] / wall, CAUSES[cause].means)
                  for cause in CAUSES if mine.get(cause)] for gpu, mine in sums.items()}


def leading(lines: Sequence[CauseLine], most: int) -> list[CauseLine]:
    """Return the first causes that a change to the run could touch, those that lead first.

    Not what lies before the first and after the last work.
    """
    shown = [line for line in lines if CAUSES[line.cause].side != "outside"]
    return sorted(shown, key=lambda line: not line.leads)[:most]


def cause_lines(numbers: Mapping[str, Any]) -> list[CauseLine]:
    """Return the causes over all GPUs, the most time first."""
    lead = (numbers.get("lead") or {}).get("cause")
    leads = set(numbers.get("leads", ())) if lead in numbers.get("leads", ()) else {lead}
    lines = [CauseLine(each["cause"], each["label"], looks(each["cause"]), each["where"],
                       short_name(each["where"]) if each["where"] and CAUSES[each["cause"]].side == "busy" else each["where"],
                       "" if each["rank"] is None else f"rank {each['rank']}" if isinstance(each["rank"], int) else each["rank"],
                       each["wall_ns"], each["share_pct"], each["recoverable_ns"], CAUSES[each["cause"]].means,
                       each["cause"] in leads) for each in numbers.get("groups", ())]
    return sorted(lines, key=lambda line: -line.wall_ns)
