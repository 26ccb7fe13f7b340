"""HTML: builds with the series of a suite's kernels, one build beside another, and regressions with what people say of them."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.contrib.auth.decorators import permission_required
from django.core.paginator import Paginator
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.utils.http import url_has_allowed_host_and_scheme, urlencode
from django.views.decorators.http import require_POST, require_safe

from profiles.base.refused import Refused
from profiles.compare.build_selectors import build_heat
from tuner.gate.builds import selectors as regression_selectors
from tuner.gate.environments.bisect_services import measure_bisect
from tuner.gate.history import charts, page_selectors, selectors, sentences
from tuner.gate.regressions import services
from tuner.gate.verdicts import decide_services
from tuner.gate.verdicts.page_selectors import can_compare
from tuner.models import Build, Regression, Suite
from tuner.tuning.trial import storable

PAGE_ROWS = 50
MOST_AT_ONCE = 8            # builds that are asked for in one go


@require_safe
def build_list(request: HttpRequest) -> HttpResponse:
    """Did we get slower? The series of each kernel over builds, builds side by side, and all builds."""
    choice = page_selectors.read_choice(request.GET)
    page = page_selectors.load_page(choice) if choice else None
    text, branch = request.GET.get("q", "")[:80], request.GET.get("of", "")[:120]
    profiled = request.GET.get("with") == "profiles"
    names = Paginator(selectors.build_names(text, branch, profiled), PAGE_ROWS).get_page(request.GET.get("page"))
    rows = selectors.build_rows(list(names))
    with_profiles = [row["name"] for row in rows if row["profiles"]]
    return render(request, "gate/builds/list.html", {
        "choice": choice, "suites": page_selectors.suite_choices(), "page": page, "names": names, "rows": rows, "text": text,
        "profiled": profiled,
        "old": with_profiles[1] if len(with_profiles) > 1 else "", "new": with_profiles[0] if with_profiles else "",
        "with_profiles": len(with_profiles), "heat": build_heat(request.GET.get("kind", "")),
        **(_suite_context(page) if page else {})})


def _suite_context(page: page_selectors.Page) -> dict[str, Any]:
    """Pictures and words of the chosen suite."""
    chosen = page.chosen
    return {
        "answer": sentences.page_sentence(page), "says": sentences.series_text(chosen, page.verdicts),
        "figure": charts.series_figure(chosen.points, chosen.steps, baseline_us=page.baseline_us, marks=page.marks,
                                       verdicts=page.verdicts),
        "kernels": [{"row": row, "small": charts.small(row.series.points, row.series.steps),
                     "href": f"?{page.choice.query(kernel=row.kernel.key)}#series"} for row in page.rows],
        "stale": not all(curve.computed for curve in page.found), "bisect": page_selectors.page_bisect(page)}


@require_POST
@permission_required("tuner.add_suitejob", raise_exception=True)
def bisect_ask(request: HttpRequest) -> HttpResponse:
    """Measure the builds of the plan. Fields: suite, kernel, gpu, build (each)."""
    suite = get_object_or_404(Suite, name=_plain(request.POST.get("suite", "")))
    kernel, gpu = (_plain(request.POST.get(name, "")) for name in ("kernel", "gpu"))
    try:
        job = measure_bisect(suite, kernel, request.POST.getlist("build")[:MOST_AT_ONCE], request.user, gpu=gpu)
    except (Refused, LookupError) as refused:
        messages.error(request, str(refused))
        return redirect(f"{reverse('build-list')}?{urlencode({'suite': suite.name, 'kernel': kernel, 'gpu': gpu})}#bisect")
    messages.success(request, f"To be measured, {job.runs} fresh runs each: {', '.join(entry['build'] for entry in job.builds)}.")
    return redirect("suite", suite.pk)


def _plain(text: str) -> str:
    return text[:400] if storable(text) else ""


@require_safe
def build_detail(request: HttpRequest, name: str) -> HttpResponse:
    """What did this build change?"""
    build = selectors.find_build(name)
    if build is None:
        raise Http404("no build of that name")
    comparison = selectors.compare_build(build, request.GET)
    profiles = selectors.build_profiles(build)
    against = comparison.against if comparison else None
    return render(request, "gate/builds/detail.html", {
        "build": build, "found": comparison, "sides": selectors.measured_sides(build),
        "answer": selectors.comparison_sentence(build, comparison),
        "gates": selectors.build_gates(build), "profiles": profiles, "regressions": selectors.build_regressions(build),
        "neighbours": selectors.neighbour_builds(build),
        "compare": against is not None and bool(profiles) and can_compare(against.name, build.name)})


REGRESSION_ROWS = 100
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
    filters = {name: request.GET.get(name, "")[:200] for name in regression_selectors.FILTERS}
    regressions = regression_selectors.regression_list(filters)
    page = Paginator(regressions, REGRESSION_ROWS).get_page(request.GET.get("page"))
    return render(request, "gate/builds/regressions.html", {
        "rows": list(page), "page": page, "total": page.paginator.count, "wanted": filters, "filtered": any(filters.values()),
        "answer": sentences.regressions_sentence(*regression_selectors.count_states(regressions)),
        "choices": regression_selectors.filter_choices(),
        "states": [("watched", "open or acknowledged"), *((str(value), str(value)) for value in Regression.State.values)]})


@require_safe
def regression_detail(request: HttpRequest, pk: int) -> HttpResponse:
    """Since when is this kernel slower, how do we know, and what became of it?"""
    row = get_object_or_404(regression_selectors.regressions(), pk=pk)
    return render(request, "gate/builds/regression.html", _regression_context(row, {}))


def _regression_context(row: Regression, kept: dict[str, Any]) -> dict[str, Any]:
    kernel = row.suite.kernels.filter(key__in=row.kernels[:1]).first()
    return {"row": row, "kernel": kernel, "size": sentences.size_text(row), "told": regression_selectors.regression_kernels(row),
            "states": [state for state in STATES if state[0] != row.state], "later": regression_selectors.later_builds(row),
            "history": row.history[::-1], "tune": page_selectors.tune_url(kernel) if kernel else "",
            "counters": decide_services.regression_counters(row, kernel), "ask": reverse("regression-counters", args=[row.pk]),
            "compare": row.good is not None and can_compare(row.good.name, row.build.name), "kept": kept}


@require_POST
@permission_required("tuner.change_regression", raise_exception=True)
def regression_change(request: HttpRequest, pk: int) -> HttpResponse:
    """Fields: state, note, fixed_in (name of a build), next. What was typed is kept where it is refused."""
    row = get_object_or_404(regression_selectors.regressions(), pk=pk)
    fields = {name: request.POST.get(name, "") for name in ("state", "note", "fixed_in")}
    fixed_in = _known_build(fields["fixed_in"])
    try:
        if fields["fixed_in"] and fixed_in is None:
            raise Refused({"fixed_in": "the name of a build that is known"})
        services.change_regression(row, fields["state"], note=fields["note"], by=request.user, fixed_in=fixed_in)
    except Refused as refused:
        form = {**fields, "error": refused}
        return render(request, "gate/builds/regression.html", _regression_context(row, form), status=400)
    messages.success(request, f"{row.family} since {row.build.name}: {fields['state']}.")
    after = request.POST.get("next", "")
    return redirect(after if url_has_allowed_host_and_scheme(after, {request.get_host()}) else reverse("regression", args=[pk]))


def _known_build(name: str) -> Build | None:
    return Build.objects.filter(name=name).first() if name and "\0" not in name else None
