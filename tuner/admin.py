"""Tune jobs and the config cache in the admin: read, and delete cache entries."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.http import HttpRequest

from tuner.models import CachedConfig, TuneJob


class ReadOnlyAdmin(admin.ModelAdmin):
    """Rows that only services write."""

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False


@admin.register(TuneJob)
class TuneJobAdmin(ReadOnlyAdmin):
    list_display = ("id", "operator", "dtype", "device", "strategy", "status", "best_ms", "owner", "created")
    list_filter = ("status", "operator", "strategy")


@admin.register(CachedConfig)
class CachedConfigAdmin(ReadOnlyAdmin):
    list_display = ("id", "operator", "dtype", "shape_bucket", "gpu", "toolkit", "median_ms", "state", "updated")
    list_filter = ("operator", "state", "gpu")
