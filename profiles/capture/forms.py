"""Forms of the capture pages. They draw fields and keep what was typed; `capture_options` decides what is valid."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from typing import Any

from django import forms

from profiles.capture import options as known
from profiles.capture.options import NcuOptions, TorchOptions
from profiles.models import CaptureTarget

_NCU, _TORCH = NcuOptions(), TorchOptions()


def _choices(of: Mapping[str, str]) -> list[tuple[str, str]]:
    return [(name, f"{name}: {meaning}") for name, meaning in of.items()]


def _number(default: int, label: str, help_text: str = "") -> forms.CharField:
    """A text field: Options.parse answers with what would be valid, and the page keeps what was typed."""
    widget = forms.TextInput(attrs={"inputmode": "numeric", "class": "num", "size": "8"})
    return forms.CharField(required=False, initial=default, label=label, help_text=help_text, widget=widget)


class WhatForm(forms.Form):
    """What to capture and where to file it."""

    target = forms.ModelChoiceField(CaptureTarget.objects.none(), label="Program", empty_label=None, required=False)
    build = forms.CharField(required=False, max_length=80, help_text="git sha or name of the build")
    model = forms.CharField(required=False, max_length=120)
    tags = forms.CharField(required=False, max_length=600, help_text="separated by commas")

    def __init__(self, *args: Any, targets: Any, ask: bool = False, **kwargs: Any) -> None:
        """`ask`: no program is chosen beforehand (the profile was uploaded: which one made it is not known here)."""
        super().__init__(*args, **kwargs)
        self.fields["target"].queryset = targets        # type: ignore[attr-defined]
        if ask:
            self.fields["target"].empty_label = "choose the program that launches it…"      # type: ignore[attr-defined]


class NcuForm(forms.Form):
    prefix = "ncu"

    kernel = forms.CharField(
        required=False, label="Kernel name (regular expression)",
        help_text="Empty: every kernel. A part of the name is enough.",
        widget=forms.TextInput(attrs={"class": "mono", "spellcheck": "false", "placeholder": "matmul"}))
    set = forms.ChoiceField(required=False, choices=_choices(known.SETS), initial=_NCU.set, label="Set")
    launch_skip = _number(_NCU.launch_skip, "Launch skip", "matching launches passed over first")
    launch_count = _number(_NCU.launch_count, "Launch count", "matching launches profiled")
    sections = forms.MultipleChoiceField(
        required=False, choices=[(name, name) for name in known.SECTIONS], label="More sections",
        widget=forms.CheckboxSelectMultiple)
    metrics = forms.CharField(
        required=False, label="Single metrics", help_text="one per line, e.g. dram__bytes.sum",
        widget=forms.Textarea(attrs={"rows": 3, "class": "mono", "spellcheck": "false",
                                     "placeholder": "sm__throughput.avg.pct_of_peak_sustained_elapsed"}))
    replay_mode = forms.ChoiceField(
        required=False, choices=_choices(known.REPLAY), initial=_NCU.replay_mode, label="Replay")
    cache_control = forms.ChoiceField(
        required=False, choices=_choices(known.CACHE), initial=_NCU.cache_control, label="Caches")
    clock_control = forms.ChoiceField(
        required=False, choices=_choices(known.CLOCKS), initial=_NCU.clock_control, label="Clocks")
    nvtx_include = forms.CharField(
        required=False, label="Only within NVTX range",
        widget=forms.TextInput(attrs={"class": "mono", "placeholder": "step/"}))
    import_source = forms.BooleanField(
        required=False, initial=_NCU.import_source, label="Keep source lines in the report")
    time_limit_s = _number(_NCU.time_limit_s, "Time limit (s)")


class TorchForm(forms.Form):
    prefix = "torch"

    steps = forms.ChoiceField(required=False, choices=_choices(known.STEPS), initial=_TORCH.steps, label="Record")
    wait = _number(_TORCH.wait, "Wait", "steps passed over")
    warmup = _number(_TORCH.warmup, "Warm-up", "steps thrown away")
    active = _number(_TORCH.active, "Active", "steps recorded")
    record_shapes = forms.BooleanField(required=False, initial=_TORCH.record_shapes, label="Input shapes of operators")
    with_stack = forms.BooleanField(required=False, initial=_TORCH.with_stack, label="Python stacks (slower, larger)")
    profile_memory = forms.BooleanField(required=False, initial=_TORCH.profile_memory, label="Memory allocations")
    end_after = forms.BooleanField(
        required=False, initial=_TORCH.end_after, label="End the program once the trace is written")
    time_limit_s = _number(_TORCH.time_limit_s, "Time limit (s)")


FORMS: dict[str, type[NcuForm] | type[TorchForm]] = {"ncu": NcuForm, "torch": TorchForm}


def options_of(form: forms.Form) -> dict[str, Any]:
    """A bound form's answers for Options.parse. What a page left out is absent; an unticked box is a no."""
    given: dict[str, Any] = {}
    for name, field in form.fields.items():
        value = field.widget.value_from_datadict(form.data, form.files, form.add_prefix(name))
        if value is not None:
            given[name] = value
    return given


class TargetForm(forms.Form):
    """A program that engineers may capture. The command is split here into its arguments; no shell ever sees it."""

    name = forms.CharField(required=False, max_length=200)
    argv = forms.CharField(
        required=False, label="Command",
        help_text="{python} stands for the worker's interpreter. Quotes group words; no shell runs it.",
        widget=forms.TextInput(attrs={"class": "mono", "spellcheck": "false", "placeholder": "{python} -m train"}))
    cwd = forms.CharField(required=False, label="Folder on the worker", help_text="empty: Ridgepoint's own",
                          widget=forms.TextInput(attrs={"class": "mono"}))
    env = forms.CharField(required=False, label="Environment", help_text="NAME=value, one per line",
                          widget=forms.Textarea(attrs={"rows": 2, "class": "mono", "spellcheck": "false"}))
    description = forms.CharField(required=False, max_length=2000)
    enabled = forms.BooleanField(required=False, initial=True, label="Enabled")

    def clean_argv(self) -> list[str]:
        try:
            return shlex.split(self.cleaned_data["argv"])
        except ValueError as error:
            raise forms.ValidationError(f"{error}: close the quotes") from error

    def clean_env(self) -> dict[str, str]:
        lines = [line.strip() for line in self.cleaned_data["env"].splitlines() if line.strip()]
        bad = next((line for line in lines if not re.match(r"[A-Za-z_][A-Za-z0-9_]*=", line)), None)
        if bad is not None:
            raise forms.ValidationError(f"{bad[:60]!r} is no line of the form NAME=value")
        return dict(line.split("=", 1) for line in lines)       # type: ignore[misc]

    @staticmethod
    def of(target: CaptureTarget) -> TargetForm:
        return TargetForm(initial={
            "name": target.name, "argv": shlex.join(target.argv).replace("'{python}'", "{python}"), "cwd": target.cwd,
            "env": "\n".join(f"{name}={value}" for name, value in target.env.items()),
            "description": target.description, "enabled": target.enabled})
