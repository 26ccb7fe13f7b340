"""HTML of all kernels, and what people change about a family. The page of one family joins the tuner's rows: `webapp.kernels`."""

from __future__ import annotations

from collections.abc import Callable

from django.contrib import messages
from django.contrib.auth.decorators import permission_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.template.loader import render_to_string
from django.urls import reverse
from django.views.decorators.http import require_POST, require_safe

from profiles.base.refused import Refused
from profiles.charts import families as charts
from profiles.families import launch_selectors, page_selectors, selectors, services
from profiles.families.kept_selectors import cached_answer
from profiles.library import selectors as lists
from profiles.models import FamilyEdit, FamilyNote, KernelFamily, KernelShape
from profiles.profile.finding_selectors import code_pieces

LISTED = 300                # rows of the table over all profiles


@require_safe
def kernel_list(request: HttpRequest) -> HttpResponse:
    """What owns our GPU-hours, and what of it could be won back?"""
    ranking = selectors.ranking(request.GET, LISTED)
    scope = lists.fleet_scope(request.GET)
    chosen = {name: request.GET.get(name, "") for name in selectors.FILTERS}
    rest_count = ranking.count - len(ranking.longest)
    rows = cached_answer(("rows", selectors.family_filters(request.GET)),         # 300 rows take longer than all the rest
                lambda: render_to_string("profiles/_family_rows.html", {"lines": ranking.lines}))
    return render(request, "profiles/families/list.html", {
        "rows": rows,
        "answer": code_pieces(selectors.sentence(ranking, scope)), "lines": ranking.lines, "found": ranking, "scope": scope,
        "chosen": chosen, "filtered": any(chosen.values()), "bars": ranking.longest, "rest_count": rest_count,
        "rest_pct": max(0.0, 100.0 - sum(line.share_pct for line in ranking.longest)) if rest_count else 0.0,
        "unlisted": ranking.count - len(ranking.lines), "choices": lists.filter_choices() | page_selectors.family_choices(),
        "edits": page_selectors.edit_lines(limit=20), "windows": lists.WINDOWS, "query": lists.query_without(chosen),
    })


@require_safe
def family_shape(request: HttpRequest, pk: int) -> HttpResponse:
    """Which launches make a shape, and where on the timeline is each?"""
    shape = get_object_or_404(KernelShape.objects.select_related("kernel__profile", "kernel__family"), pk=pk)
    page = launch_selectors.shape_page(shape)
    return render(request, "profiles/families/shape.html", {**page, "figure": charts.launches_figure(page["launches"])})


def _refusal(what: str, error: Refused) -> str:
    """Two sentences: why not, and what would be possible."""
    return f"{what}: {error}. {error.hint[:1].upper()}{error.hint[1:]}".rstrip(" .") + "."


def _change_view(change: Callable[[HttpRequest, KernelFamily], KernelFamily]) -> Callable[[HttpRequest, int], HttpResponse]:
    """A form of the family's page: what is refused is said there, with what was chosen kept in the answer's words."""
    @require_POST
    @permission_required("profiles.change_kernelfamily", raise_exception=True)
    def view(request: HttpRequest, pk: int) -> HttpResponse:
        family = get_object_or_404(KernelFamily, pk=pk)
        try:
            family = change(request, family)
        except Refused as error:
            messages.error(request, _refusal("Not changed", error))
        return redirect("family", family.pk)
    return view


def _merge(request: HttpRequest, family: KernelFamily) -> KernelFamily:
    into = page_selectors.find_family(request.POST.get("into", ""))
    if into is None:
        raise Refused("no family of that name or number", hint="choose one of the list that the field offers")
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


family_merge, family_split, family_rename = _change_view(_merge), _change_view(_split), _change_view(_rename)


@require_POST
@permission_required("profiles.change_kernelfamily", raise_exception=True)
def edit_undo(request: HttpRequest, pk: int) -> HttpResponse:
    edit = get_object_or_404(FamilyEdit, pk=pk)
    try:
        services.edit_undo(edit, by=request.user)
        messages.success(request, f"Undone: {edit.get_kind_display().lower()} of {edit.family.name}.")
    except Refused as error:
        messages.error(request, _refusal("Not undone", error))
    return redirect("family", edit.family_id)


@require_POST
@permission_required("profiles.add_familynote", raise_exception=True)
def note_create(request: HttpRequest, pk: int) -> HttpResponse:
    family = get_object_or_404(KernelFamily, pk=pk)
    try:
        services.note_create(family, text=request.POST.get("text", ""), by=request.user)
    except Refused as error:
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
