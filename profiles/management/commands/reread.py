"""Read stored uploads again: after an update that changed what readers make of a file."""

from __future__ import annotations

import json
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import CommandError

from profiles.models import Profile
from profiles.upload.waiting_services import outdated_profiles, profile_reread
from webapp.management.in_project import ProjectCommand


class Command(ProjectCommand):
    help = "Let a worker read uploads of profiles again. Ids, notes and threads stay; kernels, findings and tables are made anew."
    requires_system_checks: list[str] = []      # `manage.py check` runs them: they load every page

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("profiles", nargs="*", type=int, metavar="PROFILE", help="ids of profiles")
        parser.add_argument("--outdated", action="store_true", help="every trace of the project that an earlier version read")
        parser.add_argument("--json", action="store_true", help="one JSON document on standard output")

    def handle(self, *_: Any, **options: Any) -> None:
        if bool(options["profiles"]) == options["outdated"]:
            raise CommandError("Name profiles by id, or give --outdated.")
        named = Profile.objects.filter(pk__in=options["profiles"]).order_by("pk")
        rows = list(outdated_profiles() if options["outdated"] else named)
        unknown = sorted(set(options["profiles"]) - {row.pk for row in rows})
        if unknown:
            raise CommandError(f"No profile {', '.join(map(str, unknown))} in this project.")
        results = [{"id": row.pk, "name": row.name, "left": profile_reread(row)} for row in rows]
        if options["json"]:
            self.stdout.write(json.dumps({"profiles": results}, ensure_ascii=False))
            return
        for result in results:
            self.stdout.write(f"{result['id']} {result['name']}: {result['left'] or 'waits for a worker'}")
        if not results:
            self.stdout.write("No profile was read by an earlier version.")
