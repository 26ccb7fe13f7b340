"""Folded stacks (`a;b;c 12` a line): py-spy and perf folded, Brendan Gregg's stackcollapse, torch's `export_stacks` → `Summary`.

The format states counts and no times, not even a unit: samples of a sampling profiler, µs of torch.profiler. So it is no timeline
here, but two tables: functions with what they and what is below them count, and the heaviest stacks.
"""

from __future__ import annotations

import re
from collections import Counter

from profiles.ingest.core.source import Source
from profiles.ingest.core.text_lines import read_lines
from profiles.ingest.trace import CellRows, Integrity, Summary, SummaryTable, TraceError, summary_columns

FORMAT = "folded"
MAX_STACKS, MAX_FUNCTIONS = 1_000_000, 200_000
_MAX_LEVELS = 2_000
_SHOWN_STACKS, _CHARS = 1_000, 4_000
_MAX_LINE_BYTES = 1 << 20
_LINE = re.compile(r"(?P<stack>\S.*?)\s+(?P<count>\d{1,18})(?:\.\d+)?\s*")
_HINT = "Record it as speedscope for a timeline: py-spy record -f speedscope -o run.speedscope.json -- python program.py"


def sniff(head: bytes) -> bool:
    """Tell whether every line is a stack and a count, and most stacks have several functions."""
    if b"\0" in head[:4096]:
        return False
    lines = head[:1 << 16].decode("utf-8", "replace").splitlines()
    whole = [line for line in (lines if len(head) < 1 << 16 else lines[:-1]) if line.strip() and not line.startswith("#")]
    stacks = [match["stack"] for line in whole if (match := _LINE.fullmatch(line))]
    return bool(stacks) and len(stacks) == len(whole) and 2 * sum(";" in stack for stack in stacks) >= len(stacks)


def read(source: Source) -> Summary:
    """Raises TraceError where no line is a stack."""
    integrity = Integrity()
    stacks: Counter[str] = Counter()
    own: Counter[str] = Counter()
    total: Counter[str] = Counter()
    for line in read_lines(source, _MAX_LINE_BYTES, "a profiler of stacks", _HINT):
        if not line.strip() or line.startswith("#"):
            continue
        integrity.records_read += 1
        match = _LINE.fullmatch(line)
        if match is None:
            integrity.drop("a line that is no stack with a count")
            continue
        frames, count = match["stack"].split(";")[:_MAX_LEVELS], int(match["count"])
        if len(stacks) >= MAX_STACKS or len(total) >= MAX_FUNCTIONS:
            integrity.drop(f"stacks beyond the first {MAX_STACKS:,}, or of more than {MAX_FUNCTIONS:,} functions")
            continue
        stacks[match["stack"][:_CHARS]] += count
        own[frames[-1][:_CHARS]] += count
        for name in dict.fromkeys(frame[:_CHARS] for frame in frames):      # a function that calls itself counts once
            total[name] += count
    if not stacks:
        raise TraceError("line 1", "no line is a stack with a count", _HINT)
    integrity.kinds["stack"] = integrity.records_read
    integrity.settle()
    integrity.end_early(source.damage)
    return Summary(FORMAT, [], [_functions(own, total, stacks), _stacks(stacks)], integrity)


def _functions(own: Counter[str], total: Counter[str], stacks: Counter[str]) -> SummaryTable:
    whole = sum(stacks.values()) or 1
    rows: CellRows = [[name, own[name], 100 * own[name] / whole, count, 100 * count / whole]
                              for name, count in sorted(total.items(), key=lambda pair: (-own[pair[0]], -pair[1], pair[0]))]
    columns = summary_columns("Function: text | Own: count | Own share: pct | With what it calls: count | Share: pct")
    return SummaryTable("Functions", columns, rows, "Numbers as the file states them, without a unit: samples of a sampling "
                        "profiler, µs of torch.profiler's export_stacks.")


def _stacks(stacks: Counter[str]) -> SummaryTable:
    rows: CellRows = [[" → ".join(stack.split(";")), count] for stack, count in stacks.most_common(_SHOWN_STACKS)]
    return SummaryTable("Heaviest stacks", summary_columns("Stack: text | Own: count"), rows,
                        f"The first {_SHOWN_STACKS:,} of {len(stacks):,}; outermost function first.")
