"""Reads of production's regressions: rows, their series, and links to what explains them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import NotRequired, TypedDict

from django.db.models import F, FloatField, Max, QuerySet
from django.db.models.functions import Cast
from django.urls import reverse
from django.utils.http import urlencode

from profiles.base.answers import make_answer
from profiles.models import KernelStat, Profile
from profiles.running.schedule_services import job_to_capture
from tuner.gate.builds.selectors import URGENT, regressions_in
from tuner.gate.production.point_services import MOST_SERIES, Watched
from tuner.gate.production.series import FLOOR, LEAST_DAYS, LEAST_LAUNCHES, WEEKLY
from tuner.gate.production.services import WINDOW_DAYS
from tuner.gate.stats.results import percent_text
from tuner.models import Build, ProductionDay, ProductionPoint, ProductionRegression, Suite, SuiteKernel

# What pages, messages and commands say of production's regressions.


def interval_text(row: ProductionRegression) -> str:
    """"+11.2 to +12.4 %"; "—" where there are too few days."""
    if row.low is None or row.high is None:
        return "—"
    return f"{percent_text(row.low).removesuffix(' %')} to {percent_text(row.high)}"


def builds_text(row: ProductionRegression) -> str:
    """"serve-2.18 → serve-2.19"; a change without a new build says so."""
    if row.from_build == row.to_build:
        return f"{row.to_build or 'unknown build'}, unchanged: the environment or the input changed"
    return f"{row.from_build or 'unknown build'} → {row.to_build or 'unknown build'}"


def headline(row: ProductionRegression) -> str:
    """Return one regression as a sentence without its end."""
    label = "Simulated: " if row.simulated else ""
    return (f"{label}{row.short_name} on {row.gpu_model or 'unknown GPU'} takes {percent_text(row.ratio)} since {row.since}"
            f" ({builds_text(row)})")


def list_sentence(rows: Sequence[ProductionRegression], series: int, days: int, watched: Watched | None) -> str:
    """The answer of the page: what is slower in production, or how much was looked at."""
    opened = [row for row in rows if row.state == ProductionRegression.State.OPEN]
    if opened:
        worst = max(opened, key=lambda each: (each.ratio - 1) * each.day_ns)
        count = f"{len(opened)} kernel{'s are' if len(opened) != 1 else ' is'} slower in production"
        return f"{count}. Most time is lost by: {headline(worst)}."
    if days < 2 * LEAST_DAYS:
        return (f"Too early to say: {days} day{'s' * (days != 1)} summed. A change shows once {LEAST_DAYS} days before it and "
                f"{LEAST_DAYS} after it were summed.")
    return (f"Nothing is slower among the {series:,} series watched over {days} days, changes above {100 * FLOOR:.0f} %. "
            f"{watched_text(watched)}").rstrip()


def watched_text(watched: Watched | None) -> str:
    """"They hold 93 % of the GPU time seen; not watched: 310 series with fewer than 20 launches of a GPU in every hour."."""
    if watched is None:
        return "How much of the GPU time they hold was not counted yet."
    if watched.time_pct is None:
        return ""
    share = watched.time_pct
    shown = "all" if share == 100 else f"{min(share, 99.9):.1f} %"
    left = [f"{count:,} series {why}" for count, why in (
        (watched.seldom, f"with fewer than {LEAST_LAUNCHES} launches of a GPU in every hour"),
        (watched.beyond, f"beyond the {MOST_SERIES:,} with most time")) if count]
    if not left and share < 100:
        left = [f"hours with fewer than {LEAST_LAUNCHES} launches of a GPU"]
    return f"They hold {shown} of the GPU time seen{'; not watched: ' + ', '.join(left) if left else ''}."


FILTERS = ("state", "gpu_model", "build", "q", "simulated")
_LOST = (Cast(F("ratio"), FloatField()) - 1.0) * Cast(F("day_ns"), FloatField())


@dataclass(frozen=True)
class Looked:
    """How much stands behind an answer."""

    days: int
    series: int
    newest: str | None
    watched: Watched | None = None


def production_list(filters: Mapping[str, str]) -> QuerySet[ProductionRegression]:
    """Return regressions, open ones first, by the GPU time that they cost a day."""
    terms = {name: filters.get(name, "") for name in FILTERS}
    rows = regressions_in(terms["state"], ProductionRegression.objects.select_related("guarded_by__suite", "changed_by"))
    if any("\0" in value for value in terms.values()):
        return rows.none()
    if terms["gpu_model"]:
        rows = rows.filter(gpu_model=terms["gpu_model"])
    if terms["build"]:
        rows = rows.filter(to_build=terms["build"]) | rows.filter(from_build=terms["build"])
    if terms["q"]:
        rows = rows.filter(kernel__icontains=terms["q"])
    if terms["simulated"] in ("yes", "no"):
        rows = rows.filter(simulated=terms["simulated"] == "yes")
    return rows.order_by(URGENT, _LOST.desc(), "pk")


def looked_at() -> Looked:
    """Return what the newest look rests on."""
    newest = ProductionDay.objects.aggregate(newest=Max("day"))["newest"]
    if newest is None:
        return Looked(0, 0, None)
    since = newest - timedelta(days=WINDOW_DAYS)
    series = (ProductionPoint.objects.filter(day__gt=since).order_by()
              .values("signature", "gpu_model", "model", "simulated").distinct().count())
    days = list(ProductionDay.objects.filter(day__gt=since).order_by("-day").values_list("watched", flat=True))
    return Looked(len(days), series, newest.isoformat(), Watched.of_days(days))


def answer(looked: Looked) -> str:
    """Return what is slower in production, whatever a page filters."""
    opened = ProductionRegression.objects.filter(state=ProductionRegression.State.OPEN)
    return list_sentence(list(opened), looked.series, looked.days, looked.watched)


def series_points(row: ProductionRegression) -> list[ProductionPoint]:
    """Return the points of a regression's series, oldest day first."""
    return list(ProductionPoint.objects.filter(signature=row.signature, gpu_model=row.gpu_model, model=row.model,
                                               simulated=row.simulated).order_by("day", "first_hour", "build"))


def gpu_models() -> list[str]:
    return sorted(ProductionRegression.objects.order_by().values_list("gpu_model", flat=True).distinct())


def fleet_url(row: ProductionRegression) -> str:
    """The fleet's page, filtered to the kernel on this GPU model, by build."""
    query = {"kernel": row.kernel if len(row.kernel) <= 300 else "", "signature": str(row.signature), "gpu_model": row.gpu_model,
             "group": "build", "simulated": "yes" if row.simulated else "no"}
    return f"{reverse('fleet')}?{urlencode({name: value for name, value in query.items() if value})}"


def links(row: ProductionRegression) -> dict[str, str]:
    """What explains a regression: its page, the fleet, both builds, their profiles, a deep capture of the new build, a job that
    runs it; and where any profile shows the kernel, the page on which it is tuned and guarded with its shape."""
    urls = {"page": reverse("production-regression", args=[row.pk]), "fleet": fleet_url(row)}
    both = row.from_build and row.to_build and row.from_build != row.to_build
    if row.to_build and Build.objects.filter(name=row.to_build).exists():
        urls["build"] = reverse("build", args=[row.to_build]) + (f"?{urlencode({'against': row.from_build})}" if both else "")
    profiled = set(Profile.objects.filter(status=Profile.Status.READY, build__in=[row.from_build, row.to_build]).exclude(build="")
                   .values_list("build", flat=True))
    if both and {row.from_build, row.to_build} <= profiled:
        urls["compare"] = f"{reverse('compare')}?{urlencode({'build_a': row.from_build, 'build_b': row.to_build})}"
    if row.to_build and not row.simulated and (job := job_to_capture(row.gpu_model, row.model, row.to_build)):
        urls["running"] = f"{reverse('fleet-captures')}?{urlencode({'job': job})}"
    if row.to_build in profiled:
        deep = (KernelStat.objects.filter(profile__status=Profile.Status.READY, profile__build=row.to_build, name=row.kernel)
                .order_by("-profile__created").values_list("profile_id", "pk").first())
        if deep:
            urls["capture"] = reverse("kernel", args=deep)
    stat_pk = (KernelStat.objects.filter(profile__status=Profile.Status.READY, name=row.kernel)
               .order_by("-profile__created").values_list("pk", flat=True).first())
    if stat_pk:
        urls["problem"] = f"{reverse('problem')}?{urlencode({'kernel': stat_pk})}"
    return urls


def guards(row: ProductionRegression) -> list[SuiteKernel]:
    """Return entries of suites that measure a kernel of this name: what CI could have seen."""
    return list(SuiteKernel.objects.filter(op=(row.short_name or row.kernel)[:200], suite__in=Suite.objects.values("pk"))
                .select_related("suite").order_by("suite__name", "place")[:20])


class ProductionJson(TypedDict):
    """A kernel that became slower in production; its `grid`, `block` and `shared_bytes` where they are known."""

    id: int
    kernel: str
    name: str
    signature: int
    grid: NotRequired[list[int]]
    block: NotRequired[list[int]]
    shared_bytes: NotRequired[int]
    gpu_model: str
    model: str
    simulated: bool
    from_build: str
    to_build: str
    since: str
    slower_pct: float
    ratio: float
    ci: list[float] | None
    before_us: float
    after_us: float
    p_value: float
    days_before: int
    days_after: int
    gpus: int
    series: int
    state: str
    note: str
    fixed_in: str | None
    text: str
    builds: str
    interval: str
    suite: str | None
    links: dict[str, str]


def production_json(row: ProductionRegression) -> ProductionJson:
    return make_answer(
        ProductionJson, row, name=row.short_name, **row.shape, slower_pct=100 * (row.ratio - 1),
        fixed_in=row.fixed_in or None, text=headline(row), builds=builds_text(row), interval=interval_text(row),
        suite=row.guarded_by.suite.name if row.guarded_by else None, links=links(row))


class WatchedJson(TypedDict):
    """Of the newest day, series with a point and those left out; GPU time behind the points, and all that was seen, in ns."""

    series: int
    seldom: int
    beyond: int
    watched_ns: int
    seen_ns: int
    time_pct: float | None


class LookedJson(TypedDict):
    """How much of production was looked at, and from which change on a series is told."""

    days: int
    series: int
    newest_day: str | None
    watched: WatchedJson | None
    says: str
    floor_pct: float
    least_days: int
    weekly_false_alarms: float


def production_document() -> LookedJson:
    """Return what the API and the command say beside the list."""
    looked = looked_at()
    return {"days": looked.days, "series": looked.series, "newest_day": looked.newest,
            "watched": make_answer(WatchedJson, looked.watched) if looked.watched else None,
            "says": answer(looked),
            "floor_pct": 100 * FLOOR,
            "least_days": LEAST_DAYS, "weekly_false_alarms": WEEKLY}
