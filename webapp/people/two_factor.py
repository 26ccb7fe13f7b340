"""Second factors: who must have one, and a page before everything else until they do.

RIDGEPOINT_TWO_FACTOR: "owners" or "all"; empty: who likes. Who came by single sign-on has that of the provider.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from allauth.account.internal.flows.login import get_authentication_records
from allauth.mfa.models import Authenticator
from django.conf import settings
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import redirect
from django.urls import Resolver404, resolve

from webapp.roles import OWNER, role_of

DUE = "second-factor-due"       # in the session
WHO = ("", "owners", "all")
# where one can go before
OPEN = {"mfa_index", "mfa_activate_totp", "mfa_view_recovery_codes", "mfa_download_recovery_codes", "account_reauthenticate",
        "mfa_reauthenticate", "logout", "password"}


def is_required(user: Any) -> bool:
    """Return whether a person must have a second factor."""
    if settings.TWO_FACTOR == "all":
        return True
    return settings.TWO_FACTOR == "owners" and (user.is_superuser or role_of(user) == OWNER)


def is_on(user: Any) -> bool:
    """Return whether a person has one."""
    return bool(Authenticator.objects.filter(user=user.pk, type=Authenticator.Type.TOTP).exists())


def note_due(request: Any, user: Any) -> None:
    """Note in the session at sign-in whether a second factor must be set up first."""
    by_provider = any(record.get("method") == "socialaccount" for record in get_authentication_records(request, user))
    if is_required(user) and not by_provider and not is_on(user):
        request.session[DUE] = True


def note_done(request: Any, **signal: Any) -> None:
    """The second factor is set up (authenticator_added receiver)."""
    request.session.pop(DUE, None)


class SecondFactorFirst:
    """Lets nobody pass who must set up a second factor. Reads the session that is loaded already; asks no row."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        signed_in = settings.SESSION_COOKIE_NAME in request.COOKIES and settings.TWO_FACTOR
        if not signed_in or not request.session.get(DUE) or _is_open(request.path_info):
            return self.get_response(request)
        if request.path_info.startswith("/api/"):
            return JsonResponse({"detail": "set up a second factor first: /accounts/two-factor/"}, status=403)
        return redirect("mfa_activate_totp")


def _is_open(path: str) -> bool:
    try:
        return resolve(path).url_name in OPEN
    except Resolver404:
        return False
