"""HTML: which search method is best, on what, and how that was measured."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from tuner.scores import charts, selectors
from tuner.tuning.search.strategies import DEFAULT, STRATEGIES


@require_safe
def leaderboard(request: HttpRequest) -> HttpResponse:
    return render(request, "tuner/leaderboard.html", _shown(selectors.changed_ns()))


@lru_cache(maxsize=1)
def _shown(changed_ns: int) -> dict[str, Any]:
    """What the page shows follows from the stored file alone: it is made once, and when the file changed."""
    document = selectors.leaderboard()
    if document is None:
        return {"document": None}
    return {
        "document": document, "figure": charts.score_figure(document), "methods": document["methods"],
        "scores": selectors.table(document, public=True), "trials": selectors.table(document, public=False),
        "default": STRATEGIES[DEFAULT], "default_name": DEFAULT, **selectors.standing(document, DEFAULT)}
