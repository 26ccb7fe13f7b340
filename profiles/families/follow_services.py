"""What follows an ingest: the shapes of its kernels, and what its build changed."""

from __future__ import annotations

import logging

from profiles.families.assign_services import assign_missing
from profiles.families.build_services import pairs_refresh
from profiles.families.shape_services import shapes_make
from profiles.models import Profile

log = logging.getLogger(__name__)


def families_follow(profile_id: int) -> None:
    """The profile is ready and shows: an error here is logged and the rows stay away until `manage.py families` makes them."""
    profile = Profile.objects.filter(pk=profile_id, status=Profile.Status.READY).first()
    try:
        if profile is not None:
            shapes_make(profile)
        pairs_refresh()
    except Exception:
        log.exception("profile %s: the shapes of its kernels failed", profile_id)


def families_catch_up(everything: bool = False) -> dict[str, int]:
    """Whatever profiles of an earlier version lack; with `everything` all of it anew."""
    kernels = assign_missing(everything)
    lacking = Profile.objects.filter(status=Profile.Status.READY, kernels__isnull=False).exclude(kind=Profile.Kind.SUMMARY)
    if not everything:
        lacking = lacking.exclude(kernels__shapes__isnull=False)
    made = 0
    for profile in lacking.distinct().order_by("pk"):
        try:
            made += bool(shapes_make(profile))
        except Exception:
            log.exception("profile %s: the shapes of its kernels failed", profile.pk)
    return {"kernels": kernels, "profiles": made, "pairs": pairs_refresh()}
