"""How django-allauth signs people in here: nobody signs up alone, groups give roles, secrets are sealed."""

from __future__ import annotations

from typing import Any

import requests
from allauth.account.adapter import DefaultAccountAdapter
from allauth.core.exceptions import ImmediateHttpResponse
from allauth.mfa.adapter import DefaultMFAAdapter
from allauth.socialaccount.adapter import DefaultSocialAccountAdapter
from django.conf import settings
from django.contrib.auth import get_user_model
from django.db import transaction
from django.http import HttpResponse
from django.shortcuts import render

from webapp.audit import services as audit
from webapp.people import services, two_factor
from webapp.people.sso import Grants, Provider
from webapp.roles import ROLES
from workers.secret import seal, unseal

PROVIDER_WITHIN_S = 10.0
ORDER = tuple(ROLES)


class Accounts(DefaultAccountAdapter):
    """Sign-in with a password."""

    def is_open_for_signup(self, request: Any) -> bool:
        return False

    def add_message(self, request: Any, level: Any, message_template: Any = None, *given: Any, **more: Any) -> None:
        """Say nothing: pages show what is so now."""

    def send_notification_mail(self, *given: Any, **more: Any) -> None:
        """Send no mail: the audit log tells it."""

    def get_client_ip(self, request: Any) -> str:
        return request.META.get("REMOTE_ADDR") or "0.0.0.0"         # what the proxies said is read already

    def login(self, request: Any, user: Any) -> None:
        super().login(request, user)
        two_factor.note_due(request, user)

    def respond_user_inactive(self, request: Any, user: Any) -> HttpResponse:
        return refuse(request, "This account is deactivated.", "Ask an owner.")


class SecondFactor(DefaultMFAAdapter):
    """Keys of second factors are stored encrypted."""

    def encrypt(self, text: str) -> str:
        return seal(text)

    def decrypt(self, encrypted_text: str) -> str:
        return unseal(encrypted_text)

    def get_totp_issuer(self) -> str:
        return "Ridgepoint"

    def get_totp_label(self, user: Any) -> str:
        return str(user.get_username())

    def can_delete_authenticator(self, authenticator: Any) -> bool:
        return not two_factor.is_required(authenticator.user)


class PatientSession(requests.Session):
    """Asks a provider, and does not wait for ever."""

    def request(self, *given: Any, **more: Any) -> requests.Response:
        return super().request(*given, **{"timeout": PROVIDER_WITHIN_S, **more})


class SingleSignOn(DefaultSocialAccountAdapter):
    """Sign-in through the provider. The groups that it names give the roles, at every sign-in anew."""

    def get_requests_session(self) -> requests.Session:
        return PatientSession()

    def is_open_for_signup(self, request: Any, sociallogin: Any) -> bool:
        return True

    def pre_social_login(self, request: Any, sociallogin: Any) -> None:
        provider = provider_here()
        claims = claims_of(sociallogin.account.extra_data)
        grants = provider.grants(provider.groups_of(claims), ORDER)
        if not grants:
            audit.record("refused", "sign-in", str(claims.get("email") or sociallogin.account.uid))
            raise ImmediateHttpResponse(refuse(request, "None of your groups has a role here.",
                                               f"Ask an owner, or whoever keeps the groups of {provider.name}."))
        if not sociallogin.is_existing:
            self._link(request, sociallogin, claims, provider)
        if sociallogin.is_existing:
            apply(sociallogin.user, grants)
        request.sso_grants = grants

    def save_user(self, request: Any, sociallogin: Any, form: Any = None) -> Any:
        with transaction.atomic():
            user = super().save_user(request, sociallogin, form)
            apply(user, request.sso_grants)
        return user

    def on_authentication_error(self, request: Any, provider: Any, error: Any = None, exception: Any = None,
                                extra_context: Any = None) -> None:
        cancelled = request.GET.get("error") == "access_denied"
        raise ImmediateHttpResponse(refuse(
            request, "You did not sign in." if cancelled else f"{provider_here().name} did not sign you in.",
            "Try again; the server's log has the reason.", error=exception or error))

    def _link(self, request: Any, sociallogin: Any, claims: dict[str, Any], provider: Provider) -> None:
        """Connect the account whose e-mail address the provider has verified, where the owner allows it, it is the only one, and no
        superuser's. Where it may not be connected nobody gets a second account of the same address."""
        email = str(claims.get("email") or "")
        accounts = list(get_user_model().objects.filter(email__iexact=email)[:2]) if email else []
        if not accounts:
            return
        if provider.link and claims.get("email_verified") is True and len(accounts) == 1 and not accounts[0].is_superuser:
            sociallogin.connect(request, accounts[0])
            audit.record("linked", "sign-in", accounts[0].get_username())
            return
        audit.record("refused", "sign-in", email)
        raise ImmediateHttpResponse(refuse(request, "Another account here has your e-mail address.",
                                           "Sign in with its password, or ask an owner."))


def provider_here() -> Provider:
    """Return the provider; its addresses exist only where there is one."""
    assert settings.OIDC is not None
    return settings.OIDC


def claims_of(extra: dict[str, Any]) -> dict[str, Any]:
    """Return what the provider says of a person: the ID token's claims, and over them those of the userinfo endpoint."""
    parts = [part for part in (extra.get("id_token"), extra.get("userinfo")) if isinstance(part, dict)]
    return {name: value for part in parts or [extra] for name, value in part.items()}


def apply(user: Any, grants: Grants) -> None:
    """Give a person what their groups give. A superuser stays one."""
    if not user.is_superuser:
        services.grants_apply(user, grants.role, grants.projects, {project for _, project, _ in provider_here().rules if project})


def refuse(request: Any, what: str, hint: str, error: Any = None) -> HttpResponse:
    """Return the page of a sign-in that did not happen."""
    if error is not None:
        services.log.warning("single sign-on: %s", error)
    return render(request, "people/refused.html", {"what": what, "hint": hint}, status=403)
