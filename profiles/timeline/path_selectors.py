"""The critical path of a stored trace, kept with its frame: the first question makes it."""

from __future__ import annotations

from typing import Any

from profiles.analysis.trace.critical.topic import NamedPath, paths
from profiles.analysis.trace.critical.walk import path_segments
from profiles.models import Profile
from profiles.store.frame import frame_read
from profiles.store.timeline import timeline

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
    by_key = {each.key: each for each in paths(frame)}
    if not by_key:
        raise LookupError("This trace does not say which call launched which GPU work: it has no critical path.")
    if key not in by_key:
        raise LookupError(f"There is no path {key}; there are {', '.join(list(by_key)[:20])}.")
    chosen = by_key[key]
    return {"paths": [_path_json(each) for each in by_key.values()], "path": _path_json(chosen),
            **path_segments(frame, chosen.path, start_ns, min(end_ns, chosen.path.end_ns + 1))}


def _path_json(each: NamedPath) -> dict[str, Any]:
    return {"key": each.key, "label": f"{each.label} · {each.rank}" if each.rank else each.label, "start_ns": each.path.start_ns,
            "end_ns": each.path.end_ns}
