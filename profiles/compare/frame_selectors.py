"""Frames of traces that a page may read, and what is made of them, kept until the profile is read again."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar, cast

import numpy as np
import pyarrow as pa
from django.core.cache import cache

from profiles.analysis.core.frame import Frame
from profiles.analysis.core.shapes import launches_of
from profiles.analysis.trace.time.steps import Steps, StepVerdict, judge_steps, kernel_steps, steps_of
from profiles.analysis.trace.time.tiling import devices
from profiles.ingest.arrays import Bools, Ints
from profiles.models import Profile
from profiles.store.frame import frame_read
from profiles.store.timeline import timeline

Packed = TypeVar("Packed")
KEPT_S = 24 * 3600
MOST_SLICES = 5_000_000         # of a larger trace nothing is made here: reading it takes longer than a page may


def page_frame(profile: Profile) -> Frame | None:
    """Return the frame of a trace; None where the profile has no timeline, or one of more than MOST_SLICES."""
    return frame_read(profile) if 0 < slices(profile) <= MOST_SLICES else None


def slices(profile: Profile) -> int:
    """Return how many slices a trace has; 0 where the profile has no timeline."""
    try:
        return timeline(profile.pk).slices.rows
    except FileNotFoundError:
        return 0


def kept(name: str, profile: Profile, pack: Callable[[], Packed]) -> Packed:
    """Return what `pack` made of a profile. `name` has a version, to be raised where the same profile is packed another way."""
    packed = cache.get_or_set(f"{name}:{profile.pk}:{profile.attempts}:{profile.sha256}", pack, KEPT_S)
    return cast("Packed", packed)


# Steps that count and their launches: warm-up and compilation are in no comparison per step.


@dataclass(frozen=True)
class Steady:
    """`launches[i]`: the i-th kernel of the profile, by start, was launched in a step that counts, where its call is not known
    began in one. `steps` of them count (a step of several ranks once), `left_out` do not."""

    launches: Bools
    steps: int
    left_out: int


def steady(profile: Profile) -> Steady | None:
    """Return which launches belong to steps that count, or None.

    None where the trace marks no steps, or is too large to look.
    """
    packed = kept("steady-2", profile, lambda: _pack_steps(profile))
    if not packed:
        return None
    bits, size, steps, left_out = packed
    return Steady(np.unpackbits(np.frombuffer(bits, np.uint8), count=size).astype(np.bool_), steps, left_out)


def steps_with_verdicts(profile: Profile) -> tuple[Frame, Steps, list[StepVerdict]] | None:
    """Return the frame of a trace, its steps and whether each counts; None where a page cannot read it."""
    frame = page_frame(profile)
    if frame is None:
        return None
    works = devices(frame)
    steps = steps_of(frame, works)
    return frame, steps, judge_steps(frame, steps.spans, works)


def _pack_steps(profile: Profile) -> tuple[bytes, int, int, int] | tuple[()]:
    judgement = steps_with_verdicts(profile) if profile.steps else None
    if judgement is None:
        return ()
    frame, steps, verdicts = judgement
    if steps.source != "marked":
        return ()
    kernels = kernel_steps(frame, steps)
    has_call = frame.call[frame.kernels] >= 0
    step = np.where(has_call, kernels.ran if kernels.launched is None else kernels.launched, kernels.ran)
    counts = np.array([verdict.counts for verdict in verdicts] + [False], np.bool_)
    inside = counts[step]
    names = {span.name for span, verdict in zip(steps.spans, verdicts, strict=True) if verdict.counts}
    others = {span.name for span in steps.spans} - names
    return np.packbits(inside).tobytes(), inside.size, len(names), len(others)


MOST_TEXTS = 4_000              # distinct problems of a trace that are kept


def problems(profile: Profile, index: Ints) -> pa.Array:
    """Return "aten::mm 4096×4096, 4096×1024" for the launches at `index` (among the profile's kernels, by start) as a text
    column, "" where the trace does not state input shapes."""
    packed = kept("problems-1", profile, lambda: _pack_problems(profile))
    if not packed:
        return pa.DictionaryArray.from_arrays(np.zeros(len(index), np.int32), [""]).cast(pa.string())
    bits, texts = packed
    codes = np.frombuffer(zlib.decompress(bits), np.int32)
    mine = np.where(index < codes.size, codes[np.minimum(index, codes.size - 1)], 0)
    return pa.DictionaryArray.from_arrays(pa.array(mine, pa.int32()), pa.array(texts, pa.string())).cast(pa.string())


def _pack_problems(profile: Profile) -> tuple[bytes, list[str]] | tuple[()]:
    frame = page_frame(profile) if profile.kind == Profile.Kind.TRACE else None
    if frame is None:
        return ()
    every = launches_of(frame)
    texts = [f"{problem.operator} {problem.dims}" if problem.dims else "" for problem in every.problems]
    if not any(texts) or len(set(texts)) > MOST_TEXTS:
        return ()
    numbers = {text: number for number, text in enumerate(dict.fromkeys(["", *texts]))}
    codes = np.array([numbers[text] for text in texts], np.int32)[every.problem]
    return zlib.compress(codes.tobytes(), 1), list(numbers)
