"""Teams' operators from rows, for web and workers. Imports no team code."""

from __future__ import annotations

import time
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from django.db.models import Q, QuerySet

from profiles.base.refused import Refused
from tuner.models import OperatorAudit, OperatorPackage
from tuner.tuning.operators import OPERATORS, Operator, limits
from tuner.tuning.team.description import make_operator
from workers import jobs

AUDIT_ROWS = 50
FRESH_S = 1.0                # an answer so young stands for the rows
_memo: tuple[float, dict[str, Operator]] = (float("-inf"), {})


def package_list() -> list[OperatorPackage]:
    """Return all packages."""
    return list(OperatorPackage.objects.select_related("enabled_by"))


def usable_packages() -> QuerySet[OperatorPackage]:
    """Return packages whose kernels may run: enabled and described without fault."""
    described = Q(status=OperatorPackage.Status.READY) | Q(status=OperatorPackage.Status.WAITING, described__isnull=False)
    return OperatorPackage.objects.filter(described, enabled=True).order_by("name")


def enabled_packages() -> list[str]:
    """Return the names of enabled packages."""
    return list(usable_packages().values_list("name", flat=True))


def usable_operators() -> Mapping[str, Operator]:
    """Return operators of usable packages, read again every FRESH_S."""
    global _memo
    read_at, by_name = _memo
    if time.monotonic() - read_at >= FRESH_S:
        by_name = {}
        for pk, described in usable_packages().values_list("pk", "described"):
            by_name = {**_package_operators(pk, described), **by_name}
        _memo = (time.monotonic(), by_name)
    return by_name


def forget_operators() -> None:
    """Read again at once in this process; others follow within FRESH_S."""
    global _memo
    _memo = (float("-inf"), {})


@lru_cache(maxsize=64)
def _package_operators(pk: int, described: Any) -> dict[str, Operator]:
    """Return a package's operators, read once per description."""
    descriptions = OperatorPackage.objects.values_list("operators", flat=True).get(pk=pk)
    by_name = {}
    for each in descriptions:
        try:
            by_name[each["name"]] = make_operator(each)
        except Refused:      # described by an older version of this code
            continue
    return by_name


def operator_description(name: str) -> dict[str, Any] | None:
    """Return a worker's description of one operator; None where there is none."""
    for package in usable_packages():
        for each in package.operators:
            if each["name"] == name and name not in OPERATORS:
                return {**each, "package": package.name}
    return None


def packages_on_workers() -> dict[str, list[dict[str, Any]]]:
    """Return package → living workers that have it: {"worker", "version", "queue"}."""
    workers_by_package: dict[str, list[dict[str, Any]]] = {}
    for worker in jobs.workers():
        queue = next((queue for queue in ("compile", "gpu") if queue in worker["queues"]), None)
        for each in worker.get("packages", []) if queue else []:
            workers_by_package.setdefault(each["package"], []).append(
                {"worker": worker["name"], "version": each["version"], "queue": queue})
    return workers_by_package


def audit_list() -> list[OperatorAudit]:
    """Return the newest decisions about packages."""
    return list(OperatorAudit.objects.select_related("by")[:AUDIT_ROWS])


def package_json(package: OperatorPackage) -> dict[str, Any]:
    names = ("name", "enabled", "status", "version", "error", "operators")
    return {**{name: getattr(package, name) for name in names},
            "described": package.described.isoformat() if package.described else None,
            "enabled_by": package.enabled_by.get_username() if package.enabled_by else None}


def operator_json(operator: Operator, package: str = "") -> dict[str, Any]:
    return {"name": operator.name, "title": operator.title, "package": package or None, "dtypes": list(operator.dtypes),
            "dims": [{"name": dim.name, "meaning": dim.meaning, "low": dim.low, "high": dim.high, "exact": dim.exact,
                      "only": list(dim.only)} for dim in operator.dims],
            "presets": [dict(preset) for preset in operator.presets], "kernel_names": list(operator.kernel_names),
            "unit": operator.unit}


def space_json(operator: Operator, shape: Mapping[str, int], dtype: str, gpu: str) -> dict[str, Any]:
    """Return what a search tries at a shape within the limits of a GPU model ("": those of an unknown one)."""
    bounds = limits(gpu)
    space = operator.space(shape, dtype, bounds)
    unknown = "a worker with the GPU lists it as it opens a job; POST /api/tune/space/ shows the newest listing"
    listed = {"valid_configs": None, "unknown": unknown} if operator.listed_on_gpu else {}
    return {"shape": dict(shape), "dtype": dtype, "gpu": gpu, "params": [
        {"name": param.name, "values": list(param.values)} for param in space.params],
        "valid_configs": len(space), "pruned_configs": dict(space.pruned),
        "default_config": dict(operator.default_config(shape, dtype, bounds)),
        "flop": operator.flops(shape), "least_bytes": operator.bytes(shape, dtype), **listed}
