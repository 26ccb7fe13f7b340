"""Keep what each summed day says of the kernels with most time: one row a series and build, from the hours of GPUs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import asdict, dataclass
from datetime import date, timedelta
from typing import Any, NamedTuple

from django.conf import settings
from django.db import transaction
from django.db.models import F
from django.utils import timezone

from profiles.fleet.models import FleetContext, FleetDay
from profiles.fleet.store import Question, Window
from profiles.fleet.stores import fleet_store
from tuner.gate.production.series import block_medians, hour_levels, hour_times
from tuner.models import ProductionDay, ProductionPoint
from workers import jobs

# How much of what a fleet launched is looked at: kernels that run too seldom have no level to compare. Pure.


@dataclass(frozen=True)
class Watched:
    """Of one day. A series counts once, whatever its builds."""

    series: int                 # with a point
    seldom: int                 # left out: no GPU launched it LEAST_LAUNCHES times within any hour
    beyond: int                 # left out: others have more GPU time (MOST_SERIES)
    watched_ns: int             # GPU time of the hours behind the points
    seen_ns: int                # GPU time of all launches that were seen

    def as_json(self) -> dict[str, int]:
        return asdict(self)

    @classmethod
    def of_days(cls, kept: Iterable[dict[str, Any] | None]) -> Watched | None:
        """Return the sum of times over days, newest first, and the series of the newest; None where no day counted them."""
        days = [cls(**counts) for counts in kept if counts]
        if not days:
            return None
        newest = days[0]
        return cls(newest.series, newest.seldom, newest.beyond, sum(day.watched_ns for day in days),
                   sum(day.seen_ns for day in days))

    @property
    def time_pct(self) -> float | None:
        return 100 * self.watched_ns / self.seen_ns if self.seen_ns else None


QUEUE, TASK = jobs.SMALL, "production"
MOST_SERIES = 2_000         # of a day, those with most GPU time; of real and of simulated jobs each
KEPT_DAYS = 400             # of points
LOOK_BACK = timedelta(days=60)      # older days are not read anew
EPOCH = date(1970, 1, 1)


class Group(NamedTuple):
    """What the launches of one series' build have in common."""

    gpu_model: str
    model: str
    build: str
    simulated: bool


def days_to_keep() -> list[date]:
    """Return days that were summed since their points were kept, oldest first."""
    since = timezone.now().date() - min(LOOK_BACK, timedelta(days=settings.FLEET_KEEP_HOURS_DAYS))
    rolled = dict(FleetDay.objects.filter(day__gte=since, rolled__gte=F("written")).values_list("day", "rolled"))
    times_by_day = dict(ProductionDay.objects.filter(day__in=rolled).values_list("day", "summed"))
    return sorted(day for day, time in rolled.items() if times_by_day.get(day) != time)


def wake_production(queued: Collection[int]) -> list[int]:
    """Enqueue the look at days that were summed since; return their first, as days since 1970."""
    days = [] if queued else days_to_keep()[:1]
    for day in days:
        jobs.enqueue(QUEUE, TASK, (day - EPOCH).days)
    return [(day - EPOCH).days for day in days]


def keep_day(day: date) -> int:
    """Write the points of one day anew; return how many. One transaction: a day is never half there."""
    with transaction.atomic():
        fleet_day = FleetDay.objects.select_for_update().filter(day=day).first()
        if fleet_day is None or fleet_day.rolled is None:
            return 0
        points, watched = _points_of(day)
        ProductionPoint.objects.filter(day=day).delete()
        ProductionPoint.objects.bulk_create(points, batch_size=1000)
        ProductionPoint.objects.filter(day__lt=day - timedelta(days=KEPT_DAYS)).delete()
        ProductionDay.objects.update_or_create(day=day, defaults={"summed": fleet_day.rolled, "watched": watched.as_json()})
    return len(points)


def _points_of(day: date) -> tuple[list[ProductionPoint], Watched]:
    """Return a day's points, and how much of what was launched stands behind them."""
    first = (day - EPOCH).days * 24
    numbers: dict[Group, int] = {}
    group_of = {pk: numbers.setdefault(Group(gpu_model, model, build, simulated), len(numbers))
                for pk, gpu_model, model, build, simulated in
                FleetContext.objects.order_by("id").values_list("id", "gpu_model", "model", "build", "simulated")}
    groups = list(numbers)
    levels: dict[tuple[int, int], dict[int, float]] = defaultdict(dict)
    sums: dict[tuple[int, int], list[int]] = defaultdict(lambda: [0, 0, 0])
    seen_ns: dict[tuple[int, int], int] = defaultdict(int)
    for hour in range(24):          # by the hour: a day of a large fleet's GPUs does not fit
        rows = fleet_store().gpu_hours(Question(Window(first + hour, first + hour + 1), "gpu", {}, None)).rows()
        for key, time_ns in hour_times(rows, group_of).items():
            seen_ns[key] += time_ns
        for key, (level, launches, total_ns, gpus) in hour_levels(rows, group_of).items():
            levels[key][hour] = level
            whole = sums[key]
            whole[0], whole[1], whole[2] = whole[0] + launches, whole[1] + total_ns, max(whole[2], gpus)
    points = []
    for key in _most_time({key: (groups[key[1]], whole[1]) for key, whole in sums.items()}):
        group, (launches, total_ns, gpus) = groups[key[1]], sums[key]
        points.append(ProductionPoint(
            day=day, signature=key[0], gpu_model=group.gpu_model, model=group.model, simulated=group.simulated, build=group.build,
            first_hour=first + min(levels[key]), us=block_medians(levels[key]), launches=launches, total_ns=total_ns, gpus=gpus))
    all_keys, frequent_keys, chosen = ({(key[0], *groups[key[1]]._replace(build="")) for key in keys}
                                       for keys in (seen_ns, sums, ((point.signature, numbers[_group(point)]) for point in points)))
    return points, Watched(series=len(chosen), seldom=len(all_keys - frequent_keys), beyond=len(frequent_keys - chosen),
                           watched_ns=sum(point.total_ns for point in points), seen_ns=sum(seen_ns.values()))


def _group(point: ProductionPoint) -> Group:
    return Group(point.gpu_model, point.model, point.build, point.simulated)


def _most_time(time_of: dict[tuple[int, int], tuple[Group, int]]) -> list[tuple[int, int]]:
    """Keys whose series has most time, all builds of a chosen series."""
    whole: dict[tuple[int, str, str, bool], int] = defaultdict(int)
    for (signature, _), (group, total_ns) in time_of.items():
        whole[signature, group.gpu_model, group.model, group.simulated] += total_ns
    ranked = sorted(whole, key=lambda each: (-whole[each], each))
    chosen = {series for simulated in (False, True) for series in [key for key in ranked if key[3] == simulated][:MOST_SERIES]}
    return [key for key, (group, _) in time_of.items() if (key[0], group.gpu_model, group.model, group.simulated) in chosen]
