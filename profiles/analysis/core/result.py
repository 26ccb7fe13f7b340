"""What an analysis says: one sentence, the figures of its page, tables, and findings with the numbers they rest on."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from profiles.ingest.trace import Summary, SummaryTable

SEVERITIES = ("high", "medium", "info")


MOST_CHARS = 250_000                # of one table: names of templates may be of any length


def cut_to_fit(table: SummaryTable) -> SummaryTable:
    """The table's first rows whose text fits into MOST_CHARS; it says when rows are left out."""
    total = 0
    for number, row in enumerate(table.rows):
        total += sum(len(cell) for cell in row if isinstance(cell, str))
        if total > MOST_CHARS:
            note = f"{table.note} The first {number:,} of {len(table.rows):,} rows: the names are very long.".strip()
            return replace(table, rows=table.rows[:number], note=note)
    return table


@dataclass(frozen=True)
class Finding:
    """One finding: a sentence with numbers, what to do, and the numbers with units in their names."""

    rule: str
    severity: str
    title: str
    advice: str
    numbers: dict[str, Any]
    worth_ns: float | None = None
    kernel: str | None = None           # full name, where it is about one kernel


@dataclass(frozen=True)
class Result:
    """What one analysis of a whole trace found.

    `answer` is one sentence with numbers, names in backticks. `numbers` is JSON, units in the names: everything that the
    page's figures show. `tables` are shown, sorted, filtered and exported as they are. `applies` is false where the trace
    holds nothing of the kind: the answer says what is missing and how to record it.
    """

    answer: str
    numbers: dict[str, Any] = field(default_factory=dict)
    tables: list[SummaryTable] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    applies: bool = True


# The tables of a `Summary`, bounded.

MAX_TABLES = 64
MAX_ROWS = 100_000              # of all tables of one profile


def cut_tables(summary: Summary) -> None:
    """Cut tables to what one page and one object should hold; what goes is counted."""
    left, cut = MAX_ROWS, 0
    for number, table in enumerate(summary.tables):
        room = left if number < MAX_TABLES else 0
        cut += max(0, len(table.rows) - room)
        table.rows = table.rows[:room]
        left -= len(table.rows)
    del summary.tables[MAX_TABLES:]
    if cut:
        summary.integrity.remark(f"table rows beyond the first {MAX_ROWS:,} (or the first {MAX_TABLES} tables): "
                                 "in the kernels' sums, in no table", cut)
