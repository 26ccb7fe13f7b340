"""GPU work of an Nsight Systems export: kernels, copies, sets, whole graphs, synchronisation, page faults."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from profiles.ingest.arrays import Bools, Bytes, Int32, Ints
from profiles.ingest.core.build import TraceBuilder
from profiles.ingest.core.events import MISSING
from profiles.ingest.naming.names import is_collective
from profiles.ingest.nsys.export import (
    COPY_KINDS,
    MEMORY_KINDS,
    SYNC_TYPES,
    Batch,
    Export,
    details,
    is_on_clock,
    or_missing,
    per_row,
    per_value,
)
from profiles.ingest.nsys.lanes import Lanes
from profiles.ingest.trace import Category

_WHERE = ("start", "end", "deviceId", "contextId", "streamId", "correlationId", "globalPid", "graphNodeId", "graphId")
_GRID, _BLOCK = ("gridX", "gridY", "gridZ"), ("blockX", "blockY", "blockZ")
_CLUSTER = ("clusterX", "clusterY", "clusterZ")
_NAMES = ("demangledName", "shortName", "mangledName")
_LAUNCHES = {2: "cooperative", 3: "cooperative, several GPUs"}


def read(export: Export, lanes: Lanes, build: TraceBuilder) -> None:
    """Read everything that ran on GPUs."""
    _kernels(export, lanes, build)
    _copies(export, lanes, build)
    _sets(export, lanes, build)
    _graphs(export, lanes, build)
    _synchronisation(export, lanes, build)
    _recorded_events(export, lanes, build)
    _faults(export, lanes, build)


def times(batch: Batch, build: TraceBuilder) -> tuple[Ints, Ints, Bools]:
    """Starts and durations; rows without a start are out (third: which are in) and counted."""
    start, end = batch.ints("start"), batch.ints("end")
    timed = is_on_clock(start)
    build.integrity.drop("rows without a start", int(np.count_nonzero(~timed)))
    open_end = ~is_on_clock(end)
    build.integrity.repair("without an end: drawn as an instant of time", int(np.count_nonzero(open_end & timed)))
    return start, np.where(open_end | ~timed, 0, end - np.where(timed, start, 0)), timed


def _work(batch: Batch, lanes: Lanes, build: TraceBuilder, name: Int32, category: Bytes | Category,
          detail: Int32, side: str = "", **more: Ints) -> None:
    """Hand rows on a GPU to the builder."""
    start, dur, timed = times(batch, build)
    track, device, stream = lanes.of_streams(batch, side)
    kinds = np.full(batch.count, int(category), np.uint8) if isinstance(category, Category) else category
    columns: dict[str, Any] = {"start_ns": start, "dur_ns": dur, "name": name, "category": kinds, "track": track, "device": device,
               "stream": stream, "correlation": lanes.correlation(batch, "globalPid"), "detail": detail, **more}
    build.add(**(columns if timed.all() else {key: values[timed] for key, values in columns.items()}))


def _kernels(export: Export, lanes: Lanes, build: TraceBuilder) -> None:
    column_names = [*_WHERE, *_NAMES, *_GRID, *_BLOCK, *_CLUSTER, "registersPerThread", "staticSharedMemory", "dynamicSharedMemory",
                    "localMemoryPerThread", "launchType"]
    collective: dict[int, bool] = {}
    for batch in export.events("CUPTI_ACTIVITY_KIND_KERNEL", column_names):
        name = kernel_names(export, batch, build)
        category = per_value(name.astype(np.int64), lambda number: _category(build, collective, number))
        static, dynamic = batch.ints("staticSharedMemory"), batch.ints("dynamicSharedMemory")
        both = np.where(static == MISSING, 0, static) + np.where(dynamic == MISSING, 0, dynamic)
        launch = batch.ints("launchType")
        cluster = {f"cluster {axis}": or_missing(batch.ints(column)) for axis, column in zip("xyz", _CLUSTER, strict=True)}
        _work(batch, lanes, build, name, category.astype(np.uint8), details(build, {
            "context": batch.ints("contextId"), "graph": or_missing(batch.ints("graphId")),
            "graph node": or_missing(batch.ints("graphNodeId")),
            "local memory per thread": or_missing(batch.ints("localMemoryPerThread")),
            "launch": np.where(launch > 1, launch, MISSING), **cluster}, {"launch": _LAUNCHES}),
            grid=_triple(batch, _GRID), block=_triple(batch, _BLOCK), registers_per_thread=batch.ints("registersPerThread"),
            smem_bytes=np.where((static == MISSING) & (dynamic == MISSING), MISSING, both))


def kernel_names(export: Export, batch: Batch, build: TraceBuilder) -> Int32:
    """Return the numbers of the kernels' names: demangled, else short, else mangled."""
    def name_number(texts: tuple[int, ...]) -> int:
        for text in texts:
            if name := export.strings.get(text):
                return build.names[name]
        build.integrity.repair("kernels whose name is not in StringIds")
        return build.names[f"kernel {texts[0]}" if texts[0] != MISSING else "kernel without a name"]

    return per_row([batch.ints(column) for column in _NAMES], name_number)


def _category(build: TraceBuilder, known: dict[int, bool], number: int) -> int:
    if number not in known:
        known[number] = is_collective(str(build.names.values_in_order[number]))
    return int(Category.COMMUNICATION if known[number] else Category.COMPUTE)


def _triple(batch: Batch, columns: tuple[str, str, str]) -> Ints:
    return np.stack([batch.ints(column) for column in columns], axis=1)


def _number_names(build: TraceBuilder, columns: list[Ints], make: Callable[[tuple[int, ...]], str]) -> Int32:
    return per_row(columns, lambda values: build.names[make(values)])


def _copies(export: Export, lanes: Lanes, build: TraceBuilder) -> None:
    memory = export.label("ENUM_CUDA_MEM_KIND", MEMORY_KINDS)

    def copy(values: tuple[int, ...]) -> str:
        kind, source, target = values
        ends = f"({memory[source]} -> {memory[target]})" if source in memory and target in memory else ""
        return f"Memcpy {COPY_KINDS.get(kind, '')} {ends}".replace("  ", " ").strip()

    column_names = [*_WHERE, "bytes", "copyKind", "srcKind", "dstKind", "srcDeviceId", "dstDeviceId", "copyCount"]
    for batch in export.events("CUPTI_ACTIVITY_KIND_MEMCPY", column_names):
        kind = batch.ints("copyKind")
        peer = kind == 10
        name = _number_names(build, [kind, batch.ints("srcKind"), batch.ints("dstKind")], copy)
        _work(batch, lanes, build, name, Category.MEMCPY, details(build, {
            "context": batch.ints("contextId"), "graph node": or_missing(batch.ints("graphNodeId")),
            "from device": np.where(peer, batch.ints("srcDeviceId"), MISSING),
            "to device": np.where(peer, batch.ints("dstDeviceId"), MISSING), "copies": or_missing(batch.ints("copyCount"), 1)}),
            bytes=batch.ints("bytes"))


def _sets(export: Export, lanes: Lanes, build: TraceBuilder) -> None:
    memory = export.label("ENUM_CUDA_MEM_KIND", MEMORY_KINDS)
    for batch in export.events("CUPTI_ACTIVITY_KIND_MEMSET", [*_WHERE, "bytes", "value", "memKind"]):
        name = _number_names(build, [batch.ints("memKind")],
                             lambda kind: f"Memset ({memory[kind[0]]})" if kind[0] in memory else "Memset")
        _work(batch, lanes, build, name, Category.MEMSET, details(build, {
            "context": batch.ints("contextId"), "value": batch.ints("value"), "graph node": or_missing(batch.ints("graphNodeId"))}),
            bytes=batch.ints("bytes"))


def _graphs(export: Export, lanes: Lanes, build: TraceBuilder) -> None:
    """CUDA graphs recorded whole: one slice stands for all kernels of a launch."""
    launches = 0
    for batch in export.events("CUPTI_ACTIVITY_KIND_GRAPH_TRACE", [*_WHERE, "graphExecId"]):
        graph = batch.ints("graphId")
        name = _number_names(build, [graph], lambda ids: f"CUDA graph {ids[0]}" if ids[0] != MISSING else "CUDA graph")
        _work(batch, lanes, build, name, Category.COMPUTE, details(build, {
            "context": batch.ints("contextId"), "graph": graph, "graph exec": batch.ints("graphExecId")}))
        launches += batch.count
    build.integrity.remark("CUDA graphs recorded whole: each counts as one kernel (nsys profile --cuda-graph-trace=node records "
                           "their kernels)", launches)


def _synchronisation(export: Export, lanes: Lanes, build: TraceBuilder) -> None:
    """Waits of the host for GPU work: beside the streams, because they overlap what they wait for."""
    for batch in export.events("CUPTI_ACTIVITY_KIND_SYNCHRONIZATION", [*_WHERE, "syncType", "eventId"]):
        name = _number_names(build, [batch.ints("syncType")], lambda kind: SYNC_TYPES.get(kind[0], "Synchronisation"))
        event = batch.ints("eventId")
        _work(batch, lanes, build, name, Category.SYNC, details(build, {
            "context": batch.ints("contextId"), "event": np.where(event < 2**32 - 1, event, MISSING)}), side="waits")


def _recorded_events(export: Export, lanes: Lanes, build: TraceBuilder) -> None:
    """cudaEventRecord: instants where the schema has their time (since 2025), else counted as not kept."""
    timed = bool(export.columns("CUPTI_ACTIVITY_KIND_CUDA_EVENT") & {"timestamp", "start"})
    without = "CUDA event records without a time" if timed else "CUDA event records: this schema has no time of them"
    column_names = ["timestamp", "deviceId", "contextId", "streamId", "correlationId", "globalPid", "eventId"]
    for batch in export.events("CUPTI_ACTIVITY_KIND_CUDA_EVENT", column_names):
        start = batch.ints("timestamp")
        is_timed = (start > 0) & (start < 2**62)
        build.integrity.drop(without, int(np.count_nonzero(~is_timed)))
        track, device, stream = lanes.of_streams(batch, "waits")
        columns: dict[str, Any] = {
            "start_ns": start, "dur_ns": np.zeros_like(start), "name": np.full(start.size, build.names["Event record"], np.int32),
            "category": np.full(start.size, int(Category.SYNC), np.uint8), "instant": np.ones(start.size, np.bool_),
            "track": track, "device": device, "stream": stream, "correlation": lanes.correlation(batch, "globalPid"),
            "detail": details(build, {"context": batch.ints("contextId"), "event": batch.ints("eventId")})}
        build.add(**{key: values[is_timed] for key, values in columns.items()})


def _faults(export: Export, lanes: Lanes, build: TraceBuilder) -> None:
    """Page faults of unified memory: on the GPU with a duration, on the CPU as instants."""
    for batch in export.events("CUDA_UM_GPU_PAGE_FAULT_EVENTS", ["start", "end", "deviceId", "globalPid", "numberOfPageFaults"]):
        start, dur, timed = times(batch, build)
        track = per_row([batch.ints("deviceId"), batch.ints("globalPid")],
                        lambda ids: lanes.of_gpu(max(lanes.gpu(ids[0], ids[1]), 0), "unified memory: page faults", "other"))
        detail = details(build, {"page faults": batch.ints("numberOfPageFaults")})
        _plain(build, timed, start, dur, track, "GPU page faults", detail)
    for batch in export.events("CUDA_UM_CPU_PAGE_FAULT_EVENTS", ["start", "globalPid"]):
        start = batch.ints("start")
        timed = is_on_clock(start)
        build.integrity.drop("rows without a start", int(np.count_nonzero(~timed)))
        track = per_value(batch.ints("globalPid"), lambda serial: lanes.of_process(serial, "unified memory: page faults"))
        _plain(build, timed, start, np.zeros_like(start), track, "CPU page fault", np.full(start.size, -1, np.int32), instant=True)


def _plain(build: TraceBuilder, kept: Bools, start: Ints, dur: Ints, track: Int32, name: str, detail: Int32,
           instant: bool = False) -> None:
    n = int(np.count_nonzero(kept))
    build.add(start_ns=start[kept], dur_ns=dur[kept], name=np.full(n, build.names[name], np.int32),
              category=np.full(n, int(Category.OTHER), np.uint8), track=track[kept], detail=detail[kept],
              instant=np.full(n, instant))
