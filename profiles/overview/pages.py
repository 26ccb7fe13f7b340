"""HTML of profiles. Each view authorises, parses, calls a service or selector, renders."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.contrib import messages
from django.contrib.auth.decorators import permission_required
from django.core.files.storage import default_storage
from django.core.files.uploadedfile import UploadedFile
from django.core.paginator import Paginator
from django.http import FileResponse, Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.utils.http import urlencode
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from profiles.charts import strip as charts_strip
from profiles.charts import trace as charts_trace
from profiles.charts.needed import needed_bars, slow_rows
from profiles.charts.operators import tree_context
from profiles.charts.strip import lane_pictures
from profiles.charts.trace import leading
from profiles.counters import selectors as selectors_counters
from profiles.ingest.trace import TraceError
from profiles.library import selectors
from profiles.models import Profile
from profiles.profile import selectors as selectors_profile
from profiles.profile.busy import busy_lanes
from profiles.profile.counted_selectors import counted_in
from profiles.profile.finding_selectors import finding_lines, integrity_card, is_time_doubtful
from profiles.profile.selectors import sort_columns, time_by_bound, top_kernels
from profiles.retention.services import freed_bytes
from profiles.theme import cached_figure
from profiles.topics.selectors import NUMBERS_OF, lines_without_doubt, topic_lines
from profiles.topics.time import overview as time_overview
from profiles.upload import request_services, services, waiting_services

PAGE_ROWS = 200
KERNELS = 300               # rows of a profile's kernels; all of them with ?kernels=all
TOP_KERNELS, LEADING, FIRST_FINDINGS = 12, 3, 4         # on the overview
NEEDED_BARS = 8             # GPUs of which the overview draws what they needed
SLOW_ROWS = 3               # kernels below their ceiling that the overview names
DRAWN = ("causes", "needed")    # analyses that the overview draws: it does not list them again
PAGE_TABLE_ROWS = 500       # of each table of sums; the whole table is a file
_UPLOAD_FIELDS = ("build", "model", "tags", "notes")


@require_safe
def profile_list(request: HttpRequest) -> HttpResponse:
    """Which runs do we have?"""
    page = Paginator(selectors.profile_list(request.GET), PAGE_ROWS).get_page(request.GET.get("page"))
    chosen = {name: request.GET.get(name, "") for name in selectors.FILTERS}
    return render(request, "profiles/list.html", {
        "page": page, "rows": [selectors_profile.profile_row(profile) for profile in page], "chosen": chosen,
        "filtered": any(chosen.values()), "choices": selectors.filter_choices(), "totals": selectors.totals(),
        "query": selectors.query_without(request.GET, "page"),
    })


@permission_required("profiles.add_profile", raise_exception=True)
@require_http_methods(["GET", "HEAD", "POST"])
def profile_upload(request: HttpRequest) -> HttpResponse:
    """The form with drag and drop; without scripts a plain form of several files."""
    fields = {name: request.POST.get(name, request.GET.get(name, "")) for name in _UPLOAD_FIELDS}
    created: list[Profile] = []
    errors: list[TraceError] = []
    if request.method == "POST":
        values: dict[str, Any] = {**fields, "tags": services.tags_parse(fields["tags"]), "owner": request.user}
        files: list[UploadedFile[bytes] | None] = [*request.FILES.getlist("file")] or [None]
        for first, *more in [files] if "together" in request.POST else [[file] for file in files]:
            try:
                created.append(services.profile_create(
                    file=services.upload_check(first), more_files=[services.upload_check(file) for file in more], **values))
            except TraceError as error:
                errors.append(error)
        if created and not errors:
            messages.success(request, f"{len(created)} profile(s) uploaded; the ingest has begun.")
            return redirect("profile", created[0].pk) if len(created) == 1 else redirect("profile-list")
    return render(request, "profiles/upload.html", {
        "fields": fields, "created": created, "errors": errors, "choices": selectors.filter_choices(),
        "max_bytes": settings.UPLOAD_MAX_BYTES, "formats": selectors.formats_read(), "together": "together" in request.POST,
    }, status=400 if errors and not created else 200)


@require_http_methods(["GET", "HEAD", "POST"])
def profile_detail(request: HttpRequest, pk: int) -> HttpResponse | FileResponse:
    """Where did the time go? POST edits name, build, model, tags and notes; `?download=0` hands out the upload."""
    profile = get_object_or_404(Profile.objects.select_related("owner"), pk=pk)
    if request.method == "POST":
        return _edit(request, profile)
    if "download" in request.GET:
        return _download(profile, request.GET["download"])
    context: dict[str, Any] = {
        "profile": profile, "row": selectors_profile.profile_row(profile), "uploads": selectors_profile.uploads(profile),
        "duplicates": selectors_profile.duplicates(profile)[:5], "counted_in": counted_in(profile),
        "integrity": integrity_card(profile), "builds": selectors_profile.known_builds(),
        "command": selectors_profile.command(profile),
    }
    if profile.status == Profile.Status.READY:
        if "kernels" in request.GET:                    # where the whole table stood before it had a page
            return redirect(f"{reverse('profile-kernels', args=[pk])}?{urlencode({'kernels': request.GET['kernels']})}")
        context |= _ready_context(profile, request.GET.get("sort", ""))
        if profile.kind == Profile.Kind.SUMMARY:
            context |= tree_context(selectors_profile.tables(profile), request.GET.get("of", "")[:400])
    return render(request, "profiles/detail.html", context)


def _ready_context(profile: Profile, sort: str) -> dict[str, Any]:
    """What a ready profile's page shows beyond its row. Strip, bars and causes are of one reading of the account."""
    lines = topic_lines(profile) if profile.kind == Profile.Kind.TRACE else []       # before findings, which are kept first
    findings = finding_lines(profile)
    context: dict[str, Any] = {
        "answer": selectors_profile.answer(profile, findings), "findings": findings, "first_findings": findings[:FIRST_FINDINGS],
        "top": top_kernels(profile, sort, TOP_KERNELS), "kernel_count": profile.kernels.count(),
        "columns": sort_columns(sort), "metadata": selectors_profile.metadata_rows(profile),
    }
    if profile.kind == Profile.Kind.TRACE:
        tables = selectors_profile.summary_tables(profile, PAGE_TABLE_ROWS) if not profile.launches else []
        account = next((line for line in lines if line.topic.name == "causes"), None)
        numbers = account.numbers if account else {}
        needed = next((line for line in lines if line.topic.name == "needed" and line.applies and line.numbers), None)
        if needed and not is_time_doubtful(profile):
            context["needed"] = {"answer": needed.answer, "bars": needed_bars(needed.numbers)[:NEEDED_BARS],
                                 "more": max(0, len(needed.numbers.get("gpus", ())) - NEEDED_BARS),
                                 "slow": slow_rows(needed.numbers, SLOW_ROWS),
                                 "steps": any(gpu["steps"] for gpu in needed.numbers.get("gpus", ()))}
        leads = findings[:1] if findings and findings[0].finding.numbers.get("leads") and not is_time_doubtful(profile) else []
        context["lead_advice"] = leads[0].advice if leads else []
        unmade = [line.topic.name for line in lines if line.topic.name in NUMBERS_OF
                  and line.applies and not (line.answer or line.numbers)]
        context["awaited_topic"] = unmade[0] if unmade and profile.summary.get("devices") else ""
        context |= {"strip": charts_strip.trace_strip(profile.summary, numbers, profile.steps or 0), "minimap": _minimap(profile)}
        context |= time_overview(profile, numbers) if profile.summary.get("devices") else {
            "time": None if tables else charts_trace.time_bars(profile.summary)}
        context["leading"] = [] if is_time_doubtful(profile) else leading(context.get("causes", []), LEADING)
        if context["leading"]:
            context["first_findings"] = findings[:FIRST_FINDINGS - 1]
        lines = lines_without_doubt(lines, profile)
        if not profile.summary.get("devices"):          # most analyses are of GPU work: those that found something
            return {**context, "tables": tables, "topics": [line for line in lines if line.answer and line.applies]}
        return {**context, "tables": tables, "topics": [line for line in lines if line.topic.name not in DRAWN]}
    if profile.kind == Profile.Kind.SUMMARY:
        return {**context, "tables": selectors_profile.summary_tables(profile, PAGE_TABLE_ROWS)}
    return {**context, "launches": selectors_counters.launch_rows(profile), "strip": charts_strip.counters_strip(
        profile.gpu_time_ns, profile.launches, time_by_bound(profile))}


def _minimap(profile: Profile) -> dict[str, Any] | None:
    lanes = busy_lanes(profile)
    if lanes is None:
        return None
    return {"end_ns": lanes.end_ns, "more": lanes.more, **(cached_figure(
        ("minimap", lanes.key), lambda: {"lanes": lane_pictures(lanes.lanes)}) or {})}


@require_safe
def profile_kernels(request: HttpRequest, pk: int) -> HttpResponse:
    """Which kernels ran? `?kernels=all` all of them, `shapes` a row per shape, `all-shapes` both."""
    profile = get_object_or_404(Profile, pk=pk, status=Profile.Status.READY)
    return render(request, "profiles/kernels.html", {
        "profile": profile, **_kernels_context(profile, request.GET.get("kernels", ""))})


def _kernels_context(profile: Profile, asked: str) -> dict[str, Any]:
    most = None if asked in ("all", "all-shapes") else KERNELS
    shapes = selectors_profile.shape_rows(profile).count()
    by_shape = asked in ("shapes", "all-shapes") and bool(shapes)
    return {
        "kernels": [] if by_shape else selectors_profile.kernel_table(profile, most), "kernel_count": profile.kernels.count(),
        "by_shape": by_shape, "shape_count": shapes,
        "shape_lines": selectors_profile.shape_table(profile, most) if by_shape else [],
    }


def _edit(request: HttpRequest, profile: Profile) -> HttpResponse:
    if not request.user.has_perm("profiles.change_profile"):
        return HttpResponse("Editing needs the role engineer.", status=403)
    changes: dict[str, Any] = {name: request.POST[name] for name in ("name", "build", "model", "notes") if name in request.POST}
    if "tags" in request.POST:
        changes["tags"] = services.tags_parse(request.POST["tags"])
    services.profile_update(profile, **changes)
    messages.success(request, "Saved.")
    return redirect("profile", profile.pk)


def _download(profile: Profile, which: str) -> FileResponse:
    """The upload as it came, always as an attachment: nothing a user sent is ever shown by the browser."""
    uploads = selectors_profile.uploads(profile)
    if not which.isdecimal() or len(which) > 9 or int(which) >= len(uploads):
        raise Http404("no such upload")
    upload = uploads[int(which)]
    try:
        file = default_storage.open(upload["key"], "rb")
    except FileNotFoundError as error:
        raise Http404("the upload is not in the store") from error
    return FileResponse(file, as_attachment=True, filename=upload["name"], content_type="application/octet-stream")


@permission_required("profiles.delete_profile", raise_exception=True)
@require_http_methods(["GET", "HEAD", "POST"])
def profile_delete(request: HttpRequest, pk: int) -> HttpResponse:
    """GET asks, POST deletes."""
    profile = get_object_or_404(Profile, pk=pk)
    if request.method == "POST":
        services.profile_delete(profile)
        messages.success(request, f"Deleted {profile.name}.")
        return redirect("profile-list")
    return render(request, "profiles/confirm_delete.html", {
        "profile": profile, "captures": selectors_profile.captures_of(profile),
        "freed": freed_bytes(Profile.objects.filter(pk=pk))})


@permission_required("profiles.add_profile", raise_exception=True)
@require_POST
def profile_apart(request: HttpRequest, pk: int) -> HttpResponse:
    """Files that were refused as ranks of different jobs become profiles of their own."""
    try:
        profiles = request_services.profile_apart(get_object_or_404(Profile, pk=pk))
    except TraceError as error:
        messages.error(request, f"{error.what}. {error.hint}")
        return redirect("profile", pk)
    messages.success(request, f"{len(profiles)} profiles; the ingest has begun.")
    return redirect("profile-list")


@permission_required("profiles.add_profile", raise_exception=True)
@require_POST
def profile_number(request: HttpRequest, pk: int) -> HttpResponse:
    """Files that were refused since several state one rank are read once more, numbered by file."""
    try:
        request_services.profile_number_by_file(get_object_or_404(Profile, pk=pk))
    except TraceError as error:
        messages.error(request, f"{error.what}. {error.hint}")
    return redirect("profile", pk)


@permission_required("profiles.add_profile", raise_exception=True)
@require_POST
def profile_reread(request: HttpRequest, pk: int) -> HttpResponse:
    """The stored upload is read anew, by the reader of today."""
    if why := waiting_services.profile_reread(get_object_or_404(Profile, pk=pk)):
        messages.error(request, f"Not read again: {why}.")
    return redirect("profile", pk)
