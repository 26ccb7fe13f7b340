"""`manage.py retention`: what is old and nothing keeps goes, now; or what would go."""

from __future__ import annotations

import json
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from webapp.models import Project
from workers.retention.run import clean, look, settings_of
from workers.scope import within


class Command(BaseCommand):
    help = "Delete what projects keep no longer (their limits: Settings, Storage); --dry-run says what would go."
    requires_system_checks: list[str] = []      # `manage.py check` runs them

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--project", default="", help="its slug; without it every project")
        parser.add_argument("--dry-run", action="store_true")
        parser.add_argument("--json", action="store_true")

    def handle(self, *, project: str, dry_run: bool, json: bool, **options: Any) -> None:
        projects = list(Project.objects.filter(slug=project) if project else Project.objects.all())
        if not projects:
            raise CommandError(f"there is no project {project}: manage.py projects lists them")
        reports = {}
        for row in projects:
            with within(row.pk):
                keeping = settings_of(row.pk)
                reports[row.slug] = look(keeping.days) if dry_run else clean(keeping)
        self.stdout.write(_as_json(reports) if json else "\n".join(_lines(reports, dry_run)))


def _as_json(said: dict[str, Any]) -> str:
    return json.dumps(said, indent=2)


def _lines(said: dict[str, Any], dry_run: bool) -> list[str]:
    lines = []
    for slug, report in said.items():
        for name, entry in report.items():
            gone = f"{entry['go']} would go" if dry_run else f"{entry['gone']} went"
            reasons_text = "".join(f"; {count} stay: {reason}" for reason, count in entry["kept"].items())
            lines.append(f"{slug}: {name}: {entry['old']} older than {entry['days']} days, {gone}{reasons_text}")
        if not report:
            lines.append(f"{slug}: everything is kept")
    return lines
