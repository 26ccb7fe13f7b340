"""Small traces that a reader can see: text lanes -> Trace.

    trace('''
    python (1) / main:   ProfilerStep#0@annotation 0-100 | aten::mm 5-20 ext=7 | cudaLaunchKernel 8-10 corr=1
    GPU 0 / stream 7:    gemm 12-40 corr=1 ext=7 | ncclAllReduce 30-60 | Memcpy HtoD 70-80 bytes=4096
    GPU 0 / memory:      counter 0=5 10=8
    ''')

Times are µs. A lane "GPU n / stream m" is a stream, every other a thread. The category follows from the lane and the
name; `name@category` states it. `a-b` is a slice, `a` an instant.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pyarrow as pa

from profiles.ingest.core.lanes import depths
from profiles.ingest.naming.names import is_collective
from profiles.ingest.trace import FLOWS, SAMPLES, SLICES, Category, Device, Integrity, Trace, Track

_ARGUMENTS = {"corr": "correlation", "ext": "external_id", "regs": "registers_per_thread", "smem": "smem_bytes",
              "occ": "occupancy_pct", "bytes": "bytes"}
_SLICE = re.compile(r"(?P<name>.+?)(?:@(?P<category>\w+))?\s+(?P<start>[\d.]+)(?:-(?P<end>[\d.]+))?"
                    r"(?P<arguments>(?:\s+\w+=\S+)*)$")


def trace(text: str, **fields: Any) -> Trace:
    """The trace drawn in `text`; `fields` replace those of Trace."""
    tracks: list[Track] = []
    rows: list[dict[str, Any]] = []
    samples: list[tuple[int, int, float]] = []
    for line in filter(str.strip, text.splitlines()):
        lane, content = (part.strip() for part in line.split(": ", 1))
        group, name = (part.strip() for part in lane.split("/", 1))
        if content.startswith("counter "):
            tracks.append(Track("counter", name, group, sort=len(tracks), unit="bytes"))
            for time, value in (pair.split("=") for pair in content.split()[1:]):
                samples.append((len(tracks) - 1, _ns(time), float(value)))
            continue
        tracks.append(_track(group, name, len(tracks)))
        rows += [_row(part.strip(), tracks[-1], len(tracks) - 1) for part in content.split("|") if part.strip()]
    rows.sort(key=lambda row: row["start_ns"])
    start, dur, track = (np.array([row[key] for row in rows], np.int64) for key in ("start_ns", "dur_ns", "track"))
    depth, _ = depths(track.astype(np.int32), start, dur, np.array([row["instant"] for row in rows], np.bool_))
    for row, value in zip(rows, depth.tolist(), strict=True):
        row["depth"] = value
    made: dict[str, Any] = {
        "format": "kineto", "slices": pa.Table.from_pylist(rows, SLICES), "tracks": tracks,
        "devices": [Device(index, "Test GPU") for index in sorted({t.device for t in tracks if t.device is not None})],
        "integrity": Integrity(records_read=len(rows), records_kept=len(rows)),
        "samples": pa.Table.from_pylist([dict(zip(SAMPLES.names, row, strict=True)) for row in samples], SAMPLES),
    }
    return Trace(**{**made, **fields})


def flows(*ends: tuple[int, str, int, float, bool]) -> pa.Table:
    """Flow ends (flow, kind, track, µs, is_end)."""
    return pa.Table.from_pylist([dict(zip(FLOWS.names, (flow, kind, track, _ns(str(us)), is_end), strict=True))
                                 for flow, kind, track, us, is_end in ends], FLOWS)


def _ns(us: str) -> int:
    return round(float(us) * 1000)


def _track(group: str, name: str, sort: int) -> Track:
    gpu, stream = re.fullmatch(r"GPU (\d+)", group), re.fullmatch(r"stream (\d+)", name)
    if gpu and stream:
        return Track("stream", name, group, sort, pid=gpu[1], tid=stream[1], device=int(gpu[1]), stream=int(stream[1]))
    return Track("thread", name, group, sort, pid=group, tid=name)


def _row(text: str, track: Track, number: int) -> dict[str, Any]:
    match = _SLICE.fullmatch(text)
    if not match:
        raise ValueError(f"not a slice: {text!r}")
    start = _ns(match["start"])
    end = _ns(match["end"]) if match["end"] else start
    category = Category[match["category"].upper()] if match["category"] else _category(match["name"], track)
    row: dict[str, Any] = {
        "start_ns": start, "dur_ns": end - start, "name": match["name"], "category": int(category), "track": number,
        "instant": match["end"] is None, "device": track.device, "stream": track.stream}
    for argument in match["arguments"].split():
        name, value = argument.split("=", 1)
        if name in ("grid", "block"):
            row |= {f"{name}_{axis}": int(n) for axis, n in zip("xyz", value.split("x"), strict=True)}
        elif name == "detail":
            row["detail"] = value
        else:
            row[_ARGUMENTS[name]] = float(value) if name == "occ" else int(value)
    return row


def _category(name: str, track: Track) -> Category:
    if track.kind == "stream":
        if name.startswith(("Memcpy", "Memset")):
            return Category.MEMCPY if name.startswith("Memcpy") else Category.MEMSET
        return Category.COMMUNICATION if is_collective(name) else Category.COMPUTE
    if name.startswith("ProfilerStep#"):
        return Category.ANNOTATION
    return Category.RUNTIME if name.startswith(("cuda", "hip", "cuLaunch")) else Category.CPU_OP
