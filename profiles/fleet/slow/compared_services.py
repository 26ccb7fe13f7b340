"""Hours are compared once they rest, as rows: a page of many GPUs reads what was told of each hour, and compares what is new."""

from __future__ import annotations

from datetime import datetime

import pyarrow as pa
from django.db import transaction

from profiles.fleet.days import DAY_HOURS, lock_day
from profiles.fleet.models import FleetGpu, FleetHour
from profiles.fleet.slow.compared import compare, numbered, packed
from profiles.fleet.store import Question, Window
from profiles.fleet.stores import fleet_store

MOST_HOURS = 24 * 14                # of the window that is looked at, its last
MOST_GPU_HOURS = 50_000             # fewer of them where there are many GPUs: a GPU's hour is up to 32 rows in memory


def judged_hours(gpus: int) -> int:
    """Return how many hours of so many GPUs are looked at."""
    return max(2, min(MOST_HOURS, MOST_GPU_HOURS // max(1, gpus)))


def compared_now(question: Question) -> pa.Table:
    """Return the rows of a window, compared by hour."""
    hours = fleet_store().gpu_hours(question)
    gpus = numbered(hours.gpu)[0].tolist()
    return compare(hours, dict(FleetGpu.objects.filter(pk__in=gpus).values_list("id", "model")))


def compare_rested(ended: int, before: datetime) -> list[int]:
    """Compare hours before `ended` whose last rows came before a moment, as many as are looked at; return which.

    Who reads an hour holds its day: rows that come meanwhile wait, and take what was kept away again (`days.mark_written`).
    """
    newest = list(FleetHour.objects.filter(hour__lt=ended).order_by("-hour").values_list("hour", flat=True)
                  [:judged_hours(FleetGpu.objects.count())])
    if not newest:
        return []
    FleetHour.objects.filter(hour__lt=newest[-1] - DAY_HOURS, compared__isnull=False).update(compared=None)
    waiting = list(FleetHour.objects.filter(hour__in=newest, compared=None, written__lt=before).values_list("hour", flat=True))
    for hour in sorted(waiting, reverse=True):
        with transaction.atomic():
            lock_day(hour // DAY_HOURS)
            rows = compared_now(Question(Window(hour, hour + 1), "gpu", {}, None))
            FleetHour.objects.filter(pk=hour).update(compared=packed(rows))
    return waiting
