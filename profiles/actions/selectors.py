"""From a kernel to a form that is filled in: what to tune, and which launch to capture. Made when the form is asked for."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np
from django.urls import reverse
from django.utils.http import urlencode

from profiles.analysis.core.frame import Frame
from profiles.analysis.core.identity import identity
from profiles.analysis.core.kernels import operators_around, representative_launch
from profiles.analysis.core.sentences import plural, time_text
from profiles.analysis.core.tunable import TYPES, is_problem, tunable
from profiles.capture.selectors import bare_name
from profiles.models import KernelStat, Profile
from profiles.store.frame import frame_read
from profiles.store.objects import launches_read


@dataclass(frozen=True)
class Action:
    """`url` of the form with its fields in the query string, "" where none can be filled in; `said`: where they come from.

    `why`: what is missing in the fields, "" where all are there.
    """

    url: str
    said: str
    fields: dict[str, Any]
    why: str = ""


def tune(kernel: KernelStat) -> Action:
    """Operator by the kernel's name; shape and type of the launches that own most of its time, where they are known.

    No form where no operator is.
    """
    frame = _frame(kernel.profile)
    around, launches, ns = operators_around(frame, kernel.name) if frame is not None else ([], 0, 0)
    candidate = tunable(kernel.name, around)
    fields = {"operator": candidate.operator, **candidate.shape, "dtype": candidate.dtype}
    if candidate.operator and not is_problem(fields):
        return _operator_alone(kernel, candidate.operator, candidate.why)
    if not is_problem(fields):
        return Action("", candidate.why, {}, candidate.why)
    note = (f"Filled in for {kernel.short_name} of {kernel.profile.name}: the shape of {candidate.source}, "
            f"{plural(launches, 'launch')}, {time_text(ns)} of its {time_text(kernel.total_ns or 0)}.")
    return Action(_url("tune-new", fields), note, fields)


def _operator_alone(kernel: KernelStat, operator: str, why: str) -> Action:
    """Return the form with the operator chosen, and the type where the kernel's name tells it."""
    if kernel.profile.kind != Profile.Kind.TRACE:
        why = "A report holds no input shapes: a trace with record_shapes=True has them."
    dtype = identity(kernel.name).dtype
    fields = {"operator": operator, "dtype": dtype if dtype in TYPES[operator] else ""}
    note = f"{operator} is chosen for {kernel.short_name} of {kernel.profile.name}. {why} The shape below is a preset: enter yours."
    return Action(_url("tune-new", fields), note, {name: value for name, value in fields.items() if value}, why)


def capture(kernel: KernelStat) -> Action:
    """Return the fields of a capture of counters of one launch.

    Expression of its name, how many that match come before it, and the program if it is known.
    """
    profile, bare_kernel = kernel.profile, bare_name(kernel.name)
    fields: dict[str, Any] = {"tool": "ncu", "kernel": re.escape(bare_kernel), "launch_count": 1, "profile": profile.pk,
                              "build": profile.build, "model": profile.model}
    if profile.kind == Profile.Kind.COUNTERS:           # the new counters open beside these
        fields["baseline"] = profile.pk
    frame = _frame(profile)
    note = f"Filled in for {kernel.short_name} of {profile.name}"
    if frame is not None:
        matches = {code for code, name in enumerate(frame.names) if bare_kernel in bare_name(name)}
        launch = representative_launch(frame, kernel.name, matches)
        skip, among = (launch.skip, launch.matching) if launch else (0, 0)
        dur_ns = float(frame["dur_ns"][launch.row]) if launch else None
    else:
        skip, among, dur_ns = _of_report(profile, kernel.name, bare_kernel)
    fields["launch_skip"] = skip
    if dur_ns is not None:
        note += (f": launch {skip} of {plural(among, 'launch')} that match its name, counted from 0 where the profile begins. "
                 f"It takes {time_text(dur_ns)}, the median of the kernel's")
    return Action(_url("capture-new", fields), f"{note}. Launches that the program made before the profile began are not counted.",
                  fields)


def counters(profile: Profile) -> Action:
    """Return the fields of a capture of counters of the kernel that took longest, a collective apart.

    A replayed collective waits for the other ranks for ever. No form where there is no kernel.
    """
    kernel = profile.kernels.exclude(category="communication").filter(total_ns__gt=0).select_related("profile").first()
    return capture(kernel) if kernel is not None else Action("", f"{profile.name} has no kernel of its own to count.", {})


def _of_report(profile: Profile, name: str, wanted: str) -> tuple[int, int, float | None]:
    """(launches before it that match, launches that match, duration in ns) of the median launch, where there is no timeline."""
    table = launches_read(profile.pk)
    names = table["name"].combine_chunks()
    if not table.num_rows or name not in names.dictionary.to_pylist():
        return 0, 0, None
    texts = names.dictionary.to_pylist()
    code, index, dur_ns = names.indices.to_numpy(), table["index"].to_numpy(), table["dur_ns"].to_numpy()
    mine = np.flatnonzero(code == texts.index(name))
    chosen = mine[np.argsort(dur_ns[mine], kind="stable")[(mine.size - 1) // 2]]
    matching = np.isin(code, [number for number, text in enumerate(texts) if wanted in bare_name(text)])
    return int(np.count_nonzero(matching & (index < index[chosen]))), int(matching.sum()), float(dur_ns[chosen])


def _frame(profile: Profile) -> Frame | None:
    """None where the profile has no timeline."""
    if profile.kind != Profile.Kind.TRACE:
        return None
    try:
        return frame_read(profile)
    except FileNotFoundError:
        return None


def _url(name: str, fields: dict[str, Any]) -> str:
    return f"{reverse(name)}?{urlencode({key: value for key, value in fields.items() if value != ''})}"
