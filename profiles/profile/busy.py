"""How busy the GPUs of a stored trace are along its length, for the strip on its page."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from profiles.analysis.core.tiles import BusyLane, busy_lane
from profiles.models import Profile
from profiles.store.density import density
from profiles.store.timeline import timeline

COLUMNS = 480
MOST_GPUS = 8


@dataclass(frozen=True)
class BusyLanes:
    """Lanes of the first GPUs, from the trace's first record to `end_ns`; `key` names the stored trace."""

    key: str
    end_ns: int
    lanes: list[BusyLane]
    more: int                   # GPUs that have no lane


def busy_lanes(profile: Profile) -> BusyLanes | None:
    """Return None where no timeline is stored, or none with GPU work."""
    try:
        return _lanes(profile.pk, timeline(profile.pk).etag)
    except FileNotFoundError:
        return None


@lru_cache(maxsize=256)
def _lanes(profile_id: int, key: str) -> BusyLanes | None:
    stored = timeline(profile_id)
    groups: dict[str, list[int]] = {}
    for number, track in enumerate(stored.tracks):
        if track["kind"] == "stream":
            groups.setdefault(track["group"], []).append(number)
    if not groups:
        return None
    grid, end_ns = density(stored), int(stored.document["last_ns"])
    bins = max(1, min(-(-end_ns // grid.bin_ns), grid.share.shape[1]))
    lanes = [busy_lane(label, grid.share[np.array(tracks), :bins], grid.category[np.array(tracks), :bins], COLUMNS)
             for label, tracks in list(groups.items())[:MOST_GPUS]]
    return BusyLanes(key, bins * grid.bin_ns, lanes, max(0, len(groups) - MOST_GPUS))
