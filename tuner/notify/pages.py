"""HTML: who is told of verdicts, what became of each message, and how a pipeline asks for a verdict itself."""

from __future__ import annotations

from django.contrib import messages
from django.contrib.auth.decorators import permission_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from tuner.gates.refusal_services import GateRefused
from tuner.models import Delivery, Notified
from tuner.notify import selectors as notify_selectors
from tuner.notify import sending_services
from tuner.notify import services as notify_services
from tuner.notify.forms import PlaceForm


@require_safe
def notified(request: HttpRequest) -> HttpResponse:
    """?to=3 shows the messages of one place."""
    return _page(request, PlaceForm())


def _page(request: HttpRequest, form: PlaceForm, made: Notified | None = None, secret: str = "", status: int = 200) -> HttpResponse:
    whole = request.user.has_perm("tuner.change_notified")
    wanted = request.GET.get("to", "")
    to = int(wanted) if wanted.isdecimal() and len(wanted) < 10 else None
    rows = [{"row": row, "address": notify_selectors.address_shown(row, whole), "events": notify_selectors.events_shown(row)}
            for row in notify_selectors.places()]
    told = [row for row in rows if row["row"].enabled and "SLOWER" in row["events"]]
    sent = [{"row": row, "address": notify_selectors.address_shown(row.to, whole),
             "error": notify_selectors.error_shown(row, whole)} for row in notify_selectors.deliveries(to)]
    return render(request, "gates/notified.html", {
        "rows": rows, "told": told, "webhooks": sum(each["row"].kind == "webhook" for each in told), "form": form, "made": made,
        "secret": secret,
        "mails": sum(each["row"].kind == "email" for each in told), "deliveries": sent, "lately": notify_selectors.lately(),
        "to": next((each for each in rows if each["row"].pk == to), None), "outlook": notify_selectors.outlook(),
        "address": request.build_absolute_uri("/").rstrip("/"), "tries": len(notify_selectors.WAITS) + 1,
    }, status=status)


@require_http_methods(["GET", "HEAD", "POST"])
@never_cache
@permission_required("tuner.add_notified", raise_exception=True)
def notified_create(request: HttpRequest) -> HttpResponse:
    """Answers with the page that shows the secret: the only time that it can be read. That page follows its own address."""
    if request.method != "POST":
        return redirect("notified")
    form = PlaceForm(request.POST)
    if not form.is_valid():
        return _page(request, form, status=400)
    try:
        row = notify_services.notified_create(author=request.user, **form.values())
    except GateRefused as refused:
        for name, what in refused.fields.items():
            form.add_error(name if name in form.fields else None, what)
        return _page(request, form, status=400)
    return _page(request, PlaceForm(), made=row, secret=notify_services.secret_of(row))


@require_POST
@permission_required("tuner.change_notified", raise_exception=True)
def notified_change(request: HttpRequest, pk: int) -> HttpResponse:
    """do=test | on | off"""
    row = get_object_or_404(Notified, pk=pk)
    if request.POST.get("do") == "test":
        notify_services.notified_test(row, request.user.get_username())
        messages.success(request, "A test message was written; below is what becomes of it.")
    elif request.POST.get("do") in ("on", "off"):
        notify_services.notified_change(row, enabled=request.POST["do"] == "on")
    return redirect("notified")


@require_POST
@permission_required("tuner.delete_notified", raise_exception=True)
def notified_delete(request: HttpRequest, pk: int) -> HttpResponse:
    notify_services.notified_delete(get_object_or_404(Notified, pk=pk))
    messages.success(request, "It is told no more.")
    return redirect("notified")


@require_POST
@permission_required("tuner.change_notified", raise_exception=True)
def delivery_again(request: HttpRequest, pk: int) -> HttpResponse:
    if not sending_services.delivery_again(get_object_or_404(Delivery, pk=pk)):
        messages.info(request, "It is being tried already.")
    return redirect("notified")
