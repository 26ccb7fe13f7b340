"""The quota of a project, asked before a file is stored."""

from __future__ import annotations

from typing import Any

from django.db.models import QuerySet, Sum

from profiles.models import Keeping, Profile, StoredUpload
from workers import disk
from workers.scope import current


class QuotaReached(disk.NoRoom):
    """The project stores as much as it may; answered as a full disk is, with 507."""

    def __init__(self, used_bytes: int, more_bytes: int, quota_bytes: int) -> None:
        OSError.__init__(self)
        self.what = (f"the project's quota of {disk.size(quota_bytes)} is reached: {disk.size(used_bytes)} are stored, "
                     f"{disk.size(more_bytes)} more are asked for")
        self.hint = "delete profiles that nobody needs, or let an owner raise the quota (Settings, Storage)"

    def __str__(self) -> str:
        return f"{self.what}: {self.hint}"


def used_bytes() -> int:
    """Return what the files of the current project's profiles take."""
    return profiles_bytes(Profile.objects.all())


def profiles_bytes(rows: QuerySet[Profile]) -> int:
    """Return what the files of these profiles take: columns, tiles and uploads, those of the same bytes once."""
    return _bytes(rows, StoredUpload.objects.filter(profiles__in=_ids(rows)))


def freed_bytes(rows: QuerySet[Profile]) -> int:
    """Return what the store gains when these profiles go: uploads that other profiles use too, of any project, stay."""
    uses = StoredUpload.profiles.through._default_manager
    others = uses.exclude(profile__in=_ids(rows)).values("storedupload")
    return _bytes(rows, StoredUpload.objects.filter(profiles__in=_ids(rows)).exclude(pk__in=others))


def _ids(rows: QuerySet[Profile]) -> QuerySet[Profile, Any]:
    return rows.order_by().values("pk")


def _bytes(rows: QuerySet[Profile], uploads: QuerySet[StoredUpload]) -> int:
    """Add up what belongs to one profile alone, and each of the uploads once."""
    rows = rows.order_by()
    return sum(int(total["sum"] or 0) for total in (
        rows.aggregate(sum=Sum("stored_bytes")),
        rows.filter(stored_uploads=None).aggregate(sum=Sum("upload_bytes")),         # stored before uploads were shared
        StoredUpload.objects.filter(pk__in=uploads.values("pk")).aggregate(sum=Sum("bytes"))))


def require_quota(more_bytes: int = 1) -> None:
    """Raise QuotaReached where `more_bytes` do not fit; without a quota one small row is asked, no sum."""
    quota = Keeping._base_manager.filter(project=current().project).values_list("quota_bytes", flat=True).first()
    if quota is not None and (used := used_bytes()) + more_bytes > quota:
        raise QuotaReached(used, more_bytes, quota)
