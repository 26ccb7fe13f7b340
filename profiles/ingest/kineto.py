"""Chrome-trace JSON of PyTorch's profiler (libkineto), every era from PyTorch 1.8 to today.

Facts: libkineto/src/output_json.cpp and ActivityType.h of pytorch/kineto. Slices are classified by category, never by
pid: GPU lanes use the device index as pid, but helper threads carry pid 0 as well.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from profiles.analysis.names import is_collective
from profiles.ingest import clock
from profiles.ingest.batches import GPU_LANE, Gathered, gather
from profiles.ingest.columns import Int64, detail_text
from profiles.ingest.events import MISSING
from profiles.ingest.lanes import depths
from profiles.ingest.pieces import Pieces
from profiles.ingest.source import Source
from profiles.ingest.tracks import Lanes, counter_tracks, lane_tracks
from profiles.trace import FLOWS, SAMPLES, SLICES, Category, Device, Integrity, Trace, TraceError

# libkineto's categories, lower case; PyTorch 1.8-1.10 wrote the first line
CATEGORIES = {
    "operator": Category.CPU_OP, "runtime": Category.RUNTIME, "memcpy": Category.MEMCPY, "memset": Category.MEMSET,
    "kernel": Category.COMPUTE, "gpu_memcpy": Category.MEMCPY, "gpu_memset": Category.MEMSET,
    "cpu_op": Category.CPU_OP, "python_function": Category.PYTHON,
    "user_annotation": Category.ANNOTATION, "gpu_user_annotation": Category.GPU_ANNOTATION,
    "cuda_runtime": Category.RUNTIME, "cuda_driver": Category.RUNTIME, "mtia_runtime": Category.RUNTIME,
    "glow_runtime": Category.RUNTIME, "xpu_runtime": Category.RUNTIME, "xpu_driver": Category.RUNTIME,
    "privateuse1_runtime": Category.RUNTIME, "privateuse1_driver": Category.RUNTIME,
    "cuda_sync": Category.SYNC, "cuda_event": Category.SYNC, "xpu_sync": Category.SYNC, "overhead": Category.OVERHEAD,
}
_MARKS = ("schemaVersion", "deviceProperties", "distributedInfo", "baseTimeNanoseconds", "cupti_version", "trace_id")
_KEPT_KEYS = ("schemaVersion", "cupti_version", "cuda_runtime_version", "cuda_driver_version", "roctracer_version",
              "hip_runtime_version", "hip_driver_version", "record_shapes", "with_stack", "with_flops", "with_modules",
              "profile_memory", "distributedInfo", "trace_id", "traceName", "username", "PT_VERSION", "metadata")
_YEAR_2001_NS = 10**18


def sniff(head: bytes) -> bool:
    text = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    return text[:1] in (b"{", b"[") and (b'"traceEvents"' in text or b'"ph"' in text
                                         or (b'"schemaVersion"' in text and b'"deviceProperties"' in text))


def read(source: Source) -> Trace:
    """Raises TraceError where no record can be read."""
    integrity = Integrity()
    pieces = Pieces(source, integrity)
    rows = gather(pieces, integrity)
    keys = {**pieces.head, **pieces.tail}
    if not integrity.records_read or integrity.records_read == sum(integrity.not_kept.values()):
        raise TraceError(f"byte {source.position}", _nothing(integrity),
                         "Check that the profiled steps ran while the profiler was recording, and export the trace again.")
    if not _of_pytorch(rows, keys):
        raise TraceError("traceEvents", "a Chrome trace, but not one of PyTorch's profiler: none of its records has a "
                         "category of it, so kernels cannot be told from other work",
                         "Only torch.profiler's traces are read yet; export with `prof.export_chrome_trace`.")
    source.progress("columns", integrity.records_read)
    trace = _assemble(rows, keys, integrity)
    integrity.records_kept = integrity.records_read - sum(integrity.not_kept.values())
    return trace


def _of_pytorch(rows: Gathered, keys: dict[str, Any]) -> bool:
    """Other tools name and nest their records otherwise: read as PyTorch's, their kernels would count as none."""
    return any(isinstance(name, str) and name.lower() in CATEGORIES for name in rows.categories) or any(
        mark in keys for mark in _MARKS)


def _nothing(integrity: Integrity) -> str:
    if not integrity.records_read:
        return "`traceEvents` holds no records"
    return f"none of the {integrity.records_read} records could be read ({', '.join(integrity.not_kept)})"


def _assemble(rows: Gathered, keys: dict[str, Any], integrity: Integrity) -> Trace:
    columns = {name: np.concatenate(parts) for name, parts in rows.slices.items()} if rows.rows else _no_slices()
    samples = _samples(rows)
    flow = {name: np.concatenate(parts) for name, parts in rows.flows.items()}
    zero = clock.from_zero(columns, samples[1], flow.get("start", np.empty(0, np.int64)), integrity)
    category, gpu_lane = _categories(rows, columns)
    lanes = Lanes(rows, columns["lane"], gpu_lane)
    tracks = lane_tracks(rows, lanes, columns)
    counters = counter_tracks(rows)
    depth, overlapping = depths(lanes.track, columns["start"], columns["dur"], columns["instant"])
    integrity.repair("overlapping slices were moved to overflow lanes", overlapping)
    order = np.argsort(columns["start"], kind="stable")
    table = _table(rows, columns, category, lanes, depth, order)
    flows = _flows(rows, flow, lanes, columns)
    base = keys.get("baseTimeNanoseconds")
    base_ns = zero + int(base) if isinstance(base, (int, float)) and abs(base) < 2**62 else zero if zero > _YEAR_2001_NS else None
    info = keys.get("distributedInfo")
    rank = info.get("rank") if isinstance(info, dict) else None
    return Trace(
        format="kineto", slices=table, tracks=tracks + counters, devices=_devices(keys, tracks), integrity=integrity,
        samples=_samples_table(samples, len(tracks)), flows=flows, base_ns=base_ns,
        rank=rank if isinstance(rank, int) and 0 <= rank < 2**31 else None, metadata={k: keys[k] for k in _KEPT_KEYS if k in keys},
    )


def _no_slices() -> dict[str, npt.NDArray[Any]]:
    empty = {name: np.empty(0, np.int64) for name in ("start", "dur", "correlation", "external")}
    return {**empty, **{name: np.empty(0, np.int32) for name in ("name", "category", "lane", "detail")},
            "instant": np.empty(0, np.bool_)}


def _categories(rows: Gathered, columns: dict[str, npt.NDArray[Any]]) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.bool_]]:
    """Our category of every slice, and whether it lies on a GPU lane."""
    spelled = [str(value).lower() for value in rows.categories.values_in_order] or [""]
    table = np.array([CATEGORIES.get(value, Category.OTHER) for value in spelled], np.uint8)
    on_gpu = np.array([value in GPU_LANE for value in spelled], np.bool_)
    category = table[columns["category"]]
    collective = np.array([is_collective(str(name)) for name in rows.names.values_in_order] or [False], np.bool_)
    kernel = category == Category.COMPUTE
    category[kernel & collective[columns["name"]]] = Category.COMMUNICATION
    if rows.gpu:
        row = np.concatenate(rows.gpu["row"])[np.concatenate(rows.gpu["collective"])]
        category[row[kernel[row]]] = Category.COMMUNICATION
    return category, on_gpu[columns["category"]]


def _table(rows: Gathered, columns: dict[str, npt.NDArray[Any]], category: npt.NDArray[np.uint8], lanes: Lanes,
           depth: npt.NDArray[np.int16], order: npt.NDArray[np.intp]) -> pa.Table:
    n = order.size
    names, name_ids = _used(columns["name"], [str(value) for value in rows.names.values_in_order])
    details, detail_ids = _used(columns["detail"], [detail_text(value) for value in rows.details.values_in_order])
    gpu = {name: np.concatenate(parts) for name, parts in rows.gpu.items()}
    sparse = {name: _spread(gpu, name, n) for name in ("device", "stream", "registers", "smem", "bytes")}
    missing = sparse["device"] == MISSING
    sparse["device"][missing] = lanes.device[missing]
    missing = sparse["stream"] == MISSING
    sparse["stream"][missing] = lanes.stream[missing]
    occupancy = np.full(n, np.nan)
    if gpu:
        occupancy[gpu["row"]] = gpu["occupancy"]
    arrays = [
        pa.array(columns["start"][order]), pa.array(columns["dur"][order]),
        pa.DictionaryArray.from_arrays(pa.array(name_ids[order]), pa.array(names, pa.string())),
        pa.array(category[order]), pa.array(lanes.track[order]), pa.array(depth[order]), pa.array(columns["instant"][order]),
        _nullable(columns["correlation"][order], pa.int64()), _nullable(columns["external"][order], pa.int64()),
        _nullable(sparse["device"][order], pa.int32()), _nullable(sparse["stream"][order], pa.int64()),
        *[_nullable(_spread(gpu, shape, n, axis)[order], pa.int32()) for shape in ("grid", "block") for axis in range(3)],
        _nullable(sparse["registers"][order], pa.int32()), _nullable(sparse["smem"][order], pa.int64()),
        pa.array(occupancy[order].astype(np.float32), mask=np.isnan(occupancy[order])),
        _nullable(sparse["bytes"][order], pa.int64()),
        pa.DictionaryArray.from_arrays(pa.array(detail_ids[order], mask=detail_ids[order] < 0), pa.array(details, pa.string())),
    ]
    return pa.Table.from_arrays(arrays, schema=SLICES)


def _used(ids: npt.NDArray[np.int32], values: list[str]) -> tuple[list[str], npt.NDArray[np.int32]]:
    """Only the values that occur, equal ones as one, and the ids renumbered to match. -1 stays."""
    first: dict[str, int] = {}
    renumber = np.full(len(values) + 1, -1, np.int32)
    seen = np.zeros(len(values) + 1, np.bool_)
    seen[ids] = True                                        # -1 marks the extra place at the end
    for old in np.flatnonzero(seen[:-1]).tolist():
        renumber[old] = first.setdefault(values[old], len(first))
    return list(first), renumber[ids]


def _spread(gpu: dict[str, npt.NDArray[Any]], name: str, n: int, axis: int | None = None) -> Int64:
    out = np.full(n, MISSING, np.int64)
    if gpu:
        out[gpu["row"]] = gpu[name] if axis is None else gpu[name][:, axis]
    return out


def _nullable(values: Int64, kind: pa.DataType) -> pa.Array:
    absent = values == MISSING
    if kind == pa.int32():
        absent |= np.abs(values) >= 2**31
        values = np.where(absent, 0, values).astype(np.int32)
    return pa.array(values, kind, mask=absent)


def _flows(rows: Gathered, flow: dict[str, npt.NDArray[Any]], lanes: Lanes, columns: dict[str, npt.NDArray[Any]]) -> pa.Table:
    """Flow ends that the correlation ids do not already say (ac2g repeats them, with an end for every runtime call)."""
    if not flow:
        return FLOWS.empty_table()
    spelled = [str(value) for value in rows.categories.values_in_order]
    launch = np.array([value.lower() in ("ac2g", "async", "async_gpu") for value in spelled], np.bool_)[flow["category"]]
    keep = ~(launch & np.isin(flow["id"], columns["correlation"]))
    track = lanes.track_at(flow["lane"], np.zeros(flow["lane"].size, np.bool_))
    keep &= track >= 0
    kinds, kind_ids = _used(flow["category"][keep], spelled)
    return pa.table([
        pa.array(flow["id"][keep]), pa.DictionaryArray.from_arrays(pa.array(kind_ids), pa.array(kinds, pa.string())),
        pa.array(track[keep]), pa.array(flow["start"][keep]), pa.array(flow["is_end"][keep]),
    ], schema=FLOWS)


def _samples(rows: Gathered) -> tuple[npt.NDArray[np.int32], Int64, npt.NDArray[np.float64]]:
    if not rows.samples:
        return np.empty(0, np.int32), np.empty(0, np.int64), np.empty(0, np.float64)
    series, times, values = zip(*rows.samples, strict=True)
    return np.concatenate(series), np.concatenate(times), np.concatenate(values)


def _samples_table(samples: tuple[npt.NDArray[np.int32], Int64, npt.NDArray[np.float64]], first: int) -> pa.Table:
    series, times, values = samples
    order = np.lexsort((times, series))
    return pa.table([pa.array((series[order] + first).astype(np.int32)), pa.array(times[order]), pa.array(values[order])],
                    schema=SAMPLES)


def _devices(keys: dict[str, Any], tracks: list[Any]) -> list[Device]:
    """GPUs as listed, and those that only the lanes know (ROCm writes device 2 where one is listed)."""
    listed = keys.get("deviceProperties")
    out = {}
    for number, entry in enumerate(listed if isinstance(listed, list) else []):
        if isinstance(entry, dict):
            index = entry["id"] if isinstance(entry.get("id"), int) and 0 <= entry["id"] < 2**31 else number
            major, minor = entry.get("computeMajor"), entry.get("computeMinor")
            out[index] = Device(index, str(entry.get("name") or ""), f"{major}.{minor}" if major is not None else None,
                                entry.get("numSms"), entry.get("totalGlobalMem"))
    used = {track.device for track in tracks if track.device is not None}
    only = next(iter(out.values())) if len(out) == 1 else None
    for index in used - set(out):
        out[index] = Device(index, only.name if only else "", *((only.compute_capability, only.sm_count, only.memory_bytes)
                                                                if only else ()))
    return [out[index] for index in sorted(out)]
