"""The form that adds a place which is told of verdicts."""

from __future__ import annotations

from typing import Any

from django import forms

from tuner.models import Suite
from tuner.notify.services import EVENTS, TOLD

MOST_SUITES = 1000
WORDS = {"SLOWER": "SLOWER: a build made a kernel slower", "AMBIGUOUS": "AMBIGUOUS: could not be told apart",
         "NO DATA": "NO DATA: nothing to compare with", "FASTER": "FASTER", "PASS": "PASS",
         "FAILED": "FAILED: the gate ended with an error", "REGRESSION": "REGRESSION: a series over builds shows a slowdown"}


class PlaceForm(forms.Form):
    """A webhook or a mailbox."""

    kind = forms.ChoiceField(choices=[("webhook", "webhook: a POST with JSON"), ("email", "e-mail")], label="How")
    address = forms.CharField(max_length=500, label="Address", help_text="https://host/path, or name@team.example.",
                              widget=forms.TextInput(attrs={"autocomplete": "off", "spellcheck": "false"}))
    suite = forms.ChoiceField(required=False)
    verdicts = forms.MultipleChoiceField(choices=[(name, WORDS[name]) for name in EVENTS], required=False, initial=list(TOLD),
                                         label="Of what", widget=forms.CheckboxSelectMultiple)
    secret = forms.CharField(max_length=120, required=False, label="Secret of the signature",
                             help_text="Webhooks only. Empty: we make one and show it once.",
                             widget=forms.TextInput(attrs={"autocomplete": "off", "spellcheck": "false"}))

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        names = Suite.objects.order_by("name").values_list("name", flat=True)[:MOST_SUITES]
        self.fields["suite"].choices = [("", "every suite"), *((name, name) for name in names)]

    def clean_verdicts(self) -> list[str]:
        found: list[str] = self.cleaned_data["verdicts"]
        if not found:
            raise forms.ValidationError("choose at least one")
        return found

    def values(self) -> dict[str, Any]:
        return {name: self.cleaned_data[name] for name in ("kind", "address", "suite", "verdicts", "secret")}


