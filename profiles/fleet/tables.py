"""The sums of the fleet: one description of each table, for PostgreSQL and ClickHouse alike.

A row is a part; several of one key add up (merging is SUM, of sketches by bucket). `at` is the begin of an hour (in hours since
1970), of a day or of a month (both in days since 1970), UTC.
"""

from __future__ import annotations

from dataclasses import dataclass

LEVELS = ("hour", "day", "month")      # the finest first


@dataclass(frozen=True)
class FactTable:
    """`keys` and `sums` are columns with the kind of their numbers: "i" whole, "f" not."""

    name: str
    keys: tuple[str, ...]
    sums: dict[str, str]
    least: tuple[str, ...] = ()         # columns of which a merge keeps the least
    most: tuple[str, ...] = ()          # … and the greatest
    has_sketch: bool = False

    @property
    def columns(self) -> tuple[str, ...]:
        return ("at", *self.keys, *self.sums, *self.least, *self.most, *(("bucket", "count") if self.has_sketch else ()))


_WATCHED = {"windows": "i", "observed_ns": "i", "wall_ns": "i"}
_SUMS = {"launches": "i", "total_ns": "i", "estimate_launches": "f", "estimate_ns": "f", "square": "f"}
TELEMETRY = ("sm_pct", "tensor_pct", "dram_pct", "busy_pct", "power_w", "sm_mhz", "memory_mhz", "temperature_c",
             "memory_used_bytes", "memory_bytes")           # means; the others of a batch are sums
EVENTS = ("throttle_s", "thermal_s", "xid_errors", "ecc_errors")

TABLES: tuple[FactTable, ...] = (
    # what a launch of one signature takes, by job and build
    FactTable("kernels", ("signature", "context"), _SUMS, ("min_ns",), ("max_ns",), has_sketch=True),
    # the same without shapes and jobs: the page of all
    FactTable("totals", ("kernel", "gpu_model"), _SUMS, ("min_ns",), ("max_ns",), has_sketch=True),
    FactTable("gpus", ("gpu", "context", "rank"), {**_SUMS, **_WATCHED},
              ("min_ns",), ("max_ns",), has_sketch=True),
    # of each GPU the kernels with most time: what a slow one is told by
    FactTable("gpu_kernels", ("gpu", "signature", "context"), {**_SUMS, "log_sum": "f"}),
    # sums of events and of a minute's means; `n_…` says of how many minutes each was known
    FactTable("telemetry", ("gpu",), {"minutes": "i", **dict.fromkeys(EVENTS, "f"), **{f"sum_{name}": "f" for name in TELEMETRY},
                                      **{f"n_{name}": "i" for name in (*TELEMETRY, *EVENTS)}}),
    # the GPUs of a job added up: what jobs, builds and models have, without reading every kernel
    FactTable("contexts", ("context",), {**_SUMS, **_WATCHED}, ("min_ns",), ("max_ns",), has_sketch=True),
)
BY_NAME = {table.name: table for table in TABLES}


def table_name(table: FactTable, level: str) -> str:
    return f"fleet_{table.name}_{level}"
