"""Profiles that an earlier version read: which they are, and reading their uploads again."""

from __future__ import annotations

from django.db import transaction
from django.db.models import Q, QuerySet

from profiles.models import Profile, ingest_queue
from profiles.store import trace as store
from workers import jobs


def outdated_profiles() -> QuerySet[Profile]:
    """Return the ready traces of the current project that an earlier version read, oldest first."""
    ready = Profile.objects.filter(status=Profile.Status.READY, kind=Profile.Kind.TRACE)
    return ready.filter(Q(summary__reading__isnull=True) | Q(summary__reading__lt=store.READING)).order_by("pk")


def profile_reread(profile: Profile) -> str:
    """Let a ready or failed profile wait for a worker, which reads its upload anew; return "" or why it stays as it is.

    Until then its page says that it waits. Its id, notes, threads and place stay; kernels, findings and tables are made anew.
    """
    keys = [each["key"] for each in profile.metadata.get("files", [])] or [profile.upload_key]
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
