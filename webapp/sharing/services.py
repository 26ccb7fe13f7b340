"""Links: made, found, ended; and requests of who has one: they see one profile, may change nothing, and are nobody else.

The pages of one profile lie below /profiles/<id>/ and /api/profiles/<id>/; every other address asks for a sign-in as ever. What a
page there reads of other rows is left out by the scope (`workers.scope.Scope.profile`).
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from django.contrib.auth import get_user_model
from django.db.models import F
from django.http import HttpRequest, HttpResponse
from django.utils import timezone

from profiles.base.refused import Refused
from profiles.models import Profile
from webapp.models import ShareLink
from webapp.projects.request import seat_take
from webapp.projects.selectors import Access, Seat
from workers.scope import Scope, enter
from workers.secret import digest_of

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


COOKIE = "ridgepoint_share"
SAFE = ("GET", "HEAD")
GUEST = "guest"


class SharedVisits:
    """Lets who has a link in its cookie, and is not signed in, read the link's profile. Without the cookie it asks nothing."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        secret = request.COOKIES.get(COOKIE, "")
        if not secret or request.method not in SAFE or request.user.is_authenticated or request.project_slug:   # type: ignore[attr-defined]
            return self.get_response(request)
        link = link_of(secret)
        if link is None or not request.path_info.startswith(_places(link)):
            return self.get_response(request)
        project = link.profile.project
        seat = Seat(project.pk, project.slug, project.name)
        seat_take(request, Access((seat,)), seat)
        enter(Scope(project.pk, project.pk, fleet=False, profile=link.profile_id))
        # a person without a row: no group, no membership, no token, and no row of anybody's is theirs
        request.user = get_user_model()(pk=0, username=GUEST)
        request.is_shared = True        # type: ignore[attr-defined]
        answer = self.get_response(request)
        answer["X-Robots-Tag"], answer["Referrer-Policy"], answer["Cache-Control"] = "noindex", "same-origin", "private, no-store"
        return answer


def _places(link: ShareLink) -> tuple[str, str]:
    return f"/profiles/{link.profile_id}/", f"/api/profiles/{link.profile_id}/"
