"""Tables of single events of `nsys stats` (cuda_gpu_trace and its kin) to a `Trace`."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import numpy.typing as npt

from profiles.ingest.core.build import TraceBuilder
from profiles.ingest.core.events import MISSING
from profiles.ingest.core.source import Source
from profiles.ingest.naming.names import is_collective
from profiles.ingest.nsys.stats_table import Table
from profiles.ingest.trace import Category, Device, Integrity, Trace, Track

FORMAT = "nsys-stats"
_BATCH = 50_000
_DEVICE = re.compile(r"^(?P<name>.*?)\s*\((?P<index>\d{1,4})\)$")
_COPY = re.compile(r"\[CUDA memcpy (?P<from>\w+)-to-(?P<to>\w+)\]|\[CUDA memcpy (?P<kind>[\w -]+)\]", re.IGNORECASE)
_LETTERS = {"host": "H", "device": "D", "array": "A", "peer": "P"}
# (columns of a table of events) -> start, duration, name; one row may be several events
_EVENTS = (("start", "duration", "name"), ("api start", "api dur", "api function"), ("kernel start", "kernel dur", "kernel name"))


def is_trace(table: Table) -> bool:
    return any(table.has(*columns) for columns in _EVENTS)


def title(table: Table) -> str:
    """The report's name: as the file says, else by its columns."""
    if table.title:
        return table.title
    known = (("kernel start", "cuda_kern_exec_trace"), ("strm", "cuda_gpu_trace"), ("lvl", "nvtx_pushpop_trace"),
             ("rangeid", "nvtx_startend_trace"), ("corrid", "cuda_api_trace"))
    return next((name for column, name in known if table.has(column)), "trace")


def trace(source: Source, tables: list[Table], integrity: Integrity) -> Trace:
    """Raises TraceError where no row has a time."""
    build = TraceBuilder(source, FORMAT, integrity)
    devices: dict[int, str] = {}
    rounded = 0
    for table in tables:
        for first in range(0, len(table.rows), _BATCH):
            rows = table.rows[first:first + _BATCH]
            rounded += _take(table, rows, build, devices)
            source.progress("columns", first + len(rows))
    integrity.remark("copies and sets whose size nsys stats rounded to 0.001 of its unit", rounded)
    made = build.finish(devices=[Device(index, name) for index, name in sorted(devices.items())],
                        metadata={"reports": ", ".join(dict.fromkeys(map(title, tables)))})
    integrity.records_kept = integrity.records_read - sum(integrity.not_kept.values())
    return made


def _take(table: Table, rows: list[list[Any]], build: TraceBuilder, devices: dict[int, str]) -> int:
    """One batch; returns how many sizes in it are rounded."""
    there = [columns for columns in _EVENTS if table.has(*columns)]
    lost = np.ones(len(rows), np.bool_)
    rounded = 0
    for columns in there:
        values: dict[str, list[Any]] = {}
        for at, row in enumerate(rows):
            start, dur = table.whole(row, columns[0]), table.whole(row, columns[1])
            if start is None or dur is None:
                continue
            lost[at] = False
            for key, value in _event(table, row, columns, build, devices).items():
                values.setdefault(key, []).append(value)
            values.setdefault("start_ns", []).append(start)
            values.setdefault("dur_ns", []).append(dur)
        rounded += sum(size not in (MISSING, 0) for size in values.get("bytes", ()))
        if values:
            build.add(**_arrays(values))
    build.integrity.drop("rows without a start or a duration", int(np.count_nonzero(lost)))
    return rounded if "bytes" in table.place and table.unit(table.place["bytes"]) not in ("B", "bytes") else 0


_TYPES: dict[str, Any] = {"name": np.int32, "category": np.uint8, "track": np.int32}


def _arrays(values: dict[str, list[Any]]) -> dict[str, npt.NDArray[Any]]:
    return {key: np.array(column, _TYPES.get(key, np.int64)) for key, column in values.items()}


def _event(table: Table, row: list[Any], columns: tuple[str, str, str], build: TraceBuilder,
           devices: dict[int, str]) -> dict[str, Any]:
    name, on_gpu = table.text(row, columns[2]) or "unnamed", columns[0] == "kernel start" or table.has("strm")
    correlation = table.whole(row, "corrid")
    event: dict[str, Any] = {"correlation": MISSING if correlation is None else correlation}
    if not on_gpu:
        ranged = table.has("lvl") or table.has("rangeid")       # ":steps" is steps of the domain without a name
        return event | {"name": build.names[name.removeprefix(":") if ranged else name], "track": _thread(table, row, build),
                        "category": int(Category.ANNOTATION if ranged else Category.RUNTIME)}
    device, stream = _device(table, row, devices), table.whole(row, "strm")
    shown, category = _work(table, row, name)
    size = table.whole(row, "bytes") or None                # "0.000" MB is less than half a kB, not nothing
    grid = table.triple(row, "gridxyz") or [table.whole(row, f"grd{axis}") for axis in "xyz"]
    block = table.triple(row, "blockxyz") or [table.whole(row, f"blk{axis}") for axis in "xyz"]
    registers = table.whole(row, "reg/trd")
    return event | {
        "name": build.names[shown], "category": int(category), "track": _stream(build, device, stream), "device": device,
        "stream": MISSING if stream is None else stream, "bytes": MISSING if size is None else size,
        "grid": [MISSING if side is None else side for side in grid],
        "block": [MISSING if side is None else side for side in block],
        "registers_per_thread": MISSING if registers is None else registers}


def _work(table: Table, row: list[Any], name: str) -> tuple[str, Category]:
    """Names as in every other format: "[CUDA memcpy Host-to-Device]" is "Memcpy HtoD (Pageable -> Device)"."""
    copy = _COPY.match(name)
    if copy:
        source, target = table.text(row, "srcmemkd"), table.text(row, "dstmemkd")
        ends = f" ({source} -> {target})" if source and target else ""
        letters = [_LETTERS.get((copy[side] or "").lower(), "") for side in ("from", "to")]
        kind = f"{letters[0]}to{letters[1]}" if all(letters) else (copy["kind"] or f"{copy['from']}-to-{copy['to']}")
        return f"Memcpy {kind}{ends}", Category.MEMCPY
    if name.lower().startswith("[cuda memset"):
        return "Memset", Category.MEMSET
    return name, Category.COMMUNICATION if is_collective(name) else Category.COMPUTE


def _device(table: Table, row: list[Any], devices: dict[int, str]) -> int:
    text = table.text(row, "device")
    match = _DEVICE.match(text)
    index = int(match["index"]) if match else table.whole(row, "devid") or 0
    index = index if 0 <= index < 10_000 else 0
    if index not in devices and len(devices) < 1_024:
        devices[index] = (match["name"] if match else text)[:200]
    return index


def _stream(build: TraceBuilder, device: int, stream: int | None) -> int:
    return build.track(("stream", device, stream), lambda: Track(
        kind="stream", name=f"stream {stream}" if stream is not None else "kernels", group=f"GPU {device}", sort=stream or 0,
        device=device, stream=stream))


def _thread(table: Table, row: list[Any], build: TraceBuilder) -> int:
    pid, tid, name = table.text(row, "pid")[:40], table.text(row, "tid")[:40], table.text(row, "thread name")[:80]
    return build.track(("thread", pid, tid), lambda: Track(
        kind="thread", name=f"{name or 'thread'} ({tid})" if tid else name or "calls", group=f"process {pid}" if pid else "process",
        pid=pid or None, tid=tid or None))
