"""The page of one kernel family: what profiles know of it beside what the tuner keeps for it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.http import require_safe

from profiles.charts import families as charts
from profiles.families import page_selectors
from profiles.families.selectors import Line
from profiles.models import KernelFamily
from profiles.selectors.profile import code_pieces
from tuner.configs import selectors as config_selectors
from tuner.models import CachedConfig, TuneJob
from tuner.texts import triton_config

CONFIGS, JOBS = 12, 6


@require_safe
def family(request: HttpRequest, pk: int) -> HttpResponse:
    """Everything known about one kernel, over profiles, builds and GPUs."""
    found = get_object_or_404(KernelFamily.objects.select_related("merged_into"), pk=pk)
    if found.merged_into_id and not found.stats.exists():
        return redirect("family", found.merged_into_id)
    page = page_selectors.family_page(found)
    return render(request, "profiles/family.html", {
        **page, **tuned(page["shapes"]), **_parts(page["line"]), "answer": code_pieces(page["answer"]),
        "series": charts.series_figure(page_selectors.series(page["runs"])),
        "offered": page_selectors.offered(found) if request.user.has_perm("profiles.change_kernelfamily") else []})


def _parts(line: Line | None) -> dict[str, float]:
    """The bar of its time: what runs at its roof, what could be won back, what nobody counted; widths in percent."""
    if line is None or not line.worth.total_ns:
        return {}
    one, per_pct = line.worth, line.worth.total_ns / 100.0
    gain_ns, unknown_ns = one.recoverable_ns or 0.0, one.total_ns - one.known_ns
    return {"unknown_ns": unknown_ns, "unknown_pct": unknown_ns / per_pct, "gain_pct": gain_ns / per_pct,
            "kept_pct": (one.known_ns - gain_ns) / per_pct}


def tuned(shapes: Iterable[page_selectors.ShapeLine]) -> dict[str, Any]:
    """Configurations that launches of its operator get, those of its GPUs and shape buckets first, and the newest jobs."""
    lines = list(shapes)
    operator = next((line.actions.tuned for line in lines if line.actions.tuned), "")
    if not operator:
        return {"operator": "", "configs": [], "jobs": []}
    gpus = {line.shape.kernel.profile.gpu for line in lines}
    dims = [{name: value for name, value in line.shape.tune.items() if isinstance(value, int)} for line in lines if line.shape.tune]
    buckets = {config_selectors.bucket(operator, each) for each in dims if each}
    configs = sorted(config_selectors.config_list().filter(operator=operator),
                     key=lambda row: (row.shape_bucket not in buckets, row.gpu not in gpus, row.shape_bucket))
    return {"operator": operator, "jobs": list(TuneJob.objects.filter(operator=operator)[:JOBS]),
            "configs": [_config(row, buckets, gpus) for row in configs[:CONFIGS]]}


def _config(row: CachedConfig, buckets: set[str], gpus: set[str]) -> dict[str, Any]:
    return {"row": row, "triton": triton_config(row.config),
            "serves": row.shape_bucket in buckets and row.gpu in gpus,
            "gain": row.default_ms / row.median_ms if row.default_ms else None}
