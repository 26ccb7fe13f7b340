"""Forms of serving engines and schedules. They draw fields and keep what was typed; the services decide what is valid."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django import forms

from profiles.fleet.capture_services import MILLISECONDS, MOST_MS, MOST_PROCESSES, MOST_STEPS
from profiles.running.engine_services import KEPT, MOST_S
from profiles.running.engines.parameters import BOOLEAN, INTEGER, OBJECT, PARAMETERS, TEXTS
from profiles.running.fetch_services import hosts
from profiles.running.models import CaptureSchedule, EngineCapture, EngineServer


def _number() -> forms.TextInput:
    return forms.TextInput(attrs={"inputmode": "numeric", "class": "num", "size": "8"})


class ServerForm(forms.Form):
    name = forms.CharField(max_length=80)
    kind = forms.ChoiceField(choices=EngineServer.Kind.choices)
    address = forms.CharField(max_length=500, widget=forms.TextInput(attrs={"placeholder": "http://host:8000"}))
    token = forms.CharField(required=False, max_length=300, widget=forms.PasswordInput(attrs={"autocomplete": "new-password"}),
                            help_text="admin or API key; stored sealed, never shown")
    results = forms.ChoiceField(choices=EngineServer.Results.choices, label="Traces lie in")
    host = forms.ChoiceField(required=False, label="Host", help_text="whose agent fetches them, and from where it may")
    folder = forms.CharField(max_length=400, widget=forms.TextInput(attrs={"placeholder": "/shared/traces/llama"}))
    enabled = forms.BooleanField(required=False, initial=True)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        known = {each.host: each.words for each in hosts()}
        kept = self.initial.get("host")             # of a server whose agent is not known any more
        every = {**({kept: kept} if kept and kept not in known else {}), **known}
        self.fields["host"].choices = [("", "none" if every else "no agent allows a folder"),   # type: ignore[attr-defined]
                                       *every.items()]

    @classmethod
    def of(cls, server: EngineServer) -> ServerForm:
        names = ("name", "kind", "address", "results", "host", "folder", "enabled")
        form = cls(initial={name: getattr(server, name) for name in names})
        form.fields["token"].widget.attrs["placeholder"] = "unchanged" if server.token else "none"
        return form

    def given(self, edited: bool) -> dict[str, Any]:
        """Return the fields for `server_save`: an empty token of a server that exists stays as it is."""
        data = dict(self.cleaned_data)
        return {**data, "token": data["token"] or (KEPT if edited else "")}


class EngineForm(forms.Form):
    """When a capture ends. The parameters of the engine follow (`parameter_form`)."""

    until = forms.ChoiceField(choices=EngineCapture.Until.choices, initial=EngineCapture.Until.SECONDS, label="Until")
    seconds = forms.CharField(required=False, initial="2", widget=_number(), label=f"Seconds (at most {MOST_S:g})")
    threshold_ms = forms.CharField(required=False, widget=_number(), label="Slow from (ms)")
    latency = forms.ChoiceField(required=False, choices=[("e2e", "whole request"), ("ttft", "first token")], label="Latency")
    build = forms.CharField(required=False, max_length=80)


def parameter_form(kind: str) -> type[forms.Form]:
    """Return the form of an engine's own parameters; what is left empty is not sent."""
    fields: dict[str, forms.Field] = {}
    for each in PARAMETERS[kind]:
        asked: dict[str, Any] = {"required": False, "label": each.name, "help_text": each.says}
        if each.kind == BOOLEAN:
            fields[each.name] = forms.ChoiceField(choices=[("", "as it is set"), ("true", "yes"), ("false", "no")], **asked)
        elif each.kind == TEXTS:
            fields[each.name] = forms.MultipleChoiceField(choices=[(one, one) for one in each.choices],
                                                          widget=forms.CheckboxSelectMultiple, **asked)
        elif each.kind == OBJECT:
            area = forms.Textarea(attrs={"rows": 2, "placeholder": '{"with_stack": true}'})
            fields[each.name] = forms.CharField(widget=area, **asked)
        else:
            fields[each.name] = forms.CharField(widget=_number() if each.kind == INTEGER else None, **asked)
    return type("ParameterForm", (forms.Form,), fields)


class ScheduleForm(forms.Form):
    name = forms.CharField(max_length=120)
    when = forms.ChoiceField(choices=CaptureSchedule.When.choices)
    at = forms.TimeField(required=False, initial="02:00", label="At (UTC)",
                         widget=forms.TimeInput(attrs={"type": "time"}, format="%H:%M"))
    requests = forms.IntegerField(required=False, min_value=1, label="One of so many requests", widget=_number())
    job = forms.CharField(required=False, max_length=200)
    host = forms.CharField(required=False, max_length=200)
    ranks = forms.CharField(required=False, max_length=100, widget=forms.TextInput(attrs={"placeholder": "0,2-5"}))
    most = forms.IntegerField(initial=1, min_value=1, max_value=MOST_PROCESSES, label="Processes", widget=_number())
    server = forms.ModelChoiceField(EngineServer.objects.none(), required=False, empty_label="none: processes of the job")
    milliseconds = forms.IntegerField(required=False, initial=MILLISECONDS, min_value=10, max_value=MOST_MS, label="Length (ms)",
                                      widget=_number())
    steps = forms.IntegerField(required=False, min_value=1, max_value=MOST_STEPS, label="or steps", widget=_number())
    stacks = forms.BooleanField(required=False, label="Python stacks")
    per_day = forms.IntegerField(initial=1, min_value=1, label="Captures a day", widget=_number())
    per_job_day = forms.IntegerField(initial=4, min_value=1, label="of its job or server, by anyone", widget=_number())
    enabled = forms.BooleanField(required=False, initial=True)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["server"].queryset = EngineServer.objects.filter(enabled=True)       # type: ignore[attr-defined]

    @classmethod
    def of(cls, row: CaptureSchedule) -> ScheduleForm:
        names = ("name", "when", "requests", "job", "host", "ranks", "most", "server", "per_day", "per_job_day", "enabled")
        options: Mapping[str, Any] = row.options
        seconds = options.get("seconds")
        milliseconds = options.get("milliseconds", None if seconds is None else round(seconds * 1e3))
        return cls(initial={**{name: getattr(row, name) for name in names}, "requests": row.requests or None,
                            "at": f"{row.minute // 60:02}:{row.minute % 60:02}", "milliseconds": milliseconds,
                            "steps": options.get("steps"), "stacks": options.get("stacks")})

    def given(self) -> dict[str, Any]:
        """Return the fields for `schedule_save`; of a server the length is a time."""
        data = dict(self.cleaned_data)
        at, server = data.pop("at", None), data["server"]
        steps, milliseconds, stacks = (data.pop(name) for name in ("steps", "milliseconds", "stacks"))
        options = {"until": "seconds", "seconds": (milliseconds or MILLISECONDS) / 1e3} if server else {
            **({"steps": steps} if steps else {"milliseconds": milliseconds or MILLISECONDS}), "stacks": bool(stacks)}
        return {**data, "requests": data["requests"] or 0, "minute": at.hour * 60 + at.minute if at else 120, "options": options}
