"""One launch of a kernel, taken apart: on the command line."""

from __future__ import annotations

import json
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import CommandError

from profiles.counters.selectors import anatomy_json, tables_of
from profiles.models import KernelStat
from webapp.management.in_project import ProjectCommand


class Command(ProjectCommand):
    help = "What one launch's counters say: speed of light by part, memory, schedulers, pipes, instructions."
    requires_system_checks: list[str] = []      # `manage.py check` runs them: they load every page

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("kernel", type=int, help="id of a kernel of a profile with counters")
        parser.add_argument("--launch", type=int, help="index of the launch; else the longest")
        parser.add_argument("--table", help="one table, tab-separated: speed, links, l1-cache, pipes, opcodes, details …")
        parser.add_argument("--json", action="store_true", help="everything as one JSON document")

    def handle(self, *_: Any, **options: Any) -> None:
        kernel = KernelStat.objects.select_related("profile").filter(pk=options["kernel"]).first()
        params = {} if options["launch"] is None else {"launch": str(options["launch"])}
        document = anatomy_json(kernel, params) if kernel else None
        if document is None:
            raise CommandError("no such kernel, or none of its launches was measured", returncode=2)
        if options["json"]:
            self.stdout.write(json.dumps(document, ensure_ascii=False, allow_nan=False))
        elif options["table"]:
            tables = tables_of(document)
            if options["table"] not in tables:
                raise CommandError(f"table must be one of {', '.join(tables)}", returncode=2)
            columns, rows = tables[options["table"]]
            for row in [[name for name, _ in columns], *rows]:
                self.stdout.write("\t".join("" if cell is None else str(cell) for cell in row))
        else:
            self.stdout.write(f"{document['name'][:200]}, launch #{document['launch']}")
            for sentence in document["sentences"].values():
                if sentence:
                    self.stdout.write(sentence)
