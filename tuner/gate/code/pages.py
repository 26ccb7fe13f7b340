"""HTML: the source of a suite's code: allowed, tried, archives of builds uploaded."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.contrib.auth.decorators import permission_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.http import require_http_methods, require_POST

from profiles.base.refused import Refused
from tuner.gate.code import selectors, services
from tuner.models import CodeFetch, Suite

SAID = ("kind", "address", "folder")


@require_http_methods(["GET", "HEAD", "POST"])
def suite_code(request: HttpRequest, pk: int) -> HttpResponse:
    """Show the source; POST allows one, or with `do=forbid` takes it away."""
    suite = get_object_or_404(Suite, pk=pk)
    if request.method == "POST":
        return _change(request, suite)
    return _page(request, suite, {}, {})


@permission_required(services.MAY_ALLOW, raise_exception=True)
def _change(request: HttpRequest, suite: Suite) -> HttpResponse:
    typed = {name: request.POST.get(name, "").strip() for name in SAID}
    try:
        if request.POST.get("do") == "forbid":
            services.code_forbid(suite, by=request.user)
            messages.success(request, "Builds are what the workers have.")
        else:
            services.code_allow(suite, **typed, by=request.user)
            messages.success(request, "Allowed. Try a build.")
    except Refused as refused:
        return _page(request, suite, typed, refused.fields, status=400)
    return redirect("suite-code", pk=suite.pk)


@permission_required(services.MAY_ALLOW, raise_exception=True)
@require_POST
def suite_code_try(request: HttpRequest, pk: int) -> HttpResponse:
    """Queue a try."""
    suite = get_object_or_404(Suite, pk=pk)
    try:
        services.fetch_try(suite, request.POST.get("build", "").strip(), by=request.user)
    except Refused as refused:
        return _page(request, suite, {}, {f"try_{name}": what for name, what in refused.fields.items()}, status=400)
    return redirect("suite-code", pk=suite.pk)


@permission_required(services.MAY_ALLOW, raise_exception=True)
@require_POST
def suite_code_stop(request: HttpRequest, pk: int, fetch_pk: int) -> HttpResponse:
    """Stop a try."""
    fetch = get_object_or_404(CodeFetch.objects.select_related("code"), pk=fetch_pk, code__suite=pk)
    if not services.fetch_stop(fetch, by=request.user):
        fetch.refresh_from_db()
        messages.info(request, f"It had ended already: {fetch.status}.")
    return redirect("suite-code", pk=pk)


@permission_required(services.MAY_ALLOW, raise_exception=True)
@require_POST
def suite_code_archive(request: HttpRequest, pk: int) -> HttpResponse:
    """Take the archive of a build."""
    suite, sent = get_object_or_404(Suite, pk=pk), request.FILES.get("file")
    data = sent.read(services.MOST_ARCHIVE_BYTES + 1) if sent else b""
    try:
        archive = services.archive_put(suite, request.POST.get("build", "").strip(), data, by=request.user)
    except Refused as refused:
        return _page(request, suite, {}, {f"archive_{name}": what for name, what in refused.fields.items()}, status=400)
    messages.success(request, f"Build {archive.build}: {archive.size_bytes:,} bytes.")
    return redirect("suite-code", pk=suite.pk)


def _page(request: HttpRequest, suite: Suite, typed: dict[str, str], wrong: dict[str, str], status: int = 200) -> HttpResponse:
    code = selectors.code_of(suite)
    fetches = list(code.fetches.all()[:selectors.SHOWN]) if code else []
    shown: dict[str, Any] = typed or {name: getattr(code, name, "") for name in SAID}
    return render(request, "gate/suites/code.html", {
        "suite": suite, "code": code, "typed": shown, "wrong": wrong, "fetches": fetches,
        "archives": code.archives.defer("data") if code else [], "most_mib": services.MOST_ARCHIVE_BYTES >> 20,
        "live": any(fetch.status in services.LIVE for fetch in fetches), "may_allow": request.user.has_perm(services.MAY_ALLOW),
    }, status=status)
