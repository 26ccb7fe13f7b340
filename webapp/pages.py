"""Pages of no single part: home, search, workers; and the health check."""

from __future__ import annotations

from typing import Required, TypedDict

from django.contrib import messages
from django.contrib.auth.decorators import login_not_required, permission_required
from django.db import DatabaseError, connection
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect, JsonResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.http import urlencode
from django.views.decorators.http import require_POST, require_safe
from drf_spectacular.utils import extend_schema
from redis.exceptions import RedisError
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from profiles.base.answers import Facts, Scalar
from profiles.library import selectors as lists
from profiles.models import Profile
from tuner.clocks.selectors import HeldJson
from webapp import finder, overview
from webapp.examples import environments, guard, profiles
from webapp.outage import RETRY_AFTER_S
from workers import disk, jobs


@require_safe
def home(request: HttpRequest) -> HttpResponse:
    """Show how to begin, else what is worth fixing, slower and under way."""
    scope = overview.scope_of(request.GET)
    totals = overview.totals(scope)
    busy = overview.in_progress()
    context = {
        "totals": totals,
        "scope": scope,
        "scope_query": urlencode(scope),
        "choices": lists.filter_choices(),
        "windows": lists.WINDOWS,
        "busy": busy,
        "topics": ["home", *(job.topic for job in busy)],
        "workers": jobs.workers(),
        "missing_workers": overview.missing_workers(jobs.workers()),
        "slower": overview.got_slower(filters=scope),
        **overview.guard_summary(),
        "fixes": overview.worth_fixing(filters=scope) if totals["ready"] else [],
        "job_fixes": overview.jobs_to_fix(scope) if totals["ready"] else [],
        "recent": Profile.objects.exclude(status__in=[Profile.Status.UPLOADED, Profile.Status.INGESTING])[:6],
        "examples_missing": profiles.missing_files(),
        "examples_loaded": len(profiles.loaded_profiles()),
        "examples": profiles.EXAMPLES,
    }
    return render(request, "home.html", context)


@require_POST
@permission_required("profiles.add_profile", raise_exception=True)
def examples_load(request: HttpRequest) -> HttpResponse:
    """Create the example profiles; the home page shows their ingest."""
    if lost := profiles.missing_files():
        messages.error(
            request, f"This installation does not hold {', '.join(lost)}: copy tests/data/h200 from the repository."
        )
    elif not profiles.load(request.user):
        messages.info(request, "The example recordings are already here.")
    return HttpResponseRedirect(reverse("home"))


@require_POST
@permission_required("tuner.add_suite", raise_exception=True)
def examples_guard(request: HttpRequest) -> HttpResponse:
    """Load the example of the guard; a replay worker measures two builds."""
    if not guard.is_available():
        messages.error(request, "This installation does not hold the recorded runs: copy tests/data/h200 from the repository.")
        return redirect("suite-list")
    return redirect("suite", pk=guard.load(request.user).pk)


@require_POST
@permission_required("tuner.add_suite", raise_exception=True)
def examples_environments(request: HttpRequest) -> HttpResponse:
    """Load the example of the environments page."""
    if not environments.is_available():
        lost = "This installation does not hold the recorded samples: copy tests/data/public_timing from the repository."
        messages.error(request, lost)
        return redirect("environments")
    suite = environments.load(request.user)
    return HttpResponseRedirect(f"{reverse('environments')}?suite={suite.name}")


@require_safe
def search(request: HttpRequest) -> HttpResponse:
    """Show hits of a query."""
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
    """Show workers, queues and what is missing."""
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


class QueueStateJson(TypedDict):
    """A queue: what it does, entries that wait, and the workers that serve it."""

    name: str
    waiting: int
    does: str
    workers: int


class MissingWorkerJson(TypedDict):
    """A queue that nobody serves: what waits, and the command that starts a worker."""

    queue: str
    what: str
    start: str


class CardClocksJson(TypedDict):
    """Who holds a GPU's clocks, and how it went the last time."""

    held: HeldJson | None
    last: Facts | None


class CardJson(TypedDict, total=False):
    """A GPU; what it has no sensor for, and what NVML does not tell, is left out."""

    index: int
    name: str
    cc: str
    driver: str
    uuid: str
    memory_bytes: int | None
    sm_clock_mhz: int
    memory_clock_mhz: int
    temperature_c: int
    power_w: int
    throttle: list[str]
    max_sm_clock_mhz: int
    max_memory_clock_mhz: int
    persistence_now: bool
    clocks: CardClocksJson


class DiskJson(TypedDict):
    """A file system of a host and what lies on it; `rest_bytes`: kept for what runs; `short`: less than that is free."""

    names: list[str]
    free_bytes: int
    total_bytes: int
    rest_bytes: int
    short: bool


class OfferedPackageJson(TypedDict):
    package: str
    version: str


class WorkerJson(TypedDict, total=False):
    """A worker as it announces itself, an older one with less.

    `tools`: path and version of each, or what is missing; `busy`: the job it works on.
    """

    name: Required[str]
    queues: list[str]
    host: str
    pid: int
    gpus: list[CardJson]
    host_gpus: int
    tools: dict[str, dict[str, str]]
    replay: list[str]
    packages: list[OfferedPackageJson]
    cores: int
    busy: str | None
    since: float
    clock_skew_s: float
    disks: list[DiskJson]
    warm: dict[str, Scalar]
    warm_walled: dict[str, Scalar]


class WorkersJson(TypedDict):
    """Living workers as they announce themselves: queues, GPUs, tools."""

    workers: list[WorkerJson]
    queues: list[QueueStateJson]
    missing: list[MissingWorkerJson]


class WorkersApi(APIView):
    """Workers that announced themselves in the last 15 s, the queues, and what nobody can do at the moment."""

    @extend_schema(operation_id="workers", responses=WorkersJson)
    def get(self, request: Request) -> Response:
        alive = jobs.workers()
        return Response({"workers": alive, "queues": overview.queues(), "missing": overview.missing_workers(alive)})


@login_not_required
@require_safe
def health(request: HttpRequest) -> JsonResponse:
    """Return 200 while database and Redis answer, else 503 naming which does not; a disk without room is named; no sign-in."""
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
    if disk.shortage():
        state["disk"] = "full"
    return JsonResponse({"status": "ok" if well else "unavailable", **state}, status=200 if well else 503,
                        headers={} if well else {"Retry-After": str(RETRY_AFTER_S)})
