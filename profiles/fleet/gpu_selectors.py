"""Slow GPUs of the fleet, with what their sensors said."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from profiles.fleet.days import DAY_HOURS, too_coarse
from profiles.fleet.gpu_hours import numbered
from profiles.fleet.models import FleetGpu
from profiles.fleet.selectors import gap_words, moment, question_of, span
from profiles.fleet.slow_gpus import DEVIATIONS, LEAST_PCT, Level, judge_gpus
from profiles.fleet.store import Question, Window
from profiles.fleet.stores import fleet_store

MOST_HOURS = 24 * 14                # of the window that is looked at, its last
MOST_GPU_HOURS = 50_000             # fewer of them where there are many GPUs: a GPU's hour is up to 32 rows in memory


@dataclass(frozen=True)
class GpuRow:
    gpu_uuid: str
    gpu_model: str
    host: str
    simulated: bool
    verdict: str
    slower_pct: float | None
    since: str | None
    limit_pct: float | None
    hours: int
    launches: int
    signatures: int
    why: str
    text: str


@dataclass(frozen=True)
class SlowGpus:
    window: Window | None
    rows: list[GpuRow]
    gaps: tuple[str, ...] = ()          # parts of the window whose hours are not kept any more

    def as_json(self) -> dict[str, Any]:
        return {**span(self.window), "least_pct": LEAST_PCT, "deviations": DEVIATIONS, "gaps": list(self.gaps),
                "rows": [asdict(row) for row in self.rows]}


def slow_gpus(asked: Mapping[str, str]) -> SlowGpus:
    """Return every GPU of the window, judged over its last hours: MOST_HOURS, and MOST_GPU_HOURS of all GPUs together."""
    question = question_of({**asked, "group": "gpu"}, None)
    if question is None:
        return SlowGpus(None, [])
    gpus_known = len(question.where["gpu"]) if "gpu" in question.where else FleetGpu.objects.count()
    most_hours = max(2, min(MOST_HOURS, MOST_GPU_HOURS // max(1, gpus_known)))
    end = question.window.to_hour if most_hours == MOST_HOURS else _last_hour(question.window) + 1
    window = Window(max(question.window.from_hour, end - most_hours), end)
    hours = fleet_store().gpu_hours(type(question)(window, "gpu", question.where, None))
    gpus = FleetGpu.objects.in_bulk(numbered(hours.gpu)[0].tolist())
    levels = judge_gpus(hours, {key: gpu.model for key, gpu in gpus.items()})
    return SlowGpus(window, [_row(level, gpus[level.gpu]) for level in levels if level.gpu in gpus],
                    gap_words(too_coarse(window, "hour")))


def _last_hour(window: Window) -> int:
    """Return the last hour of a window with data, as far as its last day knows."""
    last_day = Window(max(window.from_hour, window.to_hour - DAY_HOURS), window.to_hour)
    found = fleet_store().watched(Question(last_day, "gpu_model", {}, None), 1)
    return max((hour for hour, _, coverage, _, _ in found if coverage.wall_ns), default=window.to_hour - 1)


def _row(level: Level, gpu: FleetGpu) -> GpuRow:
    since = moment(level.since_hour) if level.since_hour is not None else None
    if level.slower_pct is None:
        text = f"unknown: {level.why}"
    elif level.verdict == "SLOWER":
        text = f"{level.slower_pct:.1f} % slower than the others at {level.signatures} signatures, since {since}"
    else:
        text = f"{level.slower_pct:+.1f} % beside the others (slower is above {level.limit_pct or 0:.1f} %)"
    return GpuRow(gpu.uuid, gpu.model, gpu.host, gpu.simulated, level.verdict, level.slower_pct, since, level.limit_pct,
                  level.hours, level.launches, level.signatures, level.why, text)
