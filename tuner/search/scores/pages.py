"""HTML: which search method is best, on what, and how that was measured."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from tuner.search.scores import charts, selectors
from tuner.search.strategies import DEFAULT, STRATEGIES


@require_safe
def leaderboard(request: HttpRequest) -> HttpResponse:
    document = selectors.leaderboard()
    if document is None:
        return render(request, "tuner/leaderboard.html", {"document": None})
    return render(request, "tuner/leaderboard.html", {
        "document": document, "figure": charts.score_figure(document), "methods": document["methods"],
        "scores": selectors.table(document, public=True), "trials": selectors.table(document, public=False),
        "default": STRATEGIES[DEFAULT], "default_name": DEFAULT, **selectors.standing(document, DEFAULT)})
