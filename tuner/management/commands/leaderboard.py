"""The leaderboard of search methods on the command line."""

from __future__ import annotations

import json
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser

LEADERBOARD = settings.BASE_DIR / "docs" / "leaderboard.json"


class Command(BaseCommand):
    help = "Print how the search methods did on recorded spaces (the last make bench-tuner)."
    requires_system_checks: list[str] = []      # `manage.py check` runs them: they load every page

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--json", action="store_true", help="exactly one JSON document on standard output")

    def handle(self, *args: Any, **options: Any) -> None:
        if not LEADERBOARD.exists():
            raise CommandError("docs/leaderboard.json is not there: run make bench-tuner")
        document = json.loads(LEADERBOARD.read_text())
        if options["json"]:
            self.stdout.write(json.dumps(document))
            return
        for method in document["methods"]:
            score = "     —" if method["mean_score"] is None else f"{method['mean_score']:+6.2f}"
            fewer = "  —" if method["fewer_than_random"] is None else f"{method['fewer_than_random']:.1f}× fewer trials than random"
            self.stdout.write(f"{score}  {method['title']:40} {fewer}")
        self.stdout.write(f"measured {document['date']}, {document['repeats']} searches each")
