"""Slow GPUs of the fleet, with what their sensors said."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from profiles.fleet.days import too_coarse
from profiles.fleet.models import FleetGpu
from profiles.fleet.selectors import gap_words, moment, question_of, span
from profiles.fleet.slow_gpus import DEVIATIONS, LEAST_PCT, Level, judge_gpus
from profiles.fleet.store import Window
from profiles.fleet.stores import fleet_store

MOST_HOURS = 24 * 14                # of the window that is looked at, its last


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
    """Return every GPU of the window, judged over its last MOST_HOURS hours."""
    question = question_of({**asked, "group": "gpu"}, None)
    if question is None:
        return SlowGpus(None, [])
    window = Window(max(question.window.from_hour, question.window.to_hour - MOST_HOURS), question.window.to_hour)
    rows = fleet_store().gpu_hours(type(question)(window, "gpu", question.where, None))
    gpus = {gpu.id: gpu for gpu in FleetGpu.objects.filter(id__in={row[1] for row in rows})}
    levels = judge_gpus(rows, {key: gpu.model for key, gpu in gpus.items()})
    return SlowGpus(window, [_row(level, gpus[level.gpu]) for level in levels if level.gpu in gpus],
                    gap_words(too_coarse(window, "hour")))


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
