"""HTML: destinations of notifications, their deliveries, and how a pipeline asks for a verdict itself."""

from __future__ import annotations

from typing import Any, cast

from django import forms
from django.contrib import messages
from django.contrib.auth.decorators import permission_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from profiles.base.refused import Refused
from tuner.gate.channels import selectors, sending_services, services
from tuner.gate.channels.kinds import KINDS
from tuner.models import Delivery, Notified, Suite

MOST_SUITES = 1000
WORDS = {"SLOWER": "SLOWER: a build made a kernel slower", "AMBIGUOUS": "AMBIGUOUS: could not be told apart",
         "NO DATA": "NO DATA: nothing to compare with", "FASTER": "FASTER", "PASS": "PASS",
         "FAILED": "FAILED: the gate ended with an error", "REGRESSION": "REGRESSION: the trend over builds shows a slowdown"}


class PlaceForm(forms.Form):
    """A channel of one of the KINDS."""

    kind = forms.ChoiceField(choices=[(kind.name, kind.label) for kind in KINDS.values()], label="How")
    address = forms.CharField(max_length=500, label="Address", help_text=", or ".join(kind.hint for kind in KINDS.values()),
                              widget=forms.TextInput(attrs={"autocomplete": "off", "spellcheck": "false"}))
    suite = forms.ChoiceField(required=False)
    verdicts = forms.MultipleChoiceField(choices=[(name, WORDS[name]) for name in services.EVENTS], required=False,
                                         initial=list(services.DEFAULT_EVENTS),
                                         label="Events", widget=forms.CheckboxSelectMultiple)
    secret = forms.CharField(max_length=120, required=False, label="Secret of the signature",
                             help_text="Webhooks only. Empty: we make one and show it once.",
                             widget=forms.TextInput(attrs={"autocomplete": "off", "spellcheck": "false"}))

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        names = Suite.objects.order_by("name").values_list("name", flat=True)[:MOST_SUITES]
        cast(forms.ChoiceField, self.fields["suite"]).choices = [("", "every suite"), *((name, name) for name in names)]

    def clean_verdicts(self) -> list[str]:
        verdicts: list[str] = self.cleaned_data["verdicts"]
        if not verdicts:
            raise forms.ValidationError("choose at least one")
        return verdicts

    def values(self) -> dict[str, Any]:
        return {name: self.cleaned_data[name] for name in ("kind", "address", "suite", "verdicts", "secret")}


@require_safe
def notified(request: HttpRequest) -> HttpResponse:
    """?to=3 shows the messages of one place."""
    return _page(request, PlaceForm())


def _page(request: HttpRequest, form: PlaceForm, made: Notified | None = None, secret: str = "", status: int = 200) -> HttpResponse:
    whole = request.user.has_perm("tuner.change_notified")
    text = request.GET.get("to", "")
    to = int(text) if text.isdecimal() and len(text) < 10 else None
    rows: list[dict[str, Any]] = [
        {"row": row, "address": selectors.visible_address(row, whole), "events": selectors.destination_events(row)}
        for row in selectors.list_destinations()]
    receivers = [row for row in rows if row["row"].enabled and "SLOWER" in row["events"]]
    sent = [{"row": row, "address": selectors.visible_address(row.to, whole),
             "error": selectors.visible_error(row, whole)} for row in selectors.newest_deliveries(to)]
    return render(request, "gate/verdicts/notified.html", {
        "rows": rows, "told": ", ".join(selectors.counts_by_kind(row["row"] for row in receivers)), "form": form, "made": made,
        "secret": secret, "mails": any(row["row"].kind == "email" for row in receivers), "deliveries": sent,
        "lately": selectors.recent_status_counts(),
        "to": next((line for line in rows if line["row"].pk == to), None), "outlook": selectors.sending_conditions(),
        "address": request.build_absolute_uri("/").rstrip("/"), "tries": len(sending_services.WAITS) + 1,
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
        row = services.add_destination(author=request.user, **form.values())
    except Refused as refused:
        refused.show_in(form)
        return _page(request, form, status=400)
    return _page(request, PlaceForm(), made=row, secret=services.secret_of(row))


@require_POST
@permission_required("tuner.change_notified", raise_exception=True)
def notified_change(request: HttpRequest, pk: int) -> HttpResponse:
    """do=test | on | off"""
    row = get_object_or_404(Notified, pk=pk)
    if request.POST.get("do") == "test":
        services.send_test(row, request.user.get_username())
        messages.success(request, "A test message was written; below is what becomes of it.")
    elif request.POST.get("do") in ("on", "off"):
        services.change_destination(row, enabled=request.POST["do"] == "on")
    return redirect("notified")


@require_POST
@permission_required("tuner.delete_notified", raise_exception=True)
def notified_delete(request: HttpRequest, pk: int) -> HttpResponse:
    get_object_or_404(Notified, pk=pk).delete()
    messages.success(request, "It is told no more.")
    return redirect("notified")


@require_POST
@permission_required("tuner.change_notified", raise_exception=True)
def delivery_again(request: HttpRequest, pk: int) -> HttpResponse:
    if not sending_services.retry_delivery(get_object_or_404(Delivery, pk=pk)):
        messages.info(request, "It is being tried already.")
    return redirect("notified")
