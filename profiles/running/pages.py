"""HTML of serving engines that may be captured, and of captures by a schedule."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.contrib.auth.decorators import permission_required
from django.core.exceptions import PermissionDenied
from django.core.paginator import Paginator
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.http import require_http_methods, require_POST

from profiles.base.refused import Refused
from profiles.running import engine_services, fetch_services, schedule_services, selectors
from profiles.running.engines import NEEDS
from profiles.running.forms import EngineForm, ScheduleForms, ServerForm, parameter_form
from profiles.running.models import CaptureSchedule, EngineCapture, EngineServer

PAGE_ROWS = 50
PREFILLED = ("job", "host", "ranks", "when", "server", "name")


def _chosen(request: HttpRequest, model: Any) -> Any:
    pk = request.POST.get("edit") or request.GET.get("edit") or ""
    return get_object_or_404(model, pk=int(pk)) if pk.isdecimal() and len(pk) < 19 else None


@require_http_methods(["GET", "HEAD", "POST"])
def servers(request: HttpRequest) -> HttpResponse:
    """Which vLLM and SGLang servers may be captured? Owners name them (POST; ?edit=ID)."""
    may_define = request.user.has_perm("profiles.change_engineserver")
    edited = _chosen(request, EngineServer)
    form = ServerForm(request.POST) if request.method == "POST" else ServerForm.of(edited) if edited else ServerForm()
    status = 200
    if request.method == "POST":
        if not may_define:
            raise PermissionDenied("owners name servers")
        if form.is_valid():
            try:
                row = engine_services.server_save(edited, author=request.user, **form.given(edited is not None))
                engine_services.ask_version(row)
                return redirect("engine-server", pk=row.pk)
            except Refused as refused:
                refused.show_in(form, named=True)
        status = 400
    return render(request, "profiles/running/servers.html", {
        "here": "fleet-captures", "rows": EngineServer.objects.all(), "form": form, "edited": edited, "may_define": may_define,
        "needs": NEEDS}, status=status)


@require_http_methods(["GET", "HEAD", "POST"])
def server(request: HttpRequest, pk: int) -> HttpResponse:
    """Capture one server (POST), and what became of its captures."""
    row = get_object_or_404(EngineServer, pk=pk)
    kind_form = parameter_form(row.kind)
    form, parameters = EngineForm(), kind_form()
    status = 200
    if request.method == "POST":
        if not request.user.has_perm("profiles.add_enginecapture"):
            raise PermissionDenied("engineers and owners may capture")
        form, parameters = EngineForm(request.POST), kind_form(request.POST)
        if form.is_valid() and parameters.is_valid():
            try:
                engine_services.capture_create(row, {**form.cleaned_data, "options": parameters.cleaned_data}, request.user)
                return redirect("engine-server", pk=row.pk)
            except Refused as refused:
                refused.show_in(form, parameters, named=True)
        status = 400
    page = Paginator(selectors.engine_captures(row), PAGE_ROWS).get_page(request.GET.get("page"))
    lines = [selectors.EngineLine(capture) for capture in page]
    return render(request, "profiles/running/server.html", {
        "here": "fleet-captures", "server": row, "form": form, "parameters": parameters, "page": page, "lines": lines,
        "any_open": any(line.is_open for line in lines), "needs": NEEDS[row.kind], "able": selectors.has_worker(),
        "away": fetch_services.why_not(row.host, row.folder) if row.host else "",
        "may_capture": request.user.has_perm("profiles.add_enginecapture"),
        "may_define": request.user.has_perm("profiles.change_engineserver")}, status=status)


@require_POST
@permission_required("profiles.add_enginecapture", raise_exception=True)
def server_version(request: HttpRequest, pk: int) -> HttpResponse:
    """Ask a server for its version."""
    engine_services.ask_version(get_object_or_404(EngineServer, pk=pk))
    return redirect("engine-server", pk=pk)


@require_POST
@permission_required("profiles.delete_engineserver", raise_exception=True)
def server_delete(request: HttpRequest, pk: int) -> HttpResponse:
    get_object_or_404(EngineServer, pk=pk).delete()
    return redirect("engine-servers")


@require_POST
@permission_required("profiles.change_enginecapture", raise_exception=True)
def engine_capture_stop(request: HttpRequest, pk: int) -> HttpResponse:
    row = get_object_or_404(EngineCapture, pk=pk)
    if not engine_services.capture_stop(row):
        messages.info(request, f"It had ended already: {row.status}.")
    return redirect("engine-server", pk=row.server_id)


@require_http_methods(["GET", "HEAD", "POST"])
def schedules(request: HttpRequest) -> HttpResponse:
    """Captures by a schedule: list, new (POST; ?job=&host=&ranks= fill the form), change (?edit=ID)."""
    may_change = request.user.has_perm("profiles.change_captureschedule")
    edited = _chosen(request, CaptureSchedule)
    filled = {name: request.GET[name][:200] for name in PREFILLED if name in request.GET}
    own = ScheduleForms(request.POST if request.method == "POST" else None, edited, filled)
    status = 200
    if request.method == "POST":
        if not may_change:
            raise PermissionDenied("engineers and owners make schedules")
        if own.is_valid():
            try:
                schedule_services.schedule_save(edited, author=request.user, **own.given())
                return redirect("capture-schedules")
            except Refused as refused:
                for form, field, text in own.show(refused.fields):
                    form.add_error(field, text)
        status = 400
    return render(request, "profiles/running/schedules.html", {
        "here": "fleet-captures", "lines": selectors.schedule_lines(), "forms": own, "edited": edited, "may_change": may_change},
        status=status)


@require_POST
@permission_required("profiles.change_captureschedule", raise_exception=True)
def schedule_change(request: HttpRequest, pk: int) -> HttpResponse:
    """Field `do`: pause, resume or delete."""
    row = get_object_or_404(CaptureSchedule, pk=pk)
    schedule_services.schedule_change(row, request.POST.get("do", ""))
    return redirect("capture-schedules")
