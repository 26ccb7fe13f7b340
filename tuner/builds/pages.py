"""HTML: all builds with the series of a suite's kernels, and one build beside another."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.contrib.auth.decorators import permission_required
from django.core.paginator import Paginator
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.utils.http import urlencode
from django.views.decorators.http import require_POST, require_safe

from tuner.builds import bisect_selectors, charts, choice_selectors, detail_selectors, page_selectors, selectors, words_selectors
from tuner.environments.bisect_services import bisect_measure
from tuner.gates.page_selectors import comparable
from tuner.models import Suite
from tuner.suites.services import SuiteError
from tuner.trial import storable

PAGE_ROWS = 50
MOST_AT_ONCE = 8            # builds that are asked for in one go


@require_safe
def build_list(request: HttpRequest) -> HttpResponse:
    """Did we get slower? The series of each kernel over builds, builds side by side, and all builds."""
    choice = choice_selectors.choose(request.GET)
    page = page_selectors.page(choice) if choice else None
    text, branch = request.GET.get("q", "")[:80], request.GET.get("of", "")[:120]
    profiled = request.GET.get("with") == "profiles"
    names = Paginator(selectors.names(text, branch, profiled), PAGE_ROWS).get_page(request.GET.get("page"))
    rows = selectors.rows(list(names))
    with_profiles = [row["name"] for row in rows if row["profiles"]]
    return render(request, "builds/list.html", {
        "choice": choice, "suites": choice_selectors.suites(), "page": page, "names": names, "rows": rows, "text": text,
        "profiled": profiled,
        "old": with_profiles[1] if len(with_profiles) > 1 else "", "new": with_profiles[0] if with_profiles else "",
        "with_profiles": len(with_profiles), "heat": selectors.build_heat(request.GET.get("kind", "")),
        **(_suite(page) if page else {})})


def _suite(page: page_selectors.Page) -> dict[str, Any]:
    """Pictures and words of the chosen suite."""
    chosen = page.chosen
    return {
        "answer": words_selectors.answer(page), "says": words_selectors.series_text(chosen, page.verdicts),
        "figure": charts.series_figure(chosen.points, chosen.steps, baseline_us=page.baseline_us, marks=page.marks,
                                       verdicts=page.verdicts),
        "kernels": [{"row": row, "small": charts.small(row.series.points, row.series.steps),
                     "href": f"?{page.choice.query(kernel=row.kernel.key)}#series"} for row in page.rows],
        "stale": not all(one.computed for one in page.found), "bisect": bisect_selectors.of_page(page)}


@require_POST
@permission_required("tuner.add_suitejob", raise_exception=True)
def bisect_ask(request: HttpRequest) -> HttpResponse:
    """Measure the builds of the plan. Fields: suite, kernel, gpu, build (each)."""
    suite = get_object_or_404(Suite, name=_plain(request.POST.get("suite", "")))
    kernel, gpu = (_plain(request.POST.get(name, "")) for name in ("kernel", "gpu"))
    try:
        job = bisect_measure(suite, kernel, request.POST.getlist("build")[:MOST_AT_ONCE], request.user, gpu=gpu)
    except (SuiteError, LookupError) as refused:
        messages.error(request, str(refused))
        return redirect(f"{reverse('build-list')}?{urlencode({'suite': suite.name, 'kernel': kernel, 'gpu': gpu})}#bisect")
    messages.success(request, f"To be measured, {job.runs} fresh runs each: {', '.join(each['build'] for each in job.builds)}.")
    return redirect("suite", suite.pk)


def _plain(text: str) -> str:
    return text[:400] if storable(text) else ""


@require_safe
def build_detail(request: HttpRequest, name: str) -> HttpResponse:
    """What did this build change?"""
    build = selectors.find(name)
    if build is None:
        raise Http404("no build of that name")
    found = detail_selectors.compared(build, request.GET)
    profiles = detail_selectors.profiles(build)
    against = found.against if found else None
    return render(request, "builds/detail.html", {
        "build": build, "found": found, "sides": detail_selectors.sides(build), "answer": detail_selectors.answer(build, found),
        "gates": detail_selectors.gates(build), "profiles": profiles, "regressions": detail_selectors.regressions(build),
        "neighbours": detail_selectors.neighbours(build),
        "compare": bool(against and profiles) and comparable(against.name, build.name)})
