"""The form that asks for a gate."""

from __future__ import annotations

from typing import Any, cast

from django import forms

from tuner.gate.builds.selectors import ENVIRONMENT
from tuner.gate.verdicts.services import ENVIRONMENT_CHARS
from tuner.models import Build, KernelRun, Suite

MOST_RUNS = 200
MOST_CHOICES = 500      # newest builds, suites by name


class GateForm(forms.Form):
    """One build of one suite; what is left empty is the suite's."""

    suite = forms.ChoiceField(help_text="Which kernels are measured and compared.")
    build = forms.CharField(max_length=80, help_text="A git sha or a name: what your runs and profiles call it.")
    against = forms.ChoiceField(required=False, help_text="The rolling or pinned baseline, or one build.")
    device = forms.ChoiceField(required=False, help_text="The GPU that measures. Baselines are of one GPU, toolkit and driver.")
    gpu = forms.CharField(required=False, max_length=ENVIRONMENT_CHARS["gpu"], label="GPU")
    toolkit = forms.CharField(required=False, max_length=ENVIRONMENT_CHARS["toolkit"])
    driver = forms.CharField(required=False, max_length=ENVIRONMENT_CHARS["driver"])
    recorded = forms.CharField(required=False, max_length=ENVIRONMENT_CHARS["recorded"], label="Recorded as")
    runs = forms.IntegerField(required=False, min_value=1, max_value=MOST_RUNS,
                              help_text="Fresh processes; empty: the suite's number.")
    parent = forms.CharField(required=False, max_length=80, help_text="The build before it, for the order of builds.")
    branch = forms.CharField(required=False, max_length=120)
    title = forms.CharField(required=False, max_length=300, help_text="First line of the commit message.")
    url = forms.URLField(required=False, max_length=500, assume_scheme="https", help_text="Pull request or pipeline.")

    def __init__(self, *arguments: Any, devices: list[tuple[str, str]] = [], **named: Any) -> None:  # noqa: B006 never changed
        super().__init__(*arguments, **named)
        suites = Suite.objects.filter(enabled=True).values_list("name", flat=True)[:MOST_CHOICES]
        builds = Build.objects.filter(pk__in=KernelRun.objects.order_by().values("build")).values_list("name", flat=True)
        suite, against, device = (cast(forms.ChoiceField, self.fields[name]) for name in ("suite", "against", "device"))
        suite.choices = [*([("", "choose")] if len(suites) != 1 else []), *((name, name) for name in suites)]
        against.choices = [("", "the baseline"), *((name, name) for name in builds[:MOST_CHOICES])]
        device.choices = [("", "the suite's own"), *devices]
        for name, field in self.fields.items():
            if field.help_text:
                field.widget.attrs["aria-describedby"] = f"help-{name}"
        self.fields["build"].widget.attrs |= {"list": "known-builds", "autocomplete": "off", "spellcheck": "false"}

    def where(self) -> list[forms.BoundField]:
        """The fields that name an environment."""
        return [self[name] for name in ENVIRONMENT]

    def environment(self) -> dict[str, str]:
        """What the form says of where the build is measured, or was."""
        return {name: self.cleaned_data[name] for name in ("device", *ENVIRONMENT) if self.cleaned_data[name]}

    def clean_url(self) -> str:
        url: str = self.cleaned_data["url"]
        if url and not url.lower().startswith(("http://", "https://")):
            raise forms.ValidationError("an address that begins with http:// or https://")
        return url
