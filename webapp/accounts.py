"""Authentication and permissions: sign-in, single-user local mode, API tokens."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any

from django import forms
from django.conf import settings
from django.contrib import messages
from django.contrib.auth import get_user_model
from django.contrib.auth import views as auth_views
from django.contrib.auth.forms import PasswordChangeForm
from django.contrib.auth.models import AbstractUser
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse_lazy
from django.utils import timezone
from django.utils.functional import SimpleLazyObject
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_POST, require_safe
from drf_spectacular.contrib.knox_auth_token import KnoxTokenScheme
from knox.auth import TokenAuthentication
from rest_framework.exceptions import AuthenticationFailed
from rest_framework.permissions import SAFE_METHODS, BasePermission
from rest_framework.request import Request

from webapp.audit import services as audit
from webapp.models import ApiToken
from webapp.projects.request import seat_take
from webapp.projects.selectors import Seat, access_of

LOOPBACK = ("127.0.0.1", "::1", "::ffff:127.0.0.1")
LOCAL_USER = "local"
# A proxy on this machine speaks from loopback for the whole world: what it forwards is not local.
FORWARDED = ("x-forwarded-for", "x-forwarded-host", "x-real-ip", "forwarded", "via")


def is_local(client: str, headers: Mapping[str, str]) -> bool:
    """Return whether a request comes from loopback and through no proxy."""
    return client in LOOPBACK and not any(name in headers for name in FORWARDED)


class LocalModeMiddleware:
    """Single-user mode: requests from loopback that are not signed in are the owner "local".

    No session is made or written for that. Pages of other sites cannot use it: a foreign host name is refused before
    (ALLOWED_HOSTS: DNS rebinding), answers stay unreadable to other origins, and every change needs the CSRF token.
    """

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        if settings.LOCAL_MODE and not _has_session(request) and is_local(request.META.get("REMOTE_ADDR", ""), _names(request)):
            request.user = SimpleLazyObject(local_user)     # type: ignore[assignment]    # as Django's own middleware sets it
        return self.get_response(request)


def local_user() -> AbstractUser:
    """Return the owner of a single-user installation, made at first use without password."""
    users = get_user_model().objects
    user = users.filter(username=LOCAL_USER).first()
    if user is None:
        user, _ = users.get_or_create(username=LOCAL_USER, defaults={
            "is_staff": True, "is_superuser": True, "password": "!"})
    return user


def _has_session(request: HttpRequest) -> bool:
    return settings.SESSION_COOKIE_NAME in request.COOKIES and request.user.is_authenticated


def _names(request: HttpRequest) -> Mapping[str, str]:
    return {name.lower(): value for name, value in request.headers.items()}


class ProjectToken(TokenAuthentication):
    """A token works in its project, as long as its person does; an address of another project is not for it."""

    def authenticate(self, request: Request) -> Any:
        pair = super().authenticate(request)       # type: ignore[no-untyped-call]    # knox has no types
        if pair is None:
            return None
        user, token = pair
        access = access_of(user)
        seat = access.seat_of(token.project_id)
        own = getattr(request, "_request", request)         # the body's guard asks before there is a request of DRF's
        slug = getattr(own, "project_slug", "")
        if seat is None or slug not in ("", seat.slug):
            raise AuthenticationFailed("This token is of a project that its person does not work in, or that was not asked for.")
        seat_take(own, access, seat)
        audit.enter(audit.Actor(user, own.META.get("REMOTE_ADDR") or None, token.name))
        return user, token


class ProjectTokenScheme(KnoxTokenScheme):         # type: ignore[no-untyped-call]    # spectacular has no types there
    """How the API's schema names it: as knox's own."""

    target_class = "webapp.accounts.ProjectToken"


class RolePermission(BasePermission):
    """Reading needs a signed-in user; writing needs the view's `write_permission` ("profiles.add_profile").

    A view may name one permission per method: {"POST": …, "DELETE": …}. A token of scope "read" never writes.
    """

    def has_permission(self, request: Request, view: object) -> bool:
        if not request.user or not request.user.is_authenticated:
            return False
        if request.method in SAFE_METHODS:
            return True
        if isinstance(request.auth, ApiToken) and request.auth.scope != ApiToken.Scope.WRITE:
            self.message = "This token is read only: make one of scope “read and write”."
            return False
        needed = getattr(view, "write_permission", None)
        if isinstance(needed, Mapping):
            needed = needed.get(request.method)
        return needed is not None and request.user.has_perm(needed)


class PasswordForm(PasswordChangeForm):
    """The person's own new password."""

    keep_tokens = forms.BooleanField(required=False, label="Keep my API tokens", help_text="Without it they end.")

    def save(self, commit: bool = True) -> Any:
        setattr(self.user, "keep_tokens", self.cleaned_data["keep_tokens"])  # noqa: B010    # read by `webapp.changes`
        return super().save(commit)


class PasswordView(auth_views.PasswordChangeView):
    """Change one's password: other sessions and the tokens end."""

    form_class = PasswordForm
    template_name = "accounts/password.html"
    success_url = reverse_lazy("tokens")

    def form_valid(self, form: Any) -> HttpResponse:
        answer = super().form_valid(form)
        tokens_text = "your tokens are kept" if form.cleaned_data["keep_tokens"] else "your tokens have ended"
        messages.success(self.request, f"Your password is changed; other sessions are signed out, {tokens_text}.")
        return answer


class TokenForm(forms.Form):
    """A new token; `days` empty: no end."""

    name = forms.CharField(max_length=80, label="Name", help_text="What will use it: “CI of model X”.")
    scope = forms.ChoiceField(choices=[("write", "read and write: what you may do"), ("read", "read only")], initial="write")
    days = forms.IntegerField(min_value=1, max_value=3660, required=False, initial=90, label="Expires in (days)",
                              help_text="Empty: never.")
    project = forms.ChoiceField(required=False, label="Project")

    def __init__(self, *args: Any, seats: Sequence[Seat] = (), seat: Seat | None = None, **options: Any) -> None:
        super().__init__(*args, **options)
        if len(seats) < 2:
            del self.fields["project"]
            return
        choices = self.fields["project"]
        choices.choices, choices.initial = [(entry.slug, entry.name) for entry in seats], seat and seat.slug    # type: ignore[attr-defined]


@require_safe
@never_cache
def tokens(request: HttpRequest) -> HttpResponse:
    """Show a person's tokens."""
    return _tokens_page(request, _token_form(request))


@require_POST
@never_cache
def token_create(request: HttpRequest) -> HttpResponse:
    """Make a token and show it, this once."""
    form = _token_form(request, request.POST)
    if not form.is_valid():
        return _tokens_page(request, form, status=400)
    fields = form.cleaned_data
    expiry = timedelta(days=fields["days"]) if fields["days"] else None
    seat = request.access.seat(fields.get("project", "")) or request.seat         # type: ignore[attr-defined]
    if seat is None:
        raise PermissionDenied("a token belongs to a project, and you work in none")
    _, token = ApiToken.objects.create(     # type: ignore[no-untyped-call]    # knox has no types
        request.user, expiry=expiry, name=fields["name"], scope=fields["scope"], project_id=seat.pk)
    return _tokens_page(request, _token_form(request), new_token=token)


@require_POST
def token_revoke(request: HttpRequest, digest: str) -> HttpResponse:
    """Revoke a token of one's own, owners anybody's; at once."""
    token = get_object_or_404(ApiToken, digest=digest)
    if token.user_id != request.user.pk and not request.user.has_perm("webapp.delete_apitoken"):
        raise PermissionDenied("this is another person's token")
    token.delete()
    return redirect("tokens")


def _token_form(request: Any, given: Any = None) -> TokenForm:
    return TokenForm(given, seats=request.access.seats, seat=request.seat)


def _tokens_page(request: Any, form: TokenForm, *, new_token: str = "", status: int = 200) -> HttpResponse:
    ApiToken.objects.filter(user=request.user.pk, expiry__lt=timezone.now()).delete()
    context: dict[str, Any] = {
        "tokens": ApiToken.objects.filter(user=request.user.pk).select_related("project"),
        "several": len(request.access.seats) > 1, "new_token": new_token, "form": form}
    return render(request, "accounts/tokens.html", context, status=status)
