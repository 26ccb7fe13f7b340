"""Links: made, found, ended."""

from __future__ import annotations

import hashlib
import secrets
from datetime import timedelta
from typing import Any

from django.db.models import F
from django.utils import timezone

from profiles.base.refused import Refused
from profiles.models import Profile
from webapp.models import ShareLink

PREFIX = "share_"
MOST_DAYS, MOST_LINKS = 365, 50


def share(profile: Profile, by: Any, days: int) -> tuple[ShareLink, str]:
    """Make a link; return it and its secret, which is stored nowhere. Raises Refused."""
    if not 1 <= days <= MOST_DAYS:
        raise Refused({"days": f"1 to {MOST_DAYS} days"})
    if links(profile).count() >= MOST_LINKS:
        raise Refused({"days": f"a profile has at most {MOST_LINKS} links: end one first"})
    secret = PREFIX + secrets.token_urlsafe(24)
    row = ShareLink.objects.create(digest=digest_of(secret), profile=profile, made_by=by if getattr(by, "pk", None) else None,
                                   expires=timezone.now() + timedelta(days=days))
    return row, secret


def digest_of(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "replace")).hexdigest()


def links(profile: Profile) -> Any:
    """Return the links of a profile that still open it."""
    return ShareLink.objects.filter(profile=profile, expires__gt=timezone.now()).select_related("made_by")


def link_of(secret: str) -> ShareLink | None:
    """Return the link of a secret, whichever project; None where there is none, or its time is over."""
    if not secret.startswith(PREFIX) or len(secret) > 100:
        return None
    rows = ShareLink._base_manager.filter(digest=digest_of(secret), expires__gt=timezone.now())
    return rows.select_related("profile", "profile__project").first()


def note_opened(link: ShareLink) -> None:
    ShareLink._base_manager.filter(pk=link.pk).update(opened=F("opened") + 1, last_opened=timezone.now())
