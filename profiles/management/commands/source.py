"""The hottest lines of a profiled launch, on the command line."""

from __future__ import annotations

import json
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import CommandError

from profiles.analysis.core.sentences import pct_text
from profiles.analysis.kernel.instructions import SAMPLES
from profiles.models import Profile
from profiles.source import selectors
from webapp.management.in_project import ProjectCommand


class Command(ProjectCommand):
    help = "Hottest source lines of a launch of an Nsight Compute report (instructions, where it knows no lines)."
    requires_system_checks: list[str] = []      # `manage.py check` runs them: they load every page

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("profile", type=int, help="id of a ready report")
        parser.add_argument("launch", type=int, nargs="?", default=0, help="number of the launch, from 0")
        parser.add_argument("--most", type=int, default=20, help="how many (20)")
        parser.add_argument("--json", action="store_true", help="everything as one JSON document, as the API gives it")

    def handle(self, *_: Any, **options: Any) -> None:
        profile = Profile.objects.filter(pk=options["profile"], status=Profile.Status.READY, kind=Profile.Kind.COUNTERS).first()
        launch = selectors.launch_of(profile, options["launch"]) if profile is not None else None
        if launch is None:
            raise CommandError(f"profile {options['profile']} holds no instructions of launch {options['launch']}", returncode=2)
        if options["json"]:
            self.stdout.write(json.dumps(selectors.source_json(launch), ensure_ascii=False, allow_nan=False))
            return
        self.stdout.write(f"{launch.row.kernel.short_name} #{launch.row.index}: {len(launch.instructions)} instructions")
        rows = [row for row in selectors.line_rows(launch) if row["place"]][:options["most"]]
        if rows:
            for row in rows:
                self.stdout.write(f"{row['place']}  {_share(row)}  {row['reason_title']}  {row['text'] or ''}")
            return
        for row in selectors.instruction_rows(launch, SAMPLES, options["most"]):
            self.stdout.write(f"{row['hex']}  {_share(row)}  {row['reason_title']}  {row['sass']}")


def _share(row: dict[str, Any]) -> str:
    return "—" if row["share_pct"] is None else pct_text(row["share_pct"])
