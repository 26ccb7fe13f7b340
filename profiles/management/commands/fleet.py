"""The fleet from the command line: records of a file in, the kernels and GPUs that matter out."""

from __future__ import annotations

import json
import time
import zlib
from argparse import ArgumentParser
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from django.core.management.base import CommandError

from profiles.base.refused import Refused
from profiles.fleet import capture_services, selectors
from profiles.fleet.browse import capture_selectors
from profiles.fleet.feed import NoJsonLines, Read, batches
from profiles.fleet.services import FleetBusy, batch_accept, merge_waiting
from profiles.fleet.store import GROUPS
from profiles.management.fleet_demo import add_demo_arguments, run_demo, run_forget
from profiles.models import FleetCapture
from tuner.gate.production import selectors as production
from webapp.management.in_project import ProjectCommand
from workers.agent.wire import BatchRefused, pack

MOST_REGRESSIONS = 200


class Command(ProjectCommand):
    help = "The fleet: feed launch records of a file, list what has most time, find slow GPUs."
    failed = False
    requires_system_checks: list[str] = []      # `manage.py check` runs them: they load every page

    def add_arguments(self, parser: ArgumentParser) -> None:
        commands = parser.add_subparsers(dest="what", required=True)
        feed = commands.add_parser("feed", help="launch records as JSON lines (plain or gzip), taken as complete")
        feed.add_argument("file", type=Path, help="one JSON object a line: ts_ns, dur_ns, kernel, grid, block, shared_bytes, "
                                                  "gpu_uuid, gpu_model, host, job, rank, build; the same file twice counts once")
        feed.add_argument("--simulated", action="store_true", help="the records are made up: label them so everywhere")
        top = commands.add_parser("top", help="what has most time")
        top.add_argument("--group", choices=GROUPS, default="kernel")
        top.add_argument("--limit", type=int, default=20, help="lines (default 20; 0: all)")
        gpus = commands.add_parser("gpus", help="which GPU is slower than the others at the same kernels")
        for command in (top, gpus):
            command.add_argument("--from", default="", metavar="MOMENT",
                                 help="2026-11-23, 2026-11-23T14:00 (UTC) or seconds since 1970; whole hours count")
            command.add_argument("--to", default="", metavar="MOMENT", help="end, excluded")
            for name in selectors.FILTERS:
                command.add_argument(f"--{name.replace('_', '-')}", default="", help=f"only of this {name.replace('_', ' ')}")
        move = commands.add_parser("move", help="copy the history from PostgreSQL to ClickHouse (docs/fleet-store.md)")
        move.add_argument("url", help="clickhouse://user:password@host:8443/database?secure=1")
        regressions = commands.add_parser("regressions", help="kernels that became slower in production, since which build and day")
        for name in production.FILTERS:
            regressions.add_argument(f"--{name.replace('_', '-')}", default="", help=f"only of this {name.replace('_', ' ')}")
        capture = commands.add_parser("capture", help="deep capture of running processes (started with KINETO_USE_DAEMON=1) by "
                                                      "their agents; waits for the profile")
        capture.add_argument("--job", default="")
        capture.add_argument("--host", default="")
        capture.add_argument("--pid", type=int, default=0)
        capture.add_argument("--most", type=int, default=1, help="processes (default 1); several begin at one moment")
        capture.add_argument("--steps", type=int, help="of the job's optimizer")
        capture.add_argument("--seconds", type=float, help="in place of steps")
        capture.add_argument("--wait", type=float, default=300.0, metavar="S", help="for the profile (default %(default)s; 0: not)")
        demo, forget = add_demo_arguments(commands)
        for command in (feed, top, gpus, move, regressions, capture, demo, forget):
            command.add_argument("--json", action="store_true", help="one JSON document on standard output")

    def handle(self, *_: Any, **options: Any) -> None:
        try:
            document = {"feed": self.feed, "top": self.top, "gpus": self.gpus, "move": self.move, "regressions": self.regressions,
                        "capture": self.capture, "demo": self.demo, "forget-simulated": self.forget}[options["what"]](options)
        except (Refused, BatchRefused, FleetBusy) as refused:
            raise CommandError(str(refused)) from refused
        if options["json"]:
            self.stdout.write(json.dumps(document, ensure_ascii=False, allow_nan=False))
        if self.failed:
            raise SystemExit(1)

    def demo(self, options: dict[str, Any]) -> Mapping[str, Any]:
        return run_demo(options, self._say(options))

    def forget(self, options: dict[str, Any]) -> Mapping[str, Any]:
        return run_forget(self._say(options))

    def _say(self, options: dict[str, Any]) -> Callable[[str], object]:
        return self.stderr.write if options["json"] else self.stdout.write

    def feed(self, options: dict[str, Any]) -> Mapping[str, Any]:
        """Through the wire format, the acceptance and the merge of an agent's batches."""
        tally, accepted, duplicates, ended = Read(), 0, 0, ""
        try:
            for batch in batches(options["file"], tally, options["simulated"]):
                receipt = batch_accept(pack(batch))
                duplicates += receipt["duplicate"]
                accepted += not receipt["duplicate"]
        except (NoJsonLines, OSError, EOFError, zlib.error) as error:
            if not tally.records:
                raise CommandError(f"{options['file']}: {error}") from error
            ended = f"the file ends early ({error}): what came before counts"
        merge_waiting()
        document = {"records": tally.records, "rejected": tally.rejected, "batches": accepted, "duplicate_batches": duplicates,
                    "reasons": [{"reason": reason, "lines": count, "first_line": tally.first[reason]}
                                for reason, count in tally.reasons.most_common()], "warning": ended}
        if not options["json"]:
            self.stdout.write(f"{tally.records:,} records in {accepted} batches, {tally.rejected:,} lines rejected"
                              + (f"; {duplicates} batches were here before and count once" if duplicates else ""))
            for reason, count in tally.reasons.most_common():
                self.stdout.write(f"  {count:,} × {reason} (first: line {tally.first[reason]})")
            if ended:
                self.stdout.write(ended)
        return document

    def capture(self, options: dict[str, Any]) -> Mapping[str, Any]:
        """Order, then wait until each is uploaded or failed; exit 1 where one is not."""
        if not (options["job"] or options["host"] or options["pid"]):
            raise CommandError("--job, --host or --pid says which process")
        tasks = [task for task in capture_services.processes(options["job"], options["host"])
                 if options["pid"] in (0, task.pid)][:max(1, options["most"])]
        try:
            rows = capture_services.order([task.key for task in tasks], options["steps"], None if options["seconds"] is None else
                                          round(1000 * options["seconds"]), None, "from the command line")
        except Refused as refused:
            raise CommandError("no such process asks for captures: it needs KINETO_USE_DAEMON=1 and an agent on its host"
                               if not tasks else refused.what) from refused
        say, end_s = self._say(options), time.monotonic() + options["wait"]
        say(f"{len(rows)} ordered")
        while True:
            lines = [capture_selectors.line_of(row) for row in FleetCapture.objects.select_related("agent").filter(
                pk__in=[row.pk for row in rows])]
            if time.monotonic() >= end_s or not any(line.is_open for line in lines):
                break
            time.sleep(1.0)
        for line in lines:
            say(f"process {line.row.pid} on {line.row.agent.host}: {line.words}{': ' + line.row.why if line.row.why else ''}"
                + (f", profile {line.row.profile_id}" if line.row.profile_id else ""))
        if options["wait"] > 0 and any(line.state != "uploaded" for line in lines):
            self.failed = True
        return {"captures": [line.as_json() for line in lines]}

    def top(self, options: dict[str, Any]) -> Mapping[str, Any]:
        query = {name: options[name] for name in ("from", "to", "group", *selectors.FILTERS)}
        ranking = selectors.top(query, options["limit"] if options["limit"] > 0 else None)
        if not options["json"]:
            if not ranking.rows:
                self.stdout.write("no launches are summed of that; batches that just came are merged within half a minute")
            for row in ranking.rows:
                within = "" if row["interval_pct"] is None else f" ± {row['interval_pct']:.0f} %"
                p50_ns, p95_ns = row["p50_ns"], row["p95_ns"]
                middle = "p50 unknown"
                if p50_ns is not None and p95_ns is not None:
                    middle = f"p50 {p50_ns / 1e3:,.1f} µs, p95 {p95_ns / 1e3:,.1f} µs"
                self.stdout.write(f"{row['share_pct']:5.1f} %  {row['estimate_ns'] / 3.6e12:,.3f} GPU-hours{within}  "
                                  f"{row['launches']:,} launches  {middle}  {row['name']}")
        return ranking.as_json()

    def gpus(self, options: dict[str, Any]) -> Mapping[str, Any]:
        from profiles.fleet.slow.gpu_selectors import slow_gpus

        slow = slow_gpus({name: options[name] for name in ("from", "to", *selectors.FILTERS)})
        if not options["json"]:
            for row in slow.rows:
                self.stdout.write(f"{row.verdict:8} {row.text}  {row.gpu_uuid} ({row.host})")
        return slow.as_json()

    def move(self, options: dict[str, Any]) -> Mapping[str, Any]:
        from profiles.fleet.stores import move_to_clickhouse

        rows = move_to_clickhouse(options["url"])
        if not options["json"]:
            self.stdout.write("\n".join(f"{count:>12,} rows  {name}" for name, count in rows.items()))
        return {"rows": rows}

    def regressions(self, options: dict[str, Any]) -> Mapping[str, Any]:
        queryset = production.production_list(options)
        rows, looked = [production.production_json(row) for row in queryset[:MOST_REGRESSIONS]], production.production_document()
        if not options["json"]:
            for row in rows:
                self.stdout.write(f"{row['state']:12} {row['text']}  {row['interval']}")
            if not rows:
                filtered = any(options[name] for name in production.FILTERS)
                self.stdout.write("no regression matches" if filtered else looked["says"])
        return {**looked, "count": queryset.count(), "rows": rows}
