"""Where a profile says the same numbers: one function a place, each returns what that place says and None of what it does not.

A new place is one new function with `@place` above it, or with `@page` where it costs as much as a page does: such are asked about
some files in `make test`, and about all in `make test-deep`.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from functools import cache
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from profiles.models import Profile
from tests.truth.asking import Asking
from tests.truth.counted import count
from tests.truth.files import CORPUS, DATA, Recording
from tests.truth.sums import Sums

KERNELS = ("compute", "communication")
WORK = (*KERNELS, "memcpy", "memset")


@dataclass
class Said:
    """`kernel_ns`, `launches` and `kernels` are of GPU kernels, `work_ns` with copies and sets; `by_kernel`: ns of some kernels by
    their full name."""

    kernel_ns: int | None = None
    launches: int | None = None
    kernels: int | None = None
    wall_ns: int | None = None
    work_ns: int | None = None
    by_kernel: dict[str, int] | None = None


QUANTITIES = tuple(each.name for each in fields(Said) if each.name != "by_kernel")
Place = Callable[["Asked"], "Said | None"]
PLACES: dict[str, Place] = {}
PAGES: dict[str, Place] = {}


@dataclass(frozen=True)
class Asked:
    """What a place is asked with."""

    file: Recording
    profile: Profile
    ask: Asking
    sql: dict[str, Sums]                # of this profile by table

    @property
    def is_trace(self) -> bool:
        return bool(self.profile.kind == Profile.Kind.TRACE)

    @property
    def untimed(self) -> int:
        """Return how many launches have counters and no time: shapes are of launches with a time."""
        return int(self.profile.counter_launches.filter(duration_ns=None).count())


def place(name: str) -> Callable[[Place], Place]:
    def keep(read: Place) -> Place:
        PLACES[name] = read
        return read
    return keep


def page(name: str) -> Callable[[Place], Place]:
    def keep(read: Place) -> Place:
        PAGES[name] = read
        return read
    return keep


def of_rows(rows: Sequence[dict[str, Any]], name: str = "name", time: str = "total_ns") -> Said:
    """Return what a list of kernels adds up to; several rows of one name are one kernel."""
    by_kernel: dict[str, int] = {}
    for row in rows:
        by_kernel[row[name]] = by_kernel.get(row[name], 0) + _number(row[time])
    return Said(sum(by_kernel.values()), sum(int(row["launches"]) for row in rows), len(by_kernel), by_kernel=by_kernel)


def _number(value: Any) -> int:
    return round(float(value)) if value not in (None, "") else 0


@place("API")
def of_api(at: Asked) -> Said:
    row = at.ask.json("api/")
    return Said(row["gpu_time_ns"] or 0, row["launches"], None, row["wall_ns"])


@place("API, kernels")
def of_kernels_api(at: Asked) -> Said:
    return of_rows(at.ask.json("api/kernels/")["kernels"])


@place("API, shapes")
def of_shapes_api(at: Asked) -> Said | None:
    rows = at.ask.json("api/kernel-shapes/")["kernel_shapes"]
    return _of_shapes(at, of_rows(rows)) if rows else None


def _of_shapes(at: Asked, said: Said) -> Said:
    """With the launches that are of no shape; which kernels those are is not told there."""
    if at.untimed and said.launches is not None:
        said.launches, said.kernels = said.launches + at.untimed, None
    return said


@place("API, GPUs of the summary")
def of_devices(at: Asked) -> Said | None:
    devices = at.profile.summary.get("devices") or []
    if not devices:
        return None
    walls = {each["wall_ns"] for each in devices} | {at.profile.summary["wall_ns"]}
    assert len(walls) == 1, walls
    return Said(sum(each["kernel_ns"] for each in devices), sum(each["launches"] for each in devices), wall_ns=walls.pop())


@page("overview")
def of_overview(at: Asked) -> Said | None:
    """Its strip, and its table of the first kernels."""
    page = at.ask.text("")
    strip = re.search(r'<span class="strip-value"><span class="num" title="([\d,]+) ns">', page)
    shown = int(strip[1].replace(",", "")) if strip else None
    names = dict(at.profile.kernels.values_list("pk", "name"))
    table = re.search(r'<table class="plain top-kernels">.*?</table>', page, re.DOTALL)
    first = re.findall(rf'<a href="{at.ask.page}kernels/(\d+)/">.*?title="[\d.,]+ %".*?title="([\d,]+) ns"', table[0], re.DOTALL) \
        if table else []
    return Said(None if at.is_trace else shown, wall_ns=shown if at.is_trace else None,
                by_kernel={names[int(pk)]: int(ns.replace(",", "")) for pk, ns in first})


@page("kernels")
def of_kernels_page(at: Asked) -> Said | None:
    rows = _cells(at.ask.grid("kernels/?kernels=all"), 1 + 6)
    return of_rows([{"name": row[0], "launches": row[2], "total_ns": row[3]} for row in rows]) if rows else None


@page("kernels, heading")
def of_kernels_heading(at: Asked) -> Said | None:
    said = re.search(r'title="([\d,]+)">[^<]*</span> kernels · <span class="num" title="([\d,]+)">[^<]*</span> launches · '
                     r'<span class="num" title="([\d,]+) ns">', at.ask.text("kernels/?kernels=all"))
    if said is None:
        return None
    kernels, launches, ns = (int(each.replace(",", "")) for each in said.groups())
    return Said(ns, launches, kernels)


@page("kernels by shape")
def of_shapes_page(at: Asked) -> Said | None:
    if not at.ask.json("api/kernel-shapes/")["kernel_shapes"]:
        return None
    rows = _cells(at.ask.grid("kernels/?kernels=all-shapes"), 2 + 6)
    return _of_shapes(at, of_rows([{"name": row[0], "launches": row[3], "total_ns": row[4]} for row in rows]))


def _cells(grid: list[list[str]], least: int) -> list[list[str]]:
    return [row for row in grid if len(row) >= least]


@place("causes")
def of_causes(at: Asked) -> Said | None:
    return Said(wall_ns=at.ask.topic("causes")["numbers"]["wall_ns"]) if at.is_trace else None


@place("time")
def of_time(at: Asked) -> Said | None:
    numbers = at.ask.topic("time")["numbers"] if at.is_trace else {}
    if not numbers:
        return None
    walls = {numbers["wall_ns"], *(each["wall_ns"] for each in numbers["devices"])}
    assert len(walls) == 1, walls
    return Said(wall_ns=walls.pop())


@place("operators")
def of_operators(at: Asked) -> Said | None:
    document = at.ask.topic("operators") if at.is_trace else {"numbers": {}}
    if not document["numbers"]:
        return None
    table = document["tables"][0]
    assert sum(row[3] for row in table["rows"]) == document["numbers"]["gpu_ns"], table["title"]
    return Said(work_ns=document["numbers"]["gpu_ns"])


@page("report")
def of_report(at: Asked) -> Said:
    document = at.ask.json("api/summary/")
    facts = document["profile"]
    return Said(facts["gpu_time_ns"] or 0, facts["launches"], document["kernels_in_all"], facts["wall_ns"],
                by_kernel={each["name"]: each["total_ns"] or 0 for each in document["kernels"]})


@place("SQL, profiles")
def of_sql_profiles(at: Asked) -> Said:
    said = at.sql["profiles"]
    return Said(said.ns, said.launches, wall_ns=said.wall_ns)


@place("SQL, kernel_stats")
def of_sql_kernel_stats(at: Asked) -> Said:
    return _of_sql(at.sql["kernel_stats"])


@place("SQL, kernel_shapes")
def of_sql_kernel_shapes(at: Asked) -> Said | None:
    return _of_shapes(at, _of_sql(at.sql["kernel_shapes"])) if at.sql["kernel_shapes"].by_kernel else None


@place("SQL, launches")
def of_sql_launches(at: Asked) -> Said | None:
    return _of_sql(at.sql["launches"]) if at.profile.kind != Profile.Kind.SUMMARY else None


@place("SQL, kernels")
def of_sql_kernels(at: Asked) -> Said | None:
    return _of_sql(at.sql["kernels"]) if at.is_trace else None


@place("SQL, slices")
def of_sql_slices(at: Asked) -> Said | None:
    return Said(work_ns=at.sql["slices"].ns) if at.is_trace else None


def _of_sql(said: Sums) -> Said:
    return Said(said.ns, said.launches, len(said.by_kernel), by_kernel=said.by_kernel)


def _exported(kind: str) -> Place:
    return lambda at: of_rows(at.ask.table("api/kernels/", kind))


for _kind in ("csv", "json", "parquet", "arrow"):
    page(f"export of kernels, {_kind}")(_exported(_kind))


@page("export of shapes")
def of_exported_shapes(at: Asked) -> Said | None:
    rows = at.ask.table("api/kernel-shapes/", "parquet")
    return _of_shapes(at, of_rows(rows)) if rows else None


@page("export of launches")
def of_exported_launches(at: Asked) -> Said | None:
    if at.profile.kind == Profile.Kind.SUMMARY:
        return None
    return _of_launches(pq.read_table(io.BytesIO(at.ask.content("api/launches/?format=parquet"))))


@page("export of slices")
def of_exported_slices(at: Asked) -> Said | None:
    if not at.is_trace:
        return None
    work = pq.read_table(io.BytesIO(at.ask.content("api/export/slices/?format=parquet")), filters=[
        ("category", "in", WORK), ("instant", "=", False)])
    said = _of_launches(work.filter(pc.is_in(work["category"], pa.array(KERNELS))))
    said.work_ns = pc.sum(work["dur_ns"]).as_py() or 0
    return said


def _of_launches(table: pa.Table) -> Said:
    rows = table.group_by("name").aggregate([("dur_ns", "sum"), ([], "count_all")]).to_pylist()
    return of_rows([{"name": row["name"], "launches": row["count_all"], "total_ns": row["dur_ns_sum"]} for row in rows])


@place("the file itself")
def of_file(at: Asked) -> Said | None:
    """Counted without any of our code."""
    if at.file.format != "kineto":
        return None
    counted = count(at.file.path)
    return Said(counted.kernel_ns, counted.launches, len(counted.by_kernel), counted.wall_ns, counted.work_ns,
                counted.by_kernel)


@place("the corpus's own truth")
def of_truth(at: Asked) -> Said | None:
    """Counted by the scripts of who collected the corpus."""
    known = _truth().get(at.file.name.removesuffix(".gz").split("corpus/")[-1])
    if known is None:
        return None
    of_launches = known.get("durations_ns")         # of counters; None of a launch that was not measured
    return Said(known["gpu_time_ns"] if of_launches is None else round(sum(ns or 0 for ns in of_launches)), known["launches"],
                known.get("names"))


@cache
def _truth() -> dict[str, dict[str, Any]]:
    files = (DATA / "corpus" / "truth.jsonl", DATA / "corpus" / "truth_nsys.jsonl", CORPUS / "truth.jsonl")
    known = [json.loads(line) for file in files if file.exists() for line in file.read_text().splitlines()]
    return {each["file"].removesuffix(".gz"): each for each in known}
