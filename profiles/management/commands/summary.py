"""What is known of a profile, on one page: Markdown, or with --json the same as JSON."""

from __future__ import annotations

import json
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import CommandError

from profiles.models import Profile
from profiles.report.markdown import markdown
from profiles.report.selectors import summary
from webapp.management.in_project import ProjectCommand


class Command(ProjectCommand):
    help = "Summary of a profile as Markdown on standard output."
    requires_system_checks: list[str] = []      # `manage.py check` runs them: they load every page

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("profile", type=int, help="id of the profile")
        parser.add_argument("--json", action="store_true", help="one JSON document instead")

    def handle(self, *_: Any, **options: Any) -> None:
        profile = Profile.objects.filter(pk=options["profile"]).first()
        if profile is None:
            raise CommandError(f"there is no profile {options['profile']}", returncode=2)
        document = summary(profile)
        text = json.dumps(document, ensure_ascii=False, allow_nan=False, indent=1) if options["json"] else markdown(document)
        self.stdout.write(text)
