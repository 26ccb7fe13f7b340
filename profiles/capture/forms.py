"""Forms of the capture pages. They draw fields and keep what was typed; each tool's `Options` decide what is valid.

A form begins with the address it was reached by, then what was asked of this program last, then defaults.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from django import forms
from django.db.models import QuerySet
from django.http import QueryDict
from django.utils.html import format_html
from django.utils.safestring import SafeString, mark_safe

from profiles.capture.selectors import bare_name, kernel_regex, target_of
from profiles.capture.tools import CAPTURE_TOOLS
from profiles.capture.tools.tool import CaptureTool, Field, Group
from profiles.models import Capture, CaptureTarget, Profile


@dataclass(frozen=True)
class About:
    """A beginning of the form. The first of `tools` that a living worker has is proposed, with `options` of each."""

    name: str
    label: str
    tools: tuple[str, ...]
    options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)     # tool -> what differs from its defaults
    running: bool = False                # processes that run already can be captured where agents look after them


ABOUT = {about.name: about for about in (
    About("kernel", "A kernel", ("ncu", "proton", "cutlass"), {"ncu": {"launch_count": 1}}),
    About("step", "A step", ("torch", "nsys", "proton")),
    About("memory", "Memory", ("torch",), {"torch": {"memory": "end", "profile_memory": True}}),
    About("server", "A server", ("nsys", "torch"), {"torch": {"steps": "whole", "end_after": False}}, running=True),
    About("job", "A job of ranks", ("torch", "nsys"), {"torch": {"processes": 2}, "nsys": {"processes": 2}}, running=True),
)}


def about_of(name: str, tool: str) -> About:
    """Return the beginning that was asked for, else the first that proposes the tool."""
    return ABOUT.get(name) or next((about for about in ABOUT.values() if tool and tool in about.tools), ABOUT["kernel"])


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
        for element in self.tool.form:
            group = element if isinstance(element, Group) else Group((element,))
            fields = [self[entry.name] for entry in group.fields]
            groups.append({"fields": fields, "summary": group.summary, "style": SIDE_BY_SIDE.get(len(fields), ""),
                           "open": any(_text(one.value()) != _text(getattr(default, one.name)) for one in fields)})
        return groups

    def note(self) -> SafeString:
        """Return the tool's note with `code` between backticks marked."""
        parts = enumerate(self.tool.note.split("`"))
        return mark_safe("".join(format_html("<code>{}</code>" if index % 2 else "{}", part) for index, part in parts))


def _text(value: Any) -> str:
    """Return a value as text, the same whether it is an option's or was typed."""
    return ",".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value or "")


def _form_field(field: Field, default: Any) -> forms.Field:
    """Return a field that draws and keeps what was typed: Options.parse answers with what would be valid."""
    options: dict[str, Any] = {"required": False, "label": field.label, "help_text": field.help}
    if default not in ("", ()):
        options["initial"] = default
    choices = [(name, f"{name}: {meaning}" if meaning else name) for name, meaning in field.choices.items()]
    if field.kind == "yes":
        return forms.BooleanField(**options)
    if field.kind == "choice":
        return forms.ChoiceField(choices=choices, **options)
    if field.kind == "many":
        return forms.MultipleChoiceField(choices=choices, widget=forms.CheckboxSelectMultiple, **options)
    if field.kind == "lines":
        return forms.CharField(widget=forms.Textarea(attrs={"rows": 3, **field.attrs}), **options)
    number = {"inputmode": "numeric", "class": "num", "size": "8"} if field.kind == "number" else {}
    return forms.CharField(widget=forms.TextInput(attrs={**number, **field.attrs}), **options)


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
    values: dict[str, Any] = {}
    for name, drawn in form.fields.items():
        value = drawn.widget.value_from_datadict(form.data, form.files, form.add_prefix(name))
        if value is not None:
            values[name] = value
    return values


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


BASELINES = 30                  # profiles that the form offers to compare with
OF_A_KERNEL = ("kernel", "kernel_id", "launch_skip", "launch_count", "nvtx_include", "nvtx_exclude", "range_filter")


def last_capture(owner: Any, target_id: str, tool: str) -> Capture | None:
    """Return the newest capture of a program with a tool, somebody's own before another's."""
    if not target_id.isdecimal() or len(target_id) > 18:
        return None
    rows = Capture.objects.filter(target_id=int(target_id), tool=tool).defer("log").order_by("-created")
    return rows.filter(owner=owner).first() or rows.first()


def again(capture_id: str) -> Capture | None:
    """Return the capture that is to be made once more."""
    is_id = capture_id.isdecimal() and len(capture_id) < 19
    return Capture.objects.select_related("target").defer("log").filter(pk=int(capture_id)).first() if is_id else None


def initial(query: QueryDict, about: About, tool: str, last: Capture | None) -> dict[str, Any]:
    """Return the values of a tool's fields. Of another capture, nothing is taken that names a kernel where one is asked about."""
    fields = CAPTURE_TOOLS[tool].options.READ
    values = {name: value for name, value in about.options.get(tool, {}).items() if name in fields}
    if last is not None and "fresh" not in query:
        values |= {name: value for name, value in last.options.items()
                   if name in fields and not ("kernel" in query and name in OF_A_KERNEL)}
    values |= {name: query[name] for name in fields if name in query and name != "kernel"}
    if "kernel" in query and "kernel" in fields:
        values["kernel"] = "\n".join(kernel_regex(name) for name in query.getlist("kernel")[:20])
    kinds = {field.name: field.kind for field in CAPTURE_TOOLS[tool].fields}
    return {name: _drawn(kinds[name], value) for name, value in values.items()}


def _drawn(kind: str, value: Any) -> Any:
    """Return a stored value, or one of an address, as a field of this kind draws it."""
    if kind == "many":
        return list(value) if isinstance(value, list | tuple) else [part for part in str(value).replace(",", " ").split() if part]
    return "\n".join(value) if isinstance(value, list | tuple) else value


def baselines(chosen: str) -> QuerySet[Profile]:
    """Return the profiles that a result may open beside: the newest, and the one that is chosen already."""
    ready = Profile.objects.filter(status=Profile.Status.READY).order_by("-created")
    ids = list(ready.values_list("pk", flat=True)[:BASELINES])
    if chosen.isdecimal() and len(chosen) < 19:
        ids.append(int(chosen))
    return ready.filter(pk__in=ids)


def is_about_something(query: Mapping[str, str]) -> bool:
    """Return whether the address names what is to be captured: then no program is chosen that may have nothing to do with it."""
    return any(query.get(name) for name in ("profile", "kernel", "build"))


def program_for(query: Mapping[str, str]) -> str:
    """Return the id of the program that made what the address names: the profile, else the kernel, the build; "" if unknown."""
    if target := target_of(query.get("profile", "")):
        return target
    rows = Capture.objects.filter(target__enabled=True).order_by("-pk")
    kernel = bare_name(re.sub(r"\\(.)", r"\1", query.get("kernel", "")))[:200]
    capture = rows.filter(profile__kernels__name__contains=kernel).first() if kernel else None
    if capture is None and query.get("build"):
        capture = rows.filter(build=query["build"][:80]).first()
    return str(capture.target_id) if capture is not None else ""


def asked(query: Mapping[str, str]) -> dict[str, str]:
    """Return the fields of the form's own that the address fills in."""
    return {name: query[name] for name in ("target", "build", "model", "tags", "baseline") if name in query}
