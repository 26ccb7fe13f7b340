"""Profiles and what may be captured, in the admin."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.http import HttpRequest

from profiles.models import Capture, CaptureTarget, Profile


@admin.register(CaptureTarget)
class CaptureTargetAdmin(admin.ModelAdmin):
    """Owners define what may be executed: an argument vector, one argument per entry, never a shell string."""

    list_display = ("name", "argv", "cwd", "enabled", "created")
    list_filter = ("enabled",)
    search_fields = ("name", "description")


class ReadOnlyAdmin(admin.ModelAdmin):
    """Rows that only services write."""

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False


@admin.register(Profile)
class ProfileAdmin(ReadOnlyAdmin):
    list_display = ("id", "name", "status", "kind", "build", "owner", "created")
    list_filter = ("status", "kind")
    search_fields = ("name", "build", "model")

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False        # its page deletes it together with its objects


@admin.register(Capture)
class CaptureAdmin(ReadOnlyAdmin):
    list_display = ("id", "tool", "target", "status", "owner", "created")
    list_filter = ("status", "tool")

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False
