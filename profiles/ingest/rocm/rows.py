"""Kernels, copies and calls of ROCm's tools to rows of a builder: the same in every form in which they are written.

Grids of ROCm count work-items; blocks are made of them here. A stream that is not stated is its hardware queue. Copies and sets
bear the names that they have in every other format ("Memcpy HtoD").
"""

from __future__ import annotations

import json
import re
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np

from profiles.ingest.core.build import TraceBuilder
from profiles.ingest.core.events import MISSING
from profiles.ingest.naming.names import is_collective
from profiles.ingest.ncu.report import UNTIMED
from profiles.ingest.trace import Category, CounterLaunch, Device, Integrity, Report, TraceError, Track

BATCH_ROWS = 50_000
Dim = tuple[int, int, int] | None
_ENDS = re.compile(r"(HOST|DEVICE|H|D)[_ ]?(?:TO|2)[_ ]?(HOST|DEVICE|H|D)(?![a-z])", re.IGNORECASE)
_SUFFIX = re.compile(r"\s*(?:\[clone \.kd\]|\.kd)\s*$")
_CALL = re.compile(r"^(?:hip|hsa_|roc[a-z]+|amd_|ompt_|nccl|rccl)\w*$|_API", re.IGNORECASE)
_NUMBER = re.compile(r"(\d{1,18})\s*$")
_TYPES: dict[str, Any] = {"name": np.int32, "category": np.uint8, "track": np.int32, "detail": np.int32}


class Rows:
    """Gathers rows and hands them to the builder in batches; `flush` at the end."""

    def __init__(self, build: TraceBuilder) -> None:
        self.build, self.integrity = build, build.integrity
        self.devices: set[int] = set()
        self._columns: dict[str, list[Any]] = {}
        self._count = 0

    def kernel(self, start: int | None, end: int | None, name: str, device: int | None, *, stream: int | None = None,
               queue: int | None = None, correlation: int | None = None, work_items: Dim = None, block: Dim = None,
               registers: int | None = None, lds_bytes: int | None = None, details: Mapping[str, Any] | None = None,
               pid: int | None = None) -> None:
        """A dispatch. `work_items`: the grid as ROCm counts it."""
        name = kernel_name(name)
        self._add(start, end, name, Category.COMMUNICATION if is_collective(name) else Category.COMPUTE,
                  self._stream(device, stream, queue, pid), device, stream if stream is not None else queue, correlation,
                  grid=blocks_of(work_items, block), block=block, registers=registers, smem=lds_bytes, details=details)

    def copy(self, start: int | None, end: int | None, direction: str, source: int | None, target: int | None, *,
             size: int | None = None, stream: int | None = None, queue: int | None = None, correlation: int | None = None,
             pid: int | None = None) -> None:
        """A copy; it is drawn under the GPU it reads where it goes to the host, else under the one it writes."""
        name = copy_name(direction)
        device = source if name.endswith("toH") else target
        self._add(start, end, name, Category.MEMSET if name == "Memset" else Category.MEMCPY,
                  self._stream(device, stream, queue, pid), device, stream if stream is not None else queue, correlation, size=size)

    def sync(self, start: int | None, end: int | None, name: str, device: int | None, queue: int | None) -> None:
        """A record on a queue that is no work: a barrier, a marker."""
        self._add(start, end, name, Category.SYNC, self._stream(device, None, queue, None), device, queue, None)

    def call(self, start: int | None, end: int | None, name: str, domain: str, pid: int | None, tid: int | None, *,
             correlation: int | None = None, details: Mapping[str, Any] | None = None) -> None:
        """A call on the CPU: of HIP or HSA, or a range of the program (`domain`: ROCTX, MARKER…)."""
        text = f"{domain} {name}"
        category = (Category.ANNOTATION if re.search(r"marker|roctx", domain, re.IGNORECASE)
                    else Category.RUNTIME if _CALL.search(domain) or _CALL.search(name) else Category.CPU_OP)
        if re.search(r"allocation|scratch", domain, re.IGNORECASE):
            category = Category.OTHER
        name_of_thread = f"thread {tid}" if tid is not None else "calls"
        track = self.build.track(("thread", pid, tid, category == Category.OTHER), lambda: Track(
            kind="thread", name=f"memory · {name_of_thread}" if category == Category.OTHER else name_of_thread,
            group=f"process {pid}" if pid is not None else "process", sort=tid or 0,
            pid=None if pid is None else str(pid), tid=None if tid is None else str(tid)))
        self._add(start, end, name or text, category, track, None, None, correlation, details=details)

    def _stream(self, device: int | None, stream: int | None, queue: int | None, pid: int | None) -> int:
        number, what = (stream, "stream") if stream is not None else (queue, "queue")
        return self.build.track(("stream", device, what, number), lambda: Track(
            kind="stream", name=f"{what} {number}" if number is not None else "kernels",
            group=f"GPU {device}" if device is not None else "GPU unknown", sort=min(number or 0, 2**40),
            pid=None if pid is None else str(pid), device=device, stream=number))

    def _add(self, start: int | None, end: int | None, name: str, category: Category, track: int, device: int | None,
             stream: int | None, correlation: int | None, *, grid: Dim = None, block: Dim = None, registers: int | None = None,
             smem: int | None = None, size: int | None = None, details: Mapping[str, Any] | None = None) -> None:
        if not is_time(start):
            self.integrity.drop("rows without a start")
            return
        if not is_time(end):
            self.integrity.repair("without an end: drawn as an instant of time")
            end = start
        if device is not None:
            self.devices.add(device)
        shown = {key: value for key, value in (details or {}).items() if value not in (None, "", 0)}
        row: dict[str, Any] = {
            "start_ns": start, "dur_ns": (end or 0) - (start or 0), "name": self.build.names[name or "(no name)"],
            "category": int(category), "track": track, "device": device, "stream": stream, "correlation": correlation,
            "grid": grid or (MISSING,) * 3, "block": block or (MISSING,) * 3, "registers_per_thread": registers,
            "smem_bytes": smem, "bytes": size,
            "detail": self.build.details[json.dumps(shown, ensure_ascii=False)] if shown else -1}
        for key, value in row.items():
            self._columns.setdefault(key, []).append(MISSING if value is None else value)
        self._count += 1
        if self._count == BATCH_ROWS:
            self.flush()

    def flush(self) -> None:
        """Hand over what is gathered."""
        if self._count:
            self.build.add(**{key: np.array(values, _TYPES.get(key, np.int64)) for key, values in self._columns.items()})
        self._columns, self._count = {}, 0


def is_time(value: int | None) -> bool:
    """Tell whether a number can stand on a clock: rocprofiler writes 0 where a time was never taken."""
    return value is not None and 0 < value < 2**62


def blocks_of(work_items: Dim, block: Dim) -> Dim:
    """Return the grid in blocks."""
    if work_items is None or block is None or min(block) < 1:
        return None
    x, y, z = (-(-items // size) for items, size in zip(work_items, block, strict=True))
    return x, y, z


def copy_name(direction: str) -> str:
    """Return "Memcpy HtoD" of MEMORY_COPY_HOST_TO_DEVICE, CopyHostToDevice, H2D; "Memset" of FillBuffer."""
    if re.search(r"fill|memset", direction, re.IGNORECASE):
        return "Memset"
    match = _ENDS.search(direction)
    return f"Memcpy {match[1][0].upper()}to{match[2][0].upper()}" if match else f"Memcpy {direction.strip()[:100]}".strip()


def kernel_name(name: str) -> str:
    """Return the name without the mark of its descriptor (".kd", "[clone .kd]")."""
    return _SUFFIX.sub("", name)


def number_at_end(text: str) -> int | None:
    """Return 4 of "Agent 4", "GPU 4" and "4"."""
    match = _NUMBER.search(text)
    return int(match[1]) if match else None


def settle(rows: Sequence[Rows], integrity: Integrity) -> None:
    """Hand over all rows and say how many records were kept."""
    for part in rows:
        part.flush()
    integrity.settle()


# Hardware counters that ROCm's tools collected of dispatches, to a `Report`.
#
# Values are what the tool wrote: of a counter with several instances their sum. Names are AMD's (SQ_WAVES, GRBM_COUNT); what
# they mean stands in the documentation of rocprofiler-sdk, no unit is stated by any of these files.

DURATION = "gpu__time_duration.sum"          # the name under which every report holds the time of a launch, in ns
MAX_CELLS = 6_000_000


class CounterRows:
    """Gathers values by dispatch; `report` makes launches of them, in the order of their first row."""

    def __init__(self, integrity: Integrity) -> None:
        self.integrity = integrity
        self._launches: dict[Hashable, CounterLaunch] = {}
        self._cells = 0

    def __len__(self) -> int:
        return len(self._launches)

    def add(self, dispatch: Hashable, name: str, device: Device, values: Sequence[tuple[str, float]], *, start: int | None = None,
            end: int | None = None, work_items: Dim = None, block: Dim = None, registers: int | None = None) -> None:
        """Values of one dispatch, which may come in several rows."""
        self._cells += len(values)
        if self._cells > MAX_CELLS:
            self.integrity.drop(f"beyond the limit of {MAX_CELLS:,} values of counters")
            return
        launch = self._launches.get(dispatch)
        if launch is None:
            metrics: dict[str, float | str] = {}
            if is_time(start) and is_time(end):
                metrics[DURATION] = float((end or 0) - (start or 0))
            if registers:
                metrics["launch__registers_per_thread"] = float(registers)
            launch = self._launches[dispatch] = CounterLaunch(
                len(self._launches), kernel_name(name), device, blocks_of(work_items, block), block, None, None, metrics)
        for counter, value in values:
            before = launch.metrics.get(counter, 0.0)
            launch.metrics[counter] = value + (before if isinstance(before, float) else 0.0)

    def report(self, format: str) -> Report:
        """Return the launches. Raises TraceError where there are none."""
        if not self._launches:
            raise TraceError("the table of counters", "it holds no value of any counter",
                             "Collect some: `rocprofv3 --pmc SQ_WAVES GRBM_COUNT -- ./program`.")
        integrity = self.integrity
        if not any(DURATION in launch.metrics for launch in self._launches.values()):
            integrity.notes.append(UNTIMED)
        integrity.settle()
        return Report(format, list(self._launches.values()), {DURATION: "ns"}, integrity)
