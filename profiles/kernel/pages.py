"""HTML of one kernel, a tab at a time."""

from __future__ import annotations

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from profiles.advice.selectors import advice_lines, people
from profiles.charts import counters as charts
from profiles.counters.kernel_page import KernelPage
from profiles.kernel import selectors
from profiles.kernel.measures import Overlay
from profiles.kernel.selectors import rules_at
from profiles.models import KernelStat

VIEWS = ("", "memory", "warps", "launches", "rules", "raw")        # tabs of this page; Source and Over time have their own


@require_safe
def kernel(request: HttpRequest, pk: int, kernel_pk: int, tab: str = "") -> HttpResponse:
    """Why is this kernel slow? `?launch=INDEX` one launch, `?baseline=KERNEL` or `KERNEL-LAUNCH` lays another result over it."""
    if tab not in VIEWS:
        raise Http404("no such tab")
    row = KernelStat.find_or_404(pk, kernel_pk)
    page, baseline = KernelPage(row, request.GET), selectors.baseline_page(request.GET)
    shown = page.context() | {
        "tab": tab, "tab_title": next(entry.title for entry in selectors.TABS if entry.name == tab), "baseline": baseline,
        "overlay": Overlay(page, baseline.page) if baseline else None, "rules_at": lambda: rules_at(page.rules)}
    if tab == "":
        shown |= {"advice": advice_lines(row), "people": people()}
    if page.whole is not None:
        shown |= charts.tab_figures(page, baseline.page if baseline and baseline.page.whole else None, tab)
    return render(request, f"profiles/kernel/tab_{tab or 'summary'}.html", shown)
