"""Signing in: a password, then the second factor where there is one; or the provider of single sign-on."""

from __future__ import annotations

from typing import Any

import requests
from allauth.account.internal.flows.login import perform_password_login
from allauth.account.models import Login
from allauth.account.views import reauthenticate
from allauth.mfa.base import views as second_factor
from allauth.mfa.recovery_codes import views as recovery_codes
from allauth.mfa.totp import views as totp
from allauth.socialaccount.providers.openid_connect import views as openid_connect
from django.conf import settings
from django.contrib.auth import views as auth_views
from django.contrib.auth.decorators import login_not_required
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import path
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods

from profiles.base.refused import Refused
from webapp.people import services
from webapp.people.adapter import provider_here, refuse
from webapp.sign_in import SignInForm, tries_forget, tries_take


class SignInView(auth_views.LoginView):
    """Name and password."""

    template_name = "accounts/login.html"
    authentication_form = SignInForm

    def get_context_data(self, **more: Any) -> dict[str, Any]:
        return super().get_context_data(**more, sends_mail=bool(settings.EMAIL_HOST), provider=settings.OIDC)

    def form_valid(self, form: Any) -> HttpResponse:
        person = form.get_user()
        if settings.OIDC is not None and settings.OIDC.only and not person.is_superuser:
            form.add_error(None, f"Sign in with {settings.OIDC.name}.")
            return self.form_invalid(form)
        login = Login(user=person, redirect_url=self.get_success_url())
        answer: HttpResponse = perform_password_login(self.request, {"username": person.get_username()}, login)
        return answer


@login_not_required
@never_cache
def provider_sign_in(request: HttpRequest, provider_id: str) -> HttpResponse:
    """Lead to the provider."""
    if settings.OIDC is None or provider_id != "sso":
        raise Http404
    try:
        answer: HttpResponse = openid_connect.login(request, provider_id)
    except (requests.RequestException, ValueError, KeyError) as error:
        return _away(request, error)
    return answer


@login_not_required
@never_cache
def provider_return(request: HttpRequest, provider_id: str) -> HttpResponse:
    """Take the person that comes back from the provider."""
    if settings.OIDC is None or provider_id != "sso":
        raise Http404
    try:
        answer: HttpResponse = openid_connect.callback(request, provider_id)
    except (requests.RequestException, ValueError, KeyError) as error:
        return _away(request, error)
    return answer


def _away(request: HttpRequest, error: Exception) -> HttpResponse:
    answer = refuse(request, f"{provider_here().name} does not answer as it should.", "Try again later.", error=error)
    answer.status_code, answer["Retry-After"] = 503, "30"
    return answer


@login_not_required
@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
def invitation(request: HttpRequest, secret: str) -> HttpResponse:
    """Accept an invitation: a name and a password, and the person is signed in."""
    if settings.OIDC is not None and settings.OIDC.only:
        return refuse(request, f"Accounts come from {settings.OIDC.name}.", "Sign in there.")
    if not tries_take("invitation", request):
        return refuse(request, "Too many tries.", "Try again in 15 minutes.")
    row = services.invitation_of(secret)
    if row is None:
        return refuse(request, "This invitation was used, revoked, or its time is over.", "Ask for another one.")
    tries_forget("invitation", request)
    problem: dict[str, str] = {}
    if request.method == "POST":
        fields = {name: request.POST.get(name, "") for name in ("username", "password", "again")}
        try:
            if fields["password"] != fields["again"]:
                raise Refused({"again": "the two differ"})
            person = services.invitation_accept(secret, username=fields["username"], password=fields["password"])
        except Refused as refused:
            problem = refused.renamed({"": "username"}).fields
        else:
            response: HttpResponse = perform_password_login(request, {"username": person.get_username()}, Login(user=person))
            return response
    answer = render(request, "people/invitation.html", {
        "invitation": row, "problem": problem, "username": request.POST.get("username", row.email.partition("@")[0])},
        status=400 if problem else 200)
    # its address is the secret. Under "no-referrer" browsers post the form with "Origin: null", which the CSRF check refuses
    answer["Referrer-Policy"] = "strict-origin"
    return answer


urlpatterns = [
    path("login/", SignInView.as_view(), name="login"),
    path("login/", SignInView.as_view(), name="account_login"),         # django-allauth's name of it
    path("reauthenticate/", reauthenticate, name="account_reauthenticate"),
    path("oidc/<slug:provider_id>/login/", provider_sign_in, name="openid_connect_login"),
    path("oidc/<slug:provider_id>/login/callback/", provider_return, name="openid_connect_callback"),
    path("invitation/<str:secret>/", invitation, name="invitation"),
    path("two-factor/", second_factor.index, name="mfa_index"),
    path("two-factor/sign-in/", login_not_required(second_factor.authenticate), name="mfa_authenticate"),
    path("two-factor/again/", second_factor.reauthenticate, name="mfa_reauthenticate"),
    path("two-factor/activate/", totp.activate_totp, name="mfa_activate_totp"),
    path("two-factor/deactivate/", totp.deactivate_totp, name="mfa_deactivate_totp"),
    path("two-factor/codes/", recovery_codes.view_recovery_codes, name="mfa_view_recovery_codes"),
    path("two-factor/codes/generate/", recovery_codes.generate_recovery_codes, name="mfa_generate_recovery_codes"),
    path("two-factor/codes/download/", recovery_codes.download_recovery_codes, name="mfa_download_recovery_codes"),
]
