"""The occupancy calculator on the command line."""

from __future__ import annotations

import json
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import CommandError

from profiles.analysis.core.gpus import LIMITS
from profiles.analysis.kernel.occupancy import FIELDS
from profiles.occupancy.selectors import page_json
from webapp.management.in_project import ProjectCommand


class Command(ProjectCommand):
    help = "Occupancy of a launch on a GPU architecture: what fits, what limits it, what one more block per SM takes."
    requires_system_checks: list[str] = []      # `manage.py check` runs them: they load every page

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--cc", default="", help=f"compute capability: {', '.join(LIMITS)}")
        parser.add_argument("--kernel", type=int, help="fill in from this kernel of a profile")
        parser.add_argument("--launch", type=int, help="of its launches this one")
        for name, (label, low, high) in FIELDS.items():
            parser.add_argument(f"--{name.replace('_', '-')}", type=int, metavar="N", help=f"{label}, {low:,} to {high:,}")
        parser.add_argument("--json", action="store_true", help="everything, with the curves")

    def handle(self, *_: Any, **options: Any) -> None:
        params = {name: str(options[name]) for name in ("cc", "kernel", "launch", *FIELDS) if options[name] not in (None, "")}
        document = page_json(params)
        if document["errors"]:
            raise CommandError("; ".join(document["errors"].values()), returncode=2)
        if options["json"]:
            self.stdout.write(json.dumps(document, ensure_ascii=False, allow_nan=False))
            return
        self.stdout.write(document["sentence"])
        if document["step"]:
            self.stdout.write(document["step"])
