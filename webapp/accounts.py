"""Who may do what: roles are Django groups (viewer < engineer < owner); views ask for a model permission."""

from __future__ import annotations

from collections.abc import Callable

from django.conf import settings
from django.contrib.auth import get_user_model, login
from django.contrib.auth import views as auth_views
from django.http import HttpRequest, HttpResponse
from django.urls import path
from rest_framework.permissions import SAFE_METHODS, BasePermission
from rest_framework.request import Request

LOOPBACK = ("127.0.0.1", "::1")
LOCAL_USER = "local"


class LocalModeMiddleware:
    """Single-user local mode: whoever comes from loopback is the owner "local"; anybody else must sign in."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        if settings.LOCAL_MODE and not request.user.is_authenticated and request.META.get("REMOTE_ADDR") in LOOPBACK:
            user, made = get_user_model().objects.get_or_create(
                username=LOCAL_USER, defaults={"is_staff": True, "is_superuser": True})
            if made:
                user.set_unusable_password()
                user.save()
            login(request, user, backend="django.contrib.auth.backends.ModelBackend")
        return self.get_response(request)


class RolePermission(BasePermission):
    """Reading needs a signed-in user; writing needs the view's `write_permission` ("profiles.add_profile")."""

    def has_permission(self, request: Request, view: object) -> bool:
        if not request.user or not request.user.is_authenticated:
            return False
        if request.method in SAFE_METHODS:
            return True
        needed = getattr(view, "write_permission", None)
        return needed is not None and request.user.has_perm(needed)


urlpatterns = [
    path("login/", auth_views.LoginView.as_view(template_name="accounts/login.html"), name="login"),
    path("logout/", auth_views.LogoutView.as_view(), name="logout"),
]
