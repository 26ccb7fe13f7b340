"""Teams' operators as web and workers know them: from rows. Nothing here imports a team's code."""

from __future__ import annotations

import time
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from django.db.models import Q, QuerySet

from tuner.models import OperatorAudit, OperatorPackage
from tuner.operators import OPERATORS, Operator
from tuner.team.description import DescriptionError, operator_from
from workers import jobs

AUDIT_ROWS = 50
FRESH_S = 1.0                # an answer so young stands for the rows
_memo: tuple[float, dict[str, Operator]] = (float("-inf"), {})


def package_list() -> list[OperatorPackage]:
    return list(OperatorPackage.objects.select_related("enabled_by"))


def usable() -> QuerySet[OperatorPackage]:
    """Packages whose kernels may run now: enabled, and described without a fault; also while they are described again."""
    described = Q(status=OperatorPackage.Status.READY) | Q(status=OperatorPackage.Status.WAITING, described__isnull=False)
    return OperatorPackage.objects.filter(described, enabled=True).order_by("name")


def enabled_packages() -> list[str]:
    return list(usable().values_list("name", flat=True))


def operators() -> Mapping[str, Operator]:
    """What the usable packages offer: given to `tuner.operators.provide`. A page that names hundreds of rows asks once."""
    global _memo
    looked, found = _memo
    if time.monotonic() - looked >= FRESH_S:
        found = {}
        for pk, described in usable().values_list("pk", "described"):
            found = {**_of_package(pk, described), **found}
        _memo = (time.monotonic(), found)
    return found


def operators_forget() -> None:
    """What was decided shows at once in this process, and within FRESH_S in the others."""
    global _memo
    _memo = (float("-inf"), {})


@lru_cache(maxsize=64)
def _of_package(pk: int, described: Any) -> dict[str, Operator]:
    """Read once per description."""
    told = OperatorPackage.objects.values_list("operators", flat=True).get(pk=pk)
    found = {}
    for each in told:
        try:
            found[each["name"]] = operator_from(each)
        except DescriptionError:      # described by an older version of this code
            continue
    return found


def description_of(name: str) -> dict[str, Any] | None:
    """What a package's worker said of one operator."""
    for package in usable():
        for each in package.operators:
            if each["name"] == name and name not in OPERATORS:
                return {**each, "package": package.name}
    return None


def packages_on_workers() -> dict[str, list[dict[str, Any]]]:
    """package → the living workers that have it: {"worker", "version", "queue"}."""
    found: dict[str, list[dict[str, Any]]] = {}
    for worker in jobs.workers():
        queue = next((queue for queue in ("compile", "gpu") if queue in worker["queues"]), None)
        for each in worker.get("packages", []) if queue else []:
            found.setdefault(each["package"], []).append(
                {"worker": worker["name"], "version": each["version"], "queue": queue})
    return found


def audit_list() -> list[OperatorAudit]:
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
