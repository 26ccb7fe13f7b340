"""Forms of the capture pages. They draw fields and keep what was typed; each tool's `Options` decide what is valid."""

from __future__ import annotations

import re
import shlex
from typing import Any, ClassVar

from django import forms
from django.utils.html import format_html
from django.utils.safestring import SafeString, mark_safe

from profiles.capture.tools import CAPTURE_TOOLS
from profiles.capture.tools.tool import CaptureTool, Field, Group
from profiles.models import CaptureTarget, Profile

SIDE_BY_SIDE = {2: "capture-pair", 3: "capture-triple"}


class BaselineField(forms.ModelChoiceField):        # type: ignore[type-arg]
    """An earlier profile, by its name, build and date."""

    def label_from_instance(self, profile: Any) -> str:
        return " · ".join(part for part in (profile.name[:80], profile.build, f"{profile.created:%Y-%m-%d %H:%M}") if part)


class WhatForm(forms.Form):
    """What to capture and where to file it."""

    target = forms.ModelChoiceField(CaptureTarget.objects.none(), label="Program", empty_label=None, required=False)
    build = forms.CharField(required=False, max_length=80, help_text="git sha or name of the build")
    model = forms.CharField(required=False, max_length=120)
    tags = forms.CharField(required=False, max_length=600, help_text="separated by commas")
    baseline = BaselineField(Profile.objects.none(), label="Compare with", empty_label="nothing", required=False,
                             help_text="the result opens beside it")

    def __init__(self, *args: Any, targets: Any, baselines: Any, ask: bool = False, **kwargs: Any) -> None:
        """`ask`: no program is chosen beforehand (the profile was uploaded: which one made it is not known here)."""
        super().__init__(*args, **kwargs)
        self.fields["baseline"].queryset = baselines    # type: ignore[attr-defined]
        self.fields["target"].queryset = targets        # type: ignore[attr-defined]
        if ask:
            self.fields["target"].empty_label = "choose the program that launches it…"      # type: ignore[attr-defined]


class ToolForm(forms.Form):
    """The options of one tool, drawn as the tool's `form` lays them out; `build_tool_form` makes the class."""

    tool: ClassVar[CaptureTool]

    def groups(self) -> list[dict[str, Any]]:
        """Return the bound fields in their groups: a summary to open, or a class of how many stand side by side."""
        groups, default = [], self.tool.options()
        for each in self.tool.form:
            group = each if isinstance(each, Group) else Group((each,))
            fields = [self[one.name] for one in group.fields]
            groups.append({"fields": fields, "summary": group.summary, "style": SIDE_BY_SIDE.get(len(fields), ""),
                           "open": any(_text(one.value()) != _text(getattr(default, one.name)) for one in fields)})
        return groups

    def note(self) -> SafeString:
        """Return the tool's note with `code` between backticks marked."""
        parts = enumerate(self.tool.note.split("`"))
        return mark_safe("".join(format_html("<code>{}</code>" if at % 2 else "{}", part) for at, part in parts))


def _text(value: Any) -> str:
    """Return a value as text, the same whether it is an option's or was typed."""
    return ",".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value or "")


def _form_field(field: Field, default: Any) -> forms.Field:
    """Return a field that draws and keeps what was typed: Options.parse answers with what would be valid."""
    asked: dict[str, Any] = {"required": False, "label": field.label, "help_text": field.help}
    if default not in ("", ()):
        asked["initial"] = default
    choices = [(name, f"{name}: {meaning}" if meaning else name) for name, meaning in field.choices.items()]
    if field.kind == "yes":
        return forms.BooleanField(**asked)
    if field.kind == "choice":
        return forms.ChoiceField(choices=choices, **asked)
    if field.kind == "many":
        return forms.MultipleChoiceField(choices=choices, widget=forms.CheckboxSelectMultiple, **asked)
    if field.kind == "lines":
        return forms.CharField(widget=forms.Textarea(attrs={"rows": 3, **field.attrs}), **asked)
    number = {"inputmode": "numeric", "class": "num", "size": "8"} if field.kind == "number" else {}
    return forms.CharField(widget=forms.TextInput(attrs={**number, **field.attrs}), **asked)


def build_tool_form(tool: CaptureTool) -> type[ToolForm]:
    """Return the form class of a tool; its fields' names begin with the tool's."""
    defaults = tool.options()
    fields = {field.name: _form_field(field, getattr(defaults, field.name)) for field in tool.fields}
    return type("ToolForm", (ToolForm,), {"tool": tool, "prefix": tool.name, **fields})


FORMS = {name: build_tool_form(tool) for name, tool in CAPTURE_TOOLS.items()}


def options_of(form: forms.Form) -> dict[str, Any]:
    """Return a bound form's answers for Options.parse.

    What a page left out is absent; an unticked box is a no.
    """
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
        return dict(line.split("=", 1) for line in lines)

    @staticmethod
    def of(target: CaptureTarget) -> TargetForm:
        return TargetForm(initial={
            "name": target.name, "argv": shlex.join(target.argv).replace("'{python}'", "{python}"), "cwd": target.cwd,
            "env": "\n".join(f"{name}={value}" for name, value in target.env.items()),
            "description": target.description, "enabled": target.enabled})
