"""The tables of a `Summary`, bounded."""

from __future__ import annotations

from profiles.ingest.trace import Summary

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
