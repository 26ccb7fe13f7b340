"""Teams' operators from rows, for web and workers. Imports no team code."""

from __future__ import annotations

import time
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NotRequired, TypedDict

from django.db.models import Q, QuerySet

from profiles.base.answers import ErrorJson, Scalar, make_answer, plain
from profiles.base.refused import Refused
from tuner.models import OperatorAudit, OperatorPackage
from tuner.tuning.operators import OPERATORS, Dim, Operator, limits
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
    for description in descriptions:
        try:
            by_name[description["name"]] = make_operator(description)
        except Refused:      # described by an older version of this code
            continue
    return by_name


def operator_description(name: str) -> dict[str, Any] | None:
    """Return a worker's description of one operator; None where there is none."""
    for package in usable_packages():
        for operator in package.operators:
            if operator["name"] == name and name not in OPERATORS:
                return {**operator, "package": package.name}
    return None


class PackageOnWorkerJson(TypedDict):
    worker: str
    version: str
    queue: str


def packages_on_workers() -> dict[str, list[PackageOnWorkerJson]]:
    """Return package → living workers that have it: {"worker", "version", "queue"}."""
    workers_by_package: dict[str, list[PackageOnWorkerJson]] = {}
    for worker in jobs.workers():
        queue = next((queue for queue in ("compile", "gpu") if queue in worker["queues"]), "")
        for package in worker.get("packages", []) if queue else []:
            workers_by_package.setdefault(package["package"], []).append(
                {"worker": worker["name"], "version": package["version"], "queue": queue})
    return workers_by_package


def audit_list() -> list[OperatorAudit]:
    """Return the newest decisions about packages."""
    return list(OperatorAudit.objects.select_related("by")[:AUDIT_ROWS])


class DescribedJson(TypedDict):
    """An operator as its adapter describes it (`tuner.tuning.team.packages.describe_adapter`)."""

    name: str
    title: str
    dims: list[Dim]
    dtypes: list[str]
    presets: list[dict[str, int]]
    configs: list[dict[str, Scalar]]
    params: dict[str, list[Scalar]] | None
    constraints: dict[str, str]
    default: dict[str, Scalar]
    flops: str
    bytes: str
    tolerance: dict[str, float]
    unit: str
    kernel_names: list[str]
    kernel: NotRequired[str]
    key: NotRequired[list[str]]
    prunes: NotRequired[dict[str, Scalar]]
    source_hash: NotRequired[str]


class PackageJson(TypedDict):
    """A team's package of kernels; `operators`: as it described them."""

    name: str
    enabled: bool
    status: str
    version: str
    error: ErrorJson | None
    operators: list[DescribedJson]
    described: str | None
    enabled_by: str | None


def package_json(package: OperatorPackage) -> PackageJson:
    return make_answer(PackageJson, package, enabled_by=package.enabled_by.get_username() if package.enabled_by else None)


class OperatorJson(TypedDict):
    """An operator that can be tuned; `package`: the team's that brings it."""

    name: str
    title: str
    package: str | None
    dtypes: list[str]
    dims: list[Dim]
    presets: list[dict[str, int]]
    kernel_names: list[str]
    unit: str


def operator_json(operator: Operator, package: str = "") -> OperatorJson:
    return {"name": operator.name, "title": operator.title, "package": package or None, "dtypes": list(operator.dtypes),
            "dims": plain(operator.dims),
            "presets": [dict(preset) for preset in operator.presets], "kernel_names": list(operator.kernel_names),
            "unit": operator.unit}


class ParameterJson(TypedDict):
    name: str
    values: list[Scalar]


class OperatorSpaceJson(TypedDict):
    """What a search tries at a shape; `valid_configs` null: `unknown` says who lists it."""

    shape: dict[str, int]
    dtype: str
    gpu: str
    params: list[ParameterJson]
    valid_configs: int | None
    pruned_configs: dict[str, int]
    default_config: dict[str, Scalar]
    flop: float
    least_bytes: float
    unknown: NotRequired[str]


def space_json(operator: Operator, shape: Mapping[str, int], dtype: str, gpu: str) -> OperatorSpaceJson:
    """Return what a search tries at a shape within the limits of a GPU model ("": those of an unknown one)."""
    bounds = limits(gpu)
    space = operator.space(shape, dtype, bounds)
    unknown = "a worker with the GPU lists it as it opens a job; POST /api/tune/space/ shows the newest listing"
    document: OperatorSpaceJson = {
        "shape": dict(shape), "dtype": dtype, "gpu": gpu, "params": [
            {"name": param.name, "values": list(param.values)} for param in space.params],
        "valid_configs": None if operator.listed_on_gpu else len(space), "pruned_configs": dict(space.pruned),
        "default_config": dict(operator.default_config(shape, dtype, bounds)),
        "flop": operator.flops(shape), "least_bytes": operator.bytes(shape, dtype)}
    return {**document, "unknown": unknown} if operator.listed_on_gpu else document
