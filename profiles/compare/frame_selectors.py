"""Frames of traces that a page may read, and what is made of them, kept until the profile is read again."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, cast

from django.core.cache import cache

from profiles.analysis.core.frame import Frame
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
