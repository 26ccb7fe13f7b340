"""Kernel families ranked by what could be won back, with where to go from each. Pages, API and the command share them."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from django.db.models import (
    BooleanField,
    Case,
    CharField,
    Count,
    ExpressionWrapper,
    F,
    FloatField,
    Max,
    Q,
    QuerySet,
    Sum,
    Value,
    When,
)
from django.urls import reverse
from django.utils.http import urlencode

from profiles.analysis.core.sentences import pct_of, pct_text, time_text
from profiles.analysis.core.shapes import bare
from profiles.analysis.core.tunable import TUNED_OPS, is_problem
from profiles.analysis.kernel.worth import (
    COMMUNICATION,
    FLOOR_TOLERANCE,
    LEAST_COUNTED,
    LIBRARIES,
    FamilyCounters,
    FamilyTime,
    KernelClass,
    LaunchShape,
    Reaches,
    Worth,
    class_reaches,
    worth,
)
from profiles.families.kept_selectors import TIMED, cached_answer
from profiles.library.selectors import fleet, fleet_kind
from profiles.models import KernelFamily, KernelShape, KernelStat, Profile

UNREAD = tuple(f"kernel__profile__{name}" for name in ("integrity", "summary", "metadata", "notes", "error"))    # long JSON
MOST, LONGEST = 5_000, 12            # lines of one answer; families of most time that the page draws
FILTERS = ("q", "build", "model", "gpu", "owner", "tag", "kind", "op", "dtype", "window", "since", "until")
SCOPES = ("build", "model", "gpu", "owner", "window")      # those that the home page offers


@dataclass(frozen=True)
class Actions:
    """Addresses of filled-in forms and of the longest launch; "" where there is none."""

    tune: str = ""
    tuned: str = ""             # operator of the tuner
    capture: str = ""
    timeline: str = ""


@dataclass(frozen=True)
class Line:
    """One family of the ranking."""

    family: KernelFamily
    worth: Worth
    share_pct: float
    profiles: int
    builds: Sequence[str]
    actions: Actions = field(default_factory=Actions)
    counted_only: bool = False      # its time is of a counter report: what jobs spend in it is not known

    @property
    def name(self) -> str:
        return self.family.name

    @property
    def mean_ns(self) -> float | None:
        return self.worth.total_ns / self.worth.launches if self.worth.launches else None

    @property
    def why(self) -> str:
        """Return one sentence, without the name: its time, and what stands between it and its roof."""
        text = f"{pct_text(self.share_pct)} of the kernel time in {self.worth.launches:,} launches"
        if self.counted_only:
            text = f"{self.worth.launches:,} launches of a counter report; no trace has it"
        if self.worth.category == COMMUNICATION:
            return f"{text}; a collective waits as well as moves data: its time says nothing about a roof"
        if self.worth.expected_ns is None:
            return f"{text}; {self.worth.reason.replace('counters of it on', 'counters on')}"
        if self.worth.roof_pct is None:
            return f"{text}; no counters on {on_gpus(self.worth)} of these shapes, {estimate_text(self.worth)}"
        part = "" if self.worth.known_ns > 0.995 * self.worth.total_ns else f", for {time_text(self.worth.known_ns)} of it"
        return (f"{text}; reaches {pct_text(self.worth.roof_pct)} of its {self.worth.side} roof by counters of launches "
                f"of the same shape{part}")

    @property
    def basis(self) -> str:
        """Return what the number to win back rests on, for its hover."""
        return basis_text(self.worth)


def estimate_text(one: Worth) -> str:
    """Return "estimate from …: 1.2 ms to 3.4 ms"; "" without an estimate."""
    if one.estimate_ns is None:
        return ""
    what = " and ".join(sorted({f"{reach.count} counted {reach.what}" for reach in one.reaches.values()}))
    shapes = f"its shapes, {pct_text(one.shapes_roof_pct or 0.0)} of its roof"
    source = shapes if one.from_shapes_ns > 0.5 * one.estimated_ns else what
    return f"estimate from {source}: {time_text(one.low_ns)} to {time_text(one.high_ns)} to win back"


def basis_text(one: Worth) -> str:
    """Return the method behind `expected_ns` in words; where there is none, why."""
    if one.expected_ns is None:
        return f"unknown: {one.reason}"
    parts = []
    if one.recoverable_ns is not None:
        parts.append(f"measured for {time_text(one.known_ns)}: time × (1 − achieved ÷ own roof), by counters of launches "
                     "of the same shape")
    if one.from_shapes_ns:
        parts.append(f"estimate for {time_text(one.from_shapes_ns)} from shapes: time − the least that its FLOP and minimal bytes "
                     f"take under the GPU's roofs, {time_text(one.floor_ns)}, at most; expected is half of it")
    if one.estimated_ns > one.from_shapes_ns:
        text = "; ".join(f"{reach.count} counted {reach.what} reach {pct_text(100 * reach.median)} of their roof at the median "
                         f"on {gpu}, {pct_text(100 * reach.q25)} to {pct_text(100 * reach.q75)} between the quartiles"
                         for gpu, reach in one.reaches.items())
        parts.append(f"estimate for {time_text(one.estimated_ns - one.from_shapes_ns)} from kernels like it: {text}")
    if one.unknown_ns > 0.005 * one.total_ns:
        parts.append(f"unknown for {time_text(one.unknown_ns)}")
    return ". ".join(parts)


def on_gpus(one: Worth) -> str:
    """Return "NVIDIA H200 or Tesla V100", for a sentence.

    Files that name no GPU have no name here either.
    """
    return " or ".join(sorted(filter(None, one.gpus), key=lambda gpu: -one.gpus[gpu])[:3]) or "its GPU"


@dataclass(frozen=True)
class Ranking:
    """`lines`: most to win first, as many as were asked for. The sums and `count` are of all families that match."""

    lines: list[Line]
    longest: list[Line]             # the LONGEST of most time
    count: int
    total_ns: float
    known_ns: float
    recoverable_ns: float
    kind: str
    estimated_ns: float = 0.0       # time of the families that were read of which estimates speak, and what they say
    estimate_ns: float = 0.0


def ranking(filters: Mapping[str, str], limit: int = MOST, only: int | None = None) -> Ranking:
    """Return the families of the ready profiles that match, most to win first (`Worth.order_ns`).

    `limit` and `only` (a family) bound the lines, not the sums.

    A family cannot give back more than its time. So the first lines are among those of most time, those that were counted, and
    those that take longer than what the last line could give back: only these are read, however many there are.
    """
    return cached_answer(("ranking", family_filters(filters), limit, only), lambda: _ranking(filters, limit, only))


def family_filters(filters: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Return what of `filters` chooses families: equal where the answer is."""
    return tuple(sorted((name, value.strip()) for name, value in filters.items() if name in FILTERS and value.strip()))


def kernels_of(filters: Mapping[str, str]) -> QuerySet[KernelStat]:
    """Return the kernels of the ready profiles that match: what every sum over them is made of."""
    profiles = fleet(filters).order_by().values("pk")
    stats = KernelStat.objects.filter(profile__in=profiles, family__isnull=False)
    if text := filters.get("q", "").strip():
        stats = stats.filter(Q(family__name__icontains=text) | Q(name__icontains=text))
    for name in ("op", "dtype"):
        if value := filters.get(name, "").strip():
            stats = stats.filter(**{f"family__{name}": "" if value == "unknown" else value})
    return stats


def kernel_time_ns(filters: Mapping[str, str]) -> float:
    """Return the kernel time of the profiles that match: the sum that the rows of `ranking` add up to."""
    return cached_answer(("time", family_filters(filters)), lambda: float(
        kernels_of(filters).order_by().aggregate(total=Sum("total_ns"))["total"] or 0))


def _ranking(filters: Mapping[str, str], limit: int, only: int | None) -> Ranking:
    stats = kernels_of(filters)
    total_ns = float(stats.order_by().aggregate(total=Sum("total_ns"))["total"] or 0)
    if only is not None:
        stats = stats.filter(family=only)
    counted = family_counters()
    families = stats.filter(Q(total_ns__gt=0) | Q(launches__gt=0)).order_by().values("family")
    counted_ids = {report.family for report in counted}
    first = families.annotate(total=Sum("total_ns")).order_by("-total", "family")[:max(limit, LONGEST) + len(counted_ids)]
    near = counted_ids | {row["family"] for row in first}
    classes = family_classes(near)
    worths = worth(family_times(stats.filter(family__in=near), counted), counted, classes)
    if more := _placeable(stats, worths, class_reaches(counted, classes), limit) - near:
        worths = worth(family_times(stats.filter(family__in=near | more), counted), counted, {**classes, **family_classes(more)})
    longest = sorted(worths, key=lambda one: -one.total_ns)[:LONGEST]
    shown = {estimate.family: estimate for estimate in (*worths[:limit], *longest)}
    lines = {line.family.pk: line for line in _lines(list(shown.values()), stats, total_ns, fleet_kind(filters))}
    return Ranking(
        [lines[estimate.family] for estimate in worths[:limit] if estimate.family in lines],
        [lines[estimate.family] for estimate in longest if estimate.family in lines], families.distinct().count(), total_ns,
        sum(one.known_ns for one in worths), sum(one.recoverable_ns or 0.0 for one in worths), fleet_kind(filters),
        sum(estimate.estimated_ns for estimate in worths), sum(estimate.estimate_ns or 0.0 for estimate in worths))


def family_classes(ids: Collection[int]) -> dict[int, KernelClass]:
    rows = KernelFamily.objects.filter(pk__in=ids).values_list("pk", "op", "function")
    return {pk: KernelClass(op, function.startswith(LIBRARIES)) for pk, op, function in rows}


def _placeable(stats: QuerySet[KernelStat], worths: Sequence[Worth], reaches: Reaches, limit: int) -> set[int]:
    """Families that may stand among the first `limit` lines: they take longer than the last of them is expected to win.

    Without any estimate what was not counted stands by its time, and those of most time were read already.
    """
    if all(reach.count < LEAST_COUNTED for reach in reaches.values()) and not KernelShape.objects.filter(
            floor_ns__isnull=False).exists():
        return set()
    first = worths[:limit]
    least_ns = first[-1].order_ns if len(first) == limit else 0.0
    rows = stats.order_by().values("family").annotate(total=Sum("total_ns")).filter(total__gt=least_ns)
    return {row["family"] for row in rows.order_by("-total", "family")[:MOST]}


def family_times(stats: QuerySet[KernelStat], counted: Sequence[FamilyCounters] = ()) -> list[FamilyTime]:
    """Return time by family, GPU and shape; what no shape row speaks for (a table of sums) has no shape.

    Only shapes that `counted` may speak for stand alone: the others of a family on one GPU are one sum, those with a floor another.
    """
    totals: dict[tuple[int, str], list[Any]] = {}
    for row in (stats.order_by().values("family", "profile__gpu")
                .annotate(total=Sum("total_ns"), count=Sum(TIMED), kind=Max("category"))):
        totals[row["family"], row["profile__gpu"]] = [float(row["total"] or 0), int(row["count"] or 0), row["kind"]]
    out = []
    # a floor above the mean launch is wrong (what lies in a cache need not come from memory): that shape has none
    holds = Q(floor_ns__isnull=False, floor_ns__lte=FLOOR_TOLERANCE * F("total_ns") / F("launches"))
    places = {(each.family, each.shape.grid, each.shape.block) for each in counted if each.shape is not None and each.shape.grid}
    alone = Q(kernel__profile__kind=Profile.Kind.COUNTERS) | Q(
        kernel__family__in={family for family, _, _ in places}, grid__in={grid for _, grid, _ in places},
        block__in={block for _, _, block in places})
    columns: dict[str, Any] = {
        name: Case(When(alone, then=F(field)), default=Value(None, output_field=kind), output_field=kind)
        for name, field, kind in (("_grid", "grid", CharField()), ("_block", "block", CharField()), ("_flop", "flop", FloatField()),
                                  ("_dims", "dims", CharField()), ("_roof", "roof_pct", FloatField()),
                                  ("_side", "roof_side", CharField()), ("_gain", "gain_pct", FloatField()),
                                  ("_rule", "gain_rule", CharField()))}
    shapes = (KernelShape.objects.filter(kernel__in=stats.order_by().values("pk")).order_by()
              .annotate(has_floor=ExpressionWrapper(holds, BooleanField()), **columns)
              .values("kernel__family", "kernel__profile__gpu", "has_floor", *columns)
              .annotate(total=Sum("total_ns"), count=Sum("launches"), floor=Sum(F("floor_ns") * F("launches"))))
    for shape in shapes:
        family, gpu = shape["kernel__family"], shape["kernel__profile__gpu"]
        whole = totals[family, gpu]
        total_ns, launches = float(shape["total"]), int(shape["count"])
        key = LaunchShape(shape["_grid"], shape["_block"], shape["_flop"]) if shape["_grid"] else None
        own = None if shape["_roof"] is None else FamilyCounters(
            family, gpu, key, total_ns, shape["_roof"], shape["_side"], shape["_gain"], shape["_rule"], launches)
        out.append(FamilyTime(family, gpu, key, whole[2], total_ns, launches, shape["floor"] if shape["has_floor"] else None, own))
        whole[0] -= total_ns
        whole[1] -= launches
    return out + [FamilyTime(family, gpu, None, kind, max(0.0, ns), max(0, count))
                  for (family, gpu), (ns, count, kind) in totals.items() if ns > 0 or count > 0]


def family_counters() -> list[FamilyCounters]:
    """All counters, wherever they were taken: a filter on profiles chooses whose time counts, not what is known."""
    rows = KernelShape.objects.filter(
        kernel__family__isnull=False, kernel__profile__status=Profile.Status.READY,
        kernel__profile__kind=Profile.Kind.COUNTERS).exclude(kernel__profile__gpu="").order_by().values_list(
        "kernel__family", "kernel__profile__gpu", "grid", "block", "flop", "total_ns", "launches", "roof_pct", "roof_side",
        "gain_pct", "gain_rule")
    return [FamilyCounters(family, gpu, LaunchShape(grid, block, flop), float(ns), roof_pct, side, gain_pct, rule, launches)
            for family, gpu, grid, block, flop, ns, launches, roof_pct, side, gain_pct, rule in rows]


def _lines(worths: Sequence[Worth], stats: QuerySet[KernelStat], total_ns: float, kind: str) -> list[Line]:
    ids = [estimate.family for estimate in worths]
    families = KernelFamily.objects.in_bulk(ids)
    mine = stats.filter(family__in=ids).order_by()
    profiles = dict(mine.values("family").annotate(n=Count("profile", distinct=True)).values_list("family", "n"))
    builds: dict[int, list[str]] = {}
    named = mine.exclude(profile__build="").order_by("profile__build").values_list("family", "profile__build").distinct()
    for family, build in named:
        builds.setdefault(family, []).append(build)
    actions = actions_of(ids, mine)
    return [Line(families[estimate.family], estimate, pct_of(estimate.total_ns, total_ns), profiles[estimate.family],
                 builds.get(estimate.family, []), actions.get(estimate.family, Actions()), kind == Profile.Kind.COUNTERS)
            for estimate in worths if estimate.family in families]


def actions_of(ids: Collection[int], stats: QuerySet[KernelStat]) -> dict[int, Actions]:
    """Return where to go from each family.

    By its shape of most time among `stats`, else by its kernel's name alone.
    """
    shapes = (KernelShape.objects.filter(kernel__in=stats.filter(family__in=ids).order_by().values("pk"), shapes=1)
              .select_related("kernel__profile", "kernel__family").defer(*UNREAD)
              .order_by("kernel__family_id", "-total_ns").distinct("kernel__family_id"))
    actions = {shape.kernel.family_id: shape_actions(shape) for shape in shapes}
    rest = [pk for pk in ids if pk not in actions]
    bare_rows = (stats.filter(family__in=rest).select_related("profile", "family").defer(*(name[8:] for name in UNREAD))
                 .order_by("family_id", "-total_ns").distinct("family_id"))
    for stat in bare_rows if rest else ():
        actions[stat.family_id] = Actions(*_tune({}, stat), capture=_capture(stat, None))
    return {family: entry for family, entry in actions.items() if family is not None}


def shape_actions(shape: KernelShape) -> Actions:
    """Return where to go from a shape.

    `shape.kernel.profile` must be loaded.
    """
    trace = shape.kernel.profile.kind == Profile.Kind.TRACE
    timeline = f"{reverse('timeline', args=[shape.kernel.profile_id])}?s={shape.slice_id}" if shape.slice_id is not None else ""
    return Actions(*_tune(shape.tune, shape.kernel), capture=_capture(shape.kernel, shape.skip) if trace else "", timeline=timeline)


def _tune(query: Mapping[str, Any], kernel: KernelStat) -> tuple[str, str]:
    operator = query.get("operator", "")
    if not is_problem(query) or kernel.family is None or kernel.family.op != TUNED_OPS[operator]:  # a convolution may say gemm
        return "", ""
    return f"{reverse('tune-new')}?{urlencode({**query, 'operator': operator})}", operator


def _capture(kernel: KernelStat, skip: int | None) -> str:
    """A filled-in ncu capture of the longest launch; it asks for the target."""
    if kernel.category == COMMUNICATION:        # replaying a collective on one rank waits for the others for good
        return ""
    query: dict[str, Any] = {"tool": "ncu", "kernel": re.escape(bare(kernel.name)), "profile": kernel.profile_id,
                             "build": kernel.profile.build, "model": kernel.profile.model}
    if skip is not None:
        query |= {"launch_skip": skip, "launch_count": 1}
    return f"{reverse('capture-new')}?{urlencode({name: value for name, value in query.items() if value != ''})}"


def sentence(ranked: Ranking, scope: Mapping[str, Any]) -> str:
    """The answer of the page of all kernels; names in backticks."""
    if not ranked.lines:
        return ""
    largest = ranked.longest[0]
    text = f"`{largest.name}` owns {pct_text(largest.share_pct)} of {time_text(ranked.total_ns)} of kernel time"
    if ranked.known_ns:
        text += (f". Counters speak for {pct_text(100.0 * ranked.known_ns / ranked.total_ns)} of it, and there "
                 f"{time_text(ranked.recoverable_ns)} of {time_text(ranked.known_ns)} could be won back")
    else:
        text += "; no counters speak for any of it"
    if ranked.estimated_ns:
        text += f"; of another {time_text(ranked.estimated_ns)} an estimate says {time_text(ranked.estimate_ns)}"
    return text
