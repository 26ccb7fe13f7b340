"""Writes the shapes of a profile's kernels: from the stored trace, or from the launches of a counter report."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from django.db import transaction

from profiles.analysis import counters, rules
from profiles.analysis.shapes import Shape, grouped, shapes_of
from profiles.models import KernelShape, LaunchCounters, Profile
from profiles.rows import json_safe, text
from profiles.store.frame import frame_read

_BATCH = 1_000


def shapes_make(profile: Profile) -> int:
    """How many rows were written; those of an earlier time go. Sums have no launches, so they have no shapes."""
    if profile.kind == Profile.Kind.TRACE:
        try:
            rows = _rows(profile, shapes_of(frame_read(profile)))
        except FileNotFoundError:           # a trace without a stored timeline
            return 0
    elif profile.kind == Profile.Kind.COUNTERS:
        rows = _of_counters(profile)
    else:
        return 0
    with transaction.atomic():
        KernelShape.objects.filter(kernel__profile=profile).delete()
        KernelShape.objects.bulk_create(rows, batch_size=_BATCH)
    return len(rows)


def _rows(profile: Profile, shapes: Iterable[Shape]) -> list[KernelShape]:
    kernels = dict(profile.kernels.values_list("name", "pk"))
    return [KernelShape(
        kernel_id=kernels[text(shape.kernel)], grid=shape.grid[:60], block=shape.block[:60], bucket=shape.bucket,
        shapes=shape.shapes, launches=shape.launches, total_ns=shape.total_ns, min_ns=shape.min_ns, max_ns=shape.max_ns,
        index=shape.index, slice_id=shape.slice_id, skip=shape.skip, operator=text(shape.operator, 120), dims=text(shape.dims, 300),
        dtype=text(shape.dtype, 60), tune=json_safe(dict(shape.tune)),
    ) for shape in shapes if text(shape.kernel) in kernels]


def _of_counters(profile: Profile) -> list[KernelShape]:
    """One row per kernel, grid and block of the complete launches, with its own roof and NVIDIA's largest estimate."""
    launches = list(profile.counter_launches.filter(incomplete="", duration_ns__gt=0).select_related("kernel").order_by("index"))
    if not launches:
        return []
    geometry = np.array([_six(launch) for launch in launches], np.int64)
    names = {launch.kernel.name: number for number, launch in enumerate(launches)}
    codes = np.array([names[launch.kernel.name] for launch in launches], np.int64)
    texts = {number: name for name, number in names.items()}
    found = grouped(codes, geometry, np.array([launch.duration_ns for launch in launches]), texts.__getitem__)
    members: dict[tuple[str, str, str], list[LaunchCounters]] = {}
    for launch, six in zip(launches, geometry.tolist(), strict=True):
        members.setdefault((launch.kernel.name, _text(six[:3]), _text(six[3:])), []).append(launch)
    rows = []
    for row, shape in zip(_rows(profile, found), found, strict=True):
        group = members.get((shape.kernel, shape.grid, shape.block), [])
        row.index = launches[shape.index].index if shape.index is not None else None
        _ceiling(row, group)
        rows.append(row)
    return rows


def _six(launch: LaunchCounters) -> list[int]:
    facts = launch.facts
    return [*(facts.get("grid") or (-1, -1, -1)), *(facts.get("block") or (-1, -1, -1))]


def _text(dims: Sequence[int]) -> str:
    return "×".join(map(str, dims)) if all(each > 0 for each in dims) else ""


def _ceiling(row: KernelShape, group: list[LaunchCounters]) -> None:
    """Share of its own roof that these launches reach, and the rule that would win most of their run time."""
    whole = counters.combined([counters.from_json(launch.facts) for launch in group])
    if whole is not None and whole.point.roof_pct is not None:
        row.roof_pct, row.roof_side = whole.point.roof_pct, whole.point.side or ""
    listed: list[dict[str, Any]] = rules.by_kernel([(launch.duration_ns, launch.rules) for launch in group])
    total_ns = sum(launch.duration_ns or 0.0 for launch in group)
    best = max((rule for rule in listed if rule.get("worth_ns")), key=lambda rule: rule["worth_ns"], default=None)
    if best is not None and total_ns:
        row.gain_pct, row.gain_rule = min(100.0, 100.0 * best["worth_ns"] / total_ns), text(best["title"], 120)
