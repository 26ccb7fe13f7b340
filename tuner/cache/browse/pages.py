"""Pages of the config cache: entries, one entry, and why a launch gets one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

from django.contrib import messages
from django.contrib.auth.decorators import permission_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.http import require_POST, require_safe

from tuner import texts
from tuner.cache import rules
from tuner.cache.entries import portability_selectors, selectors, services
from tuner.cache.entries.bans import read_bans
from tuner.cache.exchange.forms import AskForm
from tuner.cache.serve import selectors as served_selectors
from tuner.models import CachedConfig
from tuner.revalidation import selectors as revalidation_selectors
from tuner.tuning import operators

LIST_LIMIT = 500
FILTERS = ("operator", "gpu", "state", "origin")
STATES = [(str(state), meaning) for state, meaning in rules.STATE_MEANS.items()]


@require_safe
def cache_list(request: HttpRequest) -> HttpResponse:
    """Show entries."""
    matching = selectors.config_filter(request.GET)
    rows = list(matching.select_related(None)[:LIST_LIMIT])        # a job's row is many times an entry's
    bans = read_bans()
    entries: list[dict[str, Any]] = [
        {"entry": row, "config": texts.config_text(row.config), "state": str(view.state), "why": view.state_why, **_gains(row)}
        for row, view in ((row, selectors.as_entry(row, bans)) for row in rows)]
    everything = CachedConfig.objects.all()
    waiting, counts = revalidation_selectors.waiting_entries(), Counter(matching.order_by().values_list("state", flat=True))
    counts += Counter(row["state"] for row in entries)            # those that a quarantine holds are not what their row says
    counts -= Counter(row.state for row in rows)
    return render(request, "tuner/cache/list.html", {
        "entries": entries, "found": matching.count(), "limit": LIST_LIMIT, "total": everything.count(),
        "gpus": everything.values("gpu").distinct().count(),
        "best": max((row["gain"] for row in entries if row["gain"]), default=None),
        "recorded": sum(bool(row.recorded) for row in rows),
        "states": [(state, counts[state], meaning) for state, meaning in STATES],
        "waiting": waiting, "waiting_s": revalidation_selectors.expected_seconds(waiting[:20]),
        "choices": [(name, everything.order_by(name).values_list(name, flat=True).distinct(), request.GET.get(name, ""))
                    for name in FILTERS],
        "rules": [(str(rule), why) for rule, why in rules.WHY.items()], "ask": AskForm(), "query": request.GET.urlencode()})


def _gains(row: CachedConfig) -> dict[str, float | None]:
    return {name: ms / row.median_ms if ms and row.median_ms else None
            for name, ms in (("gain", row.default_ms), ("library", row.library_ms))}


@require_safe
def cache_detail(request: HttpRequest, pk: int) -> HttpResponse:
    """Show one entry."""
    entry = get_object_or_404(selectors.config_list(), pk=pk)
    view, why_not = selectors.as_entry(entry, read_bans()), revalidation_selectors.why_not(entry)
    state, own = view.state, (entry.toolkit, entry.source_hash)
    return render(request, "tuner/cache/detail.html", {
        "entry": entry, "triton": texts.paste_text(entry.operator, entry.config),
        "jobs": selectors.key_jobs(entry) if entry.job else [],
        "facts": texts.facts_text(entry.evidence.get("facts", {})), "history": _history(entry), "state": str(state),
        "state_why": view.state_why, "held": state != entry.state,               # by the quarantine of its configuration
        "barred": [toolkit for toolkit, source in view.barred if not rules.holds_under((toolkit, source), *own)],
        "state_means": rules.STATE_MEANS[state], "policy": selectors.bucket_policy(entry.operator).text,
        "measured_with": texts.measured_with(entry.job) if entry.job else texts.recorded_policy(entry.evidence),
        "guard": entry.evidence.get("guard"),
        "ties": [texts.config_in_order(config) for config in entry.evidence.get("ties", [])],
        "shape": texts.in_order(entry.operator, entry.shape), **_gains(entry),
        "notes": entry.evidence.get("notes", []), "timings": entry.evidence.get("timings", []),
        "rate": texts.rate(entry.job, entry.median_ms) if entry.job else None,
        "measured_by": revalidation_selectors.being_measured().get(entry.pk), "again_by": entry.evidence.get("revalidation"),
        "why_not": why_not, "again": revalidation_selectors.candidate_configs(entry),
        "again_s": None if why_not else revalidation_selectors.expected_seconds([entry]),
        "keep": texts.keep_library_text(entry.operator, selectors.kept_library(entry)),
        "launches": served_selectors.entry_launches(entry), "asked": served_selectors.entry_asked(entry),
        "launch_days": served_selectors.DAYS})


def _history(entry: CachedConfig) -> list[dict[str, Any]]:
    """Return what was measured for the key and what became of it, newest first."""
    return [{**event, "config": texts.config_in_order(event["config"]) if event.get("config") else None,
             "shape": texts.in_order(entry.operator, event.get("shape") or {})}
            for event in reversed(entry.evidence.get("history", []))]


@require_safe
def cache_why(request: HttpRequest) -> HttpResponse:
    """Show which entry a launch gets, by which rule, and why no other."""
    form = AskForm(request.GET) if request.GET.get("operator") else AskForm()
    answer = None
    if form.is_bound and form.is_valid():
        given = form.cleaned_data
        answer = selectors.config_best(given["operator"], given["dtype"], given["gpu"], given["shape"], given["toolkit"], why=True,
                                       driver=given["driver"], policy=given["policy"], recorded=given["recorded"])
        answer["shape"] = texts.in_order(answer["operator"], answer["shape"])
        if answer["measured_shape"]:
            answer["measured_shape"] = texts.in_order(answer["operator"], answer["measured_shape"])
    entry = operators.find(answer["operator"]) if answer else None
    return render(request, "tuner/cache/why.html", {
        "form": form, "answer": answer, "known_operator": entry is not None,
        "triton": texts.paste_text(answer["operator"], answer["config"]) if answer else "",
        "expectation": portability_selectors.expected_loss_text(answer) if answer else "", "title": entry.title if entry else "",
        "tune": _tune_query(answer) if answer else ""}, status=400 if form.errors else 200)


def _tune_query(answer: Mapping[str, Any]) -> str:
    return urlencode({"operator": answer["operator"], "dtype": answer["dtype"], **answer["shape"]})


@permission_required("tuner.change_cachedconfig", raise_exception=True)
@require_POST
def cache_state(request: HttpRequest, pk: int) -> HttpResponse:
    """Take an entry out of service, or let it serve again."""
    entry = get_object_or_404(CachedConfig, pk=pk)
    target = {"quarantine": rules.State.QUARANTINED, "lift": rules.State.UNVERIFIED}.get(request.POST.get("do", ""))
    if target is None:
        messages.error(request, "Choose quarantine or lift.")
    else:
        services.config_set_state(entry, target, request.user, request.POST.get("why", "")[:200])
        messages.success(request, f"The entry is {target} now.")
    return redirect("cache", pk=pk)
