"""Pages of people: the list, one person, one's own sessions."""

from __future__ import annotations

from typing import Any

from allauth.usersessions.models import UserSession
from django.conf import settings
from django.contrib import messages
from django.contrib.auth import get_user_model
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import get_script_prefix, path, reverse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_POST, require_safe

from profiles.base.refused import Refused
from webapp.models import ApiToken, Invitation
from webapp.people import selectors, services
from webapp.roles import ROLES

VIEW, CHANGE, ADD = "auth.view_user", "auth.change_user", "auth.add_user"


def need(request: Any, permission: str, what: str) -> None:
    if not request.user.has_perm(permission):
        raise PermissionDenied(what)


@require_safe
@never_cache
def people_list(request: HttpRequest) -> HttpResponse:
    """Show everybody."""
    need(request, VIEW, "owners of the installation see who is here")
    return _list_page(request)


@require_POST
@never_cache
def invitation_create(request: HttpRequest) -> HttpResponse:
    """Make an invitation and show its link, this once."""
    need(request, ADD, "owners of the installation invite")
    fields = request.POST
    here, seats = request.seat, request.access.seats        # type: ignore[attr-defined]
    days = fields.get("days", "7")
    try:
        project = services.invited_to(fields.get("project", ""), here and here.pk, [seat.pk for seat in seats])
        row, secret = services.invite(
            request.user, role=fields.get("role", ""), email=fields.get("email", ""), days=int(days) if days.isdecimal() else 0,
            project=project)
    except Refused as refused:
        return _list_page(request, problem=refused.what, status=400)
    return _list_page(request, link=link_of(request, secret), made=row)


@require_POST
def invitation_revoke(request: HttpRequest, pk: int) -> HttpResponse:
    """Take an invitation back."""
    need(request, ADD, "owners of the installation invite")
    get_object_or_404(Invitation, pk=pk, used=None).delete()
    return redirect("people")


@require_safe
@never_cache
def person(request: HttpRequest, pk: int) -> HttpResponse:
    """Show one person: role, projects, sessions, tokens."""
    need(request, VIEW, "owners of the installation see who is here")
    return _person_page(request, get_object_or_404(get_user_model(), pk=pk))


@require_POST
@never_cache
def person_change(request: HttpRequest, pk: int) -> HttpResponse:
    """Do one thing to a person: the button that was pressed says which."""
    need(request, CHANGE, "owners of the installation change people")
    row = get_object_or_404(get_user_model(), pk=pk)
    if not services.may_change(request.user, row):
        raise PermissionDenied("only a superuser changes a superuser")
    what, fields = request.POST.get("do", ""), request.POST
    try:
        if what == "role":
            services.person_role(row, fields.get("role", ""))
        elif what in ("activate", "deactivate"):
            services.person_active(row, what == "activate")
        elif what == "sign-out":
            services.sessions_end(row, request.session.session_key if row == request.user else None)
        elif what == "second-factor":
            services.second_factor_off(row)
        elif what == "token":
            get_object_or_404(ApiToken, digest=fields.get("token", ""), user=row).delete()
        elif what == "password":
            uid, token = services.reset_path(row)
            address = reverse("password_reset_confirm", args=[uid, token])
            return _person_page(request, row, link=_address(request, address))
    except Refused as refused:
        return _person_page(request, row, problem=refused.what, status=400)
    return redirect("person", pk)


@require_safe
@never_cache
def own_sessions(request: HttpRequest) -> HttpResponse:
    """Show where one is signed in."""
    return render(request, "people/sessions.html", {
        "sessions": selectors.sessions(request.user), "current": request.session.session_key})


@require_POST
def own_session_end(request: HttpRequest) -> HttpResponse:
    """End one of one's sessions, or all others."""
    pk = request.POST.get("session", "")
    if pk.isdecimal() and len(pk) < 19:
        services.session_end(get_object_or_404(UserSession, pk=int(pk), user=request.user))
    else:
        services.sessions_end(request.user, request.session.session_key)
        messages.success(request, "All other sessions are signed out.")
    return redirect("sessions")


def link_of(request: Any, secret: str) -> str:
    return _address(request, reverse("invitation", args=[secret]))


def _address(request: Any, path: str) -> str:
    """Return the whole address of a path, which names no project."""
    path = f"{request.root}/{path.removeprefix(get_script_prefix())}"
    return f"{settings.PUBLIC_URL}{path}" if settings.PUBLIC_URL else str(request.build_absolute_uri(path))


def _list_page(request: Any, *, link: str = "", made: Any = None, problem: str = "", status: int = 200) -> HttpResponse:
    rows = selectors.people(request.GET.get("q", "").strip())
    return render(request, "people/list.html", {
        "people": rows, "q": request.GET.get("q", ""), "invitations": selectors.invitations(), "roles": list(ROLES), "link": link,
        "made": made, "problem": problem, "seats": request.access.seats, "every": services.EVERY_PROJECT,
        "here": request.seat, "provider": settings.OIDC}, status=status)


def _person_page(request: Any, row: Any, *, link: str = "", problem: str = "", status: int = 200) -> HttpResponse:
    return render(request, "people/person.html", {
        "person": selectors.people(pks=[row.pk])[0], "sessions": selectors.sessions(row), "tokens": selectors.tokens(row),
        "roles": list(ROLES), "link": link, "problem": problem, "provider": settings.OIDC,
        "may": services.may_change(request.user, row)}, status=status)


urlpatterns = [
    path("people/", people_list, name="people"),                                            # ?q=
    path("people/invite/", invitation_create, name="invitation-create"),                    # POST
    path("people/invitations/<int:pk>/revoke/", invitation_revoke, name="invitation-revoke"),   # POST
    path("people/<int:pk>/", person, name="person"),
    path("people/<int:pk>/change/", person_change, name="person-change"),                   # POST: do=role|deactivate|sign-out|…
    path("accounts/sessions/", own_sessions, name="sessions"),
    path("accounts/sessions/end/", own_session_end, name="session-end"),                    # POST
]
