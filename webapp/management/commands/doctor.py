"""`manage.py doctor`: what is wrong with this installation and what to do; nothing is started or changed."""

from __future__ import annotations

import json
import sys
from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from webapp.operate import checks
from webapp.operate.doctor import TABLE

MARKS = {checks.OK: "ok", checks.WARN: "warn", checks.BAD: "BAD"}


class Command(BaseCommand):
    help = "Look at the installation and at what runs; exit 1 where something is bad. Starts and changes nothing."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--json", action="store_true", help="one object: {state, checks: [{name, state, says, hint, facts}]}")

    def handle(self, **options: Any) -> None:
        results = checks.run(TABLE)
        state = checks.worst(results)
        if options["json"]:
            self.stdout.write(json.dumps({"state": state, "checks": [check.as_json() for check in results]}, ensure_ascii=False))
        else:
            width = max(len(check.name) for check in results)
            for check in results:
                self.stdout.write(f"{MARKS[check.state]:4}  {check.name:{width}}  {check.says}")
                if check.hint:
                    self.stdout.write(f"{'':6}{'':{width}}  → {check.hint}")
        if state == checks.BAD:
            self.stdout.flush()
            sys.exit(1)
