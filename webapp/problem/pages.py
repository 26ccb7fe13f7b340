"""One page per kernel problem: profiled, tuned, served, guarded; its two buttons that change something."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from typing import Any

from django.contrib import messages
from django.contrib.auth.decorators import permission_required
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_POST, require_safe

from profiles.actions import selectors as actions
from profiles.base.refused import Refused
from profiles.charts import families as charts
from profiles.library.selectors import fleet
from profiles.models import KernelShape
from webapp.frame.documents import FOLDER
from webapp.overview import scope_of
from webapp.problem import address, profiled, services, states
from webapp.problem.address import Problem

SYSTEMS = {"GitHub Actions": ".github/workflows/kernels.yml", "GitLab": ".gitlab-ci.yml", "Jenkins": "Jenkinsfile",
           "Buildkite": ".buildkite/pipeline.yml"}


@dataclass(frozen=True)
class Pipeline:
    """A file for one CI system, and where it belongs in a repository."""

    system: str
    path: str
    text: str


@cache
def _blocks() -> dict[str, str]:
    """Return the first code block below each system's heading."""
    found = {}
    for section in (FOLDER / "gate-ci.md").read_text().split("\n## ")[1:]:
        block = re.search(r"^```\w+\n(.*?)^```", section, re.MULTILINE | re.DOTALL)
        if (system := section.partition("\n")[0]) in SYSTEMS and block:
            found[system] = block[1]
    return found


def pipelines(server: str, suite: str) -> list[Pipeline]:
    """Return a file for each system; `server` as "https://host"."""
    def finished(text: str) -> str:
        return text.replace("https://guard.example", server).replace("--suite serving", f"--suite {suite}")

    return [Pipeline(system, path, finished(_blocks()[system])) for system, path in SYSTEMS.items()]


@require_safe
def problem(request: HttpRequest) -> HttpResponse:
    """?operator=&dtype=&gpu=&M=… of a problem; ?shape=, ?kernel= or ?family= (ids) lead to the one of most time, of the profiles
    that the filters of Overview leave."""
    if named := address.read(request.GET):
        return _problem_page(request, named)
    if request.GET.get("operator"):
        raise Http404("No operator of the tuner takes this type and shape.")
    where = {name: int(request.GET[key]) for key, name in (("shape", "pk"), ("kernel", "kernel"), ("family", "kernel__family"))
             if request.GET.get(key, "").isdecimal() and len(request.GET[key]) < 19}
    if not where:
        raise Http404("A problem is named by operator, type, shape and GPU, or by a kernel.")
    scope = scope_of(request.GET)
    rows = address.shapes(**where, **({"kernel__profile__in": fleet(scope).order_by().values("pk")} if scope else {}))
    matching = next((row_problem for row in rows if (row_problem := address.of_shape(row))), None)
    if matching:
        return redirect(matching.url)
    return _kernel_page(request, rows[0] if rows else None, where)


def _problem_page(request: HttpRequest, one: Problem) -> HttpResponse:
    summary, tuned, guarded = profiled.of_problem(one), states.tuned(one), states.guarded(one)
    device, server = states.job_device(one), request.build_absolute_uri("/").rstrip("/")
    figures = [*({"id": f"regression-{regression['row'].pk}", **regression} for regression in states.regressions(one))]
    watched = states.watched_figure(guarded)
    suite = guarded.kernel.suite.name if guarded.kernel else services.suite_name(one.gpu)
    return render(request, "problem/detail.html", {
        "problem": one, "title": f"{one.operator} {one.dtype}", "fields": one.fields, "profiled": summary, "tuned": tuned,
        "served": states.served(one), "guarded": guarded, "device": device, "regressions": figures, "watched": watched,
        "has_figures": bool(watched or any(figure["figure"] for figure in figures)),
        "pipelines": pipelines(server, suite), **_history(summary, one)})


def _history(seen: profiled.Profiled, one: Problem | None) -> dict[str, Any]:
    points = profiled.trend(seen)
    return {"trend": charts.series_figure(points), "points": points[::-1], "changes": profiled.changes(seen),
            "siblings": profiled.siblings(seen, one), "kernels": _kernels(seen)}


def _kernels(seen: profiled.Profiled) -> list[KernelShape]:
    """Return one row for each kernel that computed it, newest profile first."""
    return list({(row.kernel.profile_id, row.kernel_id): row for row in reversed(seen.rows)}.values())[::-1][:20]


def _kernel_page(request: HttpRequest, shape: KernelShape | None, where: dict[str, int]) -> HttpResponse:
    """A kernel that no operator of the tuner matches, or whose shape is unknown."""
    kernel = shape.kernel if shape else address.hottest_kernel(where)
    if kernel is None:
        raise Http404("No profile has this kernel any more.")
    summary = profiled.of_shape(shape) if shape else profiled.of_kernel(kernel)
    job = actions.tune(kernel)
    return render(request, "problem/detail.html", {
        "problem": None, "title": kernel.short_name, "kernel": kernel, "shape": shape, "profiled": summary,
        "why": job.why or job.said, **_history(summary, None)})


def _posted(request: HttpRequest) -> Problem:
    named = address.read(request.POST)
    if named is None:
        raise Http404("No operator of the tuner takes this type and shape.")
    return named


@require_POST
@permission_required("tuner.add_tunejob", raise_exception=True)
def problem_tune(request: HttpRequest) -> HttpResponse:
    """Start a search of the problem."""
    posted_problem = _posted(request)
    try:
        services.start_job(posted_problem, request.user)
    except Refused as error:
        messages.error(request, f"No job was made: {error}")
    return redirect(posted_problem.url)


@require_POST
@permission_required("tuner.add_suite", raise_exception=True)
def problem_guard(request: HttpRequest) -> HttpResponse:
    """Make the problem an entry of its GPU's suite; back to the job's page where its button was pressed."""
    posted_problem = _posted(request)
    try:
        kernel = services.guard(posted_problem, request.user)
    except Refused as refused:
        messages.error(request, f"Not guarded: {refused}")
    else:
        messages.success(request, f"{kernel.key} is an entry of {kernel.suite.name}.")
    job = request.POST.get("back_job", "")
    return redirect("tune", pk=int(job)) if job.isdecimal() and len(job) < 19 else redirect(posted_problem.url)
