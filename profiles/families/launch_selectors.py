"""Every launch of one shape of one kernel in one profile: the last step of the way from a family to a place on the timeline."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from django.urls import reverse

from profiles.analysis.sentences import plural, time_text
from profiles.models import KernelShape, LaunchCounters, Profile
from profiles.store.frame import frame_read

SHOWN = 2_000                   # launches on a page, the longest; the timeline holds them all
AROUND = 20                     # the window of the timeline is this many times as long as the launch
_GEOMETRY = ("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z")


@dataclass(frozen=True)
class Launch:
    """One launch. `start_ns` since the start of the trace; None in a counter report, which holds no time line."""

    number: int                 # among the kernels of its profile, by start; of a report its index
    dur_ns: float
    url: str
    start_ns: int | None = None
    track: str = ""
    roof_pct: float | None = None


def shape_page(shape: KernelShape) -> dict[str, Any]:
    """The launches, longest first, and where else the same shape ran."""
    profile = shape.kernel.profile
    launches = _traced(shape) if profile.kind == Profile.Kind.TRACE else _counted(shape)
    return {"shape": shape, "kernel": shape.kernel, "profile": profile, "family": shape.kernel.family, "launches": launches[:SHOWN],
            "total": len(launches), "answer": _answer(shape, launches), "elsewhere": _elsewhere(shape)}


def _traced(shape: KernelShape) -> list[Launch]:
    try:
        frame = frame_read(shape.kernel.profile)
    except FileNotFoundError:
        return []
    wanted = [code for code, name in enumerate(frame.names) if name == shape.kernel.name]
    rows = frame.kernels
    numbers = np.flatnonzero(np.isin(frame["name"][rows], wanted) & _same_geometry(frame, rows, shape))
    order = numbers[np.argsort(-frame["dur_ns"][rows[numbers]], kind="stable")]
    address = reverse("timeline", args=[shape.kernel.profile_id])
    out = []
    for number, row in zip(order.tolist(), rows[order].tolist(), strict=True):
        start, dur = int(frame["start_ns"][row]), int(frame["dur_ns"][row])
        track = frame.tracks[int(frame["track"][row])]
        out.append(Launch(number, dur, f"{address}?s={int(frame['id'][row])}&w={_window(start, dur)}", start,
                          f"{track.group} · {track.name}"))
    return out


def _same_geometry(frame: Any, rows: Any, shape: KernelShape) -> Any:
    """Launches of its grid and block; of the row of all further shapes, those that have no row of their own."""
    if shape.shapes == 1:
        return _matches(frame, rows, shape)
    own = np.zeros(rows.size, np.bool_)
    for other in KernelShape.objects.filter(kernel=shape.kernel, shapes=1):
        own |= _matches(frame, rows, other)
    return ~own


def _matches(frame: Any, rows: Any, shape: KernelShape) -> Any:
    mask = np.ones(rows.size, np.bool_)
    for names, text in ((_GEOMETRY[:3], shape.grid), (_GEOMETRY[3:], shape.block)):
        values = [int(part) for part in text.split("×")] if text else []
        known = np.ones(rows.size, np.bool_)
        for at, name in enumerate(names):
            column = frame[name][rows]
            known &= column > 0
            if values:
                mask &= column == values[at]
        if not values:
            mask &= ~known
    return mask


def _window(start: int, dur: int) -> str:
    margin = max(dur, 1_000) * AROUND // 2
    return f"{max(0, start - margin)}-{start + dur + margin}"


def _counted(shape: KernelShape) -> list[Launch]:
    rows = LaunchCounters.objects.filter(kernel=shape.kernel, incomplete="", duration_ns__gt=0).order_by("-duration_ns", "index")
    address = reverse("kernel", args=[shape.kernel.profile_id, shape.kernel_id])
    return [Launch(row.index, row.duration_ns or 0.0, f"{address}?launch={row.index}",
                   roof_pct=(row.facts.get("point") or {}).get("roof_pct")) for row in rows if _of_shape(row.facts, shape)]


def _of_shape(facts: dict[str, Any], shape: KernelShape) -> bool:
    return all(text == "×".join(map(str, facts.get(name) or ())) for name, text in (("grid", shape.grid), ("block", shape.block)))


def _answer(shape: KernelShape, launches: Sequence[Launch]) -> str:
    if not launches:
        return "The launches are not stored any more"
    durations = np.array([each.dur_ns for each in launches])
    low, middle, high = (time_text(float(value)) for value in (durations.min(), np.median(durations), durations.max()))
    spread = f"{low} to {high}, {middle} at the median"
    sized = f"grid {shape.grid or 'unknown'} and block {shape.block or 'unknown'}"
    text = f"{plural(len(launches), 'launch')} with {f'{shape.shapes} further shapes' if shape.shapes > 1 else sized}: {spread}"
    longest = launches[0]
    if longest.start_ns is None:
        return text
    return f"{text}; the longest begins {time_text(longest.start_ns)} into the trace on {longest.track}"


def _elsewhere(shape: KernelShape) -> list[KernelShape]:
    """The same grid and block of the family in other profiles, newest first."""
    found = KernelShape.objects.filter(kernel__family=shape.kernel.family, grid=shape.grid, block=shape.block, shapes=1).exclude(
        pk=shape.pk).exclude(grid="")
    return list(found.select_related("kernel__profile").order_by("-kernel__profile__created", "-total_ns")[:12])


def launch_json(launch: Launch) -> dict[str, Any]:
    return vars(launch)
