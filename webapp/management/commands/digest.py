"""`manage.py digest`: a week of a project, shown or sent."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from webapp.models import Project
from webapp.threads import digest as weeks
from webapp.threads import digest_services as services
from workers.scope import within


class Command(BaseCommand):
    help = "Send the digest of a week to channels and people who ask for it, again if it was sent; --dry-run shows it only."
    requires_system_checks: list[str] = []      # `manage.py check` runs them

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--project", help="slug; left out: every project")
        parser.add_argument("--week", help="2026-W48; left out: the last one that ended")
        parser.add_argument("--dry-run", action="store_true", help="show it, send nothing")

    def handle(self, *, project: str | None, week: str | None, dry_run: bool, **options: Any) -> None:
        rows = list(Project.objects.filter(slug=project) if project else Project.objects.order_by("pk"))
        if not rows:
            raise CommandError(f"there is no project {project}")
        week = week or services.week_due()
        try:
            weeks.bounds(week)
        except ValueError as error:
            raise CommandError(str(error)) from error
        for row in rows:
            with within(row.pk):
                if dry_run:
                    self.stdout.write(f"{row.name}\n{services.text_of(weeks.digest(week), services.project_slug())}")
                else:
                    self.stdout.write(f"{row.name}, {week}: sent to {services.send(week)}")
