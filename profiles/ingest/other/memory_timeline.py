"""PyTorch's memory timeline (`prof.export_memory_timeline("x.json")`, `"x.raw.json.gz"`) to a `Trace` of counters.

Source: torch/profiler/_memory_profiler.py of pytorch/pytorch. The JSON is [times in µs, sizes by category at each of them] with a
leading 0 in every row; the raw form is a list of [ns, action, bytes, category], -1 for what was there before.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec
import numpy as np

from profiles.ingest.arrays import Ints, stable_order
from profiles.ingest.core.build import TraceBuilder
from profiles.ingest.core.source import Source
from profiles.ingest.samplers.document import decode_document, load_content
from profiles.ingest.trace import Integrity, Trace, TraceError, Track

FORMAT = "memory-timeline"
# torch.profiler._memory_profiler._CATEGORY_TO_COLORS, in its order
CATEGORIES = ("parameters", "optimizer state", "inputs", "temporaries", "activations", "gradients", "autograd detail", "unknown")
PREEXISTING, CREATE, INCREMENT, DESTROY = 1, 2, 3, 4
_NUMBERS = rb"-?\d+(?:\s*,\s*-?\d+)*"
_START = re.compile(rb"\s*\[\s*\[\s*" + _NUMBERS)
_RAW = re.compile(rb"\s*\[\s*\[\s*-?\d+\s*,\s*[1-4]\s*,\s*-?\d+\s*,\s*[0-7]\s*\]\s*(?:,\s*\[\s*-?\d+\s*,\s*[1-4]\s*,|\])")
_PLOT = re.compile(rb"\s*\[\s*\[\s*" + _NUMBERS + rb"\s*\]\s*,\s*\[\s*\[\s*0\s*,")
_HINT = 'Export it again: prof.export_memory_timeline("memory.json", device="cuda:0")'


def sniff(head: bytes) -> bool:
    if not _START.match(head[:4096]):
        return False
    first_end = head.find(b"]")
    return bool(_RAW.match(head[:4096])) or bool(_PLOT.match(head)) or (first_end < 0 and b'"' not in head and b"{" not in head)


def read(source: Source) -> Trace:
    """Raises TraceError where the lists are not those of a memory timeline."""
    integrity = Integrity()
    data = load_content(source, integrity)
    document: list[Any] = decode_document(data, list[msgspec.Raw], integrity)
    raw = len(document) != 2 or bool(_RAW.match(data[:4096]))
    times_ns, sizes = (_raw if raw else _plotted)(data, integrity)
    builder = TraceBuilder(source, FORMAT, integrity)
    for number, name in enumerate((*CATEGORIES, "total")):
        values = sizes.sum(axis=1) if name == "total" else sizes[:, number]
        if values.any():
            track = builder.track(name, lambda name=name, number=number: Track(  # type: ignore[misc]
                kind="counter", name=name, group="memory", sort=number, unit="bytes"))
            builder.add_samples(np.full(times_ns.size, track, np.int32), times_ns, values.astype(np.float64))
    integrity.settle()
    return builder.finish(devices=[], metadata={"content": "memory by category, of one device that the file does not name"})


def _plotted(data: bytes, integrity: Integrity) -> tuple[Ints, Ints]:
    times, rows = decode_document(data, tuple[list[int], list[list[int]]], integrity)
    width = {len(row) for row in rows}
    if len(times) != len(rows) or width - {len(CATEGORIES) + 1} or not rows:
        raise TraceError("the second list", f"{len(times):,} times and {len(rows):,} rows of {sorted(width)[:4]} numbers are no "
                         "memory timeline", _HINT)
    integrity.records_read = len(times)
    integrity.kinds["moment"] = len(times)
    return _whole(times) * 1000, _whole(rows)[:, 1:]


def _raw(data: bytes, integrity: Integrity) -> tuple[Ints, Ints]:
    """Running sums of what was made and freed: of a version's increment the file holds both halves, with their signs."""
    events = decode_document(data, list[tuple[int, int, int, int]], integrity)
    if not events or any(not 1 <= action <= 4 or not 0 <= category < len(CATEGORIES) for _, action, _, category in events):
        raise TraceError("the list", "its numbers are no actions of a memory timeline", _HINT)
    integrity.records_read = len(events)
    integrity.kinds["action"] = len(events)
    table = _whole(events)
    first = table[table[:, 0] >= 0, 0]
    table[table[:, 0] < 0, 0] = first.min() if first.size else 0
    table = table[stable_order(table[:, 0])]
    change = np.zeros((len(events), len(CATEGORIES)), np.int64)
    sign = np.where(table[:, 1] == DESTROY, -np.abs(table[:, 2]), table[:, 2])
    change[np.arange(len(events)), table[:, 3]] = sign
    sizes = np.cumsum(change, axis=0)
    last = np.append(np.diff(table[:, 0]) != 0, True)
    return table[last, 0], sizes[last]


def _whole(values: Any) -> Ints:
    try:
        return np.array(values, np.int64)
    except (OverflowError, ValueError, TypeError):
        raise TraceError("the list", "a number that no time or size has", _HINT) from None
