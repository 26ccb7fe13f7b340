"""The numbers at the top of a profile's page: its time, how busy the GPUs were, and what the time went to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from profiles.analysis.core.tiles import BusyLane
from profiles.analysis.trace.account.causes import CAUSES

# The whole timeline in a strip: one line per GPU, as high as it was busy, in the colour of what it mostly did.

LANE_UNITS = 16                 # heights that a column can have


@dataclass(frozen=True)
class LanePicture:
    """One GPU: SVG paths by category, in a box of `bins` × LANE_UNITS."""

    label: str
    busy_pct: float
    bins: int
    paths: list[tuple[str, str]]        # (category, d)


def lane_pictures(lanes: list[BusyLane]) -> list[LanePicture]:
    """Return the picture of each lane; neighbouring columns of one height and category are one rectangle."""
    return [_picture(lane) for lane in lanes]


def _picture(lane: BusyLane) -> LanePicture:
    runs: dict[str, list[str]] = {}
    heights = [-(-share * LANE_UNITS // 255) for share in lane.shares]
    looks = lane.categories
    begin = 0
    for end in range(1, len(heights) + 1):
        if end < len(heights) and (heights[end], looks[end]) == (heights[begin], looks[begin]):
            continue
        if heights[begin]:
            runs.setdefault(looks[begin], []).append(f"M{begin} {LANE_UNITS}v-{heights[begin]}h{end - begin}v{heights[begin]}z")
        begin = end
    busy_pct = 100 * sum(lane.shares) / (255 * len(lane.shares)) if lane.shares else 0.0
    return LanePicture(lane.label, busy_pct, len(heights), [(look, "".join(parts)) for look, parts in sorted(runs.items())])


SHOWN_PCT = 0.5                 # of the wall time: a smaller share has no number of its own
DRAWN_STEPS = 60

# Label -> (category of its colour, causes). Causes that stand in no line are "other": latency, waits between streams, the profiler.
GROUPS: dict[str, tuple[str, tuple[str, ...]]] = {
    "compute": ("compute", ("compute", "no_tensor_cores", "unknown_kernels", "serial_streams")),
    "memory": ("compute part-memory", ("memory_traffic", "pageable_copies", "copies", "memset")),
    "small kernels": ("compute part-small", ("small_kernels",)),
    "communication": ("communication", ("communication", "slow_gpu", "more_work", "rank_sync")),
    "waiting for the host": ("cpu", ("host_launch", "host_code", "data_loading", "synchronisation", "allocation", "compilation",
                                     "garbage_collection", "file_io", "queue_full", "warm_up")),
}


@dataclass(frozen=True)
class Share:
    """A share of the wall time of all GPUs."""

    label: str
    category: str
    ns: int
    pct: float
    means: str

    @property
    def css(self) -> str:
        """Return the share for a style attribute: locale-free."""
        return f"{self.pct:.3f}"


@dataclass(frozen=True)
class StepColumn:
    name: str
    start_ns: int
    end_ns: int
    css: str                    # height in percent of the longest

    @property
    def dur_ns(self) -> int:
        return self.end_ns - self.start_ns


@dataclass(frozen=True)
class Strip:
    time_ns: int | None
    label: str                  # of what it is the time
    shares: list[Share]
    steps: list[StepColumn]     # the first DRAWN_STEPS; of ranks that run the same step the longest
    step_count: int = 0
    step_mean_ns: float | None = None       # of the steps that count, as the page of time has it


def trace_strip(summary: Mapping[str, Any], account: Mapping[str, Any], step_count: int) -> Strip | None:
    """Return the strip of a trace with GPU work, else None; `account` {}: not made, then shares are those of the ingest."""
    devices = summary.get("devices") or []
    wall_ns = sum(device["wall_ns"] for device in devices)
    if not wall_ns:
        return None
    busy_ns = sum(device["busy_ns"] for device in devices)
    ns_by_label = _account_ns(account) if account.get("causes") else _ingest_ns(devices)
    shares = [_share(label, GROUPS[label][0], ns, wall_ns, _means(label)) for label, ns in ns_by_label.items()
              if 100 * ns / wall_ns >= SHOWN_PCT]
    steps = summary.get("steps") or []
    mean_ns = account.get("step_ns") or (sum(map(_length, steps)) / len(steps) if steps else None)
    return Strip(summary["wall_ns"], f"wall time, {len(devices)} GPUs" if len(devices) > 1 else "wall time",
                 [_share("GPU busy", "compute", busy_ns, wall_ns, "any work runs on the GPU"), *shares],
                 _columns(steps, step_count), step_count or len(steps), mean_ns)


def counters_strip(total_ns: int | None, launches: int, by_bound: Mapping[str, int]) -> Strip | None:
    """Return the strip of a report of counters: its kernel time, and the shares of it by what bounds the kernels."""
    if not total_ns:
        return None
    looks = {"memory": "compute part-memory", "compute": "compute", "latency": "idle", "launch": "runtime"}
    shares = [_share(f"{bound}-bound" if bound else "bound unknown", looks.get(bound, "idle part-unknown"), ns, total_ns,
                     "kernels by the bound that their counters show")
              for bound, ns in sorted(by_bound.items(), key=lambda each: -each[1])]
    return Strip(total_ns, f"kernel time, {launches:,} launch{'es' if launches != 1 else ''}", shares, [])


def _columns(steps: list[Mapping[str, Any]], step_count: int) -> list[StepColumn]:
    if step_count and len(steps) > step_count:
        longest_of: dict[str, Mapping[str, Any]] = {}
        for step in steps:
            if step["name"] not in longest_of or _length(step) > _length(longest_of[step["name"]]):
                longest_of[step["name"]] = step
        steps = list(longest_of.values())
    longest = max(map(_length, steps), default=0) or 1
    return [StepColumn(step["name"], step["start_ns"], step["end_ns"], f"{100 * _length(step) / longest:.2f}")
            for step in steps[:DRAWN_STEPS]]


def _length(step: Mapping[str, Any]) -> int:
    return int(step["end_ns"] - step["start_ns"])


def _share(label: str, category: str, ns: int, of_ns: int, means: str) -> Share:
    return Share(label, category, ns, 100 * ns / of_ns, means)


def _means(label: str) -> str:
    return ", ".join(CAUSES[cause].label for cause in GROUPS[label][1])


def _account_ns(account: Mapping[str, Any]) -> dict[str, int]:
    of = {cause: label for label, (_, causes) in GROUPS.items() for cause in causes}
    sums = dict.fromkeys(GROUPS, 0)
    for row in account["causes"]:
        if row["cause"] in of:
            sums[of[row["cause"]]] += row["wall_ns"]
    return sums


def _ingest_ns(devices: list[Mapping[str, Any]]) -> dict[str, int]:
    return {"compute": sum(device["compute_ns"] for device in devices), "memory": sum(device["memory_ns"] for device in devices),
            "communication": sum(device["communication_ns"] for device in devices),
            "waiting for the host": sum((device.get("idle_causes") or {}).get("host_late_ns", 0) for device in devices)}
