"""What the SQL console says of many profiles at once: a query of each profile would cost a process each."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field

from tests.truth.asking import REQUESTS, answer_of, rows_of

AT_ONCE = 60                    # profiles of a query; 64 are allowed
NAMED = {"kernel_stats": "sum(launches), sum(total_ns)", "kernel_shapes": "sum(launches), sum(total_ns)",
         "launches": "count(*), sum(dur_ns)", "kernels": "count(*), sum(dur_ns)"}
TABLES = ("profiles", "slices", *NAMED)
QUERY = " UNION ALL ".join((
    "SELECT 'profiles' AS source, id AS profile, '' AS name, launches AS launches, kernel_ns::DOUBLE AS ns, wall_ns FROM profiles",
    "SELECT 'slices', profile, '', count(*), sum(dur_ns), NULL FROM slices "
    "WHERE category IN ('compute', 'communication', 'memcpy', 'memset') AND NOT instant GROUP BY profile",
    *(f"SELECT '{table}', profile, name, {sums}, NULL FROM {table} GROUP BY profile, name" for table, sums in NAMED.items())))


@dataclass
class Sums:
    """What one table says of one profile; `ns` of the slices with copies and sets."""

    ns: int = 0
    launches: int = 0
    wall_ns: int | None = None
    by_kernel: dict[str, int] = field(default_factory=dict)


def sums_of(profiles: Sequence[int]) -> dict[int, dict[str, Sums]]:
    """Return what each table of the console says of each profile: by profile, then by table."""
    out = {pk: {table: Sums() for table in TABLES} for pk in profiles}
    for at in range(0, len(profiles), AT_ONCE):
        asked = {"query": QUERY, "profiles": profiles[at:at + AT_ONCE], "format": "parquet"}
        status, content = answer_of(REQUESTS.post("/api/sql/", json.dumps(asked), content_type="application/json"))
        assert status == 200, content
        for row in rows_of(content, "parquet"):
            said, ns = out[row["profile"]][row["source"]], round(row["ns"] or 0)
            said.ns += ns
            said.launches += row["launches"]
            said.wall_ns = row["wall_ns"]
            if row["source"] in NAMED:
                said.by_kernel[row["name"]] = ns
    return out
