"""Kernel families ranked by what could be won back, with where to go from each. Pages, API and the command share them."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from django.db.models import Count, Max, Q, QuerySet, Sum
from django.urls import reverse
from django.utils.http import urlencode

from profiles.analysis.names import operator_of
from profiles.analysis.sentences import pct_text, time_text
from profiles.analysis.shapes import bare
from profiles.analysis.worth import COMMUNICATION, Counted, Spent, Worth, worth
from profiles.models import KernelFamily, KernelShape, KernelStat, Profile
from profiles.selectors.lists import fleet, fleet_kind

TUNED_OPS = {"matmul": "matmul", "softmax": "softmax", "layernorm": "norm", "rmsnorm": "norm", "add_rmsnorm": "norm",
             "silu_mul": "elementwise", "attention": "attention"}                     # operator -> operation
UNREAD = tuple(f"kernel__profile__{name}" for name in ("integrity", "summary", "metadata", "notes", "error"))    # long JSON
FILTERS = ("q", "build", "model", "gpu", "tag", "kind", "op", "dtype")


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
        """One sentence, without the name: what it takes, and what stands between it and its roof."""
        taken = f"{pct_text(self.share_pct)} of the kernel time in {self.worth.launches:,} launches"
        if self.counted_only:
            taken = f"{self.worth.launches:,} launches of a counter report; no trace has it"
        if self.worth.category == COMMUNICATION:
            return f"{taken}; a collective waits as well as moves data: its time says nothing about a roof"
        if self.worth.roof_pct is None:
            return f"{taken}; no counters on {on_gpus(self.worth)}, so at most all of it"
        own = "launches of the same size" if self.worth.same_shape_ns > 0.99 * self.worth.known_ns else "other launches of it"
        part = "" if self.worth.known_ns > 0.995 * self.worth.total_ns else f", for {time_text(self.worth.known_ns)} of it"
        return f"{taken}; reaches {pct_text(self.worth.roof_pct)} of its {self.worth.side} roof by the counters of {own}{part}"


def on_gpus(one: Worth) -> str:
    """"NVIDIA H200 or Tesla V100", for a sentence; files that name no GPU have no name here either."""
    return " or ".join(sorted(filter(None, one.gpus), key=lambda gpu: -one.gpus[gpu])[:3]) or "its GPU"


@dataclass(frozen=True)
class Ranking:
    lines: list[Line]
    total_ns: float
    kind: str

    @property
    def known_ns(self) -> float:
        return sum(line.worth.known_ns for line in self.lines)

    @property
    def recoverable_ns(self) -> float:
        return sum(line.worth.recoverable_ns or 0.0 for line in self.lines)


def ranking(filters: Mapping[str, str], limit: int | None = None, only: int | None = None) -> Ranking:
    """Families of the ready profiles that match, most to win first; `limit` and `only` (a family) bound the lines, not the sums."""
    profiles = fleet(filters).order_by().values("pk")
    stats = KernelStat.objects.filter(profile__in=profiles, family__isnull=False)
    if text := filters.get("q", "").strip():
        stats = stats.filter(Q(family__name__icontains=text) | Q(name__icontains=text))
    for name in ("op", "dtype"):
        if value := filters.get(name, "").strip():
            stats = stats.filter(**{f"family__{name}": "" if value == "unknown" else value})
    total_ns = float(stats.order_by().aggregate(total=Sum("total_ns"))["total"] or 0)
    if only is not None:
        stats = stats.filter(family=only)
    spent = _spent(stats)
    families = {each.family for each in spent}
    found = worth(spent, _counted(families))
    shown = found if limit is None else found[:limit]
    return Ranking(_lines(shown, stats, total_ns, fleet_kind(filters)), total_ns, fleet_kind(filters))


def _spent(stats: QuerySet[KernelStat]) -> list[Spent]:
    """Time by family, GPU and shape bucket; what no shape row speaks for (a table of sums) has no bucket."""
    totals: dict[tuple[int, str], list[Any]] = {}
    for row in (stats.order_by().values("family", "profile__gpu")
                .annotate(total=Sum("total_ns"), count=Sum("launches"), kind=Max("category"))):
        totals[row["family"], row["profile__gpu"]] = [float(row["total"]), int(row["count"]), row["kind"]]
    out = []
    shapes = (KernelShape.objects.filter(kernel__in=stats.order_by().values("pk"), bucket__isnull=False).order_by()
              .values("kernel__family", "kernel__profile__gpu", "bucket").annotate(total=Sum("total_ns"), count=Sum("launches")))
    for row in shapes:
        whole = totals[row["kernel__family"], row["kernel__profile__gpu"]]
        out.append(Spent(row["kernel__family"], row["kernel__profile__gpu"], row["bucket"], whole[2], float(row["total"]),
                         int(row["count"])))
        whole[0] -= float(row["total"])
        whole[1] -= int(row["count"])
    return out + [Spent(family, gpu, None, kind, max(0.0, ns), max(0, count))
                  for (family, gpu), (ns, count, kind) in totals.items() if ns > 0 or count > 0]


def _counted(families: Collection[int]) -> list[Counted]:
    """Counters of these families, wherever they were taken: a filter on profiles chooses whose time counts, not what is known."""
    rows = KernelShape.objects.filter(
        kernel__family__in=families, kernel__profile__status=Profile.Status.READY,
        kernel__profile__kind=Profile.Kind.COUNTERS).exclude(kernel__profile__gpu="").order_by().values_list(
        "kernel__family", "kernel__profile__gpu", "bucket", "total_ns", "roof_pct", "roof_side", "gain_pct", "gain_rule")
    return [Counted(family, gpu, bucket, float(ns), *told) for family, gpu, bucket, ns, *told in rows]


def _lines(found: Sequence[Worth], stats: QuerySet[KernelStat], total_ns: float, kind: str) -> list[Line]:
    ids = [one.family for one in found]
    families = KernelFamily.objects.in_bulk(ids)
    mine = stats.filter(family__in=ids).order_by()
    profiles = dict(mine.values("family").annotate(n=Count("profile", distinct=True)).values_list("family", "n"))
    builds: dict[int, list[str]] = {}
    named = mine.exclude(profile__build="").order_by("profile__build").values_list("family", "profile__build").distinct()
    for family, build in named:
        builds.setdefault(family, []).append(build)
    actions = actions_of(ids, mine)
    return [Line(families[one.family], one, 100.0 * one.total_ns / total_ns if total_ns else 0.0, profiles[one.family],
                 builds.get(one.family, []), actions.get(one.family, Actions()), kind == Profile.Kind.COUNTERS)
            for one in found if one.family in families]


def actions_of(ids: Collection[int], stats: QuerySet[KernelStat]) -> dict[int, Actions]:
    """Where to go from each family: by its shape of most time among `stats`, else by its kernel's name alone."""
    shapes = (KernelShape.objects.filter(kernel__in=stats.filter(family__in=ids).order_by().values("pk"), shapes=1)
              .select_related("kernel__profile", "kernel__family").defer(*UNREAD)
              .order_by("kernel__family_id", "-total_ns").distinct("kernel__family_id"))
    found = {shape.kernel.family_id: shape_actions(shape) for shape in shapes}
    rest = [pk for pk in ids if pk not in found]
    bare_rows = (stats.filter(family__in=rest).select_related("profile", "family").defer(*(name[8:] for name in UNREAD))
                 .order_by("family_id", "-total_ns").distinct("family_id"))
    for stat in bare_rows if rest else ():
        found[stat.family_id] = Actions(*_tune({}, stat), capture=_capture(stat, None))
    return {family: one for family, one in found.items() if family is not None}


def shape_actions(shape: KernelShape) -> Actions:
    """`shape.kernel.profile` must be loaded."""
    trace = shape.kernel.profile.kind == Profile.Kind.TRACE
    timeline = f"{reverse('timeline', args=[shape.kernel.profile_id])}?s={shape.slice_id}" if shape.slice_id is not None else ""
    return Actions(*_tune(shape.tune, shape.kernel), capture=_capture(shape.kernel, shape.skip) if trace else "", timeline=timeline)


def _tune(query: Mapping[str, Any], kernel: KernelStat) -> tuple[str, str]:
    operator = query.get("operator") or operator_of(kernel.name)
    if not operator or kernel.family is None or kernel.family.op != TUNED_OPS[operator]:     # a convolution's name may say gemm
        return "", ""
    return f"{reverse('tune-new')}?{urlencode({**query, 'operator': operator})}", operator


def _capture(kernel: KernelStat, skip: int | None) -> str:
    """A filled-in ncu capture of the longest launch; it asks for the target."""
    if kernel.category == COMMUNICATION:        # replaying a collective on one rank waits for the others for good
        return ""
    query: dict[str, Any] = {"tool": "ncu", "kernel": re.escape(bare(kernel.name)), "build": kernel.profile.build,
                             "model": kernel.profile.model}
    if skip is not None:
        query |= {"launch_skip": skip, "launch_count": 1}
    return f"{reverse('capture-new')}?{urlencode({name: value for name, value in query.items() if value != ''})}"


def sentence(found: Ranking, scope: Mapping[str, Any]) -> str:
    """The answer of the page of all kernels; names in backticks."""
    if not found.lines:
        return ""
    largest = max(found.lines, key=lambda line: line.worth.total_ns)
    text = f"`{largest.name}` owns {pct_text(largest.share_pct)} of {time_text(found.total_ns)} of kernel time"
    if found.known_ns:
        return (f"{text}. Counters speak for {pct_text(100.0 * found.known_ns / found.total_ns)} of it, and there "
                f"{time_text(found.recoverable_ns)} of {time_text(found.known_ns)} could be won back")
    return f"{text}; no counters speak for any of it"


def line_json(line: Line) -> dict[str, Any]:
    one = line.worth
    return {
        "family": line.family.pk, "name": line.name, "function": line.family.function, "op": line.family.op,
        "dtype": line.family.dtype, "category": one.category, "total_ns": one.total_ns, "launches": one.launches,
        "share_pct": line.share_pct, "profiles": line.profiles, "builds": list(line.builds), "gpus": one.gpus,
        "known_ns": one.known_ns, "recoverable_ns": one.recoverable_ns,
        "at_most_ns": one.at_most_ns, "roof_pct": one.roof_pct, "roof_side": one.side, "rule_ns": one.rule_ns, "rule": one.rule,
        "why": line.why, "url": reverse("family", args=[line.family.pk]), "actions": vars(line.actions),
    }


def ranking_json(found: Ranking, limit: int) -> dict[str, Any]:
    return {"kind": found.kind, "total_ns": found.total_ns, "known_ns": found.known_ns, "recoverable_ns": found.recoverable_ns,
            "count": len(found.lines), "families": [line_json(line) for line in found.lines[:limit]]}
