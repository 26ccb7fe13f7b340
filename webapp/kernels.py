"""The page of one kernel family, from profiles and tuner."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.http import require_safe

from profiles.analysis.core.tunable import tuned_operator
from profiles.charts import families as charts
from profiles.families import page_selectors
from profiles.families.selectors import Line
from profiles.models import KernelFamily
from profiles.profile.finding_selectors import code_pieces
from tuner.cache.entries import selectors as config_selectors
from tuner.models import CachedConfig, TuneJob
from tuner.texts import line_text

CONFIGS, JOBS = 12, 6


@require_safe
def family(request: HttpRequest, pk: int) -> HttpResponse:
    """Show what is known of one kernel, over profiles, builds and GPUs."""
    kernel_family = get_object_or_404(KernelFamily.objects.select_related("merged_into"), pk=pk)
    if kernel_family.merged_into_id and not kernel_family.stats.exists():
        return redirect("family", kernel_family.merged_into_id)
    page = page_selectors.family_page(kernel_family)
    return render(request, "profiles/families/detail.html", {
        **page, **tuned_configs(page["shapes"]), **_bar_widths(page["line"]), "answer": code_pieces(page["answer"]),
        "series": charts.series_figure(page_selectors.series(page["runs"])),
        "offered": page_selectors.merge_candidates(kernel_family) if request.user.has_perm("profiles.change_kernelfamily") else []})


def _bar_widths(line: Line | None) -> dict[str, float]:
    """Return widths in percent: at the roof, winnable by counters, winnable by estimate, unknown."""
    if line is None or not line.worth.total_ns:
        return {}
    worth, per_pct = line.worth, line.worth.total_ns / 100.0
    measured_ns, estimate_ns = worth.recoverable_ns or 0.0, worth.estimate_ns or 0.0
    return {"unknown_pct": worth.unknown_ns / per_pct, "gain_pct": measured_ns / per_pct, "estimate_pct": estimate_ns / per_pct,
            "kept_pct": (worth.known_ns + worth.estimated_ns - measured_ns - estimate_ns) / per_pct}


def tuned_configs(shapes: Iterable[page_selectors.ShapeLine]) -> dict[str, Any]:
    """Return configurations of the family's operator, those of its GPUs and buckets first, and jobs."""
    lines = list(shapes)
    operator = next((name for line in lines if (name := tuned_operator(line.shape.kernel.name))), "")
    if not operator:
        return {"operator": "", "configs": [], "jobs": []}
    gpus = {line.shape.kernel.profile.gpu for line in lines}
    dims = [{name: value for name, value in line.shape.tune.items() if isinstance(value, int)} for line in lines if line.shape.tune]
    buckets = {config_selectors.bucket(operator, shape) for shape in dims if shape}
    configs = sorted(config_selectors.config_list().filter(operator=operator),
                     key=lambda row: (row.shape_bucket not in buckets, row.gpu not in gpus, row.shape_bucket))
    return {"operator": operator, "jobs": list(TuneJob.objects.filter(operator=operator)[:JOBS]),
            "configs": [_config_row(row, buckets, gpus) for row in configs[:CONFIGS]]}


def _config_row(row: CachedConfig, buckets: set[str], gpus: set[str]) -> dict[str, Any]:
    return {"row": row, "triton": line_text(row.operator, row.config),
            "serves": row.shape_bucket in buckets and row.gpu in gpus,
            "gain": row.default_ms / row.median_ms if row.default_ms and row.median_ms else None}
