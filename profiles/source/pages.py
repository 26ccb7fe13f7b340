"""HTML of what is inside a kernel: its source with per-line heat, and its course over time."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from profiles.charts import sampling as charts_sampling
from profiles.models import KernelStat
from profiles.source import sampling_selectors, selectors
from profiles.source.selectors import baseline_of


@require_safe
def source(request: HttpRequest, pk: int, kernel_pk: int) -> HttpResponse:
    """Which line is it?"""
    page = selectors.source_page(KernelStat.find_or_404(pk, kernel_pk), request.GET)
    return render(request, "profiles/kernel/source.html", page | {
        "baseline": request.GET.get("baseline", "") if baseline_of(request.GET) else ""})


@require_safe
def sampling(request: HttpRequest, pk: int, kernel_pk: int) -> HttpResponse:
    """What ran when inside the kernel?"""
    page = sampling_selectors.sampling_page(KernelStat.find_or_404(pk, kernel_pk), request.GET)
    return render(request, "profiles/kernel/sampling.html", page | charts_sampling.sampling_figures(page))
