"""manage.py operators [list | enable PACKAGE | disable PACKAGE | describe PACKAGE]"""

from __future__ import annotations

import json
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from tuner.models import OperatorPackage
from tuner.operators import all_operators
from tuner.team import selectors, services


class Command(BaseCommand):
    help = "What can be tuned, and which packages of teams may bring operators (an owner's decision)."
    requires_system_checks: list[str] = []      # `manage.py check` runs them: they load every page

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("do", nargs="?", choices=["list", "enable", "disable", "describe"], default="list")
        parser.add_argument("package", nargs="?", default="")
        parser.add_argument("--json", action="store_true")

    def handle(self, *args: Any, do: str, package: str, json: bool, **options: Any) -> None:
        if do in ("enable", "describe"):
            try:
                row = services.package_enable(package, by=None)
            except services.PackageRefused as refused:
                raise CommandError(str(refused)) from refused
            self.stdout.write(f"{row.name}: enabled; a worker that has it describes it")
        elif do == "disable":
            installed = OperatorPackage.objects.filter(name=package).first()
            if installed is None:
                raise CommandError(f"no package is named {package!r} here")
            services.package_disable(installed, by=None)
            self.stdout.write(f"{installed.name}: disabled")
        else:
            self._list(json)

    def _list(self, as_json: bool) -> None:
        packages = selectors.package_list()
        owner = {each["name"]: package.name for package in packages for each in package.operators}
        if as_json:
            self.stdout.write(json.dumps({
                "operators": [selectors.operator_json(operator, owner.get(name, "")) for name, operator in all_operators().items()],
                "packages": [selectors.package_json(package) for package in packages]}))
            return
        for name, operator in all_operators().items():
            dims = " ".join(dim.name for dim in operator.dims)
            self.stdout.write(f"{name:24} {dims:20} {' '.join(operator.dtypes):20} {owner.get(name, 'built in')}")
        for package in packages:
            problem = f": {package.error['what']}" if package.error else ""
            self.stdout.write(f"package {package.name}: {'enabled' if package.enabled else 'disabled'}, {package.status}{problem}")
