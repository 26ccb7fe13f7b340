"""Pages of candidates: the list with the permissions, the form, and one with its verdict."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.decorators import permission_required
from django.core.paginator import Paginator
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from profiles.base.refused import Refused
from tuner.candidates import page_selectors, selectors, services
from tuner.models import Candidate
from tuner.tuning.operators import find

MAY_SUBMIT, MAY_REVIEW, MAY_PERMIT = "tuner.add_candidate", "tuner.change_candidate", "tuner.add_candidatepermit"
PAGE = 50
TYPED = ("operator", "text", "shape", "dtype", "config", "note", "parent", "gpu")


@require_safe
def candidate_list(request: HttpRequest) -> HttpResponse:
    """Show candidates, and the operators whose candidates may run."""
    return _list(request)


def _list(request: HttpRequest, problem: str = "", status: int = 200) -> HttpResponse:
    filters = {name: request.GET.get(name, "") for name in selectors.FILTERS}
    page = Paginator(selectors.candidate_list(filters), PAGE).get_page(request.GET.get("page"))
    permits = selectors.permits()
    return render(request, "tuner/candidates/list.html", {
        "page": page, "lines": [page_selectors.line_of(candidate) for candidate in page], "asked": filters,
        "choices": {"status": Candidate.Status.values, "verdict": page_selectors.VERDICTS, "review": Candidate.Review.values},
        "operators": selectors.known_operators(), "permits": list(permits.values()),
        "forbidden": [name for name in selectors.known_operators() if name not in permits], "ability": selectors.ability(),
        "may_submit": request.user.has_perm(MAY_SUBMIT), "may_permit": request.user.has_perm(MAY_PERMIT), "problem": problem,
        "bounds": {"per_day": services.PER_DAY, "seconds": services.SECONDS}}, status=status)


@require_http_methods(["GET", "HEAD", "POST"])
def candidate_new(request: HttpRequest) -> HttpResponse:
    """Show the form, filled from ?operator=&dtype=&M=…&gpu= or ?parent=; POST submits what is in it."""
    if request.method == "POST":
        return _create(request)
    return _form(request, page_selectors.typed_of(request.GET), {})


@permission_required(MAY_SUBMIT, raise_exception=True)
def _create(request: HttpRequest) -> HttpResponse:
    typed = {name: request.POST.get(name, "").replace("\r\n", "\n") for name in TYPED}       # a form ends lines with CR LF
    try:
        candidate = page_selectors.submit(typed, services.Submitter(request.user))
    except Refused as refused:
        return _form(request, typed, refused.fields, refused.status)
    return redirect("candidate", pk=candidate.pk)


def _form(request: HttpRequest, typed: dict[str, str], wrong: dict[str, str], status: int = 200) -> HttpResponse:
    permits, operator = selectors.permits(), find(typed.get("operator", ""))
    named = ("text", "shape", "dtype", "config", "note", "parent", "gpu", "operator")
    return render(request, "tuner/candidates/new.html", {
        "typed": typed, "wrong": {**{name: what for name, what in wrong.items() if name in named},
                                  **({"shape": "; ".join(what for name, what in wrong.items() if name not in named)}
                                     if set(wrong) - set(named) else {})},
        "operators": [{"name": name, "title": entry.title, "allowed": name in permits}
                      for name in selectors.known_operators() if (entry := find(name))],
        "chosen": operator, "files": selectors.files_of(operator.name) if operator else (), "most_bytes": services.MOST_TEXT_BYTES,
        "permit": permits.get(operator.name) if operator else None, "ability": selectors.ability(),
        "may_submit": request.user.has_perm(MAY_SUBMIT)}, status=status)


@require_safe
def candidate_detail(request: HttpRequest, pk: int) -> HttpResponse:
    """Show one candidate."""
    return _detail(request, pk)


def _detail(request: HttpRequest, pk: int, problem: str = "", status: int = 200) -> HttpResponse:
    candidate = get_object_or_404(Candidate.objects.select_related("owner", "reviewed_by", "parent"), pk=pk)
    allowed = {"may_submit": request.user.has_perm(MAY_SUBMIT), "may_review": request.user.has_perm(MAY_REVIEW)}
    return render(request, "tuner/candidates/detail.html", {
        **page_selectors.page_of(candidate), **allowed, "problem": problem}, status=status)


@permission_required(MAY_SUBMIT, raise_exception=True)
@require_POST
def candidate_cancel(request: HttpRequest, pk: int) -> HttpResponse:
    """Cancel a candidate."""
    services.candidate_cancel(get_object_or_404(Candidate, pk=pk))
    return redirect("candidate", pk=pk)


@permission_required(MAY_REVIEW, raise_exception=True)
@require_POST
def candidate_review(request: HttpRequest, pk: int) -> HttpResponse:
    """Accept or decline (POST `decision`, `note`)."""
    candidate = get_object_or_404(Candidate, pk=pk)
    try:
        services.candidate_review(candidate, request.POST.get("decision", ""), request.POST.get("note", ""),
                                  services.Submitter(request.user))
    except Refused as refused:
        return _detail(request, pk, refused.what, 400)
    return redirect("candidate", pk=pk)


@permission_required(MAY_PERMIT, raise_exception=True)
@require_POST
def candidate_permit(request: HttpRequest) -> HttpResponse:
    """Let candidates of an operator run, or no longer (POST `operator`, `allowed`, `per_day`, `seconds`)."""
    fields: Any = request.POST
    try:
        services.permit_set(fields.get("operator", ""), fields.get("allowed") == "yes", per_day=fields.get("per_day"),
                            seconds=fields.get("seconds"), by=request.user)
    except Refused as refused:
        return _list(request, str(refused), 400)
    return redirect("candidate-list")
