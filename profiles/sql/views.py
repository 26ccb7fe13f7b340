"""From the store's files to the tables of `profiles.sql.tables`: the only module of the console that knows the stored form.

A query runs in a folder of its own: p<id>/… are links to the profile's stored files, the small tables are written there.
Every part of a statement below is made of fixed text and integers.

Instructions and source lines of counter reports: one link per stored launch, one statement per profile.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from django.db.models import F

from profiles.analysis.core.sentences import share_pct
from profiles.ingest.trace import KERNELS
from profiles.models import KernelShape, KernelStat, Profile
from profiles.sql import analyses
from profiles.sql.tables import CATEGORIES, Column, table
from profiles.store import counters as store_counters
from profiles.store import objects as store_launches
from profiles.store import source as store_source
from profiles.store import trace as store
from profiles.store.objects import tables_of

_FILES = ("slices", "arguments", "names", "details", "samples", "flows")
_ARROW = {"BIGINT": pa.int64(), "INTEGER": pa.int32(), "SMALLINT": pa.int16(), "DOUBLE": pa.float64(), "FLOAT": pa.float32(),
          "VARCHAR": pa.string(), "BOOLEAN": pa.bool_(), "VARCHAR[]": pa.list_(pa.string()), "TIMESTAMP": pa.timestamp("us")}


@dataclass
class QueryFiles:
    """What a child needs: statements that make the tables, and the files that it may open (relative names and targets)."""

    statements: list[str] = field(default_factory=list)
    files: list[str] = field(default_factory=list)
    targets: list[str] = field(default_factory=list)


def prepare(profiles: list[Profile], folder: Path, *, analysed: Collection[str] = tuple(analyses.MAKERS)) -> QueryFiles:
    """Fill `folder` for a query over `profiles`. Parts that a profile lacks are empty tables.

    `analysed`: tables of analyses that the query names; the others are empty.
    """
    out = QueryFiles()
    links = {profile.pk: _links(profile.pk, folder, out) for profile in profiles}
    documents = {pk: json.loads((folder / f"p{pk}" / "timeline.json").read_text()) for pk, names in links.items()
                 if "timeline.json" in names}
    for name, rows in (("profiles", map(_profile, profiles)), ("kernel_stats", _kernel_stats(profiles)),
                       ("kernel_shapes", _kernel_shapes(profiles)),
                       ("tracks", _tracks(documents)), ("steps", _steps(documents)), ("integrity", _integrity(profiles)),
                       ("plausibility", _plausibility(profiles)),
                       ("metadata", _metadata(profiles)), ("cells", _cells(profiles)),
                       *((name, analyses.rows_of(name, profiles, analysed)) for name in analyses.MAKERS)):
        _small(folder, name, rows, out)
    for name, make in {**_STORED, **inside_tables(profiles, folder, out)}.items():
        parts = [text for pk, names in links.items() if (text := make(pk, names))]
        columns = table(name).columns
        out.statements.append(f"CREATE VIEW {name} AS " + (" UNION ALL ".join(parts) or _empty(columns)))
    return out


def _links(pk: int, folder: Path, out: QueryFiles) -> set[str]:
    """Names of the profile's stored files, each a link in p<pk>/."""
    (folder / f"p{pk}").mkdir()
    names = set()
    keys = {f"{name}.parquet": store.key(pk, f"{name}.parquet") for name in _FILES} | {
        "timeline.json": store.key(pk, "timeline.json"), "counters.parquet": store_counters.key(pk),
        "launches.parquet": store_launches.key(pk)}
    for name, key in keys.items():
        try:
            target = store.local_path(key)
        except FileNotFoundError:
            continue
        (folder / f"p{pk}" / name).symlink_to(target)
        names.add(name)
        if name.endswith(".parquet"):
            out.files.append(f"p{pk}/{name}")
            out.targets.append(str(target))
    return names


def _small(folder: Path, name: str, rows: Iterable[dict[str, Any]], out: QueryFiles) -> None:
    schema = pa.schema([(column.name, _ARROW[column.type]) for column in table(name).columns])
    pq.write_table(pa.Table.from_pylist(list(rows), schema), folder / f"{name}.parquet")
    out.files.append(f"{name}.parquet")
    out.targets.append(str(folder / f"{name}.parquet"))
    out.statements.append(f"CREATE VIEW {name} AS SELECT * FROM read_parquet('{name}.parquet')")


def _empty(columns: tuple[Column, ...]) -> str:
    return "SELECT " + ", ".join(f"NULL::{column.type} AS {column.name}" for column in columns) + " WHERE false"


_WORDS = "(VALUES " + ", ".join(f"({i}, '{word}')" for i, word in enumerate(CATEGORIES)) + ") AS c(number, word)"
_ARGUMENTS = ("correlation", "external_id", "device", "stream", "grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z",
              "registers_per_thread", "smem_bytes", "occupancy_pct", "bytes")


def _parquet_with_rows(pk: int, name: str) -> str:
    return f"read_parquet('p{pk}/{name}.parquet', file_row_number = true)"


def _slices(pk: int, names: set[str], where: str = "true") -> str:
    """slices and arguments are row for row the same; a name is a row of names, an argument text a row of details."""
    if "slices.parquet" not in names:
        return ""
    args = ", ".join(f"a.{name}" for name in _ARGUMENTS)
    return (f"SELECT {pk}::BIGINT AS profile, s.file_row_number AS id, s.start_ns, s.dur_ns, n.name, c.word AS category, "
            f"s.track, s.depth, s.instant, {args}, d.detail AS args FROM {_parquet_with_rows(pk, 'slices')} AS s "
            f"POSITIONAL JOIN read_parquet('p{pk}/arguments.parquet') AS a JOIN {_WORDS} ON c.number = s.category "
            f"LEFT JOIN {_parquet_with_rows(pk, 'names')} AS n ON n.file_row_number = s.name_id "
            f"LEFT JOIN {_parquet_with_rows(pk, 'details')} AS d ON d.file_row_number = a.detail_id WHERE {where}")


def _kernels(pk: int, names: set[str]) -> str:
    return _slices(pk, names, f"s.category IN ({', '.join(str(int(category)) for category in KERNELS)}) AND NOT s.instant")


def _plain(name: str, columns: str, join: str = "") -> Any:
    def make(pk: int, names: set[str]) -> str:
        if f"{name}.parquet" not in names:
            return ""
        return f"SELECT {pk}::BIGINT AS profile, {columns} FROM read_parquet('p{pk}/{name}.parquet') AS x" + join.format(pk=pk)
    return make


_SHAPE = "x.grid_x, x.grid_y, x.grid_z, x.block_x, x.block_y, x.block_z, x.registers_per_thread, x.smem_bytes"
_STORED = {
    "slices": _slices,
    "kernels": _kernels,
    "launches": _plain("launches", f"x.name::VARCHAR AS name, x.index AS launch, x.dur_ns, {_SHAPE}"),
    "samples": _plain("samples", "x.track, x.time_ns, CASE WHEN isnan(x.value) THEN NULL ELSE x.value END AS value"),
    "flows": _plain("flows", "x.flow, x.kind::VARCHAR AS kind, x.track, x.time_ns, x.is_end"),
    "counters": _plain(
        "counters", "x.launch, l.name::VARCHAR AS kernel, x.metric::VARCHAR AS metric, x.unit::VARCHAR AS unit, x.value, "
        "x.text::VARCHAR AS text", " LEFT JOIN read_parquet('p{pk}/launches.parquet') AS l ON l.index = x.launch"),
}


def _profile(profile: Profile) -> dict[str, Any]:
    return {"id": profile.pk, "name": profile.name, "build": profile.build, "model": profile.model, "tags": profile.tags,
            "gpu": profile.gpu, "format": profile.format, "kind": profile.kind, "created": profile.created.replace(tzinfo=None),
            "wall_ns": profile.wall_ns, "busy_ns": profile.busy_ns, "kernel_ns": profile.gpu_time_ns, "launches": profile.launches,
            "needed_pct": profile.summary.get("needed_pct")}


def _kernel_stats(profiles: list[Profile]) -> Iterator[dict[str, Any]]:
    names = [column.name for column in table("kernel_stats").columns if column.name != "profile"]
    rows = KernelStat.objects.filter(profile__in=profiles).order_by("profile_id", F("total_ns").desc(nulls_last=True), "pk")
    for row in rows.values("profile_id", *names):
        yield {"profile": row.pop("profile_id"), **row}


def _kernel_shapes(profiles: list[Profile]) -> Iterator[dict[str, Any]]:
    of_ns = {profile.pk: profile.gpu_time_ns for profile in profiles}
    own = [column.name for column in table("kernel_shapes").columns
           if column.name not in ("profile", "name", "short_name", "mean_ns", "share_pct")]
    rows = KernelShape.objects.filter(kernel__profile__in=profiles).order_by("kernel__profile_id", "-total_ns", "pk")
    for row in rows.values("kernel__profile_id", "kernel__name", "kernel__short_name", *own):
        pk, total_ns, launches = row.pop("kernel__profile_id"), row["total_ns"], row["launches"]
        yield {"profile": pk, "name": row.pop("kernel__name"), "short_name": row.pop("kernel__short_name"), **row,
               "mean_ns": total_ns / launches if launches else None,
               "share_pct": share_pct(total_ns, of_ns[pk])}


def _tracks(documents: dict[int, dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for pk, document in documents.items():
        for track in document["tracks"]:
            yield {"profile": pk, "group_name": track["group"], **{name: track[name] for name in (
                "id", "kind", "name", "pid", "tid", "device", "stream", "unit", "slices", "samples")}}


def _steps(documents: dict[int, dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for pk, document in documents.items():
        for number, step in enumerate(document["steps"]):
            yield {"profile": pk, "step": number, "name": step["name"], "start_ns": step["start_ns"],
                   "dur_ns": step["end_ns"] - step["start_ns"]}


def _integrity(profiles: list[Profile]) -> Iterator[dict[str, Any]]:
    for profile in profiles:
        integrity = profile.integrity
        yield {"profile": profile.pk, "section": "read", "reason": "records", "records": integrity.get("records_read", 0)}
        yield {"profile": profile.pk, "section": "kept", "reason": "records", "records": integrity.get("records_kept", 0)}
        for section in ("kinds", "not_kept", "repaired", "remarks"):
            for reason, records in integrity.get(section, {}).items():
                yield {"profile": profile.pk, "section": section, "reason": reason, "records": records}
        if integrity.get("truncated_at"):
            yield {"profile": profile.pk, "section": "truncated", "reason": integrity["truncated_at"]}
        for note in integrity.get("notes", []):
            yield {"profile": profile.pk, "section": "notes", "reason": note}


def _plausibility(profiles: list[Profile]) -> Iterator[dict[str, Any]]:
    for profile in profiles:
        for doubt in profile.integrity.get("plausibility") or []:
            yield {"profile": profile.pk, "of_count": doubt.get("of"), "doubtful_ns": doubt.get("ns"),
                   **{name: doubt.get(name) for name in ("kind", "label", "count", "first_ns", "last_ns", "touches", "sentence")}}


def _metadata(profiles: list[Profile]) -> Iterator[dict[str, Any]]:
    for profile in profiles:
        for key, value in _flat("", profile.metadata):
            yield {"profile": profile.pk, "key": key, "value": value}


def _flat(prefix: str, value: Any) -> Iterator[tuple[str, str | None]]:
    if isinstance(value, dict) and value:
        for name, inner in value.items():
            yield from _flat(f"{prefix}.{name}" if prefix else str(name), inner)
    else:
        yield prefix, value if isinstance(value, str) or value is None else json.dumps(value, ensure_ascii=False)


def _cells(profiles: list[Profile]) -> Iterator[dict[str, Any]]:
    for profile in profiles:
        for grid in tables_of(profile.pk):
            for line, row in enumerate(grid["rows"]):
                for column, cell in zip(grid["columns"], row, strict=False):
                    number = isinstance(cell, (int, float))
                    yield {"profile": profile.pk, "title": grid["title"], "line": line, "column_name": column["name"],
                           "unit": column["unit"], "value": float(cell) if number else None,
                           "text": None if number or cell is None else str(cell)}


Make = Callable[[int, set[str]], str]
SAMPLES = "smsp__pcsamp_sample_count"
METRICS = {     # our column -> the report's metric
    "executed": "inst_executed", "threads_executed": "thread_inst_executed_true",
    "global_sectors": "memory_l2_theoretical_sectors_global",
    "excess_sectors": "derived__memory_l2_theoretical_sectors_global_excessive",
    "shared_wavefronts": "memory_l1_wavefronts_shared", "excess_wavefronts": "derived__memory_l1_wavefronts_shared_excessive",
}


def inside_tables(profiles: list[Profile], folder: Path, out: QueryFiles) -> dict[str, Make]:
    """Link what is inside the launches into p<id>/; the makers of both tables."""
    files_by_profile = {profile.pk: _link(profile.pk, folder, out) for profile in profiles if profile.kind == Profile.Kind.COUNTERS}

    def instructions(pk: int, names: set[str]) -> str:
        launches = [name for name in files_by_profile.get(pk, []) if name.endswith("-instructions.parquet")]
        return _instructions(pk, launches, folder, "files.parquet" in files_by_profile[pk],
                             "launches.parquet" in names) if launches else ""

    def source_lines(pk: int, names: set[str]) -> str:
        if not {"files.parquet", "lines.parquet"} <= set(files_by_profile.get(pk, [])):
            return ""
        return (f"SELECT {pk}::BIGINT AS profile, f.name AS file, x.line, x.text "
                f"FROM read_parquet('p{pk}/inside/lines.parquet') AS x "
                f"JOIN read_parquet('p{pk}/inside/files.parquet') AS f USING (number)")

    return {"instructions": instructions, "source_lines": source_lines}


def _link(pk: int, folder: Path, out: QueryFiles) -> list[str]:
    """Names of the files in p<pk>/inside/."""
    _, index = store_source.index_read(pk)
    filenames = [f"{number}-instructions.parquet" for number, inside in sorted(index.items()) if inside.instructions]
    names = []
    (folder / f"p{pk}" / "inside").mkdir()
    for name in [*filenames, "files.parquet", "lines.parquet"]:
        try:
            target = store.local_path(store_source.key(pk, name))
        except FileNotFoundError:
            continue
        (folder / f"p{pk}" / "inside" / name).symlink_to(target)
        out.files.append(f"p{pk}/inside/{name}")
        out.targets.append(str(target))
        names.append(name)
    return names


def _instructions(pk: int, launches: list[str], folder: Path, named: bool, listed: bool) -> str:
    known = {name for launch in launches for name in pq.read_schema(folder / f"p{pk}" / "inside" / launch).names}
    counted = [f"x.{metric} AS {column}" if metric in known else f"NULL::DOUBLE AS {column}" for column, metric in METRICS.items()]
    # an instruction at which no sample stood has none; a report that sampled nothing does not know
    counted.insert(0, f"coalesce(x.{SAMPLES}, 0) AS samples" if SAMPLES in known else "NULL::DOUBLE AS samples")
    paths = ", ".join(f"'p{pk}/inside/{launch}'" for launch in launches)
    launch = "regexp_extract(x.filename, '(\\d+)-instructions', 1)::INTEGER"
    kernel = "l.name::VARCHAR" if listed else "NULL::VARCHAR"
    return (f"SELECT {pk}::BIGINT AS profile, {launch} AS launch, {kernel} AS kernel, "
            f"x.address - min(x.address) OVER (PARTITION BY x.filename) AS offset_bytes, x.sass, "
            f"{'f.name' if named else 'NULL::VARCHAR'} AS file, x.line, {', '.join(counted)} "
            f"FROM read_parquet([{paths}], union_by_name = true, filename = true) AS x"
            + (f" LEFT JOIN read_parquet('p{pk}/launches.parquet') AS l ON l.index = {launch}" if listed else "")
            + (f" LEFT JOIN read_parquet('p{pk}/inside/files.parquet') AS f ON f.number = x.file" if named else ""))
