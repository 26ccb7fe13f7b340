"""HTML: what got slower and what became of it; one regression with what told of it; what a person says of it."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.contrib.auth.decorators import permission_required
from django.core.paginator import Paginator
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.utils.http import url_has_allowed_host_and_scheme
from django.views.decorators.http import require_POST, require_safe

from tuner.builds import page_selectors, regression_selectors, regression_services, words_selectors
from tuner.gates import counter_selectors
from tuner.gates.page_selectors import comparable
from tuner.models import Build, Regression

PAGE_ROWS = 100
STATES = [      # value, what a button says, what it does
    ("acknowledged", "Acknowledge", "somebody looks at it"),
    ("intended", "Intended", "the new speed is the baseline from this build on"),
    ("fixed", "Fixed", "a later build, or something outside the builds, put it right"),
    ("environment", "The environment did it", "toolkit, driver or GPU, not the build"),
    ("open", "Open again", "nobody has answered it yet"),
]


@require_safe
def regression_list(request: HttpRequest) -> HttpResponse:
    """What got slower, and what became of it?"""
    wanted = {name: request.GET.get(name, "")[:200] for name in regression_selectors.FILTERS}
    found = regression_selectors.regression_list(wanted)
    page = Paginator(found, PAGE_ROWS).get_page(request.GET.get("page"))
    return render(request, "builds/regressions.html", {
        "rows": list(page), "page": page, "total": page.paginator.count, "wanted": wanted, "filtered": any(wanted.values()),
        "answer": words_selectors.regressions_answer(*regression_selectors.counted(found)),
        "choices": regression_selectors.choices(),
        "states": [("watched", "open or acknowledged"), *((str(value), str(value)) for value in Regression.State.values)]})


@require_safe
def regression_detail(request: HttpRequest, pk: int) -> HttpResponse:
    """Since when is this kernel slower, how do we know, and what became of it?"""
    row = get_object_or_404(regression_selectors.regressions(), pk=pk)
    return render(request, "builds/regression.html", _context(row, {}))


def _context(row: Regression, kept: dict[str, Any]) -> dict[str, Any]:
    kernel = row.suite.kernels.filter(key__in=row.kernels[:1]).first()
    return {"row": row, "kernel": kernel, "size": words_selectors.size_text(row), "told": regression_selectors.told_by(row),
            "states": [state for state in STATES if state[0] != row.state], "later": regression_selectors.later_builds(row),
            "history": row.history[::-1], "tune": page_selectors.tune_url(kernel) if kernel else "",
            "counters": counter_selectors.of_regression(row, kernel), "ask": reverse("regression-counters", args=[row.pk]),
            "compare": row.good is not None and comparable(row.good.name, row.build.name), "kept": kept}


@require_POST
@permission_required("tuner.change_regression", raise_exception=True)
def regression_change(request: HttpRequest, pk: int) -> HttpResponse:
    """Fields: state, note, fixed_in (name of a build), next. What was typed is kept where it is refused."""
    row = get_object_or_404(regression_selectors.regressions(), pk=pk)
    given = {name: request.POST.get(name, "") for name in ("state", "note", "fixed_in")}
    fixed_in = _build(given["fixed_in"])
    try:
        if given["fixed_in"] and fixed_in is None:
            raise regression_services.RegressionRefused("fixed_in", "the name of a build that is known")
        regression_services.regression_change(row, given["state"], note=given["note"], by=request.user, fixed_in=fixed_in)
    except regression_services.RegressionRefused as refused:
        kept = {**given, "error": refused}
        return render(request, "builds/regression.html", _context(row, kept), status=400)
    messages.success(request, f"{row.family} since {row.build.name}: {given['state']}.")
    after = request.POST.get("next", "")
    return redirect(after if url_has_allowed_host_and_scheme(after, {request.get_host()}) else reverse("regression", args=[pk]))


def _build(name: str) -> Build | None:
    return Build.objects.filter(name=name).first() if name and "\0" not in name else None
