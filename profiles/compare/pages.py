"""HTML of the comparison of two profiles or two builds."""

from __future__ import annotations

from typing import Any

from django.core.cache import cache
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from profiles.compare import charts as charts_compare
from profiles.compare import choice_selectors, line_selectors, progress_selectors, selectors
from profiles.compare.operation_selectors import operation_lines, operations_answer, without_needs
from profiles.ingest.trace import TraceError
from profiles.library.selectors import query_without
from profiles.models import Profile

FIGURES_KEPT_S = 3600
SHAPES_SHOWN = 40           # kernels of several shapes that are opened below the table
SHOWN = 300                 # rows of most change on the page; files hold them all


@require_safe
def compare(request: HttpRequest) -> HttpResponse:
    """What changed? Without a question, the form to ask it."""
    query = {name: request.GET.get(name, "") for name in ("a", "b", "build_a", "build_b", "kind", "per", "rows")}
    context: dict[str, Any] = {"query": query, "choices": choice_selectors.form_choices(query)}
    if any(query[name] for name in ("a", "b", "build_a", "build_b")):
        try:
            compared = selectors.comparison(query)
        except TraceError as error:
            return render(request, "profiles/compare.html", {**context, "error": error}, status=400)
        lines = line_selectors.rows(compared)
        kernels = line_selectors.kernel_lines(compared, lines)
        several = [kernel for kernel in kernels if len(kernel.shapes) > 1]
        by_shape = query["rows"] == "shapes" or not several
        listed = len(lines) if by_shape else len(kernels)
        context |= {"compared": compared, "job": _job_of(compared), "timelines": _timelines(compared),
                    "links": _compare_links(query),
                    "has_counters": bool(compared.counters),
                    "counter_names": [name for _, name, _ in selectors.COUNTERS],
                    "answer": line_selectors.answer(compared),
                    "operations": operation_lines(compared.operations), "operations_answer": operations_answer(compared.operations),
                    "without_needs": [] if compared.step else without_needs([p for side in compared.sides for p in side.profiles]),
                    "rows": lines[:SHOWN], "unlisted": max(0, listed - SHOWN), "by_shape": by_shape,
                    "kernels": kernels[:SHOWN], "several": several[:SHAPES_SHOWN],
                    "more_several": len(several) - SHAPES_SHOWN,
                    "explained": [line for line in lines if line.why],
                    **_compare_figures(compared)}
    return render(request, "profiles/compare.html", context)


@require_safe
def progress(request: HttpRequest) -> HttpResponse:
    """What did each change of a job win? Without a question, the jobs that can be asked about."""
    query = {name: request.GET.get(name, "") for name in ("model", "gpu", "profiles")}
    context: dict[str, Any] = {"query": query, "links": query_without(query)}
    if query["model"] or query["profiles"]:
        try:
            history = progress_selectors.progress(query)
        except TraceError as error:
            return render(request, "profiles/progress.html",
                          {**context, "jobs": progress_selectors.jobs(), "error": error}, status=400)
        longest_ns = max((stage.time_ns or 0.0 for stage in history.stages), default=0.0) or 1.0
        lines = [{"stage": stage, "width": f"{100 * (stage.time_ns or 0.0) / longest_ns:.2f}"} for stage in history.stages]
        context |= {"made": history, "lines": lines, "answer": progress_selectors.answer(history)}
    else:
        context |= {"jobs": progress_selectors.jobs()}
    return render(request, "profiles/progress.html", context)


def _compare_figures(compared: selectors.KernelComparison) -> dict[str, Any]:
    """Made once: Bokeh takes longer over a figure than everything else of the page together."""
    def make() -> dict[str, Any]:
        return {"bars": charts_compare.paired_bars(compared.result, compared.old.label, compared.new.label),
                "arrows": charts_compare.roofline_arrows(compared.result.rows, compared.facts)}

    figures: dict[str, Any] | None = cache.get_or_set(f"compare-figures-2:{compared.identity}", make, FIGURES_KEPT_S)
    assert figures is not None        # what `make` returns never is
    return figures


def _job_of(compared: selectors.KernelComparison) -> dict[str, str]:
    """The job of which both sides are traces, for its progress; empty where they are of several."""
    traces = [profile for side in compared.sides for profile in side.profiles if profile.kind == Profile.Kind.TRACE]
    models = {profile.model for profile in traces}
    return {"model": models.pop()} if len(models) == 1 and "" not in models else {}


def _timelines(compared: selectors.KernelComparison) -> list[Profile]:
    """The newest trace of each side, where both have one: they can be seen on one time axis."""
    newest = [max((p for p in side.profiles if p.kind == Profile.Kind.TRACE), key=lambda p: p.created, default=None)
              for side in compared.sides]
    traces = [profile for profile in newest if profile is not None]
    return traces if len(traces) == 2 else []


def _compare_links(query: dict[str, str]) -> dict[str, str]:
    """Query strings of the same comparison: of another kind, per something else, the other way round."""
    swapped = {**query, "a": query["b"], "b": query["a"], "build_a": query["build_b"], "build_b": query["build_a"]}
    return {"all": query_without(query), "kind": query_without(query, "kind"),
            "per": query_without(query, "per"), "rows": query_without(query, "rows"), "swap": query_without(swapped)}
