"""What each of a job's successive traces won against the one before: on the command line."""

from __future__ import annotations

import json
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import CommandError

from profiles.analysis.core.sentences import pct_text, time_text
from profiles.compare.progress_selectors import STEP, progress
from profiles.ingest.trace import TraceError
from webapp.management.in_project import ProjectCommand


class Command(ProjectCommand):
    help = "Progress over successive traces of one model, or of the given profiles in this order."
    requires_system_checks: list[str] = []      # `manage.py check` runs them: they load every page

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("profiles", nargs="*", metavar="ID", help="traces, the oldest first")
        parser.add_argument("--model", default="", help="all traces of this model, in order of upload")
        parser.add_argument("--gpu", default="", help="of them those on this GPU")
        parser.add_argument("--json", action="store_true", help="one JSON document on standard output")

    def handle(self, *_: Any, **options: Any) -> None:
        try:
            report = progress({"profiles": ",".join(options["profiles"]), "model": options["model"], "gpu": options["gpu"]})
        except TraceError as error:
            raise CommandError(str(error), returncode=2) from None
        if options["json"]:
            self.stdout.write(json.dumps(report.as_json(), ensure_ascii=False, allow_nan=False))
            return
        for stage in report.stages:
            unit = "a step" if stage.of == STEP else "wall"
            change = stage.why_not
            if stage.change_ns is not None:
                change = f"{stage.change_ns / 1e6:+,.3f} ms ({stage.change_pct:+.1f} %)"
                change += " within the spread of the steps" if stage.within_noise else ""
            busy = pct_text(stage.busy_pct) if stage.busy_pct is not None else "unknown"
            self.stdout.write(f"{stage.profile.pk:5} {stage.label[:40]:40} {time_text(stage.time_ns or 0.0):>10} {unit}, "
                              f"GPU busy {busy}  {change}".rstrip())
            for step in (*stage.won, *stage.lost):
                says = (f"  {step.says}" if step.says else "") + (f"  was {step.was}" if step.was else "")
                self.stdout.write(f"{'':14}{step.delta_ns / 1e6:+,.3f} ms  {step.verdict:8} {step.kernel}{says}")
