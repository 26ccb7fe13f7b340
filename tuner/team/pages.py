"""Pages of operators and of the packages whose kernels may run."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.contrib.auth.decorators import permission_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.http import require_POST, require_safe

from profiles.base.refused import Refused
from tuner.models import OperatorPackage
from tuner.team import selectors, services
from tuner.tuning.operators import OPERATORS, all_operators


@require_safe
def operator_list(request: HttpRequest) -> HttpResponse:
    """Show operators, packages and the audit."""
    return _page(request)


def _page(request: HttpRequest, typed: str = "", problem: str = "", refused: tuple[int, str] | None = None,
          status: int = 200) -> HttpResponse:
    packages = selectors.package_list()
    by_name = all_operators()
    enabled = [package for package in packages if package.enabled]
    described = {operator["name"]: {**operator, "package": package.name} for package in enabled for operator in package.operators}
    names = {package.name for package in packages}
    rows: list[dict[str, Any]] = [{"operator": operator, "team": None if name in OPERATORS else described.get(name)}
                                  for name, operator in by_name.items() if operator.newest]
    of_teams, of_files = sum(bool(row["team"]) for row in rows), sum(bool(row["operator"].version) for row in rows)
    return render(request, "tuner/operators.html", {
        "refused": refused, "operators": rows, "built_in": len(rows) - of_teams - of_files, "of_teams": of_teams,
        "of_files": of_files, "packages": packages, "enabled": len(enabled),
        "offered": {name: workers for name, workers in selectors.packages_on_workers().items() if name not in names},
        "audit": selectors.audit_list(), "typed": typed, "problem": problem}, status=status)


@permission_required("tuner.add_operatorpackage", raise_exception=True)
@require_POST
def package_enable(request: HttpRequest) -> HttpResponse:
    """Enable the named package."""
    name = request.POST.get("package", "")
    try:
        package = services.package_enable(name, by=request.user)
    except Refused as refused:
        return _page(request, typed=name[:100], problem=str(refused), status=400)
    if package.name not in selectors.packages_on_workers():
        messages.warning(request, f"{package.name} is enabled; no living gpu or compile worker has it installed yet.")
    return redirect("operators")


@permission_required("tuner.change_operatorpackage", raise_exception=True)
@require_POST
def package_change(request: HttpRequest, pk: int) -> HttpResponse:
    """Enable, disable, describe again or remove a package (POST `do`)."""
    package = get_object_or_404(OperatorPackage, pk=pk)
    do: dict[str, Any] = {"disable": services.package_disable, "remove": services.package_remove}
    action = request.POST.get("do", "")
    if action == "enable":
        services.package_enable(package.name, by=request.user)
    elif action == "describe":
        try:
            services.package_describe(package)
        except Refused as refused:
            return _page(request, refused=(package.pk, str(refused)), status=409)
    elif action in do:
        do[action](package, by=request.user)
    return redirect("operators")
