"""What would help each kernel of a profile, ranked: on the command line."""

from __future__ import annotations

import json
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import CommandError

from profiles.advice.selectors import advice_json, advice_lines
from profiles.analysis.core.sentences import pct_text, time_text
from profiles.analysis.kernel.advising.advice import gain_words
from profiles.models import Profile
from webapp.management.in_project import ProjectCommand


class Command(ProjectCommand):
    help = "Ranked advice about the kernels of a profile, those of most time first."
    requires_system_checks: list[str] = []      # `manage.py check` runs them: they load every page

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("profile", type=int, help="id of a ready profile")
        parser.add_argument("--kernel", default="", help="only kernels whose name holds this")
        parser.add_argument("--top", type=int, default=10, help="kernels, by their time (10)")
        parser.add_argument("--json", action="store_true", help="one JSON document on standard output")

    def handle(self, *_: Any, **options: Any) -> None:
        profile = Profile.objects.filter(pk=options["profile"], status=Profile.Status.READY).first()
        if profile is None:
            raise CommandError(f"there is no ready profile {options['profile']}", returncode=2)
        kernels = list(profile.kernels.filter(name__contains=options["kernel"]).select_related("profile")[:max(1, options["top"])])
        if not kernels:
            raise CommandError(f"no kernel of profile {profile.pk} is called like {options['kernel']!r}", returncode=2)
        if options["json"]:
            self.stdout.write(json.dumps([advice_json(kernel) for kernel in kernels], ensure_ascii=False, default=str))
            return
        for kernel in kernels:
            spent = "no duration" if kernel.total_ns is None or kernel.share_pct is None else (
                f"{time_text(kernel.total_ns)}, {pct_text(kernel.share_pct)} of the kernel time")
            self.stdout.write(f"{kernel.short_name}: {spent}")
            lines = advice_lines(kernel)
            for number, line in enumerate(lines, 1):
                gain = gain_words(line.advice, time_text)
                state = f" [{line.decision.outcome or line.decision.state}]" if line.decision else ""
                self.stdout.write(f"  {number}. {line.advice.title}, {gain}, {line.advice.confidence} confidence{state}")
                for sentence in line.advice.evidence[:1]:
                    self.stdout.write(f"     {sentence}")
            if not lines:
                self.stdout.write("  nothing stands out, or the profile has no counters")
