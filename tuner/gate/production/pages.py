"""HTML: kernels that production found slower, each with its days, its builds and what to do."""

from __future__ import annotations

import json
from typing import Any

from django.conf import settings
from django.contrib import messages
from django.contrib.auth.decorators import permission_required
from django.core.paginator import Paginator
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.http import require_POST, require_safe

from profiles.base.refused import Refused
from tuner.gate.production import charts, selectors, services
from tuner.gate.production.series import FLOOR, LEAST_DAYS, LEAST_LAUNCHES, WEEKLY
from tuner.models import ProductionRegression

PAGE_ROWS = 100
STATES = [      # value, what a button says, what it does
    ("acknowledged", "Acknowledge", "somebody looks at it"),
    ("intended", "Intended", "the new speed is meant"),
    ("fixed", "Fixed", "it is over"),
    ("open", "Open again", "nobody has answered it yet"),
]


@require_safe
def production_list(request: HttpRequest) -> HttpResponse:
    """What got slower in production?"""
    filters = {name: request.GET.get(name, "")[:200] for name in selectors.FILTERS}
    page = Paginator(selectors.production_list(filters), PAGE_ROWS).get_page(request.GET.get("page"))
    looked = selectors.looked_at()
    return render(request, "gate/production/list.html", {
        "rows": [(row, selectors.links(row)) for row in page], "page": page, "total": page.paginator.count,
        "wanted": filters, "filtered": any(filters.values()), "looked": looked,
        "answer": selectors.answer(looked), "gpu_models": selectors.gpu_models(),
        "grafana": settings.GRAFANA_URL,
        "floor_pct": 100 * FLOOR, "least_days": LEAST_DAYS, "least_launches": LEAST_LAUNCHES, "weekly_pct": 100 * WEEKLY,
        "states": [("watched", "open or acknowledged"), *((value, value) for value in ProductionRegression.State.values)]})


@require_safe
def production_detail(request: HttpRequest, pk: int) -> HttpResponse:
    """Since when is this kernel slower in production, how do we know, and what became of it?"""
    return _detail(request, _row(pk), {})


def _row(pk: int) -> ProductionRegression:
    return get_object_or_404(ProductionRegression.objects.select_related("guarded_by__suite", "changed_by"), pk=pk)


def _detail(request: HttpRequest, row: ProductionRegression, kept: dict[str, Any], status: int = 200) -> HttpResponse:
    points = selectors.series_points(row)
    op, shape = services.suite_entry(row)
    return render(request, "gate/production/detail.html", {
        "row": row, "points": points[::-1][:60], "figure": charts.series_figure(points, row), "links": selectors.links(row),
        "headline": selectors.headline(row), "interval": selectors.interval_text(row), "builds": selectors.builds_text(row),
        "guards": selectors.guards(row), "entry": {"op": op, "shape": json.dumps(shape)}, "kept": kept, "floor_pct": 100 * FLOOR,
        "states": [state for state in STATES if state[0] != row.state]}, status=status)


@require_POST
@permission_required("tuner.change_regression", raise_exception=True)
def production_change(request: HttpRequest, pk: int) -> HttpResponse:
    """Fields: state, note. What was typed is kept where it is refused."""
    row = _row(pk)
    fields = {name: request.POST.get(name, "") for name in ("state", "note")}
    try:
        services.change_production(row, fields["state"], fields["note"], request.user)
    except Refused as refused:
        return _detail(request, row, {**fields, "error": refused}, status=400)
    messages.success(request, f"{row.short_name}: {fields['state']}.")
    return redirect("production-regression", pk)


@require_POST
@permission_required("tuner.change_suite", raise_exception=True)
def production_guard(request: HttpRequest, pk: int) -> HttpResponse:
    """Make the kernel an entry of a suite of uploaded runs. Field: suite."""
    row = _row(pk)
    suite = request.POST.get("suite", "").strip()
    try:
        kernel = services.guard_kernel(row, suite, request.user)
    except Refused as refused:
        return _detail(request, row, {"suite": suite, "error": refused}, status=400)
    messages.success(request, f"{kernel.key} is an entry of {kernel.suite.name}: CI's runs of it are judged from now on.")
    return redirect("suite", kernel.suite_id)
