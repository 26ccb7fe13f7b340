"""What follows on a ready profile (families, topics, advice, its build): which profiles wait for it and have nobody who does it.

`follow_due` is set with `ready` and emptied once all is done. Who works at it puts it off again and again; a worker that is killed
does so no longer, and the sweep wakes another one.
"""

from __future__ import annotations

from collections.abc import Collection

from django.db.models import F, Q
from django.db.models.functions import Now

from profiles.models import Profile, ingest_queue
from profiles.upload.services import FOLLOWS_WITHIN, MAX_ATTEMPTS
from workers import jobs
from workers.leases import AHEAD_AT_MOST

TASK = "follow"
PUT_OFF = FOLLOWS_WITHIN                # longer than anything between two stages, which puts nothing off
MOST_ATTEMPTS = 2 * MAX_ATTEMPTS        # those of reading included: then a page that is opened makes what it shows


def follow_put_off(profile_id: int) -> None:
    """Say that somebody works at what follows on a profile."""
    Profile.objects.filter(pk=profile_id, follow_due__isnull=False).update(follow_due=Now() + PUT_OFF)


def follow_end(profile_id: int) -> None:
    """Say that all that follows on a profile is done."""
    Profile.objects.filter(pk=profile_id, follow_due__isnull=False).update(follow_due=None)


def wake_follows(waiting: Collection[int]) -> list[int]:
    """Wake a worker for each ready profile at which nobody works, but those that have an entry; return their ids.

    What is due further ahead than anybody puts it off was written before the clock was set back.
    """
    left = Q(follow_due__lte=Now()) | Q(follow_due__gt=Now() + PUT_OFF + AHEAD_AT_MOST)
    woken = list(Profile.objects.filter(left, status=Profile.Status.READY, attempts__lt=MOST_ATTEMPTS).exclude(pk__in=waiting))
    for profile in woken:
        Profile.objects.filter(pk=profile.pk).update(attempts=F("attempts") + 1)
        jobs.enqueue(ingest_queue(profile), TASK, profile.pk)
    return [profile.pk for profile in woken]
