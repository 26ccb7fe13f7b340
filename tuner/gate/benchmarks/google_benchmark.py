"""Google Benchmark's JSON (--benchmark_out=FILE --benchmark_out_format=json): a repetition is a sample, in real or manual time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from profiles.base.refused import Refused
from tuner.gate.benchmarks.document import UNITS_US, Results, field


def is_mine(results: Results) -> bool:
    content = results.content
    return isinstance(content, Mapping) and isinstance(content.get("context"), Mapping) and "benchmarks" in content


def records(results: Results) -> Iterator[dict[str, Any]]:
    """Yield a record for each benchmark with its repetitions; aggregates are left out, one that failed says why."""
    runs: dict[str, dict[str, Any]] = {}
    for index, entry in enumerate(field(results.content, "benchmarks", list, "the file")):
        where = f"benchmarks[{index}]"
        if isinstance(entry, Mapping) and entry.get("run_type", "iteration") != "iteration":
            continue
        name = entry.get("run_name") if isinstance(entry, Mapping) and isinstance(entry.get("run_name"), str) else field(
            entry, "name", str, where)
        op, shape = _split(str(name))
        run = runs.setdefault(str(name), {"op": op, "shape": shape, "config": None, "us": []})
        if entry.get("error_occurred") or entry.get("skipped"):
            run["error"] = str(entry.get("error_message") or entry.get("skip_message") or "it failed")[:200]
            continue
        unit = UNITS_US.get(str(entry.get("time_unit", "ns")))
        if unit is None:
            raise Refused(f"{where}: time_unit {str(entry.get('time_unit'))[:20]!r} is none of {', '.join(UNITS_US)}")
        run["us"].append(field(entry, "real_time", float, where) * unit)
    for run in runs.values():
        yield {**run, "us": run["us"] or None} if "error" in run else run


def _split(name: str) -> tuple[str, dict[str, Any]]:
    """Return "BM_add/1024/threads:4" as ("BM_add", {"0": 1024, "threads": 4})."""
    op, *parts = name.split("/")
    shape: dict[str, Any] = {}
    for index, part in enumerate(parts):
        key, colon, value = part.rpartition(":")
        text = value if colon else part
        shape[key if colon else str(index)] = int(text) if text.lstrip("-").isdecimal() and len(text) < 16 else text
    return op, shape
