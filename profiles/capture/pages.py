"""Pages of captures: list, ask for one, follow it; owners define targets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.contrib import messages
from django.contrib.auth.decorators import permission_required
from django.core.exceptions import PermissionDenied
from django.core.paginator import Paginator
from django.http import FileResponse, Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from profiles.base.refused import Refused
from profiles.capture import cost_selectors, selectors, services
from profiles.capture import forms as capture_forms
from profiles.capture.forms import ABOUT, FORMS, About, TargetForm, ToolForm, WhatForm, about_of, options_of
from profiles.capture.tools import CAPTURE_TOOLS
from profiles.models import Capture, CaptureTarget

PAGE_ROWS = 100


@require_safe
def capture_list(request: HttpRequest) -> HttpResponse:
    page = Paginator(selectors.captures(request.GET.dict()), PAGE_ROWS).get_page(request.GET.get("page"))
    running = Capture.objects.filter(status__in=[Capture.Status.QUEUED, Capture.Status.RUNNING]).count()
    return render(request, "profiles/capture/list.html", {
        "page": page, "running": running, "filters": request.GET, "answer": selectors.ability_sentence(selectors.ability()),
        "statuses": Capture.Status.choices, "tools": CAPTURE_TOOLS})


@require_http_methods(["GET", "HEAD", "POST"])
def capture_new(request: HttpRequest) -> HttpResponse:
    """The form. Query string: about, tool, target (id), kernel (names), options of the tool, build, model, tags, baseline (id);
    again (id of a capture: all as it was); fresh: not as it was asked last; profile (id), whose kernel it is about. Where a
    profile, kernel or build is named, the program is the one that made it, as far as a capture tells, else the form asks for it."""
    if request.method == "POST":
        return _create(request)
    tool, filled = request.GET.get("tool", ""), capture_forms.asked(request.GET)
    once_more = capture_forms.again(request.GET.get("again", ""))
    if once_more is not None:
        tool = tool or once_more.tool
        filled = {"target": str(once_more.target_id), "build": once_more.build, "model": once_more.model,
                  "tags": ", ".join(once_more.tags), **filled}
    if "target" not in filled and (made_by := capture_forms.program_for(request.GET)):
        filled["target"] = made_by
    what = WhatForm(targets=selectors.targets(), baselines=capture_forms.baselines(filled.get("baseline", "")), initial=filled,
                    ask="target" not in filled and capture_forms.is_about_something(request.GET)
                    and selectors.targets().count() > 1)
    about, target = about_of(request.GET.get("about", ""), tool), filled.get("target", "") or _first_target(what)
    last = {name: capture_forms.last_capture(request.user, target, name) for name in FORMS}
    if once_more is not None and target == str(once_more.target_id):
        last[once_more.tool] = once_more
    tools = {name: form(initial=capture_forms.initial(request.GET, about, name, last[name])) for name, form in FORMS.items()}
    shown = {name: row for name, row in last.items() if row is not None and "fresh" not in request.GET}
    return _new_page(request, what, tools, tool, about, last=shown)


def _first_target(what: WhatForm) -> str:
    """Return the program that the form draws as chosen where the address names none."""
    field: Any = what.fields["target"]
    first = None if field.empty_label else field.queryset.first()
    return str(first.pk) if first is not None else ""


def _create(request: HttpRequest) -> HttpResponse:
    if not request.user.has_perm("profiles.add_capture"):
        raise PermissionDenied("engineers and owners may capture")
    tool = request.POST.get("tool", "")
    baselines = capture_forms.baselines(request.POST.get("baseline", ""))
    what = WhatForm(request.POST, targets=selectors.targets(), baselines=baselines)
    tools = {name: form(request.POST if name == tool else None) for name, form in FORMS.items()}
    if what.is_valid() and tool in tools:
        fields = what.cleaned_data
        try:
            capture = services.capture_create(
                owner=request.user, target=fields["target"], tool=tool, options=options_of(tools[tool]),
                build=fields["build"], model=fields["model"], tags=fields["tags"].split(","), baseline=fields["baseline"])
            return redirect("capture", pk=capture.pk)
        except Refused as refused:
            refused.show_in(tools[tool], what)
    return _new_page(request, what, tools, tool, about_of(request.POST.get("about", ""), tool), status=400)


def _new_page(request: HttpRequest, what: WhatForm, tools: Mapping[str, ToolForm], tool: str, about: About, *,
              last: Mapping[str, Capture] | None = None, status: int = 200) -> HttpResponse:
    """Draw the form with `tool` chosen: where that is none, the first for `about` that a living worker has."""
    targets, able = list(selectors.targets()), selectors.ability()
    tool = tool if tool in tools else next((name for name in about.tools if able[name].able), about.tools[0])
    return render(request, "profiles/capture/new.html", {
        "what": what, "about": about, "abouts": ABOUT.values(), "last": last or {},
        "tools": tools, "tool": tool, "chosen": able[tool], "answer": selectors.ability_sentence(able),
        "choices": [(CAPTURE_TOOLS[name], ability) for name, ability in able.items()],
        "targets": targets, "may_define": request.user.has_perm("profiles.add_capturetarget"),
        "may_capture": request.user.has_perm("profiles.add_capture")}, status=status)


@require_safe
def capture_detail(request: HttpRequest, pk: int) -> HttpResponse:
    capture = get_object_or_404(Capture.objects.select_related("target", "owner", "profile", "baseline"), pk=pk)
    live = capture.status in (Capture.Status.QUEUED, Capture.Status.RUNNING)
    return render(request, "profiles/capture/detail.html", {
        "capture": capture, "live": live, "cost": cost_selectors.cost(capture), "result": selectors.result_url(capture),
        "profile_url": reverse("profile", args=[capture.profile_id]) if capture.profile_id else "",
        "options": selectors.option_rows(capture), "command": selectors.command_text(capture),
        "name": CAPTURE_TOOLS[capture.tool].title, "ability": selectors.ability()[capture.tool],
        "files": selectors.file_rows(capture, request.user.has_perm(selectors.OWNER)),
        "can_finish": CAPTURE_TOOLS[capture.tool].stop is not None,
        "next_baseline": capture.profile_id if capture.tool == "ncu" else None,
        "dumps": selectors.dumps_json(capture),
        "may_stop": live and request.user.has_perm("profiles.add_capture")})


@require_safe
def capture_file(request: HttpRequest, pk: int, file_pk: int) -> FileResponse:
    """A file that was kept, always as an attachment: nothing that a program wrote is ever shown by the browser."""
    try:
        capture, owner = get_object_or_404(Capture, pk=pk), request.user.has_perm(selectors.OWNER)
        name, file = selectors.kept_file(capture, file_pk, owner)
    except FileNotFoundError as error:
        raise Http404("no such file") from error
    return FileResponse(file, as_attachment=True, filename=name, content_type="application/octet-stream")


@require_POST
@permission_required("profiles.add_capture", raise_exception=True)
def capture_stop(request: HttpRequest, pk: int) -> HttpResponse:
    capture = get_object_or_404(Capture, pk=pk)
    if not services.capture_stop(capture):
        messages.info(request, f"It had ended already: {capture.status}.")
    return redirect("capture", pk=pk)


@require_POST
@permission_required("profiles.add_capture", raise_exception=True)
def capture_dump(request: HttpRequest, pk: int) -> HttpResponse:
    try:
        number = services.capture_dump(get_object_or_404(Capture, pk=pk))
        messages.success(request, f"Snapshot {number} is asked for: it comes among the files.")
    except Refused as refused:
        messages.error(request, f"No snapshot: {refused}.")
    return redirect("capture", pk=pk)


@require_http_methods(["GET", "HEAD", "POST"])
@permission_required("profiles.delete_capture", raise_exception=True)
def capture_delete(request: HttpRequest, pk: int) -> HttpResponse:
    """GET asks, POST deletes."""
    capture = get_object_or_404(Capture.objects.select_related("target"), pk=pk)
    if request.method == "POST":
        try:
            services.capture_delete(capture)
        except Refused as refused:
            messages.error(request, f"Not deleted: {refused}.")
            return redirect("capture", pk=pk)
        messages.success(request, f"Deleted capture {pk}.")
        return redirect("capture-list")
    return render(request, "profiles/capture/delete.html", {"capture": capture, "held": selectors.held_by(capture)})


@require_http_methods(["GET", "HEAD", "POST"])
@permission_required("profiles.add_capturetarget", raise_exception=True)
def capture_targets(request: HttpRequest) -> HttpResponse:
    """Owners: what may be executed. ?edit=ID fills the form with that target; POST `examples` adds the bundled ones."""
    if "examples" in request.POST:
        services.example_targets()
        messages.success(request, "The example programs can be captured now.")
        return redirect((request.POST.get("next") == "new" and "capture-new") or "capture-targets")
    chosen = request.POST.get("edit") or request.GET.get("edit") or ""
    edited = get_object_or_404(CaptureTarget, pk=int(chosen)) if chosen.isdecimal() and len(chosen) < 19 else None
    form = TargetForm(request.POST) if request.method == "POST" else TargetForm.of(edited) if edited else TargetForm()
    status = 200
    if request.method == "POST":
        if form.is_valid():
            try:
                services.target_save(target=edited, **form.cleaned_data)
                return redirect("capture-targets")
            except Refused as refused:
                refused.show_in(form)
        status = 400
    return render(request, "profiles/capture/targets.html", {
        "targets": selectors.targets(enabled_only=False), "form": form, "edited": edited}, status=status)
