"""Instructions and source lines of counter reports as tables: one link per stored launch, one statement per profile.

As in `profiles.sql.views`, every part of a statement is made of fixed text and integers.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import pyarrow.parquet as pq

from profiles.models import Profile
from profiles.store import source as store_source
from profiles.store import trace as store

Make = Callable[[int, set[str]], str]
SAMPLES = "smsp__pcsamp_sample_count"
METRICS = {     # our column -> the report's metric
    "executed": "inst_executed", "threads_executed": "thread_inst_executed_true",
    "global_sectors": "memory_l2_theoretical_sectors_global",
    "excess_sectors": "derived__memory_l2_theoretical_sectors_global_excessive",
    "shared_wavefronts": "memory_l1_wavefronts_shared", "excess_wavefronts": "derived__memory_l1_wavefronts_shared_excessive",
}


class QueryFiles(Protocol):
    """What a query may open: `profiles.sql.views.QueryFiles`."""

    files: list[str]
    targets: list[str]


def tables(profiles: list[Profile], folder: Path, out: QueryFiles) -> dict[str, Make]:
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
    wanted = [f"{number}-instructions.parquet" for number, each in sorted(index.items()) if each.instructions]
    names = []
    (folder / f"p{pk}" / "inside").mkdir()
    for name in [*wanted, "files.parquet", "lines.parquet"]:
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
