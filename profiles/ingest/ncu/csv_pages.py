"""Nsight Compute as CSV → `Report`: ``ncu --csv --page raw`` (a column per metric) and ``--page details`` (a row each).

Lines of ncu itself (``==PROF== …``) and of the profiled program may come before, between and after the table's rows.
The details page prints labels in place of metric names and two decimals: what is known of it is taken and said to be
rounded; the raw page is exact. Labels that `profiles.ingest.ncu.sections` does not list are counted as left out.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field

from profiles.ingest.core.source import Source
from profiles.ingest.core.text_lines import csv_cells, read_lines
from profiles.ingest.ncu.report import accept_untimed, add_durations, add_failed, failed_kernel, launch_from
from profiles.ingest.ncu.sections import LABELS, base_unit, decimal_sign, value_of
from profiles.ingest.trace import CounterLaunch, Integrity, Report, Rule, TraceError


def metric_of(section: str, label: str) -> str | None:
    """Return the metric that a line of the details page shows.

    A real metric name (``--metrics``, ``--print-metric-name name``) stands for itself, with a dot or without
    (``launch__registers_per_thread``, ``smsp__inst_executed.sum``); so do the names of nvprof (``stall_memory_dependency``).
    """
    if ("__" in label and " " not in label) or (section == SINGLE_METRICS and _NVPROF_NAME.match(label)):
        return label
    return LABELS.get(section, {}).get(label)


FORMAT = "ncu-csv"
RAW_HINT = "Export it again with: ncu --import report.ncu-rep --csv --page raw > report.csv"
SINGLE_METRICS = "Command line profiler metrics"          # the section that `ncu --metrics` prints
_NVPROF_NAME = re.compile(r"^[a-z][a-z0-9_]{2,79}$")
_KEYS = ("ID", "Kernel Name")
_ID_COLUMNS = {
    "ID", "Process ID", "Process Name", "Host Name", "Kernel Name", "Kernel Time", "Context", "Stream", "Block Size",
    "Grid Size", "Device", "CC", "Section Name", "Metric Name", "Metric Unit", "Metric Value", "Rule Name", "Rule Type",
    "Rule Description", "Estimated Speedup Type", "Estimated Speedup", "Invocations",
}
_SEVERITY = {"OPT": "optimization", "WRN": "warning", "ERR": "error", "INF": "info", "OK": "info"}
_MAX_LINE_BYTES = 64 << 20
_MAX_ROW_LINES = 10_000              # a rule's text has a few
MAX_CELLS = 6_000_000               # kept of one file: 4,000 launches of a full set, a few hundred MB
MAX_FAILED = 1_000                   # launches that ncu says it could not profile
MAX_LINES = 5_000_000                # looked at of one file, program output included
LOCALE_ROWS = 200                    # rows looked at to learn the decimal sign


@dataclass
class Table:
    """One CSV table among other output. `rows` are dicts of the header's columns."""

    header: list[str]
    delimiter: str
    rows: list[list[str]] = field(default_factory=list)
    other_lines: int = 0
    damaged: int = 0
    cells: int = 0
    beyond: int = 0                  # rows that came after MAX_CELLS
    failed: list[str] = field(default_factory=list)         # kernels that ncu could not profile, as it says itself


def sniff(head: bytes) -> bool:
    """Tell whether a header line with ncu's columns is somewhere in the first bytes."""
    return any(_header(line) for line in head.decode("utf-8", "replace").splitlines())


def read(source: Source) -> Report:
    """Return the launches of one CSV file.

    TraceError where it holds none, or no metric that is understood.
    """
    table = _table(source)
    if "Metric Name" in table.header:
        report = details_report(table)
    elif "Invocations" in table.header:
        raise TraceError("header", "this is a summary over launches (--print-summary)", RAW_HINT)
    else:
        report = _raw(table)
    accept_untimed(report)
    if report.launches:
        add_failed(report, table.failed)
    integrity = report.integrity
    integrity.repair("lines of other output skipped", table.other_lines)
    integrity.end_early(source.damage)
    for launch in report.launches:
        if launch.incomplete:
            integrity.repair(f"kept out of sums: {launch.incomplete}")
    if not report.launches:
        raise TraceError(
            "header", "the table has no rows", "ncu found no kernel to profile, or its output was cut off."
        )
    return report


def _header(line: str) -> tuple[list[str], str] | None:
    """(columns, delimiter) where the line is the header of a table."""
    if "Kernel Name" not in line or "ID" not in line:
        return None
    for delimiter in (",", ";", "\t"):
        columns = csv_cells(line.lstrip("\ufeff"), delimiter)
        if all(key in columns for key in _KEYS):
            return columns, delimiter
    return None


def _table(source: Source) -> Table:
    table: Table | None = None
    pending: list[str] = []                  # lines of a row with a line break in a cell
    failed: list[str] = []
    for number, line in enumerate(read_lines(source, _MAX_LINE_BYTES, "ncu", RAW_HINT), 1):
        if number > MAX_LINES:
            raise TraceError(f"line {number:,}", "the file goes on beyond what is read of a table of counters",
                             "Export fewer launches (ncu --launch-count), or keep the program's own output out of the file.")
        if (kernel := failed_kernel(line)) and len(failed) < MAX_FAILED:
            failed.append(kernel)
        header = _header(line)
        if header and (table is None or header[0] == table.header):
            table = table or Table(*header)
            pending = []
            continue
        if table is None:
            continue
        pending = _join_line(table, pending, line) if pending else _row(table, line)
    if table is None:
        raise TraceError("line 1", "no header of an Nsight Compute table was found", RAW_HINT)
    table.damaged += bool(pending)
    table.failed = failed
    return table


def _join_line(table: Table, pending: list[str], line: str) -> list[str]:
    """One more line of a row; looks at each line once, however many the row has."""
    pending.append(line)
    if len(pending) > _MAX_ROW_LINES:
        table.damaged += 1
        return []
    return _row(table, "\n".join(pending)) if line.count('"') % 2 else pending


def _row(table: Table, line: str) -> list[str]:
    """Take one row; returns what must be joined with the next line (a cell with a line break in it)."""
    starts = line.startswith(('"', table.delimiter)) or line[:1].isdigit()
    if not starts:
        table.other_lines += bool(line.strip())
        return []
    if line.count('"') % 2:
        return [line]
    cells = csv_cells(line, table.delimiter)
    shortest = table.header.index("Metric Value") if "Metric Value" in table.header else len(table.header)
    if len(cells) < shortest or len(cells) > len(table.header) + 1:
        if line.startswith('"'):
            table.damaged += 1
        else:
            table.other_lines += 1
        return []
    table.cells += len(cells)
    if table.cells > MAX_CELLS:
        table.beyond += 1
    else:
        table.rows.append(cells)
    return []


def _integrity(table: Table, records: int, kind: str) -> Integrity:
    total = records + table.damaged + table.beyond
    integrity = Integrity(records_read=total, records_kept=records, kinds={kind: total})
    integrity.drop(f"beyond the limit of {MAX_CELLS:,} cells", table.beyond)
    integrity.drop("a row with too few or too many cells", table.damaged)
    return integrity


def _raw(table: Table) -> Report:
    """Row 1 of the table holds units; each further row is a launch."""
    if not table.rows:
        return Report(FORMAT, [], {}, Integrity())
    columns = [(i, name) for i, name in enumerate(table.header) if _is_metric(name)]
    units_row = table.rows[0] if not _cell(table, table.rows[0], "ID") else None
    rows = table.rows[1:] if units_row else table.rows
    decimal = decimal_sign(row[i] for row in rows[:LOCALE_ROWS] for i, _ in columns)
    scale = {i: base_unit(units_row[i]) if units_row else (1.0, "") for i, _ in columns}
    report = Report(
        FORMAT, [], {name: scale[i][1] for i, name in columns}, _integrity(table, len(rows), "profiled launch")
    )
    if units_row is None:
        report.integrity.notes.append("The table has no row of units: values are taken as base units.")
    for row in rows:
        metrics = _identity(table, row)
        for i, name in columns:
            value = value_of(row[i], decimal) if i < len(row) else None
            if value is not None:
                metrics[name] = value * scale[i][0] if isinstance(value, float) else value
        report.launches.append(launch_from(len(report.launches), _cell(table, row, "Kernel Name"), add_durations(metrics), []))
    report.metadata["process"] = _cell(table, rows[0], "Process Name") if rows else ""
    return report


def _is_metric(name: str) -> bool:
    return (
        name not in _ID_COLUMNS
        and not name.startswith(("thread Domain:", "Id:", "NVTX", "Push/Pop", "Start/End"))
        and (":" not in name or name.startswith(("pmsampling:", "breakdown:", "group:")))
    )


def _cell(table: Table, row: list[str], column: str) -> str:
    index = table.header.index(column) if column in table.header else len(row)
    return row[index].strip() if index < len(row) else ""


def _fits_int64(text: str) -> bool:
    """A whole number that an int64 holds."""
    return text.isdecimal() and len(text) < 19


def _identity(table: Table, row: list[str]) -> dict[str, float | str]:
    """What the first columns say, under the names of the metrics that say the same."""
    metrics: dict[str, float | str] = {}
    for column, prefix in (("Grid Size", "launch__grid_dim_"), ("Block Size", "launch__block_dim_")):
        sizes = _cell(table, row, column).strip("()").replace(";", ",").split(",")
        if len(sizes) == 3 and all(_fits_int64(size.strip()) for size in sizes):
            metrics.update({prefix + axis: int(size) for axis, size in zip("xyz", sizes, strict=True)})
    for column, name in (
        ("Context", "launch__context_id"),
        ("Stream", "launch__stream_id"),
        ("Device", "launch__device_id"),
    ):
        if _fits_int64(_cell(table, row, column)):
            metrics[name] = int(_cell(table, row, column))
    major, dot, minor = _cell(table, row, "CC").partition(".")
    if dot and _fits_int64(major) and _fits_int64(minor):
        metrics["device__attribute_compute_capability_major"] = int(major)
        metrics["device__attribute_compute_capability_minor"] = int(minor)
    return metrics


def details_report(table: Table, format: str = FORMAT) -> Report:
    """Return the launches of a details page: a row per metric or rule; the rows of one launch share its ID and its kernel."""
    decimal = decimal_sign(_cell(table, row, "Metric Value") for row in table.rows[:LOCALE_ROWS * 10])
    report = Report(format, [], {}, _integrity(table, len(table.rows), "row"))
    groups: dict[tuple[str, ...], list[list[str]]] = {}
    for row in table.rows:
        groups.setdefault(tuple(_cell(table, row, column) for column in ("Process ID", "ID", "Kernel Name")), []).append(row)
    labels = 0
    for rows in groups.values():
        launch, rounded = _details_launch(table, rows, decimal, report)
        labels += rounded
        report.launches.append(launch)
    if any(_cell(table, row, "Section Name") != SINGLE_METRICS for row in table.rows):
        report.integrity.notes.append(
            "This is ncu's details page: values are rounded to two decimals and many metrics are absent. " + RAW_HINT)
    report.integrity.repair("values rounded as the details page prints them", labels)
    return report


def _details_launch(table: Table, rows: list[list[str]], decimal: str, report: Report) -> tuple[CounterLaunch, int]:
    metrics, rules, rounded = _identity(table, rows[0]), [], 0
    cell: Callable[[list[str], str], str] = lambda row, column: _cell(table, row, column)  # noqa: E731
    for row in rows:
        if cell(row, "Rule Name"):
            rules.append(_rule(cell, row, decimal))
            continue
        label = cell(row, "Metric Name")
        name = metric_of(cell(row, "Section Name"), label)
        if name is None:
            report.integrity.records_kept -= 1
            report.integrity.drop("a label of the details page with no metric name known for it")
            continue
        value = value_of(cell(row, "Metric Value"), decimal)
        factor, unit = base_unit(cell(row, "Metric Unit"))
        if value is not None and name not in metrics:
            metrics[name] = value * factor if isinstance(value, float) else value
            report.units[name] = unit
            rounded += isinstance(value, float)
    return launch_from(len(report.launches), cell(rows[0], "Kernel Name"), add_durations(metrics), rules), rounded


def _rule(cell: Callable[[list[str], str], str], row: list[str], decimal: str) -> Rule:
    speedup = value_of(cell(row, "Estimated Speedup"), decimal)
    return Rule(
        identifier=cell(row, "Rule Name"), section=cell(row, "Section Name"), title=cell(row, "Rule Name"),
        severity=_SEVERITY.get(cell(row, "Rule Type"), "info"), text=cell(row, "Rule Description"),
        speedup_pct=speedup if isinstance(speedup, float) else None,
        speedup_scope=cell(row, "Estimated Speedup Type") or None)
