"""Builds side by side: what each kernel's mean launch took in each of the last ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from django.db.models import Count, Min, QuerySet, Sum

from profiles.compare.selectors import KINDS
from profiles.models import KernelStat, Profile


@dataclass(frozen=True)
class HeatCell:
    """Mean duration of a kernel's launches in one build, and its change against the build before."""

    mean_ns: float | None
    launches: int = 0
    change_pct: float | None = None

    @property
    def css(self) -> str:
        """"slower-2" … "faster-3": strength of the change, for a class."""
        if self.change_pct is None or abs(self.change_pct) < 1:
            return ""
        strength = 1 + (abs(self.change_pct) >= 5) + (abs(self.change_pct) >= 20)
        return f"{'slower' if self.change_pct > 0 else 'faster'}-{strength}"


@dataclass(frozen=True)
class Heat:
    """Kernels × builds, oldest build left, kernels by time."""

    kind: str
    gpu: str
    builds: list[str]
    rows: list[tuple[str, list[HeatCell]]]


HEAT_BUILDS, HEAT_KERNELS = 8, 15


def build_heat(kind: str = "") -> Heat | None:
    """Return the kernels with most time in the last builds of one kind and GPU, or None.

    None with fewer than two builds.
    """
    ready = Profile.objects.filter(status=Profile.Status.READY).exclude(build="")
    for candidate in ([kind] if kind in KINDS else KINDS):
        of_kind = ready.filter(kind=candidate)
        gpu = of_kind.order_by().values_list("gpu", flat=True).annotate(
            builds=Count("build", distinct=True)).filter(builds__gte=2).order_by("-builds").first()
        if gpu is not None:
            return _heat(str(candidate), gpu, of_kind.filter(gpu=gpu))
    return None


def _heat(kind: str, gpu: str, profiles: QuerySet[Profile]) -> Heat | None:
    newest = profiles.order_by().values("build").annotate(first=Min("created")).order_by("-first")[:HEAT_BUILDS]
    builds = [row["build"] for row in newest][::-1]
    stats = (KernelStat.objects.filter(profile__in=profiles.filter(build__in=builds), total_ns__isnull=False)
             .values("short_name", "profile__build").annotate(total=Sum("total_ns"), count=Sum("launches")).order_by())
    means: dict[str, dict[str, tuple[float, int]]] = {}
    totals: dict[str, float] = {}
    for row in stats:
        name, total = row["short_name"], float(row["total"])
        means.setdefault(name, {})[row["profile__build"]] = (total / row["count"] if row["count"] else 0.0, row["count"])
        totals[name] = totals.get(name, 0.0) + total
    chosen = sorted(totals, key=lambda name: -totals[name])[:HEAT_KERNELS]
    return Heat(kind, gpu, builds, [(name, _heat_cells(means[name], builds)) for name in chosen])


def _heat_cells(means: Mapping[str, tuple[float, int]], builds: Sequence[str]) -> list[HeatCell]:
    cells: list[HeatCell] = []
    before: float | None = None
    for build in builds:
        mean_ns, launches = means.get(build, (None, 0))
        change = 100 * (mean_ns / before - 1) if mean_ns is not None and before else None
        cells.append(HeatCell(mean_ns, launches, change))
        before = mean_ns or before
    return cells
