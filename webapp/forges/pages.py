"""Forges as a page, issues of threads, and the address that forges send to."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.contrib.auth.decorators import login_not_required, permission_required
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.http.request import RawPostDataException, UnreadablePostError
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.views.decorators.cache import never_cache
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_http_methods, require_POST

from profiles.base.refused import Refused
from webapp.forges import services
from webapp.forges.speech import Unsigned
from webapp.forges.table import FORGES
from webapp.models import Forge, ForgePost, IssueLink, Thread

SHOWN = 50
FIELDS = ("kind", "name", "place", "api", "account", "key", "hook_secret")
SWITCHES = ("enabled", "checks", "comments", "resolves")


@require_http_methods(["GET", "HEAD", "POST"])
@never_cache
def forges(request: HttpRequest) -> HttpResponse:
    """Show the project's forges; POST adds one and shows the secret of its webhook this once."""
    if request.method != "POST":
        return _page(request)
    if not request.user.has_perm("webapp.add_forge"):
        return HttpResponse("owners add forges", status=403)
    fields = {name: request.POST.get(name, "") for name in FIELDS}
    try:
        forge, secret = services.forge_add(**fields, by=request.user)
    except Refused as refused:
        return _page(request, given={**fields, "key": "", "hook_secret": ""}, problems=refused.fields, status=400)
    return _page(request, made=forge, secret=secret)


@require_POST
@permission_required("webapp.change_forge", raise_exception=True)
def change(request: HttpRequest, pk: int) -> HttpResponse:
    """Fields enabled, checks, comments, resolves: 1 or left out."""
    row = get_object_or_404(Forge, pk=pk)
    for name in SWITCHES:
        setattr(row, name, bool(request.POST.get(name)))
    row.save(update_fields=list(SWITCHES))
    return redirect("forge-list")


@require_POST
@permission_required("webapp.delete_forge", raise_exception=True)
def delete(request: HttpRequest, pk: int) -> HttpResponse:
    """Remove a forge with what it was to be told; links to its issues stay."""
    get_object_or_404(Forge, pk=pk).delete()
    return redirect("forge-list")


@csrf_exempt
@login_not_required
@require_POST
def hook(request: HttpRequest, pk: int) -> HttpResponse:
    """Take a message of a forge: only what is signed with the forge's secret is read. At most 64 kB."""
    row = Forge._base_manager.filter(pk=pk).first()
    try:
        body = request.body
    except (RawPostDataException, UnreadablePostError):
        return JsonResponse({"error": "the body could not be read"}, status=400)
    if len(body) > services.MOST_BYTES:
        return JsonResponse({"error": "a message has at most 64 kB"}, status=413)
    try:
        if row is None:
            raise Unsigned("the signature is not that of the secret")
        message = services.arrive(row, {name.lower(): value for name, value in request.headers.items()}, body)
    except Unsigned:
        return JsonResponse({"error": "not signed with the secret of this address"}, status=401)
    return JsonResponse({"message": message}, status=202)


@require_POST
@permission_required("webapp.change_thread", raise_exception=True)
def link_add(request: HttpRequest, pk: int) -> HttpResponse:
    """Field: address."""
    return _do(request, get_object_or_404(Thread, pk=pk), services.link_add, request.POST.get("address", ""))


@require_POST
@permission_required("webapp.change_thread", raise_exception=True)
def issue_create(request: HttpRequest, pk: int) -> HttpResponse:
    """Fields: forge, title, text."""
    thread = get_object_or_404(Thread, pk=pk)
    named = request.POST.get("forge", "")
    forge = get_object_or_404(Forge, pk=int(named) if named.isdecimal() and len(named) < 19 else 0, enabled=True)
    return _do(request, thread, services.issue_create, forge, request.POST.get("title", ""), request.POST.get("text", ""))


@require_POST
@permission_required("webapp.change_thread", raise_exception=True)
def link_remove(request: HttpRequest, pk: int) -> HttpResponse:
    """Take a link away."""
    row = get_object_or_404(IssueLink.objects.select_related("thread"), pk=pk)
    services.link_remove(row, by=request.user)
    return redirect("thread", row.thread_id)


def _do(request: HttpRequest, thread: Thread, service: Any, *given: Any) -> HttpResponse:
    try:
        service(thread, *given, by=request.user)
    except Refused as refused:
        messages.error(request, "; ".join(refused.fields.values()))
    return redirect(f"{reverse('thread', args=[thread.pk])}#issues")


def _page(request: HttpRequest, *, given: Any = None, problems: Any = None, made: Forge | None = None, secret: str = "",
          status: int = 200) -> HttpResponse:
    rows = [{"row": row, "label": FORGES[row.kind].label if row.kind in FORGES else row.kind,
             "hook": request.build_absolute_uri(reverse("forge-hook", args=[row.pk]))} for row in Forge.objects.all()]
    return render(request, "threads/forges.html", {
        "rows": rows, "kinds": FORGES.values(), "given": given or {}, "problems": problems or {}, "made": made, "secret": secret,
        "posts": ForgePost.objects.select_related("forge")[:SHOWN]}, status=status)
