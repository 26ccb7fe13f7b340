"""One slice of a timeline: its arguments, and the slices it is linked with."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from profiles.ingest.naming.names import short_name
from profiles.ingest.trace import KERNELS, Category
from profiles.models import KernelStat, Profile
from profiles.store import trace as store
from profiles.store.links import Slice, relations_of
from profiles.store.steps import step_name, steps_launched, steps_ran
from profiles.store.timeline import Timeline
from profiles.timeline.selectors import describe_slices

STACK = 200                     # frames at most
NULLS = (-(2**63), -(2**31))
_ARGUMENTS = ("correlation", "external_id", "device", "stream", "grid_x", "grid_y", "grid_z", "block_x", "block_y",
              "block_z", "registers_per_thread", "smem_bytes", "occupancy_pct", "bytes", "detail_id")


def slice_detail(profile: Profile, timeline: Timeline, row: int, view: tuple[int, int] | None = None) -> dict[str, Any]:
    """Return everything known about one slice.

    `row` is within the table; of many links, those nearest to `view` are told.
    """
    base = describe_slices(timeline, np.array([row]))[0]
    arguments = {name: values[0] for name, values in timeline.arguments.read(row, row + 1, _ARGUMENTS).items()}
    names = timeline.slices.read(row, row + 1, ("name_id",))
    track = timeline.tracks[base["track"]]
    occupancy = float(arguments["occupancy_pct"])
    links = _links(timeline, base, known_or_none(arguments["correlation"]), known_or_none(arguments["external_id"]), view)
    kernel = base["category"] in (each.name.lower() for each in KERNELS)
    known = KernelStat.objects.filter(profile=profile, name=base["name"]).values_list("pk", "short_name") if kernel else None
    kernel_id, label = (known.first() if known else None) or (None, short_name(base["name"]) if kernel else base["name"])
    return {
        **base, "track_name": track["name"], "group": track["group"], "short_name": label,
        "name_key": f"name:{int(names['name_id'][0])}",
        "grid": _triple(arguments, "grid"), "block": _triple(arguments, "block"),
        "registers_per_thread": known_or_none(arguments["registers_per_thread"]),
        "smem_bytes": known_or_none(arguments["smem_bytes"]),
        "occupancy_pct": occupancy if np.isfinite(occupancy) else None,
        "occupancy_source": "estimate of the profiler (CUPTI), stated in the trace" if np.isfinite(occupancy) else None,
        "bytes": known_or_none(arguments["bytes"]), "correlation": known_or_none(arguments["correlation"]),
        "external_id": known_or_none(arguments["external_id"]), "device": known_or_none(arguments["device"]),
        "stream": known_or_none(arguments["stream"]), "detail": detail(timeline, known_or_none(arguments["detail_id"])),
        **_steps(timeline, row),
        "stack": _stack(timeline, base, links["links"]),
        "kernel_id": kernel_id, "is_kernel": kernel,
        **links,
    }


def _steps(timeline: Timeline, row: int) -> dict[str, str | None]:
    """Return the marked step that launched a slice and the one in which it began; None outside every step."""
    number = np.array([row])
    rows = {**timeline.slices.take(number, ("track", "start_ns", "category")), **timeline.arguments.take(number, ("correlation",))}
    return {"step_launched": step_name(timeline, int(steps_launched(timeline, rows)[0])),
            "step_ran": step_name(timeline, int(steps_ran(timeline, rows)[0]))}


def _stack(timeline: Timeline, base: dict[str, Any], links: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What is around the slice on its thread, innermost first; of GPU work, its launch call and what is around that."""
    call = next((link for link in links if link["role"] == "launched by"), None)
    inner = call or base
    mask = np.zeros(len(timeline.tracks), np.bool_)
    mask[inner["track"]] = timeline.tracks[inner["track"]]["kind"] != "stream"
    rows = timeline.window(inner["start_ns"], inner["start_ns"] + 1, 0, mask)
    end = inner["start_ns"] + inner["dur_ns"]
    around = np.flatnonzero((rows["depth"] < inner["depth"]) & (rows["start_ns"] + rows["dur_ns"] >= end) & ~rows["instant"])
    ids = rows["slice"][around[np.argsort(-rows["depth"][around].astype(np.int64), kind="stable")]][:STACK]
    told = ([call] if call else []) + describe_slices(timeline, ids)
    numbers = timeline.arguments.take(np.array([each["id"] for each in told], np.intp), ("detail_id",))["detail_id"]
    return [{**each, "detail": detail(timeline, known_or_none(number))} for each,
            number in zip(told, numbers.tolist(), strict=True)]


def known_or_none(value: Any) -> int | None:
    """Return None for nulls, which are the least number of their type in decoded columns."""
    number = int(value)
    return None if number in NULLS else number


def _triple(arguments: dict[str, Any], name: str) -> list[int] | None:
    values = [known_or_none(arguments[f"{name}_{axis}"]) for axis in "xyz"]
    return None if None in values else [value for value in values if value is not None]


def detail(timeline: Timeline, number: int | None) -> dict[str, Any]:
    """Return the remaining arguments of a slice, by their number."""
    if number is None:
        return {}
    with pq.ParquetFile(store.local_path(store.key(timeline.profile_id, "details.parquet"))) as file:
        for group in range(file.num_row_groups):
            rows = file.metadata.row_group(group).num_rows
            if number < rows:
                text = file.read_row_group(group, ["detail"])["detail"][number].as_py()
                break
            number -= rows
        else:
            return {}
    try:
        values = json.loads(text, strict=False)
    except (ValueError, RecursionError):
        return {"text": str(text)}
    return values if isinstance(values, dict) else {"text": str(text)}


def _links(timeline: Timeline, base: dict[str, Any], correlation: int | None, external: int | None,
           view: tuple[int, int] | None) -> dict[str, Any]:
    """Related slices by role, arrows between them, and how long the GPU work waited since its launch call began."""
    one = Slice(base["id"], base["track"], base["start_ns"], base["dur_ns"], Category[base["category"].upper()], correlation,
                external)
    middle = (view[0] + view[1]) // 2 if view else base["start_ns"]
    links = relations_of(timeline, one, middle)
    rows = np.unique(np.array([row for rows in links.roles.values() for row in rows] + [
        row for _, *ends in links.arrows for row in ends], np.int64))
    told = dict(zip(rows.tolist(), describe_slices(timeline, rows), strict=True))
    calls = links.roles.get("launched by", [])
    return {
        "links": [{"role": role, **told[row]} for role, rows_of in links.roles.items() for row in rows_of],
        "link_counts": links.counts,
        "arrows": [{"kind": kind, "from": told[begin], "to": told[end]} for kind, begin, end in links.arrows],
        "launch_delay_ns": max(base["start_ns"] - told[calls[0]]["start_ns"], 0) if calls else None,
    }
