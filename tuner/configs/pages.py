"""HTML: the config cache and one entry of it."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, render
from django.views.decorators.http import require_safe

from tuner import cache, texts
from tuner.configs import selectors
from tuner.models import CachedConfig

LIST_LIMIT = 500


@require_safe
def cache_list(request: HttpRequest) -> HttpResponse:
    entries = list(selectors.config_list()[:LIST_LIMIT])
    gains = [entry.default_ms / entry.median_ms for entry in entries if entry.default_ms]
    return render(request, "tuner/cache_list.html", {
        "entries": [{"entry": entry, "config": texts.config_in_order(entry.config),
                     "gain": entry.default_ms / entry.median_ms if entry.default_ms else None,
                     "library": entry.library_ms / entry.median_ms if entry.library_ms else None} for entry in entries],
        "best": max(gains, default=None), "gpus": len({entry.gpu for entry in entries}),
        "recorded": sum(bool(entry.recorded) for entry in entries), "policy": cache.BUCKET_POLICY,
        "rules": [(str(rule), why) for rule, why in cache.WHY.items()]})


@require_safe
def cache_detail(request: HttpRequest, pk: int) -> HttpResponse:
    entry = get_object_or_404(CachedConfig.objects.select_related("job"), pk=pk)
    return render(request, "tuner/cache_detail.html", {
        "entry": entry, "triton": texts.triton_config(entry.config), "jobs": selectors.key_jobs(entry),
        "facts": texts.facts_text(entry.evidence.get("facts", {})), "history": _history(entry),
        "policy": cache.BUCKET_POLICY, "measured_with": texts.measured_with(entry.job),
        "ties": [texts.config_in_order(config) for config in entry.evidence.get("ties", [])],
        "shape": texts.in_order(entry.operator, entry.evidence.get("shape", {})),
        "gain": entry.default_ms / entry.median_ms if entry.default_ms else None,
        "library": entry.library_ms / entry.median_ms if entry.library_ms else None,
        "rate": texts.rate(entry.job, entry.median_ms)})


def _history(entry: CachedConfig) -> list[dict[str, Any]]:
    """What was found for the key, newest first."""
    return [{**each, "config": texts.config_in_order(each["config"]),
             "shape": texts.in_order(entry.operator, each["shape"])}
            for each in reversed(entry.evidence.get("history", []))]
