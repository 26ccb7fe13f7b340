"""One slice of a timeline: its arguments, and the slices it is linked with."""

from __future__ import annotations

import json
import re
from collections.abc import Generator
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from django.urls import reverse
from django.utils.http import urlencode

from profiles.analysis.core.tunable import is_problem, tunable
from profiles.analysis.kernel import counters
from profiles.analysis.trace.critical.topic import NamedPath, paths
from profiles.analysis.trace.critical.walk import path_segments
from profiles.capture.selectors import bare_name
from profiles.ingest.arrays import stable_order
from profiles.ingest.naming.names import family, short_name
from profiles.ingest.trace import KERNELS, Category
from profiles.models import KernelStat, Profile
from profiles.store import trace as store
from profiles.store.area import Area, windows
from profiles.store.frame import frame_read
from profiles.store.links import Slice, relations_of
from profiles.store.related import step_name, steps_launched, steps_ran
from profiles.store.timeline import Timeline, timeline
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
    kernel = base["category"] in (category.name.lower() for category in KERNELS)
    stats = KernelStat.objects.filter(profile=profile, name=base["name"]).values_list("pk", "short_name") if kernel else None
    kernel_id, label = (stats.first() if stats else None) or (None, short_name(base["name"]) if kernel else base["name"])
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
    ids = rows["slice"][around[stable_order(-rows["depth"][around].astype(np.int64))]][:STACK]
    slices = ([call] if call else []) + describe_slices(timeline, ids)
    numbers = timeline.arguments.take(np.array([entry["id"] for entry in slices], np.intp), ("detail_id",))["detail_id"]
    return [{**entry, "detail": detail(timeline, known_or_none(number))} for entry,
            number in zip(slices, numbers.tolist(), strict=True)]


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
    subject = Slice(base["id"], base["track"], base["start_ns"], base["dur_ns"], Category[base["category"].upper()], correlation,
                    external)
    middle = (view[0] + view[1]) // 2 if view else base["start_ns"]
    links = relations_of(timeline, subject, middle)
    rows = np.unique(np.array([row for rows in links.roles.values() for row in rows] + [
        row for _, *ends in links.arrows for row in ends], np.int64))
    slices_by_row = dict(zip(rows.tolist(), describe_slices(timeline, rows), strict=True))
    calls = links.roles.get("launched by", [])
    return {
        "links": [{"role": role, **slices_by_row[row]} for role, rows_of in links.roles.items() for row in rows_of],
        "link_counts": links.counts,
        "arrows": [{"kind": kind, "from": slices_by_row[begin], "to": slices_by_row[end]} for kind, begin, end in links.arrows],
        "launch_delay_ns": max(base["start_ns"] - slices_by_row[calls[0]]["start_ns"], 0) if calls else None,
    }


# What one launch of a kernel leads to: its counters where they were taken, a capture of just this launch, a tune job.

ELSEWHERE = 3                   # counter profiles that are told
_CANDIDATES = 500
Work = Generator[float, None, dict[str, Any]]


def slice_kernel(profile: Profile, timeline: Timeline, row: int) -> Work:
    """Return everything around one launch.

    `row` is a kernel's slice.
    """
    facts = slice_detail(profile, timeline, row)
    before = yield from _launches_before(timeline, row, facts)
    around = [(entry["name"], entry["detail"]) for entry in facts["stack"] if entry["category"] == Category.CPU_OP.name.lower()]
    return {
        "slice": row, "name": facts["name"], "name_key": facts["name_key"], "kernel_id": facts["kernel_id"],
        "index": before["same"], "matching": before["matching"], "bare_name": bare_name(facts["name"]),
        "counters": _counters(profile, facts["name"], facts["short_name"]),
        "capture": _capture(profile, facts["name"], before["matching"]),
        "tune": _tune(facts["name"], around),
    }


def _launches_before(timeline: Timeline, row: int, told: dict[str, Any]) -> Generator[float, None, dict[str, int]]:
    """Launches that began before this one: of the same name, and of all names that ncu's expression finds."""
    needle = bare_name(told["name"])
    matching = np.array([needle in bare_name(name) for name in timeline.names], np.bool_)      # as ncu searches it
    same = np.zeros(matching.size, np.bool_)
    same[int(told["name_key"].rpartition(":")[2])] = True
    counts = {"same": 0, "matching": 0}
    for window in windows(timeline, Area(0, told["start_ns"] + 1), ("name_id", "category")):
        rows = window.counted_rows
        kernel = np.isin(rows["category"], [int(kind) for kind in KERNELS]) & ~rows["instant"]
        at_once = (rows["start_ns"] == told["start_ns"]) & (rows["slice"] < row)
        earlier = kernel & ((rows["start_ns"] < told["start_ns"]) | at_once)
        counts["same"] += int(np.count_nonzero(same[rows["name_id"][earlier]]))
        counts["matching"] += int(np.count_nonzero(matching[rows["name_id"][earlier]]))
        yield window.done
    return counts


def _counters(profile: Profile, name: str, short: str) -> list[dict[str, Any]]:
    """The same kernel in profiles with counters: those of the same build first, then the newest."""
    ready = KernelStat.objects.filter(
        profile__status=Profile.Status.READY, profile__kind=Profile.Kind.COUNTERS).select_related("profile")
    exact = list(ready.filter(short_name=short).order_by("-profile__created")[:50])
    if not exact:
        alike = family(name)
        exact = [stat for stat in ready.order_by("-profile__created")[:_CANDIDATES] if family(stat.name) == alike]
    ranked = sorted(exact, key=lambda each: not (profile.build and each.profile.build == profile.build))
    return [_numbers(profile, stat) for stat in ranked[:ELSEWHERE]]


def _numbers(profile: Profile, kernel: KernelStat) -> dict[str, Any]:
    whole = counters.combine_launches([counters.from_json(row.facts) for row in kernel.counter_launches.filter(incomplete="")])
    numbers: dict[str, Any] = {} if whole is None else {
        "Compute (SM) %": whole.sol.sm_pct, "Memory %": whole.sol.memory_pct, "DRAM %": whole.sol.dram_pct,
        "Occupancy achieved %": whole.occupancy.achieved_pct, "Occupancy theoretical %": whole.occupancy.theoretical_pct,
        "Waves": whole.occupancy.waves}
    return {
        "profile": kernel.profile_id, "profile_name": kernel.profile.name, "build": kernel.profile.build,
        "same_build": bool(profile.build) and kernel.profile.build == profile.build, "same_name": kernel.name,
        "url": reverse("kernel", args=[kernel.profile_id, kernel.pk]), "launches": kernel.launches, "mean_ns": kernel.mean_ns,
        "gpu": kernel.profile.gpu, "bound": kernel.bound, "bound_reason": kernel.bound_reason, "recorded": kernel.profile.recorded,
        "numbers": {name: value for name, value in numbers.items() if value is not None}}


def _capture(profile: Profile, name: str, skip: int) -> str:
    query: dict[str, str | int] = {"tool": "ncu", "kernel": re.escape(bare_name(name)), "launch_skip": skip, "launch_count": 1,
             "profile": profile.pk, "build": profile.build, "model": profile.model}
    return f"{reverse('capture-new')}?{urlencode({key: value for key, value in query.items() if value != ''})}"


def _tune(name: str, around: list[tuple[str, dict[str, Any]]]) -> dict[str, Any]:
    target = tunable(name, around)
    query: dict[str, str | int] = {"operator": target.operator, **target.shape, "dtype": target.dtype}
    if not is_problem(query):
        return {"operator": "", "url": None, "why": target.why}
    return {"operator": target.operator, "shape": target.shape, "dtype": target.dtype, "source": target.source, "why": target.why,
            "url": f"{reverse('tune-new')}?{urlencode(query)}"}


# The critical path of a stored trace, kept with its frame: the first question makes it.

MOST_SLICES = 6_000_000             # of larger traces the frame is not kept, so every window would make the path again


def critical_path(profile: Profile, key: str, start_ns: int, end_ns: int) -> dict[str, Any]:
    """Return the paths there are, and the segments of one in a window.

    Raises LookupError with a sentence.
    """
    slices = timeline(profile.pk).slices.rows
    if slices > MOST_SLICES:
        raise LookupError(f"The path is not drawn on traces of more than {MOST_SLICES:,} slices; this one has {slices:,}. Its "
                          f"topic page "
                          "lists what it consists of.")
    frame = frame_read(profile)
    by_key = {path.key: path for path in paths(frame)}
    if not by_key:
        raise LookupError("This trace does not say which call launched which GPU work: it has no critical path.")
    if key not in by_key:
        raise LookupError(f"There is no path {key}; there are {', '.join(list(by_key)[:20])}.")
    chosen = by_key[key]
    return {"paths": [_path_json(path) for path in by_key.values()], "path": _path_json(chosen),
            **path_segments(frame, chosen.path, start_ns, min(end_ns, chosen.path.end_ns + 1))}


def _path_json(path: NamedPath) -> dict[str, Any]:
    return {"key": path.key, "label": f"{path.label} · {path.rank}" if path.rank else path.label, "start_ns": path.path.start_ns,
            "end_ns": path.path.end_ns}
