"""What profiles say of a problem: its launches, their trend over builds, and each kernel that computed it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from django.urls import reverse

from profiles.models import BuildChange, KernelShape, KernelStat, Profile, first_uploads
from webapp.problem import address
from webapp.problem.address import Problem

MOST_ROWS, MOST_SHAPES = 500, 12


@dataclass(frozen=True)
class Profiled:
    """The launches of a problem in profiles, newest profile first; `launches` 0: none has it."""

    rows: list[KernelShape]
    launches: int
    total_ns: int

    @property
    def mean_ns(self) -> float | None:
        return self.total_ns / self.launches if self.launches else None

    @property
    def hottest(self) -> KernelShape | None:
        return max(self.rows, key=lambda row: row.total_ns, default=None)


def of_problem(problem: Problem) -> Profiled:
    """Traces count; where none has the problem, counter reports. A file that was uploaded twice counts once."""
    where = {"operator": problem.operator, "dtype": problem.dtype, **problem.shape}
    return _sum(KernelShape.objects.filter(tune__contains=where, kernel__profile__gpu=problem.gpu), address.is_told_right)


def of_shape(shape: KernelShape) -> Profiled:
    """The same launches in other profiles: of this family, grid, block and arguments on this GPU."""
    same = {name: getattr(shape, name) for name in ("grid", "block", "dims", "dtype")}
    of = {"kernel__family": shape.kernel.family_id} if shape.kernel.family_id else {"kernel__name": shape.kernel.name}
    return _sum(KernelShape.objects.filter(kernel__profile__gpu=shape.kernel.profile.gpu, **same, **of))


def of_kernel(stat: KernelStat) -> Profiled:
    """A kernel of a file of sums: no shape is known."""
    return Profiled([], stat.launches, stat.total_ns or 0)


def _sum(rows: Any, counts: Callable[[KernelShape], bool] = lambda row: True) -> Profiled:
    counted = first_uploads(Profile.objects.filter(status=Profile.Status.READY)).order_by().values("pk")
    newest = (rows.filter(kernel__profile__in=counted).select_related("kernel__profile", "kernel__family")
              .order_by("-kernel__profile__created", "-kernel__profile_id", "-total_ns")[:MOST_ROWS])
    chosen_rows = [row for row in newest if counts(row)]
    traces = [row for row in chosen_rows if row.kernel.profile.kind == Profile.Kind.TRACE] or chosen_rows
    return Profiled(traces, sum(row.launches for row in traces), sum(row.total_ns for row in traces))


def trend(profiled: Profiled) -> list[dict[str, Any]]:
    """Return the points of the chart over builds: one a profile, oldest first."""
    groups: dict[int, list[KernelShape]] = {}
    for row in profiled.rows:
        groups.setdefault(row.kernel.profile_id, []).append(row)
    points = []
    for group in reversed(list(groups.values())):
        profile, launches = group[0].kernel.profile, sum(row.launches for row in group)
        alone = group[0] if len(group) == 1 else None
        points.append({"when": profile.created, "build": profile.build, "profile": profile.name, "gpu": profile.gpu,
                       "model": profile.model, "kind": profile.kind, "launches": launches,
                       "mean_ns": sum(row.total_ns for row in group) / launches if launches else 0.0,
                       "p50_ns": alone.p50_ns if alone else None, "p95_ns": alone.p95_ns if alone else None})
    return [point for point in points if point["mean_ns"]]


def changes(profiled: Profiled) -> list[BuildChange]:
    """Return what builds changed of the kernels that compute it, beyond noise; of every shape of those kernels."""
    kernels = {row.kernel_id for row in profiled.rows}
    return list(BuildChange.objects.filter(kernel__in=kernels, verdict="slower").select_related("pair", "kernel__profile")[:8])


def siblings(profiled: Profiled, problem: Problem | None) -> list[dict[str, Any]]:
    """Return other problems of the same kernel family on the same GPU, most time first."""
    hottest = profiled.hottest
    if hottest is None or not hottest.kernel.family_id:
        return []
    found: dict[str, dict[str, Any]] = {}
    for row in address.shapes(kernel__family=hottest.kernel.family_id, kernel__profile__gpu=hottest.kernel.profile.gpu):
        other = address.of_shape(row)
        if other == problem and other is not None and problem is not None and other.shape == problem.shape:
            continue
        key = other.url if other else f"{row.grid} {row.block} {row.dims}"
        one = found.setdefault(key, {"url": other.url if other else f"{reverse('problem')}?shape={row.pk}", "problem": other,
                                     "row": row, "total_ns": 0})
        one["total_ns"] += row.total_ns
    return sorted((entry for entry in found.values() if entry["row"].pk not in {shape.pk for shape in profiled.rows}),
                  key=lambda one: -one["total_ns"])[:MOST_SHAPES]
