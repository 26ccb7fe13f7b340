"""HTML of all kernels, and what people change about a family. The page of one family joins the tuner's rows: `webapp.kernels`."""

from __future__ import annotations

from collections.abc import Callable

from django.contrib import messages
from django.contrib.auth.decorators import permission_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.views.decorators.http import require_POST, require_safe

from profiles.charts import families as charts
from profiles.families import launch_selectors, page_selectors, selectors, services
from profiles.models import FamilyEdit, FamilyNote, KernelFamily, KernelShape
from profiles.selectors import lists
from profiles.selectors.profile import code_pieces

LISTED = 300                # rows of the table over all profiles
BARS = 12                   # named in the bar; the template draws as many


@require_safe
def kernel_list(request: HttpRequest) -> HttpResponse:
    """What owns our GPU-hours, and what of it could be won back?"""
    found = selectors.ranking(request.GET)
    scope = lists.fleet_scope(request.GET)
    chosen = {name: request.GET.get(name, "") for name in selectors.FILTERS}
    by_time = sorted(found.lines, key=lambda line: -line.worth.total_ns)
    return render(request, "profiles/kernel_list.html", {
        "answer": code_pieces(selectors.sentence(found, scope)), "lines": found.lines[:LISTED], "found": found, "scope": scope,
        "chosen": chosen, "filtered": any(chosen.values()), "bars": by_time[:BARS],
        "rest_count": len(by_time[BARS:]), "rest_pct": sum(line.share_pct for line in by_time[BARS:]),
        "unlisted": max(0, len(found.lines) - LISTED), "choices": lists.filter_choices() | page_selectors.family_choices(),
        "edits": page_selectors.edit_lines(limit=20),
    })


@require_safe
def family_shape(request: HttpRequest, pk: int) -> HttpResponse:
    """Which launches make a shape, and where on the timeline is each?"""
    shape = get_object_or_404(KernelShape.objects.select_related("kernel__profile", "kernel__family"), pk=pk)
    page = launch_selectors.shape_page(shape)
    return render(request, "profiles/family_shape.html", {**page, "figure": charts.launches_figure(page["launches"])})


def _refused(what: str, error: services.EditRefused) -> str:
    """Two sentences: why not, and what would be possible."""
    return f"{what}: {error}. {error.hint[:1].upper()}{error.hint[1:]}".rstrip(" .") + "."


def _changing(change: Callable[[HttpRequest, KernelFamily], KernelFamily]) -> Callable[[HttpRequest, int], HttpResponse]:
    """A form of the family's page: what is refused is said there, with what was chosen kept in the answer's words."""
    @require_POST
    @permission_required("profiles.change_kernelfamily", raise_exception=True)
    def view(request: HttpRequest, pk: int) -> HttpResponse:
        family = get_object_or_404(KernelFamily, pk=pk)
        try:
            family = change(request, family)
        except services.EditRefused as error:
            messages.error(request, _refused("Not changed", error))
        return redirect("family", family.pk)
    return view


def _merge(request: HttpRequest, family: KernelFamily) -> KernelFamily:
    into = page_selectors.family_named(request.POST.get("into", ""))
    if into is None:
        raise services.EditRefused("no family of that name or number", "choose one of the list that the field offers")
    services.family_merge(family, into, by=request.user)
    messages.success(request, f"{family.name} is part of {into.name} now.")
    return into


def _split(request: HttpRequest, family: KernelFamily) -> KernelFamily:
    edit = services.family_split(family, request.POST.getlist("name"), name=request.POST.get("called", ""), by=request.user)
    assert edit.other is not None
    messages.success(request, f"{edit.other.name} is a family of its own now.")
    return edit.other


def _rename(request: HttpRequest, family: KernelFamily) -> KernelFamily:
    services.family_rename(family, request.POST.get("called", ""), by=request.user)
    messages.success(request, "Renamed.")
    return family


family_merge, family_split, family_rename = _changing(_merge), _changing(_split), _changing(_rename)


@require_POST
@permission_required("profiles.change_kernelfamily", raise_exception=True)
def edit_undo(request: HttpRequest, pk: int) -> HttpResponse:
    edit = get_object_or_404(FamilyEdit, pk=pk)
    try:
        services.edit_undo(edit, by=request.user)
        messages.success(request, f"Undone: {edit.get_kind_display().lower()} of {edit.family.name}.")
    except services.EditRefused as error:
        messages.error(request, _refused("Not undone", error))
    return redirect("family", edit.family_id)


@require_POST
@permission_required("profiles.add_familynote", raise_exception=True)
def note_create(request: HttpRequest, pk: int) -> HttpResponse:
    family = get_object_or_404(KernelFamily, pk=pk)
    try:
        services.note_create(family, text=request.POST.get("text", ""), by=request.user)
    except services.EditRefused as error:
        messages.error(request, f"Not kept: {error}.")
    return redirect(f"{family_address(family)}#notes")


@require_POST
@permission_required("profiles.delete_familynote", raise_exception=True)
def note_delete(request: HttpRequest, pk: int) -> HttpResponse:
    note = get_object_or_404(FamilyNote.objects.select_related("family"), pk=pk)
    services.note_delete(note, by=request.user)
    return redirect(f"{family_address(note.family)}#notes")


def family_address(family: KernelFamily) -> str:
    return reverse("family", args=[family.pk])
