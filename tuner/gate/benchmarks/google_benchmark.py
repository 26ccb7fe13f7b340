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
    for at, each in enumerate(field(results.content, "benchmarks", list, "the file")):
        where = f"benchmarks[{at}]"
        if isinstance(each, Mapping) and each.get("run_type", "iteration") != "iteration":
            continue
        name = each.get("run_name") if isinstance(each, Mapping) and isinstance(each.get("run_name"), str) else field(
            each, "name", str, where)
        op, shape = _split(str(name))
        run = runs.setdefault(str(name), {"op": op, "shape": shape, "config": None, "us": []})
        if each.get("error_occurred") or each.get("skipped"):
            run["error"] = str(each.get("error_message") or each.get("skip_message") or "it failed")[:200]
            continue
        unit = UNITS_US.get(str(each.get("time_unit", "ns")))
        if unit is None:
            raise Refused(f"{where}: time_unit {str(each.get('time_unit'))[:20]!r} is none of {', '.join(UNITS_US)}")
        run["us"].append(field(each, "real_time", float, where) * unit)
    for run in runs.values():
        yield {**run, "us": run["us"] or None} if "error" in run else run


def _split(name: str) -> tuple[str, dict[str, Any]]:
    """Return "BM_add/1024/threads:4" as ("BM_add", {"0": 1024, "threads": 4})."""
    op, *parts = name.split("/")
    shape: dict[str, Any] = {}
    for at, part in enumerate(parts):
        key, colon, value = part.rpartition(":")
        text = value if colon else part
        shape[key if colon else str(at)] = int(text) if text.lstrip("-").isdecimal() and len(text) < 16 else text
    return op, shape
