"""Two profiles or two builds kernel by kernel, and why each changed: on the command line."""

from __future__ import annotations

import json
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import CommandError

from profiles.analysis.compare.comparison import KernelChange, name_shape, verdict_text
from profiles.analysis.compare.step import StepChange
from profiles.analysis.core.sentences import time_text
from profiles.compare.operation_selectors import operation_lines
from profiles.compare.selectors import PER, KernelComparison, comparison
from profiles.ingest.trace import TraceError
from webapp.management.in_project import ProjectCommand


class Command(ProjectCommand):
    help = "Compare two profiles (ids) or, with --builds, two builds; the second is the new one."
    requires_system_checks: list[str] = []      # `manage.py check` runs them: they load every page

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("old")
        parser.add_argument("new")
        parser.add_argument("--builds", action="store_true", help="OLD and NEW are builds, not ids of profiles")
        parser.add_argument("--per", choices=PER, default="", help="divide times by steps or runs")
        parser.add_argument("--kind", choices=("trace", "counters"), default="")
        parser.add_argument("--json", action="store_true", help="one JSON document on standard output")

    def handle(self, *_: Any, **options: Any) -> None:
        names = ("build_a", "build_b") if options["builds"] else ("a", "b")
        query = dict(zip(names, (options["old"], options["new"]), strict=True))
        try:
            compared = comparison({**query, "per": options["per"], "kind": options["kind"]})
        except TraceError as error:
            raise CommandError(str(error), returncode=2) from None
        if options["json"]:
            self.stdout.write(json.dumps(compared.as_json(), ensure_ascii=False, allow_nan=False))
            return
        for note in compared.notes:
            self.stdout.write(note)
        self._write_step(compared.step)
        self._write_operations(compared)
        self.stdout.write(f"{'':22} {'total':^23}  mean of a launch")
        for kernel in compared.result.kernels:
            says = f"  {kernel.says}" if kernel.says else ""
            totals = f"{time_text(kernel.old_total_ns):>10} → {time_text(kernel.new_total_ns):>10}"
            self.stdout.write(f"{verdict_text(kernel.verdict):22} {totals}  {mean_text(kernel):35}  {kernel.kernel}{says}")
            for index in kernel.rows:
                row = compared.result.rows[index]
                if kernel.says:
                    change = f"{row.change_pct:+.1f} %" if row.change_pct is not None else "one side only"
                    self.stdout.write(f"          {row.shape}: {name_shape(row)}: {verdict_text(row.verdict)}, {change}")
                if index in compared.whys:
                    self.stdout.write(f"          because {compared.whys[index].sentence}")

    def _write_step(self, step: StepChange | None) -> None:
        if step is None:
            return
        self.stdout.write(step.answer)
        for change in step.foretold:
            foretold = f"{time_text(change.least_ns)} to {time_text(change.most_ns)}"
            self.stdout.write(f"  {'new' if change.came else 'gone'}: {change.title.lower()}, foretold {foretold}")

    def _write_operations(self, compared: KernelComparison) -> None:
        """What is computed, before the kernels that do it."""
        for kind in operation_lines(compared.operations):
            for line, depth in ((kind, 0), *((part, 1) for part in kind.parts)):
                name = "  " * depth + line.what
                times = f"{time_text(line.row.old.ns):>10} → {time_text(line.row.new.ns):>10}"
                suffix = f"; {line.row.says}" if line.row.says else ""
                self.stdout.write(f"{name[:58]:58} {times}  {line.launches_text:>14} launches  {line.verdict}{suffix}")
        if compared.operations:
            self.stdout.write("")


def mean_text(kernel: KernelChange) -> str:
    """"40.0 µs → 51.0 µs, +27.5 %": what a launch takes on both sides, over all shapes."""
    old, new = ("none" if mean_ns is None else time_text(mean_ns) for mean_ns in (kernel.old_mean_ns, kernel.new_mean_ns))
    if kernel.change_pct is None:
        return f"{old} → {new}"
    why = " (other mix of shapes)" if kernel.is_other_mix else ""
    return f"{old} → {new}, {kernel.change_pct:+.1f} %{why}"
