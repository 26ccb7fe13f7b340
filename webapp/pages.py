"""The pages that belong to no single part of the product: home, search, workers; and the health check."""

from __future__ import annotations

from django.contrib import messages
from django.contrib.auth.decorators import login_not_required, permission_required
from django.db import DatabaseError, connection
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect, JsonResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_POST, require_safe
from drf_spectacular.utils import OpenApiTypes, extend_schema
from redis.exceptions import RedisError
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from profiles.models import Profile
from webapp import example_environments, example_guard, examples, finder, overview
from workers import jobs


@require_safe
def home(request: HttpRequest) -> HttpResponse:
    """Empty: how to begin. Else what is worth fixing, what got slower, what is under way."""
    totals = overview.totals()
    busy = overview.in_progress()
    context = {
        "totals": totals,
        "busy": busy,
        "topics": ["home", *(each.topic for each in busy)],
        "workers": jobs.workers(),
        "missing_workers": overview.missing_workers(jobs.workers()),
        "slower": overview.got_slower(),
        **overview.guard(),
        "fixes": overview.worth_fixing() if totals["ready"] else [],
        "job_fixes": overview.jobs_to_fix() if totals["ready"] else [],
        "recent": Profile.objects.exclude(status__in=[Profile.Status.UPLOADED, Profile.Status.INGESTING])[:6],
        "examples_missing": examples.missing(),
        "examples_loaded": len(examples.loaded()),
        "examples": examples.EXAMPLES,
    }
    return render(request, "home.html", context)


@require_POST
@permission_required("profiles.add_profile", raise_exception=True)
def examples_load(request: HttpRequest) -> HttpResponse:
    """Create the example profiles; the home page shows their ingest live."""
    if lost := examples.missing():
        messages.error(
            request, f"This installation does not hold {', '.join(lost)}: copy tests/data/h200 from the repository."
        )
    elif not examples.load(request.user):
        messages.info(request, "The example recordings are already here.")
    return HttpResponseRedirect(reverse("home"))


@require_POST
@permission_required("tuner.add_suite", raise_exception=True)
def examples_guard(request: HttpRequest) -> HttpResponse:
    """The guard's example: a suite over recorded runs; a replay worker measures two of its builds and they are judged."""
    if not example_guard.there():
        messages.error(request, "This installation does not hold the recorded runs: copy tests/data/h200 from the repository.")
        return redirect("suite-list")
    return redirect("suite", pk=example_guard.load(request.user).pk)


@require_POST
@permission_required("tuner.add_suite", raise_exception=True)
def examples_environments(request: HttpRequest) -> HttpResponse:
    """The example of the environments page: recorded runs of one GEMM under two toolkits."""
    if not example_environments.there():
        lost = "This installation does not hold the recorded samples: copy tests/data/public_timing from the repository."
        messages.error(request, lost)
        return redirect("environments")
    suite = example_environments.load(request.user)
    return HttpResponseRedirect(f"{reverse('environments')}?suite={suite.name}")


@require_safe
def search(request: HttpRequest) -> HttpResponse:
    query = request.GET.get("q", "").strip()[:200]
    groups = finder.find(query)
    return render(
        request,
        "search.html",
        {
            "query": query,
            "groups": groups,
            "hits": sum(len(group.hits) for group in groups),
            "more": any(group.more for group in groups),
        },
    )


@require_safe
def workers(request: HttpRequest) -> HttpResponse:
    alive = jobs.workers()
    gpus = sum(len(worker.get("gpus") or []) for worker in alive)
    return render(
        request,
        "workers.html",
        {
            "workers": alive,
            "queues": overview.queues(),
            "missing_workers": overview.missing_workers(alive),
            "gpus": gpus,
            "busy": overview.in_progress(),
        },
    )


class WorkersApi(APIView):
    """Workers that announced themselves in the last 15 s, the queues, and what nobody can do at the moment."""

    @extend_schema(operation_id="workers", responses=OpenApiTypes.OBJECT)
    def get(self, request: Request) -> Response:
        alive = jobs.workers()
        return Response({"workers": alive, "queues": overview.queues(), "missing": overview.missing_workers(alive)})


@login_not_required
@require_safe
def health(request: HttpRequest) -> JsonResponse:
    """200 while the database and Redis answer, else 503; says which does not. No secrets, no sign-in."""
    state = {"database": "ok", "redis": "ok"}
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
    except DatabaseError as error:
        state["database"] = type(error).__name__
    try:
        jobs.connection().ping()
    except RedisError as error:
        state["redis"] = type(error).__name__
    well = set(state.values()) == {"ok"}
    return JsonResponse({"status": "ok" if well else "unavailable", **state}, status=200 if well else 503)
