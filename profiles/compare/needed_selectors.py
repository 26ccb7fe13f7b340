"""What two traces' steps needed, did besides and went to, as their stored analyses say it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from profiles.analysis.compare.step import StepChange, step_change
from profiles.analysis.trace.account.result import VERSION as CAUSES_VERSION
from profiles.analysis.trace.needed.topic import VERSION as NEEDED_VERSION
from profiles.models import Profile
from profiles.store.documents import topic_read
from profiles.store.timeline import timeline

_NOTHING: Mapping[str, Any] = {"gpus": [], "kinds": []}     # of a trace that holds no GPU work


def step_of_profiles(old: Sequence[Profile], new: Sequence[Profile]) -> StepChange | None:
    """Return how the step changed, None where one side has no steps or what it needs is not stored yet."""
    needs = [[numbers for profile in side if (numbers := _numbers(profile, "needed", NEEDED_VERSION)) is not None]
             for side in (old, new)]
    if [len(side) for side in needs] != [len(old), len(new)]:
        return None
    causes = [[_numbers(profile, "causes", CAUSES_VERSION) or _NOTHING for profile in side] for side in (old, new)]
    return step_change(needs[0], needs[1], causes[0], causes[1])


def without_needs(profiles: Sequence[Profile]) -> list[Profile]:
    """Return the traces of which this version has not stored what they need; their pages make it."""
    return [profile for profile in profiles
            if profile.kind == Profile.Kind.TRACE and _numbers(profile, "needed", NEEDED_VERSION) is None]


def _numbers(profile: Profile, topic: str, version: int) -> Mapping[str, Any] | None:
    """The numbers of a profile's analysis as it is stored; None where it is not."""
    try:
        document = topic_read(profile.pk, topic, version, int(timeline(profile.pk).document["written"]))
    except FileNotFoundError:
        return _NOTHING
    if document is None:
        return None
    return document["numbers"] if document["applies"] else _NOTHING
