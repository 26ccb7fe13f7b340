"""Enable, disable and remove packages, and store their descriptions; every decision is kept."""

from __future__ import annotations

import re
from typing import Any

from django.db import transaction
from django.utils import timezone

from profiles.base.refused import Refused
from tuner.models import OperatorAudit, OperatorPackage
from tuner.team import selectors
from tuner.tuning.team.packages import normal_name
from workers import jobs

Status = OperatorPackage.Status
_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,98}[A-Za-z0-9])?\Z")       # of a distribution (PEP 508)


def package_enable(name: str, *, by: Any) -> OperatorPackage:
    """Let workers' children import the package; ask a worker that has it to describe it."""
    if not _NAME.match(name.strip()):
        raise Refused("a package is named as pip names it: letters, digits, - _ and .", whole="package")
    with transaction.atomic():
        package, _ = OperatorPackage.objects.update_or_create(
            name=normal_name(name.strip()), defaults={"enabled": True, "enabled_by": by, "status": Status.WAITING, "error": None})
        _audit(package.name, "enabled", by)
        transaction.on_commit(lambda: package_wake(package), robust=True)
    return package


def package_describe(package: OperatorPackage) -> None:
    """Ask a worker that has an enabled package to describe it anew. Raises Refused where none can."""
    if not package.enabled:
        raise Refused(f"{package.name} is not enabled: an owner enables it first", whole="package")
    if package.name not in selectors.packages_on_workers():
        raise Refused(f"{package.name} is installed on no gpu or compile worker that runs now: install it into their "
                      "environment, with an entry point ridgepoint.operators, and start them anew", whole="package")
    OperatorPackage.objects.filter(pk=package.pk).update(status=Status.WAITING, error=None)
    package_wake(package)


def package_disable(package: OperatorPackage, *, by: Any) -> None:
    """Disable the package; its jobs end by themselves."""
    with transaction.atomic():
        if OperatorPackage.objects.filter(pk=package.pk, enabled=True).update(enabled=False):
            _audit(package.name, "disabled", by)


def package_remove(package: OperatorPackage, *, by: Any) -> None:
    """Remove the package; jobs and cached configurations stay."""
    with transaction.atomic():
        _audit(package.name, "removed", by)
        package.delete()


def package_wake(package: OperatorPackage) -> bool:
    """Ask a worker that has the package to describe it; False when none lives."""
    having = selectors.packages_on_workers().get(package.name)
    if having:
        jobs.enqueue(having[0]["queue"], "operators", package.pk)
    return bool(having)


def packages_wake() -> list[int]:
    """Wake descriptions of packages that a worker has by now; return their ids."""
    waiting = list(OperatorPackage.objects.filter(enabled=True, status=Status.WAITING))
    waiting_pks = jobs.waiting("operators") if waiting else set()
    return [package.pk for package in waiting if package.pk not in waiting_pks and package_wake(package)]


def record_description(package: OperatorPackage, worker: str, *, operators: list[dict[str, Any]], version: str) -> None:
    """Store a worker's description of the package."""
    with transaction.atomic():
        OperatorPackage.objects.filter(pk=package.pk).update(
            status=Status.READY, operators=operators, version=version[:60], error=None, worker=worker, described=timezone.now())
        _audit(package.name, "described", None, f"version {version}: {', '.join(operator['name'] for operator in operators)}")


def record_failure(package: OperatorPackage, worker: str, what: str, hint: str = "") -> None:
    """Store why the package could not be described."""
    with transaction.atomic():
        OperatorPackage.objects.filter(pk=package.pk).update(
            status=Status.FAILED, worker=worker, error={"where": package.name, "what": what[:1000], "hint": hint})
        _audit(package.name, "failed", None, what)


def _audit(package: str, what: str, by: Any, detail: str = "") -> None:
    selectors.forget_operators()
    OperatorAudit.objects.create(package=package, what=what, by=by, detail=detail[:300].replace("\0", ""))
