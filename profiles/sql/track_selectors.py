"""The queries of a timeline's address: run, held, and listed as the timeline lists its own tracks, names and slices.

Tracks are numbered behind the trace's own, names behind its names, slices from 2³¹ on; all three depend on the order in
which the queries stand in the address.
"""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

import numpy as np

from profiles.exports import files
from profiles.ingest.trace import TraceError
from profiles.models import Profile, SavedQuery
from profiles.sql.examples import example
from profiles.sql.process import Limits, QueryError
from profiles.sql.services import query_run
from profiles.sql.tables import CATEGORIES
from profiles.sql.tracks import FIRST_SLICE, QueryTracks, make_tracks

MOST = Limits(rows=200_000, bytes=64 << 20, seconds=20.0)
MAX_QUERIES = 8
GROUP = "SQL"
_HELD = 16


def draw_queries(profile: Profile, keys: Sequence[str], person: str, end_ns: int) -> list[QueryTracks]:
    """Return the queries of an address, run (or found among the kept results).

    Raises TraceError for keys that name none.
    """
    if not 0 < len(keys) <= MAX_QUERIES:
        raise TraceError("sql", f"{len(keys)} queries are asked for", f"A timeline shows 1 to {MAX_QUERIES} of them")
    return [_draw_query(profile, key, person, end_ns) for key in keys]


_held: OrderedDict[tuple[int, str, str, int], QueryTracks] = OrderedDict()
_lock = threading.Lock()


def _draw_query(profile: Profile, key: str, person: str, end_ns: int) -> QueryTracks:
    title, sql = _query(key)
    identity = hashlib.sha256(f"{profile.pk} {profile.heartbeat} {profile.stored_bytes} {title} {sql}".encode()).hexdigest()[:16]
    place = (profile.pk, key, identity, end_ns)
    with _lock:
        if place in _held:
            _held.move_to_end(place)
            return _held[place]
    try:
        out = make_tracks(QueryTracks(title, key, identity=identity), query_run(sql, [profile], person, MOST).table, end_ns)
    except QueryError as error:
        out = QueryTracks(title, key, f"{error.where}: {error.what}", identity=identity)
        if error.kind not in ("refused", "query"):          # busy or stopped may pass: not held
            return out
    with _lock:
        _held[place] = out
        while len(_held) > _HELD:
            _held.popitem(last=False)
    return out


def _query(key: str) -> tuple[str, str]:
    if key.isdecimal() and len(key) < 19:
        saved = SavedQuery.objects.filter(pk=int(key)).first()
        if saved:
            return saved.name, saved.sql
    elif bundled := example(key):
        return bundled.title, bundled.sql
    raise TraceError("sql", f"there is no saved query {key[:40]!r}", "The SQL page lists them")


def track_documents(drawn: list[QueryTracks], first_id: int) -> list[dict[str, Any]]:
    """Return the queries' tracks as the timeline's document lists tracks.

    A query without rows is a track that says why.
    """
    out: list[dict[str, Any]] = []
    for each in drawn:
        counts = np.bincount(each.columns["track"], minlength=len(each.tracks)) if each.tracks else np.empty(0, np.int64)
        rows = [(name, int(counts[i]), int(each.columns["depth"][each.columns["track"] == i].max()) + 1, 0)
                for i, name in enumerate(each.tracks)]
        for name, slices, depths, samples in rows or [(each.title, 0, 0, len(each.columns.get("time_ns", ())))]:
            shown = f"{name} ({each.error})" if each.error else name
            out.append({"id": first_id + len(out), "kind": "other" if slices else "counter", "name": shown, "group": GROUP,
                        "pid": None, "tid": None, "device": None, "stream": None, "unit": None, "depths": depths, "slices": slices,
                        "samples": samples, "sort": -1, "busy_ns": None, "overflow": None, "query": each.key})
    return out


def names_of(drawn: list[QueryTracks]) -> list[str]:
    return [name for each in drawn for name in each.names]


def slice_detail(drawn: list[QueryTracks], slice_id: int, first_id: int) -> dict[str, Any] | None:
    """Return a row of a query as the timeline's panel shows a slice.

    The row's other columns are its arguments.
    """
    number, track = slice_id - FIRST_SLICE, first_id
    for each in drawn:
        if 0 <= number < each.rows.size and each.table is not None:
            row = each.table.slice(int(each.rows[number]), 1)
            own = int(each.columns["track"][number])
            rest = {name: files.cell(files.list_values(row.column(i))[0]) for i, name in enumerate(row.column_names)
                    if name not in ("start_ns", "dur_ns", "name", "lane", "category")}
            name = each.names[int(each.columns["name"][number])]
            return {"id": slice_id, "track": track + own, "depth": int(each.columns["depth"][number]),
                    "start_ns": int(each.columns["start_ns"][number]), "dur_ns": int(each.columns["dur_ns"][number]), "name": name,
                    "short_name": name, "category": CATEGORIES[int(each.columns["category"][number])],
                    "track_name": each.tracks[own], "group": GROUP, "detail": rest, **dict.fromkeys(_UNKNOWN),
                    "links": [], "arrows": [], "link_counts": {}}
        number, track = number - each.rows.size, track + max(len(each.tracks), 1)
    return None


_UNKNOWN = ("grid", "block", "registers_per_thread", "smem_bytes", "occupancy_pct", "occupancy_source", "bytes", "correlation",
            "external_id", "device", "stream", "kernel_id", "launch_delay_ns")
