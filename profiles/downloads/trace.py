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
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from isal import isal_zlib

from profiles.downloads.records import NAMES, Places, join_texts, launch_records, microseconds, slice_records, string
from profiles.models import Profile
from profiles.store import trace as store
from profiles.store.area import Area, windows
from profiles.store.timeline import Timeline

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
        order = np.argsort(rows["start_ns"], kind="stable")
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
    taken: set[tuple[Any, Any, bool]] = set()
    out: list[tuple[Any, Any]] = []
    for track in timeline.tracks:
        gpu = track["kind"] == "stream"
        pid = track["device"] if gpu and track["device"] is not None else _number(track["pid"])
        tid = track["stream"] if gpu and track["stream"] is not None else _number(track["tid"])
        pid = track["group"] if pid is None else pid
        tid = track["id"] if tid is None else tid
        if (str(pid), str(tid), gpu) in taken and track["kind"] != "counter":
            tid = 1_000_000 + track["id"]
        taken.add((str(pid), str(tid), gpu))
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


def _within(area: Area, tracks: list[int], track: npt.NDArray[Any], time: npt.NDArray[Any]) -> npt.NDArray[np.intp]:
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
        at = _within(area, tracks, track, time)
        at = at[np.isfinite(value[at])]
        if at.size:
            shown = pa.array([repr(each) for each in value[at].tolist()], pa.string())
            lines = join_texts(head.take(pa.array(track[at])), shown, '},"ts":', microseconds(time[at]), "}")
            yield ",\n".join(lines.to_pylist()).encode()
