"""Kernel families from the command line: what they cost, and making what profiles of an earlier version lack."""

from __future__ import annotations

import json
from argparse import ArgumentParser
from typing import Any

from profiles.families.follow_services import families_catch_up
from profiles.families.json_selectors import ranking_json
from profiles.families.selectors import ranking
from profiles.management.bounded import within_stage_memory
from webapp.management.in_project import ProjectCommand


class Command(ProjectCommand):
    help = "Kernel families by what could be won back; first makes families, shapes and build changes that are missing."
    requires_system_checks: list[str] = []      # `manage.py check` runs them: they load every page

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--again", action="store_true",
                            help="make all of them, and the kernels' labels, anew: after an update that changed them")
        parser.add_argument("--limit", type=int, default=20, help="lines (default 20)")
        for name in ("build", "model", "gpu", "owner", "kind"):
            parser.add_argument(f"--{name}", default="", help=f"only profiles of this {name}")
        parser.add_argument("--window", default="", metavar="DAYS", help="only profiles that came in the last DAYS days")
        parser.add_argument("--json", action="store_true", help="one JSON document on standard output")

    def handle(self, *_: Any, **options: Any) -> None:
        with within_stage_memory():
            done = families_catch_up(options["again"])
            ranked = ranking({name: options[name] for name in ("build", "model", "gpu", "owner", "kind", "window")})
        if options["json"]:
            document = {"made": done, **ranking_json(ranked, max(0, options["limit"]))}
            self.stdout.write(json.dumps(document, ensure_ascii=False, allow_nan=False))
            return
        for line in ranked.lines[:max(0, options["limit"])]:
            worth = "unknown: " + line.worth.reason
            if line.worth.expected_ns is not None and line.worth.interval_ns is not None:
                low_ns, high_ns = line.worth.interval_ns
                worth = f"{line.worth.expected_ns / 1e6:,.3f} ms to win back"
                if line.worth.estimate_ns is not None:
                    worth += f" (estimate, {low_ns / 1e6:,.3f} to {high_ns / 1e6:,.3f} ms)"
            self.stdout.write(f"{line.name}: {line.worth.total_ns / 1e6:,.3f} ms in {line.worth.launches:,} launches, {worth}")
