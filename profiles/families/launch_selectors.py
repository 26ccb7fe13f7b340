"""Every launch of one shape of one kernel in one profile: the last step of the way from a family to a place on the timeline."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from django.urls import reverse

from profiles.analysis.core.frame import Frame
from profiles.analysis.core.sentences import plural, time_text
from profiles.analysis.core.shapes import Launches, Problem, launches_of
from profiles.analysis.kernel.work import tensor_flop
from profiles.ingest.arrays import stable_order
from profiles.models import KernelShape, LaunchCounters, Profile
from profiles.store.frame import frame_read

SHOWN = 2_000                   # launches on a page, the longest; the timeline holds them all
AROUND = 20                     # the window of the timeline is this many times as long as the launch


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
    launches = _trace_launches(shape) if profile.kind == Profile.Kind.TRACE else _counter_launches(shape)
    return {"shape": shape, "kernel": shape.kernel, "profile": profile, "family": shape.kernel.family, "launches": launches[:SHOWN],
            "total": len(launches), "answer": _answer(shape, launches), "elsewhere": _elsewhere(shape)}


def _trace_launches(shape: KernelShape) -> list[Launch]:
    try:
        frame = frame_read(shape.kernel.profile)
    except FileNotFoundError:
        return []
    every = launches_of(frame)
    numbers = np.flatnonzero(_matching(every, frame, shape))
    rows = every.rows[numbers]
    order = stable_order(-frame["dur_ns"][rows])
    address = reverse("timeline", args=[shape.kernel.profile_id])
    out = []
    for number, row in zip(numbers[order].tolist(), rows[order].tolist(), strict=True):
        start, dur = int(frame["start_ns"][row]), int(frame["dur_ns"][row])
        track = frame.tracks[int(frame["track"][row])]
        out.append(Launch(number, dur, f"{address}?s={int(frame['id'][row])}&w={_window(start, dur)}", start,
                          f"{track.group} · {track.name}"))
    return out


def _matching(every: Launches, frame: Frame, shape: KernelShape) -> Any:
    """Launches of a shape; of the row of all further shapes, those that no other row of the kernel has."""
    mask = np.zeros(every.rows.size, np.bool_)
    own = [shape] if shape.shapes == 1 else list(KernelShape.objects.filter(kernel=shape.kernel, shapes=1))
    for code in (code for code, name in enumerate(frame.names) if name == shape.kernel.name):
        mine = np.zeros(every.rows.size, np.bool_)
        for variant in own:
            mine |= every.of(code, variant.grid, variant.block, Problem(variant.operator, variant.dims, variant.dtype))
        mask |= mine if shape.shapes == 1 else (every.names == code) & ~mine
    return mask


def _window(start: int, dur: int) -> str:
    margin = max(dur, 1_000) * AROUND // 2
    return f"{max(0, start - margin)}-{start + dur + margin}"


def _counter_launches(shape: KernelShape) -> list[Launch]:
    rows = LaunchCounters.objects.filter(kernel=shape.kernel, incomplete="", duration_ns__gt=0).order_by("-duration_ns", "index")
    address = reverse("kernel", args=[shape.kernel.profile_id, shape.kernel_id])
    return [Launch(row.index, row.duration_ns or 0.0, f"{address}?launch={row.index}",
                   roof_pct=(row.facts.get("point") or {}).get("roof_pct")) for row in rows if _of_shape(row.facts, shape)]


def _of_shape(facts: dict[str, Any], shape: KernelShape) -> bool:
    counted = tensor_flop((facts.get("point") or {}).get("by_precision") or {})
    if shape.flop is not None and not abs(counted - shape.flop) <= 0.5:
        return False
    return all(text == "×".join(map(str, facts.get(name) or ())) for name, text in (("grid", shape.grid), ("block", shape.block)))


def _answer(shape: KernelShape, launches: Sequence[Launch]) -> str:
    if not launches:
        return "The launches are not stored any more"
    durations = np.array([launch.dur_ns for launch in launches])
    low, middle, high = (time_text(float(value)) for value in (durations.min(), np.median(durations), durations.max()))
    spread = f"{low} to {high}, {middle} at the median"
    sized = f"grid {shape.grid or 'unknown'} and block {shape.block or 'unknown'}"
    text = f"{plural(len(launches), 'launch')} with {f'{shape.shapes} further shapes' if shape.shapes > 1 else sized}: {spread}"
    longest = launches[0]
    if longest.start_ns is None:
        return text
    return f"{text}; the longest begins {time_text(longest.start_ns)} into the trace on {longest.track}"


def _elsewhere(shape: KernelShape) -> list[KernelShape]:
    """The same grid, block and problem of the family in other profiles, newest first."""
    rows = KernelShape.objects.filter(kernel__family=shape.kernel.family, grid=shape.grid, block=shape.block, dims=shape.dims,
                                       operator=shape.operator, shapes=1).exclude(pk=shape.pk).exclude(grid="", dims="")
    return list(rows.select_related("kernel__profile").order_by("-kernel__profile__created", "-total_ns")[:12])


def launch_json(launch: Launch) -> dict[str, Any]:
    return vars(launch)
