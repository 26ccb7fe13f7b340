"""Forms of the cache: ask for a configuration, import a file, round shapes."""

from __future__ import annotations

from typing import Any, cast

from django import forms

from tuner.cache.buckets import STEPS, Buckets
from tuner.cache.exchange.services import Hints
from tuner.cache.formats import FORMATS
from tuner.jobs.forms import parse_shape
from tuner.models import CachedConfig, GpuEnvironment
from tuner.tuning import operators

GPUS = ("NVIDIA H200", "NVIDIA H100 80GB HBM3", "NVIDIA B200", "NVIDIA A100-SXM4-80GB")


def known_gpus() -> list[str]:
    """Return GPUs to suggest, those with entries first."""
    return list(dict.fromkeys((*CachedConfig.objects.order_by("gpu").values_list("gpu", flat=True).distinct(), *GPUS)))


class AskForm(forms.Form):
    """Asks which configuration a launch would get."""

    operator = forms.ChoiceField(label="Operator")
    dtype = forms.CharField(label="Type", max_length=16, required=False, help_text="empty: the operator's first")
    gpu = forms.CharField(label="GPU", max_length=120, initial="NVIDIA H200", help_text="as its driver names it",
                          widget=forms.TextInput(attrs={"list": "known-gpus"}))
    shape = forms.CharField(label="Shape", max_length=300, initial="M=4096 N=4096 K=4096")
    toolkit = forms.CharField(label="Toolkit", max_length=80, required=False, help_text="empty: any",
                              widget=forms.TextInput(attrs={"list": "known-toolkits"}))
    driver = forms.CharField(label="Driver", max_length=40, required=False, help_text="empty: any")
    policy = forms.ChoiceField(label="Timed", required=False, choices=[
        ("", "any way"), ("cold", "cold L2"), ("warm", "warm"), ("graph", "CUDA graph")])
    recorded = forms.BooleanField(label="Recordings", required=False)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **{"label_suffix": "", **kwargs})
        cached = CachedConfig.objects.order_by("operator").values_list("operator", flat=True).distinct()
        names = dict.fromkeys((*operators.all_operators(), *cached))
        cast(forms.ChoiceField, self.fields["operator"]).choices = [(name, name) for name in names]
        self.gpus = known_gpus()
        self.toolkits = list(GpuEnvironment.objects.order_by("-last_seen").values_list("toolkit", flat=True).distinct()[:20])

    def clean(self) -> dict[str, Any]:
        fields = super().clean() or {}
        definition = operators.find(fields.get("operator", ""))
        try:
            fields["shape"] = parse_shape(fields.get("shape", ""))
        except ValueError as error:
            self.add_error("shape", str(error))
            return fields
        if definition is not None:
            fields["dtype"] = fields.get("dtype") or definition.dtypes[0]
            for name, problem in definition.problems(fields["shape"], fields["dtype"]).items():
                self.add_error("dtype" if name == "dtype" else "shape", problem)
        return fields


class ImportForm(forms.Form):
    """A file, and what it does not say itself."""

    file = forms.FileField(label="File")
    format = forms.ChoiceField(label="Format", required=False, help_text="by name and content, unless you choose",
                               choices=[("", "find out"), *((name, file_format.title) for name, file_format in FORMATS.items())])
    operator = forms.CharField(label="Operator", max_length=60, required=False,
                               widget=forms.TextInput(attrs={"list": "known-operators"}))
    dtype = forms.CharField(label="Type", max_length=16, required=False)
    gpu = forms.CharField(label="GPU", max_length=120, required=False, widget=forms.TextInput(attrs={"list": "known-gpus"}))
    toolkit = forms.CharField(label="Toolkit", max_length=80, required=False, help_text="for example cuda 13.0, triton 3.6.0")
    shape = forms.CharField(label="Shape", max_length=300, required=False,
                            help_text="dimensions that the file does not say; K=2048 topk=8 for vLLM and SGLang")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **{"label_suffix": "", **kwargs})
        self.gpus, self.operators = known_gpus(), list(operators.all_operators())

    def clean_shape(self) -> dict[str, int]:
        text = self.cleaned_data["shape"]
        try:
            return parse_shape(text) if text.strip() else {}
        except ValueError as error:
            raise forms.ValidationError(str(error)) from error

    @property
    def hints(self) -> Hints:
        """Return what the form says of the file."""
        fields = self.cleaned_data
        return Hints(fields["operator"], fields["dtype"], fields["gpu"], fields["toolkit"], fields["shape"])


class BucketForm(forms.Form):
    """How the shapes of an operator are rounded."""

    steps_per_doubling = forms.TypedChoiceField(label="Nearest", coerce=float, choices=[
        (f"{step:g}", word if step else "no rounding: every shape for itself") for step, word in STEPS.items()])
    exact_up_to = forms.IntegerField(label="Exact up to", min_value=0, max_value=1 << 20)
    max_distance = forms.FloatField(label="Powers of two away, at most", min_value=0, max_value=40)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **{"label_suffix": "", **kwargs})

    @property
    def policy(self) -> Buckets:
        """Return the bucket policy of the form."""
        fields = self.cleaned_data
        return Buckets(fields["exact_up_to"], fields["steps_per_doubling"], fields["max_distance"])
