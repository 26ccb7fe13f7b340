"""Rows of stored columns as records of Chrome trace JSON: texts are made column by column, never row by row."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from profiles.ingest.trace import GPU_WORK, Category
from profiles.store import trace as store
from profiles.store.timeline import Timeline

CATEGORIES = {
    Category.COMPUTE: "kernel", Category.COMMUNICATION: "kernel", Category.MEMCPY: "gpu_memcpy", Category.MEMSET: "gpu_memset",
    Category.RUNTIME: "cuda_runtime", Category.CPU_OP: "cpu_op", Category.PYTHON: "python_function",
    Category.ANNOTATION: "user_annotation", Category.GPU_ANNOTATION: "gpu_user_annotation", Category.SYNC: "cuda_sync",
    Category.OVERHEAD: "overhead", Category.OTHER: "other",
}
_IDS = {"external_id": "External id", "correlation": "correlation"}
_NUMBERS = {"device": "device", "stream": "stream", "registers_per_thread": "registers per thread", "smem_bytes": "shared memory",
            "bytes": "bytes"}
_MEMORY = {"external_id": ',"Addr":', "bytes": ',"Bytes":', "device": ',"Device Type":1,"Device Id":'}    # of allocator marks
_DIMS = ("grid", "block")
NAMES = ("track", "start_ns", "dur_ns", "name_id", "category", "instant", *_IDS, *_NUMBERS,
         *(f"{name}_{axis}" for name in _DIMS for axis in "xyz"), "occupancy_pct", "detail_id")
Places = tuple[Any, list[tuple[Any, Any]]]      # per track: its `"pid":…,"tid":…`, and both values


def string(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def microseconds(ns: npt.NDArray[np.int64]) -> pa.Array:
    """12416 -> "12.416": exact, as no float of an epoch time is."""
    whole, rest = pa.array(ns // 1000).cast(pa.string()), pa.array(ns % 1000).cast(pa.string())
    return pc.binary_join_element_wise(whole, pc.utf8_lpad(rest, 3, "0"), ".")


def join_texts(*parts: Any) -> pa.Array:
    return pc.binary_join_element_wise(*parts, "")


def slice_records(timeline: Timeline, rows: dict[str, Any], names: pa.Array, places: Places) -> pa.Array:
    kinds = pa.array([CATEGORIES[kind] for kind in Category], pa.string())
    start, instant = microseconds(rows["start_ns"]), pa.array(rows["instant"])
    phase = pc.if_else(instant, pa.scalar('{"ph":"i","s":"t","cat":"'), pa.scalar('{"ph":"X","cat":"'))
    dur = pc.if_else(instant, pa.scalar(""), join_texts(',"dur":', microseconds(rows["dur_ns"])))
    return join_texts(phase, kinds.take(pa.array(rows["category"])), '","name":', names.take(pa.array(rows["name_id"])), ",",
                   places[0].take(pa.array(rows["track"])), ',"ts":', start, dur, ',"args":{', _arguments(timeline, rows), "}}")


def _arguments(timeline: Timeline, rows: dict[str, Any]) -> pa.Array:
    """`"correlation":7,"grid":[4,2,1]` of every row: what is unknown is left out."""
    parts: list[pa.Array] = []
    mark = timeline.names.index("[memory]") if "[memory]" in timeline.names else -1
    memory = pa.array((rows["name_id"] == mark) & rows["instant"])
    for column, name in {**_IDS, **_NUMBERS}.items():
        label = pc.if_else(memory, _MEMORY.get(column, f',"{name}":'), f',"{name}":')
        parts.append(_known_only(rows[column], label, pa.array(rows[column]).cast(pa.string())))
    for name in _DIMS:
        x, y, z = (pa.array(rows[f"{name}_{axis}"]).cast(pa.string()) for axis in "xyz")
        parts.append(_known_only(rows[f"{name}_x"], f',"{name}":[', join_texts(x, ",", y, ",", z, "]")))
    occupancy = rows["occupancy_pct"].astype(np.float64)
    shown = pa.array(np.nan_to_num(occupancy)).cast(pa.string())
    parts.append(pc.if_else(pa.array(np.isfinite(occupancy)), join_texts(',"est. achieved occupancy %":', shown), ""))
    parts.append(_details(timeline, rows["detail_id"].astype(np.int64)))
    return pc.replace_substring_regex(join_texts(*parts), "^,", "")


def _known_only(values: npt.NDArray[Any], label: str | pa.Array, text: pa.Array) -> pa.Array:
    return pc.if_else(pa.array(values != np.iinfo(values.dtype).min), join_texts(label, text), "")


def _details(timeline: Timeline, ids: npt.NDArray[np.int64]) -> pa.Array:
    """The remaining arguments, as `,"name":value` texts."""
    used, place = np.unique(ids, return_inverse=True)
    texts = dict.fromkeys(used.tolist(), "")
    wanted = used[used >= 0]
    if wanted.size:
        with pq.ParquetFile(store.local_path(store.key(timeline.profile_id, "details.parquet"))) as file:
            first = 0
            for group in range(file.num_row_groups):
                last = first + file.metadata.row_group(group).num_rows
                mine = wanted[(wanted >= first) & (wanted < last)]
                if mine.size:
                    column = file.read_row_group(group, ["detail"])["detail"].take(pa.array(mine - first))
                    texts |= dict(zip(mine.tolist(), (_members(text) for text in column.to_pylist()), strict=True))
                first = last
    return pa.array([texts[number] for number in used.tolist()] or [""], pa.string()).take(pa.array(place))


def _members(text: str) -> str:
    """The members of an object's JSON, those left out that have columns of their own."""
    try:
        values = json.loads(text, strict=False)
    except (ValueError, RecursionError):
        values = {"text": text}
    if not isinstance(values, dict):
        values = {"text": values}
    own = {*_IDS.values(), *_NUMBERS.values(), *_DIMS, "est. achieved occupancy %"}
    return "".join(f",{string(str(key))}:{json.dumps(value, ensure_ascii=False)}"
                   for key, value in values.items() if key not in own)


def launch_records(rows: dict[str, Any], launching: npt.NDArray[np.bool_], places: Places) -> pa.Array | None:
    """Arrows from launch calls to GPU work, which viewers draw from flow records only."""
    linked = rows["correlation"] != np.iinfo(np.int64).min
    begin = linked & (rows["category"] == Category.RUNTIME) & launching[rows["name_id"]]
    end = linked & np.isin(rows["category"], [int(kind) for kind in GPU_WORK])
    at = np.flatnonzero(begin | end)
    if not at.size:
        return None
    phase = pc.if_else(pa.array(begin[at]), pa.scalar('{"ph":"s","id":'), pa.scalar('{"ph":"f","bp":"e","id":'))
    return join_texts(phase, pa.array(rows["correlation"][at]).cast(pa.string()), ",", places[0].take(pa.array(rows["track"][at])),
                   ',"ts":', microseconds(rows["start_ns"][at]), ',"cat":"ac2g","name":"ac2g"}')
