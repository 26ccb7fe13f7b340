"""What problem each launch of a trace worked on, for a comparison: the framework operator around it and its input shapes."""

from __future__ import annotations

import zlib

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from profiles.analysis.core.shapes import launches_of
from profiles.compare.frame_selectors import kept, page_frame
from profiles.models import Profile

MOST_TEXTS = 4_000              # distinct problems of a trace that are kept


def problems(profile: Profile, index: npt.NDArray[np.int64]) -> pa.Array:
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
    texts = [f"{each.operator} {each.dims}" if each.dims else "" for each in every.problems]
    if not any(texts) or len(set(texts)) > MOST_TEXTS:
        return ()
    numbers = {text: number for number, text in enumerate(dict.fromkeys(["", *texts]))}
    codes = np.array([numbers[text] for text in texts], np.int32)[every.problem]
    return zlib.compress(codes.tobytes(), 1), list(numbers)
