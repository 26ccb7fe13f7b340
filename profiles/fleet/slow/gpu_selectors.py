"""Slow GPUs of the fleet, with what their sensors said."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import groupby

import pyarrow as pa

from profiles.base.answers import plain
from profiles.fleet.days import DAY_HOURS, too_coarse
from profiles.fleet.models import FleetGpu, FleetHour
from profiles.fleet.selectors import SpanJson, gap_words, moment, question_of, span
from profiles.fleet.slow.compared import joined, of_contexts, unpacked
from profiles.fleet.slow.compared_services import MOST_HOURS, compared_now, judged_hours
from profiles.fleet.slow.slow_gpus import DEVIATIONS, LEAST_PCT, Level, judge_compared
from profiles.fleet.store import Question, Window
from profiles.fleet.stores import fleet_store

WITHIN_HOURS = {"context", "gpu_model_key"}         # filters that change no comparison: of a context and of a model each is its own


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

    def as_json(self) -> SlowGpusJson:
        return {**span(self.window), "least_pct": LEAST_PCT, "deviations": DEVIATIONS, "gaps": list(self.gaps),
                "rows": plain(self.rows)}


class SlowGpusJson(SpanJson):
    """Every GPU of the window beside the others of its model."""

    least_pct: float
    deviations: float
    gaps: list[str]
    rows: list[GpuRow]


def slow_gpus(query: Mapping[str, str]) -> SlowGpus:
    """Return every GPU of the window, judged over its last hours: MOST_HOURS, and MOST_GPU_HOURS of all GPUs together."""
    question = question_of({**query, "group": "gpu"}, None)
    if question is None:
        return SlowGpus(None, [])
    most_hours = judged_hours(len(question.where["gpu"]) if "gpu" in question.where else FleetGpu.objects.count())
    if question.where:
        question = replace(question, window=_to_last_day(question))
    end = question.window.to_hour if most_hours == MOST_HOURS else _last_hour(question) + 1
    window = Window(max(question.window.from_hour, end - most_hours), end)
    rows = _compared(replace(question, window=window))
    # most GPUs have rows: naming each takes longer than reading all
    gpus = {gpu.id: gpu for gpu in (FleetGpu.objects.filter(id__in=question.where["gpu"]) if "gpu" in question.where
                                    else FleetGpu.objects.all())}
    levels = judge_compared(rows, {key: gpu.model for key, gpu in gpus.items()})
    return SlowGpus(window, [_row(level, gpus[level.gpu]) for level in levels if level.gpu in gpus],
                    gap_words(too_coarse(window, "hour")))


def _to_last_day(question: Question) -> Window:
    """Return the window to the end of the last day with data of what is asked: a job may have ended weeks before the others."""
    window = question.window
    rows = fleet_store().watched(replace(question, group="gpu_model", limit=None), DAY_HOURS)
    last = max((hour for hour, _, coverage, _, _ in rows if coverage.wall_ns), default=None)
    return window if last is None else Window(window.from_hour, max(window.from_hour + 1, min(window.to_hour, last + DAY_HOURS)))


def _last_hour(question: Question) -> int:
    """Return the last hour of a window with data, as far as its last day knows: one that rests, where there is one.

    The parts of an hour that is still written are many where GPUs are: adding them up takes longer than all hours that rest.
    """
    window = question.window
    last_day = Window(max(window.from_hour, window.to_hour - DAY_HOURS), window.to_hour)
    rows = fleet_store().watched(Question(last_day, "gpu_model", question.where, None), 1)
    hours = {hour for hour, _, coverage, _, _ in rows if coverage.wall_ns}
    rest = FleetHour.objects.filter(hour__in=hours, compared__isnull=False).order_by("-hour").values_list("hour", flat=True).first()
    return rest if rest is not None else max(hours, default=window.to_hour - 1)


def _compared(question: Question) -> pa.Table:
    """What GPUs are judged by: hours that rest as they were compared, the others (where GPUs are chosen, all) now."""
    records = list(FleetHour.objects.filter(hour__gte=question.window.from_hour, hour__lt=question.window.to_hour).order_by("hour")
                   .values_list("hour", "compared"))
    parts = []
    for is_kept, run in groupby(records, lambda row: row[1] is not None and set(question.where) <= WITHIN_HOURS):
        hours = list(run)
        if is_kept:
            parts += [unpacked(bytes(packed or b"")) for _, packed in hours]
        else:
            span_of = Window(hours[0][0], hours[-1][0] + 1)
            parts.append(compared_now(Question(span_of, "gpu", question.where, None)))
    rows = joined(parts)
    return of_contexts(rows, question.where["context"]) if "context" in question.where else rows


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
