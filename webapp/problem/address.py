"""What a kernel problem is: an operator, its shape and type on one GPU model; its address, and the problem of a kernel's rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from django.urls import reverse
from django.utils.http import urlencode

from profiles.analysis.core.tunable import is_problem, tuned_operator
from profiles.base.words import pairs_text
from profiles.models import KernelShape, KernelStat, Profile
from tuner.texts import in_order
from tuner.tuning.operators import find


@dataclass(frozen=True)
class Problem:
    """`gpu` is a model, "" where a file names none."""

    operator: str
    dtype: str
    shape: Mapping[str, int] = field(hash=False)
    gpu: str = ""

    @property
    def shape_text(self) -> str:
        return pairs_text(self.shape)

    @property
    def fields(self) -> dict[str, Any]:
        """Return the problem as a query says it."""
        return {"operator": self.operator, "dtype": self.dtype, **self.shape, "gpu": self.gpu}

    @property
    def url(self) -> str:
        return f"{reverse('problem')}?{urlencode(self.fields)}"


def make(operator: str, dtype: str, shape: Mapping[str, Any], gpu: str) -> Problem | None:
    """Return the problem; None where no operator takes this type and shape."""
    known_operator = find(operator)
    if known_operator is None or known_operator.problems(shape, dtype):
        return None
    return Problem(operator, dtype, in_order(operator, shape), gpu)


def read(query: Mapping[str, str]) -> Problem | None:
    """Return the problem that ?operator=&dtype=&gpu=&M=… names; None where it names no whole one."""
    known_operator = find(query.get("operator", ""))
    if known_operator is None:
        return None
    shape = {dim.name: int(query[dim.name]) for dim in known_operator.dims if query.get(dim.name, "").isdecimal()
             and len(query[dim.name]) < 12}
    return make(known_operator.name, query.get("dtype", ""), shape, query.get("gpu", "")[:120])


def is_told_right(shape: KernelShape) -> bool:
    """Return whether the kernel's name still leads to the operator: rows keep what was found when their profile was read."""
    return bool(tuned_operator(shape.kernel.name) == shape.tune.get("operator"))


def of_shape(shape: KernelShape) -> Problem | None:
    """Return the problem of the launches of one shape; None where the trace does not tell it, or no operator takes it."""
    if not is_problem(shape.tune) or not is_told_right(shape):
        return None
    dims = {name: value for name, value in shape.tune.items() if name not in ("operator", "dtype")}
    return make(shape.tune["operator"], shape.tune["dtype"], dims, shape.kernel.profile.gpu)


def shapes(**where: Any) -> list[KernelShape]:
    """Return the shapes of a kernel or family, traces first, then most time."""
    rows = (KernelShape.objects.filter(kernel__profile__status=Profile.Status.READY, **where)
            .select_related("kernel__profile", "kernel__family").order_by("-total_ns", "id")[:200])
    return sorted(rows, key=lambda row: row.kernel.profile.kind != Profile.Kind.TRACE)


def hottest_kernel(where: Mapping[str, int]) -> KernelStat | None:
    """Return the kernel of most time of `kernel` or `kernel__family`; shapes, as a file of sums has none, are not looked at."""
    named = {{"kernel": "pk", "kernel__family": "family"}[name]: pk for name, pk in where.items() if name != "pk"}
    rows = KernelStat.objects.filter(profile__status=Profile.Status.READY, **named) if named else KernelStat.objects.none()
    return rows.select_related("profile", "family").order_by("-total_ns", "id").first()
