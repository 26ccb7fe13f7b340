"""Profiles that something is still to be done for.

What follows on a ready one (families, topics, advice, its build) and nobody does; reading again what an earlier version read.
"""

from __future__ import annotations

from collections.abc import Collection

from django.db import transaction
from django.db.models import F, Q, QuerySet
from django.db.models.functions import Now

from profiles.models import Profile, ingest_queue
from profiles.store import trace as store
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


def outdated_profiles() -> QuerySet[Profile]:
    """Return the ready traces of the current project that an earlier version read, oldest first."""
    ready = Profile.objects.filter(status=Profile.Status.READY, kind=Profile.Kind.TRACE)
    return ready.filter(Q(summary__reading__isnull=True) | Q(summary__reading__lt=store.READING)).order_by("pk")


def profile_reread(profile: Profile) -> str:
    """Let a ready or failed profile wait for a worker, which reads its upload anew; return "" or why it stays as it is.

    Until then its page says that it waits. Its id, notes, threads and place stay; kernels, findings and tables are made anew.
    """
    keys = [entry["key"] for entry in profile.metadata.get("files", [])] or [profile.upload_key]
    try:
        for key in keys:
            store.local_path(key)
    except FileNotFoundError:
        return "its upload is not stored any more"
    with transaction.atomic():
        waits = Profile.objects.filter(pk=profile.pk, status__in=(Profile.Status.READY, Profile.Status.FAILED)).update(
            status=Profile.Status.UPLOADED, error=None, worker="", heartbeat=None, attempts=0)
        if not waits:
            return "it is being read"
        profile.attempts = 0
        jobs.enqueue_on_commit(ingest_queue(profile), "ingest", profile.pk)
    return ""
