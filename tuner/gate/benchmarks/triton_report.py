"""CSV of `triton.testing.perf_report` (save_path): a time for each provider and size. Of one file each is a single sample.

Its columns are the sizes, then "provider (label)". The label is whatever the author wrote: a rate (GB/s, TFLOPS) is no time.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from profiles.base.refused import Refused
from tuner.gate.benchmarks.document import UNITS_US, Results

_PROVIDER = re.compile(r"(.{1,100}) \((.{0,60})\)\Z")
_TIMES = {"ns": "ns", "us": "us", "µs": "us", "ms": "ms", "s": "s", "milliseconds": "ms", "microseconds": "us", "seconds": "s"}


def is_mine(results: Results) -> bool:
    rows = results.content
    return isinstance(rows, list) and bool(rows) and isinstance(rows[0], list) and any(_PROVIDER.match(cell) for cell in rows[0])


def records(results: Results) -> Iterator[dict[str, Any]]:
    """Yield a record for each row and provider. Raises Refused where the numbers are no times."""
    head, *rows = results.content
    providers = {index: match for index, name in enumerate(head) if (match := _PROVIDER.match(name))}
    for number, row in enumerate(rows, 2):
        if len(row) != len(head):
            raise Refused(f"line {number} has {len(row)} columns, the first {len(head)}")
        shape = {name: _number(row[place]) for place, name in enumerate(head) if place not in providers and name}
        for place, match in providers.items():
            unit = results.unit or _TIMES.get(match[2].strip().lower(), "")
            if not unit:
                raise Refused(f"{match[2][:40]!r} is no unit of time", hint="report times, or name the unit with --unit ms")
            if row[place]:
                try:
                    yield {"op": match[1], "shape": shape, "config": None, "us": [float(row[place]) * UNITS_US[unit]]}
                except ValueError:
                    raise Refused(f"line {number}: {row[place][:40]!r} is no number") from None


def _number(text: str) -> Any:
    try:
        value = float(text)
    except ValueError:
        return text[:100]
    return int(value) if value.is_integer() and abs(value) < 1 << 53 else value
