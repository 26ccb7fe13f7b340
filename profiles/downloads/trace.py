"""A timeline as Chrome trace JSON in PyTorch's dialect: what Perfetto, chrome://tracing and our own reader take in.

Written from the stored columns a window of time after the other, so that memory does not grow with the trace. Slices
that reach over the edge of what is asked for are written whole; flows go where their launch ids and stored ends say.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from isal import isal_zlib

from profiles.analysis.compare.comparison import LAUNCHES as STORED_LAUNCHES
from profiles.ingest.arrays import Array, Bools, Ints, Rows, stable_order
from profiles.ingest.trace import GPU_WORK, Category
from profiles.models import Profile
from profiles.store import objects as store_launches
from profiles.store import trace as store
from profiles.store.area import Area, windows
from profiles.store.timeline import Timeline
from profiles.timeline.selectors import hits, search

# The slices of an area as a table to keep, in pieces: every stored column with its words in place of numbers.

_WHOLE = ("correlation", "external_id", "device", "stream", "grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z",
          "registers_per_thread", "smem_bytes", "bytes")
SCHEMA = pa.schema([
    ("slice", pa.int64()), ("start_ns", pa.int64()), ("dur_ns", pa.int64()), ("name", pa.string()), ("category", pa.string()),
    ("group", pa.string()), ("track", pa.string()), ("depth", pa.int32()), ("instant", pa.bool_()),
    *((name, pa.int64()) for name in _WHOLE), ("occupancy_pct", pa.float32()),
])
HITS = pa.schema([("slice", pa.int64()), ("start_ns", pa.int64()), ("dur_ns", pa.int64()), ("name", pa.string()),
                  ("category", pa.string()), ("group", pa.string()), ("track", pa.string()), ("depth", pa.int32())])
LAUNCHES = pa.schema([(field.name, pa.string() if field.name == "name" else field.type) for field in STORED_LAUNCHES])
_PAGE = 1_000


def hit_tables(timeline: Timeline, query: dict[str, Any]) -> Iterator[pa.Table]:
    """HITS of a search by start, a page at a time."""
    while not hits(timeline, query, 1)["complete"]:       # before that, which hit is the first is not known
        yield HITS.empty_table()
    offset, page = 0, True
    while page:
        page = search(timeline, {**query, "offset": offset, "limit": _PAGE, "around": None})["slices"]
        offset += len(page)
        tracks = [timeline.tracks[hit["track"]] for hit in page]
        columns = {"slice": [hit["id"] for hit in page], "group": [track["group"] for track in tracks],
                   "track": [track["name"] for track in tracks],
                   **{name: [hit[name] for hit in page] for name in ("start_ns", "dur_ns", "name", "category", "depth")}}
        yield pa.table([pa.array(columns[field.name], field.type) for field in HITS], schema=HITS)


def launch_tables(profile_id: int) -> Iterator[pa.Table]:
    """LAUNCHES of a profile in pieces; none where the profile has none stored."""
    try:
        path = store.local_path(store_launches.key(profile_id))
    except FileNotFoundError:
        return
    with pq.ParquetFile(path) as file:
        for batch in file.iter_batches(200_000):
            yield pa.Table.from_batches([batch]).select(LAUNCHES.names).cast(LAUNCHES)


def slice_tables(timeline: Timeline, area: Area) -> Iterator[pa.Table]:
    """SCHEMA by start, a table per window of time."""
    names = pa.array(timeline.names or [""], pa.string())
    words = pa.array([kind.name.lower() for kind in Category], pa.string())
    groups, tracks = (pa.array([track[key] for track in timeline.tracks] or [""], pa.string()) for key in ("group", "name"))
    for window in windows(timeline, area, ("name_id", "category", "depth", *_WHOLE, "occupancy_pct")):
        rows = window.counted_rows
        order = np.lexsort((rows["slice"], rows["start_ns"]))
        rows = {name: values[order] for name, values in rows.items()}
        track = pa.array(rows["track"])
        yield pa.table([
            pa.array(rows["slice"]), pa.array(rows["start_ns"]), pa.array(rows["dur_ns"]), names.take(pa.array(rows["name_id"])),
            words.take(pa.array(rows["category"])), groups.take(track), tracks.take(track),
            pa.array(rows["depth"].astype(np.int32)), pa.array(rows["instant"]), *(_nullable(rows[name]) for name in _WHOLE),
            pa.array(rows["occupancy_pct"], pa.float32(), mask=~np.isfinite(rows["occupancy_pct"])),
        ], schema=SCHEMA)


def _nullable(values: Array) -> pa.Array:
    return pa.array(values.astype(np.int64), mask=values == np.iinfo(values.dtype).min)


# Rows of stored columns as records of Chrome trace JSON: texts are made column by column, never row by row.

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


def microseconds(ns: Ints) -> pa.Array:
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


def _known_only(values: Array, label: str | pa.Array, text: pa.Array) -> pa.Array:
    return pc.if_else(pa.array(values != np.iinfo(values.dtype).min), join_texts(label, text), "")


def _details(timeline: Timeline, ids: Ints) -> pa.Array:
    """The remaining arguments, as `,"name":value` texts."""
    used, place = np.unique(ids, return_inverse=True)
    texts = dict.fromkeys(used.tolist(), "")
    detail_ids = used[used >= 0]
    if detail_ids.size:
        with pq.ParquetFile(store.local_path(store.key(timeline.profile_id, "details.parquet"))) as file:
            first = 0
            for group in range(file.num_row_groups):
                last = first + file.metadata.row_group(group).num_rows
                mine = detail_ids[(detail_ids >= first) & (detail_ids < last)]
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


def launch_records(rows: dict[str, Any], launching: Bools, places: Places) -> pa.Array | None:
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


_LAUNCH = re.compile(r"launch|memcpy|memset|graph", re.IGNORECASE)
_TOP_KEYS = ("distributedInfo", "trace_id", "traceName", "cupti_version", "cuda_runtime_version", "cuda_driver_version",
             "hip_runtime_version", "hip_driver_version", "record_shapes", "with_stack", "with_flops", "with_modules", "PT_VERSION")


def gzip_chunks(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """Yield the same bytes as a gzip file."""
    packer = isal_zlib.compressobj(level=1, wbits=31)
    for chunk in chunks:
        if packed := packer.compress(chunk):
            yield packed
    yield packer.flush()


def chrome_trace(profile: Profile, timeline: Timeline, area: Area) -> Iterator[bytes]:
    """The file in pieces."""
    tracks = np.flatnonzero(area.mask(timeline)).tolist()
    places = _places(timeline)
    yield _head(profile, timeline, area)
    separator = b""
    for lines in _records(timeline, area, tracks, places):
        yield separator + lines
        separator = b",\n"
    yield b"\n]}\n"


def _records(timeline: Timeline, area: Area, tracks: list[int], places: Places) -> Iterator[bytes]:
    yield from _track_records(timeline, tracks, places)
    names = pa.array([string(name) for name in timeline.names] or ['""'], pa.string())
    launching = np.array([bool(_LAUNCH.search(name)) for name in timeline.names] or [False], np.bool_)
    for window in windows(timeline, area, NAMES):
        rows = window.counted_rows
        if not rows["start_ns"].size:           # a trace of nothing but counters
            continue
        order = stable_order(rows["start_ns"])
        rows = {name: values[order] for name, values in rows.items()}
        for lines in (slice_records(timeline, rows, names, places), launch_records(rows, launching, places)):
            if lines is not None and len(lines):
                yield ",\n".join(lines.to_pylist()).encode()
    yield from _flows(timeline, area, tracks, places)
    yield from _samples(timeline, area, tracks, places)


def _head(profile: Profile, timeline: Timeline, area: Area) -> bytes:
    whole = area.start_ns <= 0 and area.end_ns > int(timeline.document["end_ns"])
    head: dict[str, Any] = {
        "schemaVersion": 1, "displayTimeUnit": "ns", "traceName": f"{profile.name}.json",
        **{key: profile.metadata[key] for key in _TOP_KEYS if key in profile.metadata},
        "deviceProperties": [{"id": each["index"], "name": each.get("name") or ""} for each in profile.summary.get("devices", [])],
        "exportedBy": {"program": "Ridgepoint", "profile": profile.pk, "window": None if whole else [area.start_ns, area.end_ns],
                       "tracks": None if area.tracks is None else len(area.tracks)},
    }
    if timeline.document["base_ns"] is not None:
        head["baseTimeNanoseconds"] = timeline.document["base_ns"]
    return (json.dumps(head, ensure_ascii=False)[:-1] + ', "traceEvents": [\n').encode()


def _number(text: str | None) -> int | str | None:
    """What the file wrote as a number is one again: "007" and "stream 7" are not."""
    return int(text) if text is not None and re.fullmatch(r"-?(0|[1-9]\d{0,17})", text) else text


def _places(timeline: Timeline) -> Places:
    """Per track its `"pid":…,"tid":…`, as the file had them; one of its own where it had none or shares it with another."""
    keys: set[tuple[Any, Any, bool]] = set()
    out: list[tuple[Any, Any]] = []
    for track in timeline.tracks:
        gpu = track["kind"] == "stream"
        pid = track["device"] if gpu and track["device"] is not None else _number(track["pid"])
        tid = track["stream"] if gpu and track["stream"] is not None else _number(track["tid"])
        pid = track["group"] if pid is None else pid
        tid = track["id"] if tid is None else tid
        if (str(pid), str(tid), gpu) in keys and track["kind"] != "counter":
            tid = 1_000_000 + track["id"]
        keys.add((str(pid), str(tid), gpu))
        out.append((pid, tid))
    return pa.array([f'"pid":{json.dumps(pid)},"tid":{json.dumps(tid)}' for pid, tid in out] or [""], pa.string()), out


def _track_records(timeline: Timeline, tracks: list[int], places: Places) -> Iterator[bytes]:
    """Names and order of processes and threads."""
    processes: set[str] = set()
    for number in tracks:
        track, (pid, tid) = timeline.tracks[number], places[1][number]
        if track["kind"] == "counter":
            continue
        records: list[tuple[str, dict[str, Any]]] = []
        if str(pid) not in processes and track["kind"] != "other":
            processes.add(str(pid))
            title = re.sub(rf" \({re.escape(str(pid))}\)$", "", track["group"])
            records += [("process_name", {"name": title}), ("process_sort_index", {"sort_index": number})]
            records += [("process_labels", {"labels": track["group"]})] if track["kind"] == "stream" else []
        if track["kind"] == "thread":
            records += [("thread_name", {"name": track["name"]}), ("thread_sort_index", {"sort_index": track["sort"]})]
        elif track["kind"] == "stream":
            records += [("thread_name", {"name": track["name"]})]
        for name, args in records:
            yield json.dumps({"ph": "M", "name": name, "pid": pid, "tid": tid, "ts": 0, "args": args}, ensure_ascii=False).encode()


def _batches(timeline: Timeline, name: str) -> Iterator[dict[str, Any]]:
    try:
        path = store.local_path(store.key(timeline.profile_id, name))
    except FileNotFoundError:
        return
    with pq.ParquetFile(path) as file:
        for batch in file.iter_batches(200_000):
            yield {column: batch[column] for column in batch.schema.names}


def _within(area: Area, tracks: list[int], track: Array, time: Array) -> Rows:
    return np.flatnonzero(np.isin(track, tracks) & (time >= area.start_ns) & (time < area.end_ns))


def _flows(timeline: Timeline, area: Area, tracks: list[int], places: Places) -> Iterator[bytes]:
    """Stored flow ends: forward to backward, and the file's own."""
    for batch in _batches(timeline, "flows.parquet"):
        track, time = batch["track"].to_numpy(), batch["time_ns"].to_numpy()
        at = _within(area, tracks, track, time)
        if at.size:
            kind = pa.array([string(text or "") for text in batch["kind"].take(pa.array(at)).to_pylist()], pa.string())
            begin, end = pa.scalar('{"ph":"s","id":'), pa.scalar('{"ph":"f","bp":"e","id":')
            phase = pc.if_else(batch["is_end"].take(pa.array(at)), end, begin)
            lines = join_texts(phase, batch["flow"].take(pa.array(at)).cast(pa.string()), ",", places[0].take(pa.array(track[at])),
                            ',"ts":', microseconds(time[at]), ',"cat":', kind, ',"name":', kind, "}")
            yield ",\n".join(lines.to_pylist()).encode()


def _samples(timeline: Timeline, area: Area, tracks: list[int], places: Places) -> Iterator[bytes]:
    """Counters: the last word of a track's name is the series of its counter."""
    heads = []
    for number, track in enumerate(timeline.tracks):
        counter, _, series = track["name"].rpartition(" ")
        pid = json.dumps(places[1][number][0])
        heads.append(f'{{"ph":"C","name":{string(counter or series)},"pid":{pid},"args":{{{string(series if counter else "")}:')
    head = pa.array(heads or [""], pa.string())
    for batch in _batches(timeline, "samples.parquet"):
        track, time, value = (batch[name].to_numpy(zero_copy_only=False) for name in ("track", "time_ns", "value"))
        positions = _within(area, tracks, track, time)
        positions = positions[np.isfinite(value[positions])]
        if positions.size:
            shown = pa.array([repr(sample) for sample in value[positions].tolist()], pa.string())
            lines = join_texts(head.take(pa.array(track[positions])), shown, '},"ts":', microseconds(time[positions]), "}")
            yield ",\n".join(lines.to_pylist()).encode()
