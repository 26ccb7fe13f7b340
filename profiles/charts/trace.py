"""The pictures of a trace's profile page, as numbers for HTML bars: they need no script and say their exact values.

Among them its account: each GPU's wall time by cause.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from profiles.analysis.core.sentences import pct_of
from profiles.analysis.trace.account.causes import CAUSES
from profiles.ingest.naming.names import short_name

PARTS = (("compute", "compute"), ("communication", "communication"), ("memory", "memory"), ("idle", "idle"))
IDLE_CAUSES = (("host_late_ns", "host late", "nothing was queued: the host launched too late"),
          ("queued_ns", "queued", "work was queued but had not started: launch latency or a dependency"),
          ("unknown_ns", "cause unknown", "the trace has no launch call for what came next"),
          ("before_and_after_ns", "before and after", "before the first and after the last GPU work of the trace"))


@dataclass(frozen=True)
class Part:
    """One piece of a stacked bar; width in percent of the bar."""

    category: str
    label: str
    ns: int
    pct: float
    why: str = ""

    @property
    def wide(self) -> bool:
        """Wide enough to be written in; a narrow one is named in the legend only."""
        return self.pct >= 5 + len(self.label) / 4

    @property
    def css(self) -> str:
        """Return the width for a style attribute: locale-free."""
        return f"{self.pct:.4f}"


@dataclass(frozen=True)
class DeviceBar:
    """Where one GPU's wall time went: the parts add up to `wall_ns` exactly."""

    index: int
    name: str
    wall_ns: int
    busy_ns: int
    parts: list[Part]
    hidden: list[Part]              # communication and copies behind compute: not in the bar, said below it
    gaps: list[Mapping[str, Any]]
    label: str = ""                 # "GPU 0", of merged ranks "rank 1 · GPU 0 of its host"


@dataclass(frozen=True)
class StepBox:
    """A step on the strip below the bars; left and width in percent of the wall time."""

    name: str
    start_ns: int
    end_ns: int
    busy_pct: float
    parts: list[Part]
    left: str
    width: str

    @property
    def dur_ns(self) -> int:
        return self.end_ns - self.start_ns

    @property
    def number(self) -> str:
        return self.name.rsplit("#", 1)[-1]


@dataclass(frozen=True)
class TimeBars:
    start_ns: int
    wall_ns: int
    devices: list[DeviceBar]
    lanes: list[list[StepBox]]      # steps of several ranks overlap: one lane each
    slowest: StepBox | None


def time_bars(summary: Mapping[str, Any], parts: Mapping[int, list[Part]] | None = None,
              labels: Mapping[int, str] | None = None) -> TimeBars:
    """Return the bars of a trace's profile page.

    `summary` is `analysis.breakdown.Breakdown.as_json()`; `parts` by GPU stand in for its own where they are known better, `labels`
    say whose GPUs those of a job of several ranks are.
    """
    wall_ns, start_ns = summary["wall_ns"], summary["start_ns"]
    steps = [_step(step, start_ns, wall_ns) for step in summary["steps"]]
    devices = [_device(device, (parts or {}).get(device["index"]), (labels or {}).get(device["index"], ""))
               for device in summary["devices"]]
    return TimeBars(start_ns, wall_ns, devices, _lanes(steps), max(steps, key=lambda step: step.dur_ns, default=None))


def _lanes(steps: list[StepBox]) -> list[list[StepBox]]:
    """Each step on the first lane that is free when it begins."""
    lanes: list[list[StepBox]] = []
    for step in sorted(steps, key=lambda each: each.start_ns):
        lane = next((lane for lane in lanes if lane[-1].end_ns <= step.start_ns), None)
        if lane is None:
            lanes.append([step])
        else:
            lane.append(step)
    return lanes


def _device(device: Mapping[str, Any], parts: list[Part] | None, label: str) -> DeviceBar:
    wall_ns = device["wall_ns"]
    hidden = [Part(kind, f"{kind} hidden behind compute", device[f"{kind}_overlapped_ns"],
                   pct_of(device[f"{kind}_overlapped_ns"], wall_ns))
              for kind in ("communication", "memory") if device[f"{kind}_overlapped_ns"]]
    return DeviceBar(device["index"], device["name"], wall_ns, device["busy_ns"],
                     parts or [*_parts(device, wall_ns)[:-1], *_idle(device)], hidden, device["longest_gaps"],
                     label or f"GPU {device['index']}")


def _parts(time: Mapping[str, Any], of_ns: int) -> list[Part]:
    return [Part(kind, label, time[f"{kind}_ns"], pct_of(time[f"{kind}_ns"], of_ns)) for kind, label in PARTS]


def _idle(device: Mapping[str, Any]) -> list[Part]:
    """Idle time by cause; what no cause explains is idle without one."""
    causes, wall_ns = device["idle_causes"], device["wall_ns"]
    parts = [Part("idle", f"idle, {label}", causes[key], pct_of(causes[key], wall_ns), why)
             for key, label, why in IDLE_CAUSES if causes.get(key)]
    rest_ns = device["idle_ns"] - sum(part.ns for part in parts)
    return [*parts, Part("idle", "idle", rest_ns, pct_of(rest_ns, wall_ns))] if rest_ns else parts


def _step(step: Mapping[str, Any], start_ns: int, wall_ns: int) -> StepBox:
    dur_ns = step["end_ns"] - step["start_ns"]
    return StepBox(step["name"], step["start_ns"], step["end_ns"], pct_of(step["busy_ns"], dur_ns), _parts(step, dur_ns),
                   f"{pct_of(step['start_ns'] - start_ns, wall_ns):.4f}", f"{pct_of(dur_ns, wall_ns):.4f}")


# Bars of critical paths, as numbers for HTML: what each path consists of. They need no script and say their exact values.

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
