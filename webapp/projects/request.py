"""Which project a request is about: /p/<slug>/… names it; without it the one that the person worked in last."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import Resolver404, resolve, set_script_prefix

from webapp.audit import services as audit
from webapp.audit.kinds import EXPORTS
from webapp.projects.selectors import Access, Seat, access_of
from workers.scope import current, enter

PREFIX = "/p/"
LAST = "project"            # in the session: the slug of the project that was opened last
SAFE = ("GET", "HEAD")
FLEET_WIDE = {"fleet", "fleet-gpus", "fleet-utilisation", "production-list", "production-regression", "production-change",
              "production-guard", "api-fleet-top", "api-fleet-gpus", "api-production", "api-production-regression"}
NO_PAGES = ("/api/", "/accounts/", "/admin/", "/metrics", "/health", "/static/")        # the same in every project


class ProjectAddress:
    """Takes /p/<slug> off an address, for views, and puts it before every address that they make."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        root = request.path.removesuffix(request.path_info)         # the folder that a proxy serves the site from, mostly none
        request.project_slug, request.root = "", root       # type: ignore[attr-defined]
        set_script_prefix(f"{root}/")
        if request.path_info.startswith(PREFIX):
            slug, slash, rest = request.path_info[len(PREFIX):].partition("/")
            if not slash:
                return HttpResponseRedirect(f"{request.path}/")
            request.project_slug = slug     # type: ignore[attr-defined]
            request.path_info = f"/{rest}"
            set_script_prefix(f"{root}{PREFIX}{slug}/")
        response = self.get_response(request)
        if not response.streaming:
            set_script_prefix(f"{root}/")
        return response


class ProjectScope:
    """Lets a request see the rows of its project, and nothing of others. A token brings its own (`webapp.accounts`)."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        scope, actor = current(), audit.acting()
        response = self._answer(request)
        audit.enter(actor)
        if not response.streaming:          # what is still to come of a streamed answer sees what its view saw
            enter(scope)
        return response

    def _answer(self, request: HttpRequest) -> HttpResponse:
        audit.enter(audit.Actor(getattr(request, "user", None), request.META.get("REMOTE_ADDR") or None))
        access = access_of(getattr(request, "user", None))
        seat = _seat(request, access)
        seat_take(request, access, seat)
        slug: str = request.project_slug        # type: ignore[attr-defined]
        if slug and seat is None and request.user.is_authenticated:
            elsewhere = _is_of_an_object(request) and request.method in SAFE and self._elsewhere(request, access, None)
            return elsewhere or _not_found(request)
        page = request.method in SAFE and not request.path_info.startswith(NO_PAGES)
        if page and seat is not None and len(access.seats) > 1:
            if not slug:
                return HttpResponseRedirect(_address(request, seat))
            if request.session.get(LAST) != slug:
                request.session[LAST] = slug
        response = self.get_response(request)
        if response.status_code == 404 and request.method in SAFE and len(access.seats) > 1:
            response = self._elsewhere(request, access, seat) or response
        match = request.resolver_match
        if match is not None and match.url_name in EXPORTS and response.status_code == 200 and request.method != "HEAD":
            audit.record("exported", match.url_name or "", request.get_full_path())
        return response

    def process_view(self, request: HttpRequest, view: Any, args: Any, options: Any) -> None:
        """Refuse pages about the jobs of all projects to who works in one."""
        match, seat = request.resolver_match, request.seat       # type: ignore[attr-defined]
        if match is not None and match.url_name in FLEET_WIDE and seat is not None and not seat.everywhere:
            raise PermissionDenied("the fleet's sums are of all projects: they take a role in the whole installation")

    def _elsewhere(self, request: HttpRequest, access: Access, seat: Seat | None) -> HttpResponse | None:
        """Return the way to the first other project of the person that has something at this address: a link that another
        person, a mail or an older page holds names no project, or a project that the row has left."""
        for other in access.seats:
            if other == seat:
                continue
            seat_take(request, access, other)
            response = self.get_response(request)
            if response.status_code < 400:
                if request.path_info.startswith("/api/"):
                    return response
                return HttpResponseRedirect(_address(request, other))
        seat_take(request, access, seat)
        return None


def _is_of_an_object(request: HttpRequest) -> bool:
    try:
        return bool(resolve(request.path_info).kwargs)
    except Resolver404:
        return False


def seat_take(request: Any, access: Access, seat: Seat | None) -> None:
    """Let the rest of the request see the project of a seat."""
    request.access, request.seat = access, seat
    enter(access.scope_of(seat))


def _seat(request: HttpRequest, access: Access) -> Seat | None:
    slug: str = request.project_slug        # type: ignore[attr-defined]
    if slug:
        return access.seat(slug)
    if len(access.seats) > 1:
        return access.seat(request.session.get(LAST, "")) or access.seats[0]
    return access.seats[0] if access.seats else None


def _address(request: HttpRequest, seat: Seat) -> str:
    """Return the address of the request in another project."""
    query = request.META.get("QUERY_STRING", "")
    return f"{request.root}{PREFIX}{seat.slug}{request.path_info}{'?' if query else ''}{query}"      # type: ignore[attr-defined]


def _not_found(request: HttpRequest) -> HttpResponse:
    from webapp.errors import not_found

    return not_found(request, Http404())
