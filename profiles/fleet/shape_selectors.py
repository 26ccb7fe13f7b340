"""What deep captures taught about launches: the operator and the shapes of a kernel with one grid and block.

Sums of launches hold no shapes. A trace with shapes does, and every profile's `KernelShape` rows keep them by kernel, grid and
block: they are the dictionary. Several shapes behind one signature are several, none is unknown.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from functools import reduce
from operator import or_

from django.db.models import Max, Q, Sum

from profiles.base.words import dims_text
from profiles.fleet.models import FleetSignature
from profiles.models import KernelShape, Profile

MOST_SIGNATURES = 500
MOST_SHAPES = 8                     # of one signature that are listed


@dataclass(frozen=True)
class KnownShape:
    """`profile`, `slice_id`: the newest capture that shows it, and its longest launch there. `floor_ns`: least time of a launch."""

    operator: str
    dims: str
    dtype: str
    launches: int                   # in captures
    floor_ns: float | None
    profile: int
    slice_id: int | None


def known_shapes(signatures: Collection[int]) -> dict[int, list[KnownShape]]:
    """Return what is known of signatures, the shapes with most launches in captures first; of which nothing is, it has none."""
    rows = list(FleetSignature.objects.filter(id__in=list(signatures)[:MOST_SIGNATURES]).select_related("kernel"))
    places = {(row.kernel.name, dims_text(row.grid), dims_text(row.block)): row.id for row in rows}
    if not places:
        return {}
    wanted = reduce(or_, (Q(kernel__name=name, grid=grid, block=block) for name, grid, block in places))
    found = (KernelShape.objects.filter(wanted, kernel__profile__status=Profile.Status.READY).exclude(operator="").order_by()
             .values_list("kernel__name", "grid", "block", "operator", "dims", "dtype")
             .annotate(sum=Sum("launches"), floor=Max("floor_ns"), newest=Max("kernel__profile"), slice=Max("slice_id")))
    out: dict[int, list[KnownShape]] = {}
    for name, grid, block, operator, dims, dtype, launches, floor_ns, profile, slice_id in found:
        out.setdefault(places[name, grid, block], []).append(
            KnownShape(operator, dims, dtype, launches, floor_ns, profile, slice_id))
    return {key: sorted(every, key=lambda one: (-one.launches, one.operator, one.dims))[:MOST_SHAPES] for key, every in out.items()}
