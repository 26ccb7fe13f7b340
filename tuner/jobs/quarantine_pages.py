"""HTML: what is in quarantine, and the button that lifts it."""

from __future__ import annotations

from django.contrib import messages
from django.contrib.auth.decorators import permission_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.http import require_POST, require_safe

from tuner.jobs import quarantine_selectors, quarantine_services
from tuner.models import Quarantine
from tuner.texts import config_in_order, in_order

LIST_LIMIT = 500


@require_safe
def quarantine_list(request: HttpRequest) -> HttpResponse:
    filters = {name: request.GET.get(name, "") for name in ("operator", "reason", "gpu")}
    rows = quarantine_selectors.quarantine_list(filters)
    shown = [{"row": row, "config": config_in_order(row.config), "shape": in_order(row.operator, row.shape)}
             for row in rows[:LIST_LIMIT]]
    return render(request, "tuner/quarantine.html", {
        "in_force": [one for one in shown if one["row"].lifted is None],
        "lifted": [one for one in shown if one["row"].lifted is not None], "total": rows.count(), "filters": filters,
        "by_reason": quarantine_selectors.by_reason(filters), "filtered": any(filters.values())})


@permission_required("tuner.change_tunejob", raise_exception=True)
@require_POST
def quarantine_lift(request: HttpRequest, pk: int) -> HttpResponse:
    row = quarantine_services.lift(get_object_or_404(Quarantine, pk=pk), request.user)
    messages.success(request, f"{row.operator}: workers may try it again. Where it fails again, it comes back.")
    return redirect("quarantine-list")
