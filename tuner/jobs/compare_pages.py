"""HTML: two jobs side by side."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from tuner.jobs import compare_charts, compare_selectors
from tuner.models import TuneJob

CHOICES = 200
PAIRS_SHOWN = 100


@require_safe
def tune_compare(request: HttpRequest) -> HttpResponse:
    """?a=1&b=2; without both, the form that asks for them."""
    chosen = [_job(request.GET.get(name, "")) for name in ("a", "b")]
    context: dict[str, Any] = {"a": chosen[0], "b": chosen[1], "choices": compare_selectors.choices(CHOICES)}
    if chosen[0] is None or chosen[1] is None:
        missing = request.GET.get("a") and request.GET.get("b")
        return render(request, "tuner/compare.html", context, status=404 if missing else 200)
    found = compare_selectors.two(chosen[0], chosen[1])
    by_seconds = request.GET.get("over") == "seconds"
    return render(request, "tuner/compare.html", {
        **context, "found": found, "result": found.result, "answer": compare_selectors.answer(found), "by_seconds": by_seconds,
        "differences": compare_selectors.differences(found), "winners": compare_selectors.winners(found),
        "soon": list(zip(*found.result.reached, strict=False)),
        "pairs": sorted(found.result.pairs, key=lambda pair: min(pair.a_ms, pair.b_ms))[:PAIRS_SHOWN],
        "curves": compare_charts.two_curves(found.trials, _labels(found), best_ms=found.result.best_ms, same=found.same_problem,
                                            by_seconds=by_seconds),
        "scatter": compare_charts.pairs_figure(found.result.pairs, _labels(found)) if found.result.pairs else None})


def _labels(found: compare_selectors.Two) -> tuple[str, str]:
    one, other = (f"job {job.pk}: {job.strategy}" for job in (found.a, found.b))
    return one, other


def _job(text: str) -> TuneJob | None:
    return TuneJob.objects.filter(pk=int(text)).first() if text.isdecimal() and len(text) < 12 else None
