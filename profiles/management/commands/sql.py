"""One query over stored profiles, on standard output: `manage.py sql 3 "SELECT …"`, `manage.py sql 3,4 "…" --format csv`."""

from __future__ import annotations

import json
import sys
from argparse import ArgumentParser
from typing import Any

import pyarrow as pa
from django.core.management.base import CommandError

from profiles.exports import files
from profiles.exports import files as exports
from profiles.ingest.trace import TraceError
from profiles.sql import services as sql_services
from webapp.management.in_project import ProjectCommand

CELL_CHARS = 60


class Command(ProjectCommand):
    help = "Run one SELECT over the tables of some profiles. The SQL page and docs list the tables."
    requires_system_checks: list[str] = []      # `manage.py check` runs them: they load every page

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("profiles", metavar="PROFILE", help="ids separated by commas, or build:NAME, or tag:NAME")
        parser.add_argument("query", help="one SELECT; - reads it from standard input")
        parser.add_argument("--format", choices=("table", "csv", "json", "parquet", "arrow"), default="table")
        parser.add_argument("--rows", type=int, help=f"at most {sql_services.MOST.rows:,}")
        parser.add_argument("--seconds", type=float, help=f"at most {sql_services.MOST.seconds:g}")

    def handle(self, *_: Any, **options: Any) -> None:
        sql = sys.stdin.read() if options["query"] == "-" else options["query"]
        try:
            profiles = sql_services.choose_profiles(**_choose(options["profiles"]))
            limits = sql_services.limits_of(options["rows"], options["seconds"], whole=options["format"] != "table")
            result = sql_services.query_run(sql, profiles, "command line", limits, fresh=True)
        except TraceError as error:
            raise CommandError(f"{error.where}: {error.what}. {error.hint}.", returncode=1) from error
        self._write(result, options["format"])
        if result.truncated:
            self.stderr.write(f"only the first {result.table.num_rows:,} rows: --rows takes up to {sql_services.MOST.rows:,}")

    def _write(self, result: sql_services.Result, form: str) -> None:
        if form == "table":
            self.stdout.write(_table(result.table))
        elif form == "json":
            names = result.table.column_names
            for row in files.rows(result.table):
                self.stdout.write(json.dumps(dict(zip(names, row, strict=True)), ensure_ascii=False, allow_nan=False))
        else:
            out = getattr(self.stdout, "buffer", None) or sys.stdout.buffer
            for piece in exports.encode(result.table.schema, iter([result.table]), form):
                out.write(piece)
            out.flush()


def _choose(text: str) -> dict[str, Any]:
    kind, _, rest = text.partition(":")
    if kind in ("build", "tag") and rest:
        return {kind: rest}
    parts = text.split(",")
    if not all(part.isdecimal() and len(part) < 19 for part in parts):
        raise TraceError("profiles", f"{text!r} names no profiles", "Give ids separated by commas, build:NAME or tag:NAME")
    return {"ids": [int(part) for part in parts]}


def _table(table: pa.Table) -> str:
    """Columns side by side; numbers to the right."""
    cells = [["" if value is None else str(value).replace("\n", " ")[:CELL_CHARS] for value in row]
             for row in files.rows(table)]
    heads = [name[:CELL_CHARS] for name in table.column_names]
    numeric = [column["kind"] == "number" for column in files.columns(table)]
    widths = [max([len(head), *(len(row[i]) for row in cells)]) for i, head in enumerate(heads)]

    def line(row: list[str]) -> str:
        return "  ".join(cell.rjust(width) if right else cell.ljust(width)
                         for cell, width, right in zip(row, widths, numeric, strict=True)).rstrip()

    return "\n".join([line(heads), line(["-" * width for width in widths]), *map(line, cells)])
