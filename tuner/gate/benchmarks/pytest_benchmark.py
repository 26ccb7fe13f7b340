"""pytest-benchmark's JSON (--benchmark-json, or --benchmark-save-data): each round is a sample, in seconds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from profiles.base.refused import Refused
from tuner.gate.benchmarks.document import Results, field


def is_mine(results: Results) -> bool:
    return isinstance(results.content, Mapping) and {"machine_info", "benchmarks"} <= results.content.keys()


def records(results: Results) -> Iterator[dict[str, Any]]:
    """Yield a record for each test and its parameters. Raises Refused where the samples were not kept."""
    for index, entry in enumerate(field(results.content, "benchmarks", list, "the file")):
        where = f"benchmarks[{index}]"
        name, stats = field(entry, "fullname", str, where), field(entry, "stats", dict, where)
        if "data" not in stats:
            raise Refused(f"{where}: {name} has no samples, only their statistics", hint="run it with --benchmark-save-data")
        yield {"op": name.partition("[")[0], "shape": _plain(entry.get("params")) or {}, "config": None,
               "us": [value * 1e6 if isinstance(value, int | float) else value for value in field(stats, "data", list, where)]}


def _plain(params: Any) -> dict[str, Any]:
    return {str(name): value if isinstance(value, str | int | float | bool | None) else str(value)[:100]
            for name, value in params.items()} if isinstance(params, Mapping) else {}
