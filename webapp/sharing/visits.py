"""Requests of who has a link: they see one profile, may change nothing, and are nobody else.

The pages of one profile lie below /profiles/<id>/ and /api/profiles/<id>/; every other address asks for a sign-in as ever. What a
page there reads of other rows is left out by the scope (`workers.scope.Scope.profile`).
"""

from __future__ import annotations

from collections.abc import Callable

from django.contrib.auth import get_user_model
from django.http import HttpRequest, HttpResponse

from webapp.models import ShareLink
from webapp.projects.request import seat_take
from webapp.projects.selectors import Access, Seat
from webapp.sharing.services import link_of
from workers.scope import Scope, enter

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
