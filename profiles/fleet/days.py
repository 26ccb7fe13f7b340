"""Days and months with data, and which of their rows answer: the same for every store, in PostgreSQL whichever keeps the sums.

The clock is PostgreSQL's and is read once the day's row is locked: what came after a day was summed is always newer than its sum.
A month's sum holds as long as each of its days is summed and was last summed before it.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Sequence
from itertools import pairwise

from django.db import connection
from django.db.models import Count, F, Max, Q
from django.db.models.functions import TruncMonth

from profiles.fleet.models import FleetDay, FleetHour, FleetMonth
from profiles.fleet.store import Window

DAY_HOURS = 24
_EPOCH = datetime.date(1970, 1, 1)
UNSUMMED = Q(rolled=None) | Q(rolled__lt=F("written"))
# a value of before the lock would be older than a sum that the writer waited for, and its rows would stay unseen
_WRITTEN = """INSERT INTO profiles_fleetday AS d (day, written, compacted) VALUES (%s, clock_timestamp(), 0)
ON CONFLICT (day) DO UPDATE SET written = greatest(clock_timestamp(), coalesce(d.rolled, d.written) + interval '1 microsecond'),
    compacted = least(d.compacted, %s), closed = NULL"""
_HOURS_WRITTEN = """INSERT INTO profiles_fleethour (hour, written) SELECT hour, clock_timestamp() FROM unnest(%s::bigint[]) hour
ON CONFLICT (hour) DO UPDATE SET written = excluded.written, compared = NULL"""
_MONTH_SUMMED = """INSERT INTO profiles_fleetmonth (month, rolled)
SELECT %s, greatest(clock_timestamp(), max(rolled)) FROM profiles_fleetday WHERE day >= %s AND day < %s
ON CONFLICT (month) DO UPDATE SET rolled = excluded.rolled"""


def day_number(day: datetime.date) -> int:
    return (day - _EPOCH).days


def date_of(day: int) -> datetime.date:
    return _EPOCH + datetime.timedelta(days=day)


def month_of(day: int) -> int:
    """Return the first day of a day's month."""
    return day_number(date_of(day).replace(day=1))


def month_end(month: int) -> int:
    """Return the first day of the month after."""
    return month_of(month + 31)


def mark_written(hours: Iterable[int]) -> None:
    """Note that rows of hours came; call it after them, in the transaction that keeps them. In order: no two wait crosswise."""
    first: dict[int, int] = {}
    ordered = sorted(set(hours))
    for hour in ordered:
        first.setdefault(hour // DAY_HOURS, hour)
    with connection.cursor() as cursor:
        for day, hour in sorted(first.items()):
            cursor.execute(_WRITTEN, [date_of(day), hour])
        cursor.execute(_HOURS_WRITTEN, [ordered])
    months = {date_of(month_of(day)) for day in first}
    FleetMonth.objects.filter(month__in=months, closed__isnull=False).update(closed=None)


def lock_day(day: int) -> FleetDay:
    """Wait for its writers, and let others wait until the transaction ends.

    Raises:
        FleetDay.DoesNotExist: no row of it ever came.
    """
    return FleetDay.objects.select_for_update().get(day=date_of(day))


def lock_month(month: int) -> bool:
    """Lock the days of a month; return whether each of them is summed, so that the month can be."""
    days = FleetDay.objects.filter(day__gte=date_of(month), day__lt=date_of(month_end(month))).order_by("day").select_for_update()
    rows = list(days)
    return bool(rows) and all(row.rolled and row.rolled >= row.written for row in rows)


def mark_summed(day: int) -> None:
    with connection.cursor() as cursor:
        cursor.execute("UPDATE profiles_fleetday SET rolled = greatest(clock_timestamp(), written) WHERE day = %s", [date_of(day)])


def mark_month_summed(month: int) -> None:
    """Call it in the transaction that locked the month's days."""
    with connection.cursor() as cursor:
        cursor.execute(_MONTH_SUMMED, [date_of(month), date_of(month), date_of(month_end(month))])


def mark_compacted(day: int, before: int) -> None:
    FleetDay.objects.filter(day=date_of(day)).update(compacted=before)


def joined_parts(window: Window) -> list[tuple[Window, bool]]:
    """Return the days of a window, in up to two parts each: hours that are joined to (nearly) one row a key, and the others."""
    first, last = window.from_hour // DAY_HOURS, (window.to_hour - 1) // DAY_HOURS
    days = FleetDay.objects.filter(day__gte=date_of(first), day__lte=date_of(last)).order_by("day").values_list("day", "compacted")
    out = []
    for day, compacted in days:
        begin, end = max(window.from_hour, day_number(day) * DAY_HOURS), min(window.to_hour, (day_number(day) + 1) * DAY_HOURS)
        middle = min(max(begin, compacted), end)
        out += [(Window(low, high), joined) for low, high, joined in ((begin, middle, True), (middle, end, False)) if low < high]
    return out


def months_to_sum(today: int) -> list[int]:
    """Return months that ended, whose days are all summed, some of them after the month."""
    summed = dict(FleetMonth.objects.values_list("month", "rolled"))
    months = (FleetDay.objects.filter(day__lt=date_of(month_of(today))).annotate(month=TruncMonth("day")).values("month")
              .annotate(newest=Max("rolled"), open=Count("day", filter=UNSUMMED)).filter(open=0).order_by("month"))
    return [day_number(row["month"]) for row in months
            if row["month"] not in summed or summed[row["month"]] < row["newest"]]


def extent() -> Window | None:
    """Return the first and the last hour of days with rows, None where there is none."""
    days = FleetDay.objects.order_by("day").values_list("day", flat=True)
    first, last = days.first(), days.last()
    if first is None or last is None:
        return None
    begin, end = day_number(first), day_number(last) + 1
    months = FleetMonth.objects.filter(month__in=[first.replace(day=1), last.replace(day=1)], closed__isnull=False)
    for month in map(day_number, months.values_list("month", flat=True)):       # what is kept of them is the month as a whole
        begin, end = min(begin, month), max(end, month_end(month))
    return Window(begin * DAY_HOURS, end * DAY_HOURS)


def coarsest_of(step_hours: int | None, window: Window) -> str:
    """Return the coarsest level whose rows lie within one step: a day's row knows no hours, a month's no days."""
    if step_hours is None or step_hours >= window.to_hour:
        return "month"
    return "day" if step_hours % DAY_HOURS == 0 else "hour"


def spans(window: Window, coarsest: str = "month") -> list[tuple[str, int, int]]:
    """Return which level answers for which part of a window, in numbers of its own: (level, first, end).

    Months and days that lie whole in the window are taken where their sums hold, hours for the rest. `coarsest`: "month", "day" or
    "hour"; what asks when within a month or a day takes the finer rows, as long as they are kept.
    """
    days = _summed_days(window) if coarsest != "hour" else []
    months = _summed_months(window) if coarsest == "month" else []
    whole = [("month", month, month_end(month)) for month in months]
    inside = {day for _, first, end in whole for day in range(first, end)}
    whole = sorted([*whole, *(("day", day, day + 1) for day in days if day not in inside)], key=lambda part: part[1])
    out: list[tuple[str, int, int]] = []
    hour = window.from_hour
    for level, first, end in whole:
        if first * DAY_HOURS > hour:
            out.append(("hour", hour, first * DAY_HOURS))
        if out and out[-1][0] == level and out[-1][2] == first:
            out[-1] = (level, out[-1][1], end)
        else:
            out.append((level, first, end))
        hour = end * DAY_HOURS
    if hour < window.to_hour or not out:
        out.append(("hour", hour, window.to_hour))
    return out


def _summed_days(window: Window) -> list[int]:
    first, last = -(-window.from_hour // DAY_HOURS), window.to_hour // DAY_HOURS
    if first >= last:
        return []
    rows = FleetDay.objects.filter(day__gte=date_of(first), day__lt=date_of(last), rolled__gte=F("written"))
    return sorted(map(day_number, rows.values_list("day", flat=True)))


def _summed_months(window: Window) -> list[int]:
    """Months that lie whole in a window and whose sums hold."""
    first, last = -(-window.from_hour // DAY_HOURS), window.to_hour // DAY_HOURS
    first = first if month_of(first) == first else month_end(month_of(first))
    if first >= month_of(last):
        return []
    low, high = date_of(first), date_of(month_of(last))
    months = dict(FleetMonth.objects.filter(month__gte=low, month__lt=high).values_list("month", "rolled"))
    if not months:
        return []
    days = (FleetDay.objects.filter(day__gte=low, day__lt=high).annotate(month=TruncMonth("day"))
            .values("month").annotate(newest=Max("rolled"), open=Count("day", filter=UNSUMMED)))
    is_summed = {row["month"]: not row["open"] and row["newest"] <= months[row["month"]] for row in days if row["month"] in months}
    return sorted(day_number(month) for month in months if is_summed.get(month, False))


def forget_days(days: Iterable[int]) -> None:
    """Remove days without a row with their hours, and months without a day."""
    dates = {date_of(day): day for day in days}
    FleetDay.objects.filter(day__in=list(dates)).delete()
    FleetHour.objects.filter(hour__in=[day * DAY_HOURS + hour for day in dates.values() for hour in range(DAY_HOURS)]).delete()
    months = FleetDay.objects.annotate(month=TruncMonth("day")).values("month")
    FleetMonth.objects.exclude(month__in=months).delete()


def close_before(level: str, day: int, closed: datetime.datetime) -> None:
    """Let no more rows come for days (level "hour") or months ("day") that end before a day and whose sums hold."""
    if level == "hour":
        FleetDay.objects.filter(day__lt=date_of(day), closed=None, rolled__gte=F("written")).update(closed=closed)
        return
    months = _summed_months(Window(0, day * DAY_HOURS))
    FleetMonth.objects.filter(month__in=[date_of(month) for month in months], closed=None).update(closed=closed)


def closed_before(level: str, day: int, since: datetime.datetime) -> int:
    """Return up to which day everything was closed before a moment: what may be forgotten of a level, at most until `day`."""
    waits: Iterable[datetime.date]
    if level == "hour":
        waits = FleetDay.objects.filter(Q(closed=None) | Q(closed__gte=since)).order_by("day").values_list("day", flat=True)[:1]
        return min([day, *map(day_number, waits)])
    closed = set(FleetMonth.objects.filter(closed__lt=since).values_list("month", flat=True))
    months = FleetDay.objects.annotate(month=TruncMonth("day")).order_by("month").values_list("month", flat=True).distinct()
    waits = [month for month in months if month not in closed][:1]
    return min([month_of(day), *map(day_number, waits)])


def closed_days(days: Iterable[int]) -> list[int]:
    """Return which of some days take no more rows."""
    dates = {date_of(day): day for day in days}
    months = {date.replace(day=1) for date in dates}
    closed = set(FleetDay.objects.filter(day__in=list(dates), closed__isnull=False).values_list("day", flat=True))
    of_month = set(FleetMonth.objects.filter(month__in=list(months), closed__isnull=False).values_list("month", flat=True))
    return sorted(day for date, day in dates.items() if date in closed or date.replace(day=1) in of_month)


def too_coarse(window: Window, coarsest: str = "month") -> list[tuple[str, Window]]:
    """Return the parts of a window that cannot be answered, as (level that is kept, part).

    Of them only sums of days or months are kept, which reach beyond the window or the steps that are asked for.
    """
    out: list[tuple[str, Window]] = []
    for level, first, end in spans(window, coarsest):
        if level == "month":
            continue
        hours = Window(first, end) if level == "hour" else Window(first * DAY_HOURS, end * DAY_HOURS)
        low, high = hours.from_hour // DAY_HOURS, date_of(-(-hours.to_hour // DAY_HOURS))
        closed = FleetMonth.objects.filter(closed__isnull=False, month__gte=date_of(month_of(low)), month__lt=high)
        whole = [(month, month_end(month)) for month in map(day_number, closed.values_list("month", flat=True))]
        out += [("month", part) for part in _parts(hours, whole)]
        if level == "hour":
            days = FleetDay.objects.filter(closed__isnull=False, day__gte=date_of(low), day__lt=high).values_list("day", flat=True)
            single = [(day, day + 1) for day in map(day_number, days) if not any(begin <= day < after for begin, after in whole)]
            out += [("day", part) for part in _parts(hours, single)]
    return sorted(_joined(out), key=lambda part: part[1].from_hour)


def _parts(window: Window, days: Sequence[tuple[int, int]]) -> list[Window]:
    """What a window has in common with spans of days."""
    cut = [(max(window.from_hour, first * DAY_HOURS), min(window.to_hour, end * DAY_HOURS)) for first, end in days]
    return [Window(first, end) for first, end in cut if first < end]


def _joined(parts: list[tuple[str, Window]]) -> list[tuple[str, Window]]:
    """Neighbours of one level as one."""
    ordered = sorted(parts, key=lambda part: (part[0], part[1].from_hour))
    begins = [index for index, part in enumerate(ordered) if not index or ordered[index - 1][0] != part[0]
              or ordered[index - 1][1].to_hour != part[1].from_hour]
    return [(ordered[first][0], Window(ordered[first][1].from_hour, ordered[end - 1][1].to_hour))
            for first, end in pairwise([*begins, len(ordered)])] if ordered else []
