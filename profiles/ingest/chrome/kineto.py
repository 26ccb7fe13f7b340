"""Chrome-trace JSON of PyTorch's profiler (libkineto), every era from PyTorch 1.8 to today.

Facts: libkineto/src/output_json.cpp and ActivityType.h of pytorch/kineto. Slices are classified by category, never by
pid: GPU lanes use the device index as pid, but helper threads carry pid 0 as well.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from profiles.ingest.chrome import generic, parallel
from profiles.ingest.chrome.batches import SharedIds, gather
from profiles.ingest.chrome.kinds import KINETO_CATEGORIES as CATEGORIES
from profiles.ingest.chrome.kinds import STRANGE, is_strange_device, own_name
from profiles.ingest.chrome.ranks import split_ranks
from profiles.ingest.chrome.tracks import process_names
from profiles.ingest.core.build import TraceBuilder
from profiles.ingest.core.pieces import Pieces
from profiles.ingest.core.source import Source
from profiles.ingest.trace import Device, Integrity, Trace, TraceError, Track

# Records on lanes of a device of which nobody here knows what they are: said, so that none of them passes for CPU work.


def count_strange_lanes(trace: Trace, processes: Mapping[str, str]) -> None:
    """Count what lies on threads of processes that are called after a device. `processes`: their names by pid."""
    strange = [number for number, track in enumerate(trace.tracks)
               if track.kind == "thread" and track.pid is not None and _is_device(processes.get(track.pid, ""))]
    if strange:
        count = sum(int(np.count_nonzero(np.isin(window.columns["track"], strange))) for window in trace.windows())
        trace.integrity.remark(STRANGE, count)


def _is_device(process: str) -> bool:
    return bool(own_name(process)) or is_strange_device(process)


# what PyTorch's profiler writes: keys around the records, its categories, and those that others share with it
_KEYS = re.compile(rb'"(?:schemaVersion|deviceProperties|distributedInfo|baseTimeNanoseconds|cupti_version|trace_id)"\s*:')
_SHARED = frozenset({"kernel", "operator", "runtime", "memcpy", "memset", "overhead"})
_OWN_CATEGORY, _SHARED_CATEGORY = (re.compile(rb'"cat"\s*:\s*"(?:%b)"' % "|".join(sorted(names)).encode(), re.IGNORECASE)
                                   for names in (set(CATEGORIES) - _SHARED, _SHARED))
_OTHER_PHASE = re.compile(rb'"ph"\s*:\s*"[BEbenSTFpPNOD]"')            # libkineto writes none of these
_MARKS = ("schemaVersion", "deviceProperties", "distributedInfo", "baseTimeNanoseconds", "cupti_version", "trace_id")
_KEPT_KEYS = ("schemaVersion", "cupti_version", "cuda_runtime_version", "cuda_driver_version", "roctracer_version",
              "hip_runtime_version", "hip_driver_version", "record_shapes", "with_stack", "with_flops", "with_modules",
              "profile_memory", "distributedInfo", "trace_id", "traceName", "username", "PT_VERSION", "metadata")


def sniff(head: bytes) -> bool:
    """Tell whether content is a trace of torch.profiler.

    By its keys or by the categories of its first records.
    """
    if not generic.sniff(head):
        return False
    if _KEYS.search(head) or _OWN_CATEGORY.search(head):
        return True
    return bool(_SHARED_CATEGORY.search(head)) and not _OTHER_PHASE.search(head)


def read(source: Source) -> Trace:
    """Raises TraceError where no record can be read."""
    integrity = Integrity()
    pieces = Pieces(source, integrity)
    builder = TraceBuilder(source, "kineto", integrity)
    rows = SharedIds(builder)
    if parallel.is_worthwhile(pieces):
        parallel.gather(pieces, integrity, rows)
    gather(pieces, integrity, rows)
    keys = {**pieces.head, **pieces.tail}
    if not integrity.records_read or integrity.records_read == sum(integrity.not_kept.values()):
        raise TraceError(f"byte {source.position}", _why_nothing(integrity),
                         "Check that the profiled steps ran while the profiler was recording, and export the trace again.")
    if not _of_pytorch(rows, keys):
        raise TraceError("traceEvents", "a Chrome trace, but not one of PyTorch's profiler: none of its records has a "
                         "category of it, so kernels cannot be told from other work",
                         "Only torch.profiler's traces are read yet; export with `prof.export_chrome_trace`.")
    trace = split_ranks(_assemble(rows, keys, builder), builder.call_ids, process_names(rows.metadata))
    count_strange_lanes(trace, process_names(rows.metadata))
    integrity.settle()
    return trace


def _of_pytorch(rows: SharedIds, keys: dict[str, Any]) -> bool:
    """Other tools name and nest their records otherwise: read as PyTorch's, their kernels would count as none."""
    return any(isinstance(name, str) and name.lower() in CATEGORIES for name in rows.categories) or any(
        mark in keys for mark in _MARKS)


def _why_nothing(integrity: Integrity) -> str:
    if not integrity.records_read:
        return "`traceEvents` holds no records"
    return f"none of the {integrity.records_read} records could be read ({', '.join(integrity.not_kept)})"


def _assemble(rows: SharedIds, keys: dict[str, Any], builder: TraceBuilder) -> Trace:
    tracks = rows.tracks.finish(rows.metadata)
    base = keys.get("baseTimeNanoseconds")
    info = keys.get("distributedInfo")
    rank = info.get("rank") if isinstance(info, dict) else None
    return builder.finish(
        devices=_devices(keys, tracks), base_ns=int(base) if isinstance(base, (int, float)) and abs(base) < 2**62 else None,
        rank=rank if isinstance(rank, int) and 0 <= rank < 2**31 else None, metadata={k: keys[k] for k in _KEPT_KEYS if k in keys})


def _devices(keys: dict[str, Any], tracks: list[Track]) -> list[Device]:
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
