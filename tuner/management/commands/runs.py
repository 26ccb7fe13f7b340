"""manage.py runs FILE …: results of benchmark programs as runs for the gate."""

from __future__ import annotations

import json
import sys
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from profiles.base.refused import Refused
from tuner.gate.benchmarks import KNOWN, runs_of
from tuner.gate.benchmarks.document import UNITS_US
from tuner.gate.stats.records import RunsError, read_runs

ERROR_EXIT_CODE = 3         # as the gate's


class Command(BaseCommand):
    help = (f"Turn results of {KNOWN} into runs (JSON Lines) for manage.py gate. Each file is one run: results of several "
            "processes of one build are several files.")
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("files", nargs="+", type=Path, metavar="FILE")
        parser.add_argument("--out", type=Path, metavar="RUNS.jsonl", help="where to write; standard output without it")
        parser.add_argument("--unit", choices=list(UNITS_US), default="",
                            help="of triton.testing's numbers, where its label names none")

    def handle(self, *_: Any, files: list[Path], out: Path | None, unit: str, **options: Any) -> None:
        try:
            records = [record for at, each in enumerate(files, 1) for record in runs_of(each, f"{at} {each.stem}"[:100], unit)]
            kernels = read_runs(records)                # as the gate will
        except Refused as error:
            raise CommandError(f"{error}{f' ({error.hint})' if error.hint else ''}", returncode=ERROR_EXIT_CODE) from error
        except RunsError as error:
            raise CommandError(f"{error.what} ({error.hint})", returncode=ERROR_EXIT_CODE) from error
        text = "".join(json.dumps(record) + "\n" for record in records)
        if out is None:
            self.stdout.write(text, ending="")
            return
        try:
            out.write_text(text)
        except OSError as error:
            raise CommandError(f"{out}: {error.strerror}", returncode=ERROR_EXIT_CODE) from error
        sys.stderr.write(f"{out}: {len(records)} runs of {len(kernels)} kernels from {len(files)} files\n")
