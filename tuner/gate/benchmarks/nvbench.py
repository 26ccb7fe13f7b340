"""nvbench's JSON with its samples (--jsonbin FILE): the cold GPU times of each state, float32 seconds in a file beside it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from profiles.base.refused import Refused
from tuner.gate.benchmarks.document import Results, field

SAMPLES = "nv/json/bin:nv/cold/sample_times"
MOST_SAMPLES, MOST_ON_DISK = 100_000, 10_000_000       # of a state: short kernels are launched very often
HINT = "run it with --jsonbin FILE, and keep the folder FILE-bin beside it"


def is_mine(results: Results) -> bool:
    content = results.content
    return isinstance(content, Mapping) and {"devices", "benchmarks"} <= content.keys()


def records(results: Results) -> Iterator[dict[str, Any]]:
    """Yield a record for each state that ran. Raises Refused where its samples were not kept."""
    names = {device.get("id"): str(device.get("name", ""))[:100] for device in field(results.content, "devices", list, "the file")
             if isinstance(device, Mapping)}
    for benchmark in field(results.content, "benchmarks", list, "the file"):
        op = field(benchmark, "name", str, "a benchmark")
        for index, state in enumerate(field(benchmark, "states", list, op)):
            where = f"{op}, states[{index}]"
            axes = {field(axis, "name", str, where): _number(axis.get("value")) for axis in state.get("axis_values") or ()}
            record = {"op": op, "shape": axes, "config": None, "gpu": names.get(state.get("device"), "")}
            if state.get("is_skipped"):
                yield {**record, "us": None, "error": str(state.get("skip_reason") or "skipped")[:200]}
            else:
                yield {**record, "us": _samples(results.path, state, where)}


def _samples(path: Path, state: Mapping[str, Any], where: str) -> list[float]:
    summary = next((row for row in state.get("summaries") or () if isinstance(row, Mapping) and row.get("tag") == SAMPLES), None)
    if summary is None:
        raise Refused(f"{where} has no samples, only their statistics", hint=HINT)
    data = {row.get("name"): row.get("value") for row in summary.get("data", ()) if isinstance(row, Mapping)}
    name, size = str(data.get("filename", "")), str(data.get("size", ""))
    folder = path.parent.resolve()
    places = [(folder / name).resolve(), (folder.parent / name).resolve()]      # of older versions: from where it was run
    file = next((place for place in places if place.is_file() and place.parent.parent == folder), None)
    if file is None or not size.isdecimal():
        raise Refused(f"{where}: its samples {name[:80]!r} are not beside the file", hint=HINT)
    if file.stat().st_size != 4 * int(size) or int(size) > MOST_ON_DISK:
        raise Refused(f"{where}: {name[:80]} holds {file.stat().st_size:,} bytes, expected {size} samples of 4", hint=HINT)
    seconds = np.fromfile(file, "<f4").astype(np.float64)
    return [float(value) for value in seconds[::-(-len(seconds) // MOST_SAMPLES) or 1] * 1e6]       # of more, evenly spaced ones


def _number(value: Any) -> Any:
    text = str(value)[:100]
    try:
        return int(text) if text.lstrip("-").isdecimal() and len(text) < 19 else float(text)
    except ValueError:
        return text
