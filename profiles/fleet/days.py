"""Days with data, and which of their rows answer: the same for every store, in PostgreSQL whichever keeps the sums.

The clock is PostgreSQL's and is read once the day's row is locked: what came after a day was summed is always newer than its sum.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable

from django.db import connection

from profiles.fleet.models import FleetDay
from profiles.fleet.store import Window

DAY_HOURS = 24
_EPOCH = datetime.date(1970, 1, 1)
# a value of before the lock would be older than a sum that the writer waited for, and its rows would stay unseen
_WRITTEN = """INSERT INTO profiles_fleetday AS d (day, written, compacted) VALUES (%s, clock_timestamp(), 0)
ON CONFLICT (day) DO UPDATE SET written = greatest(clock_timestamp(), coalesce(d.rolled, d.written) + interval '1 microsecond'),
    compacted = least(d.compacted, %s)"""


def day_number(day: datetime.date) -> int:
    return (day - _EPOCH).days


def date_of(day: int) -> datetime.date:
    return _EPOCH + datetime.timedelta(days=day)


def mark_written(hours: Iterable[int]) -> None:
    """Note that rows of hours came; call it after them, in the transaction that keeps them. In order: no two wait crosswise."""
    first: dict[int, int] = {}
    for hour in sorted(hours):
        first.setdefault(hour // DAY_HOURS, hour)
    with connection.cursor() as cursor:
        for day, hour in sorted(first.items()):
            cursor.execute(_WRITTEN, [date_of(day), hour])


def lock_day(day: int) -> FleetDay:
    """Wait for its writers, and let others wait until the transaction ends.

    Raises:
        FleetDay.DoesNotExist: no row of it ever came.
    """
    return FleetDay.objects.select_for_update().get(day=date_of(day))


def mark_summed(day: int) -> None:
    with connection.cursor() as cursor:
        cursor.execute("UPDATE profiles_fleetday SET rolled = greatest(clock_timestamp(), written) WHERE day = %s", [date_of(day)])


def mark_compacted(day: int, before: int) -> None:
    FleetDay.objects.filter(day=date_of(day)).update(compacted=before)


def extent() -> Window | None:
    """Return the first and the last hour of days with rows, None where there is none."""
    days = FleetDay.objects.order_by("day").values_list("day", flat=True)
    first, last = days.first(), days.last()
    if first is None or last is None:
        return None
    return Window(day_number(first) * DAY_HOURS, (day_number(last) + 1) * DAY_HOURS)


def spans(window: Window, *, hours_only: bool = False) -> list[tuple[str, int, int]]:
    """Return which level answers for which part of a window: days that are summed whole, else their hours.

    `hours_only`: what asks when within a day takes hours, as long as they are kept.
    """
    if hours_only:
        return [("hour", window.from_hour, window.to_hour)]
    first, last = -(-window.from_hour // DAY_HOURS), window.to_hour // DAY_HOURS
    out: list[tuple[str, int, int]] = []
    summed: list[int] = []
    if first < last:
        days = FleetDay.objects.filter(day__gte=date_of(first), day__lt=date_of(last), rolled__isnull=False).values_list(
            "day", "written", "rolled")
        summed = sorted(day_number(day) for day, written, rolled in days if rolled and rolled >= written)
    at = window.from_hour
    for day in summed:
        if day * DAY_HOURS > at:
            out.append(("hour", at, day * DAY_HOURS))
        if out and out[-1][0] == "day" and out[-1][2] == day:
            out[-1] = ("day", out[-1][1], day + 1)
        else:
            out.append(("day", day, day + 1))
        at = (day + 1) * DAY_HOURS
    if at < window.to_hour or not out:
        out.append(("hour", at, window.to_hour))
    return out
