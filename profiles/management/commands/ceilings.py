"""Measured ceilings of GPUs on the command line: list them, ask for a measurement, load a recorded one."""

from __future__ import annotations

import json
import time
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from profiles.analysis.core.sentences import pct_text, si_text
from profiles.base.refused import Refused
from profiles.ceilings import selectors, services
from profiles.models import CeilingRun


class Command(BaseCommand):
    help = "What GPUs reach: the newest measurement of each model beside its data sheet."
    requires_system_checks: list[str] = []      # `manage.py check` runs them: they load every page

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--measure", action="store_true", help="queue a measurement on a gpu worker and wait for it")
        parser.add_argument("--load", type=Path, metavar="FILE", help="a file of python -m tests.gpu.measure_ceilings")
        parser.add_argument("--json", action="store_true", help="one JSON document on standard output")

    def handle(self, *_: Any, **options: Any) -> None:
        try:
            if options["load"]:
                services.ceilings_load(services.ceilings_read(_bytes(options["load"])))
            if options["measure"]:
                _wait(services.ceilings_measure(owner=None))
        except Refused as refused:
            raise CommandError(str(refused), returncode=2) from refused
        measured = selectors.measured_gpus()
        if options["json"]:
            self.stdout.write(json.dumps([{**ceilings.as_json(), "rows": [
                {**row, "measured": None} for row in selectors.gpu_rows(ceilings, ceilings.gpu)]} for ceilings in measured]))
            return
        if not measured:
            self.stdout.write("Nothing was measured yet: --measure with a gpu worker, or --load FILE.")
        for ceilings in measured:
            self.stdout.write(f"{ceilings.gpu}, {ceilings.label}")
            for row in selectors.gpu_rows(ceilings, ceilings.gpu):
                ceiling = row["measured"]
                rate = si_text(ceiling.rate, row["unit"]) if ceiling else "not measured"
                sheet = f" of {si_text(row['sheet'], row['unit'])} ({pct_text(row['pct'])})" if row["pct"] else ""
                clock = f" at {ceiling.clock_hz / 1e6:,.0f} MHz" if ceiling and ceiling.clock_hz else ""
                self.stdout.write(f"  {row['label']:<14} {rate}{sheet}{clock}")


def _bytes(path: Path) -> bytes:
    try:
        with path.open("rb") as stream:
            return stream.read(services.MAX_FILE_BYTES + 1)
    except OSError as error:
        raise CommandError(f"{path}: {error.strerror}", returncode=2) from error


def _wait(run: CeilingRun) -> None:
    while run.status in services.LIVE:
        time.sleep(0.5)
        run.refresh_from_db()
    if run.status != CeilingRun.Status.DONE:
        raise CommandError(f"{run.status}: {run.error['what'] if run.error else 'stopped'}")
