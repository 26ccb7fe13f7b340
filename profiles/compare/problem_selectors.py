"""What problem each launch of a trace worked on, for a comparison: the framework operator around it and its input shapes."""

from __future__ import annotations

import zlib

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from django.core.cache import cache

from profiles.analysis.core.shapes import launches_of
from profiles.models import Profile
from profiles.store.frame import frame_read
from profiles.store.timeline import timeline

KEPT_S = 24 * 3600
MOST_SLICES = 5_000_000         # of a larger trace launches are told apart by grid and block alone
MOST_TEXTS = 4_000              # distinct problems of a trace that are kept


def problems(profile: Profile, index: npt.NDArray[np.int64]) -> pa.Array:
    """Return "aten::mm 4096×4096, 4096×1024" for the launches at `index` (among the profile's kernels, by start) as a text
    column, "" where the trace does not state input shapes."""
    key = f"problems-1:{profile.pk}:{profile.attempts}:{profile.sha256}"
    packed = cache.get_or_set(key, lambda: _pack_problems(profile), KEPT_S)
    if not packed:
        return pa.DictionaryArray.from_arrays(np.zeros(len(index), np.int32), [""]).cast(pa.string())
    bits, texts = packed
    codes = np.frombuffer(zlib.decompress(bits), np.int32)
    mine = np.where(index < codes.size, codes[np.minimum(index, codes.size - 1)], 0)
    return pa.DictionaryArray.from_arrays(pa.array(mine, pa.int32()), pa.array(texts, pa.string())).cast(pa.string())


def _pack_problems(profile: Profile) -> tuple[bytes, list[str]] | tuple[()]:
    if profile.kind != Profile.Kind.TRACE:
        return ()
    try:
        if timeline(profile.pk).slices.rows > MOST_SLICES:
            return ()
        every = launches_of(frame_read(profile))
    except FileNotFoundError:
        return ()
    texts = [f"{each.operator} {each.dims}" if each.dims else "" for each in every.problems]
    if not any(texts) or len(set(texts)) > MOST_TEXTS:
        return ()
    numbers = {text: number for number, text in enumerate(dict.fromkeys(["", *texts]))}
    codes = np.array([numbers[text] for text in texts], np.int32)[every.problem]
    return zlib.compress(codes.tobytes(), 1), list(numbers)
