"""Forms of serving engines and schedules. They draw fields and keep what was typed; the services decide what is valid."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from django import forms

from profiles.fleet.capture_services import MILLISECONDS, MOST_MS, MOST_PROCESSES, MOST_STEPS
from profiles.running.engine_services import KEPT, MOST_S
from profiles.running.engines import BOOLEAN, INTEGER, OBJECT, PARAMETERS, TEXTS
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
    folder = forms.CharField(max_length=400, widget=forms.TextInput(
        attrs={"placeholder": "/shared/traces/llama", "list": "folders"}))
    enabled = forms.BooleanField(required=False, initial=True)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        allowed = hosts()
        self.folders = list(dict.fromkeys(folder for row in allowed for folder in row.folders))
        words_by_host = {row.host: row.words for row in allowed}
        current = self.initial.get("host")             # of a server whose agent is not known any more
        every = {**({current: current} if current and current not in words_by_host else {}), **words_by_host}
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
    seconds = forms.CharField(required=False, label=f"Seconds (at most {MOST_S:g})", widget=forms.TextInput(
        attrs={"inputmode": "decimal", "class": "num", "size": "8", "placeholder": "2; steps, slow: 60"}))
    threshold_ms = forms.CharField(required=False, widget=_number(), label="Slow from (ms)")
    latency = forms.ChoiceField(required=False, choices=[("e2e", "whole request"), ("ttft", "first token")], label="Latency")
    build = forms.CharField(required=False, max_length=80)


def parameter_form(kind: str) -> type[forms.Form]:
    """Return the form of an engine's own parameters; what is left empty is not sent."""
    fields: dict[str, forms.Field] = {}
    for parameter in PARAMETERS[kind]:
        params: dict[str, Any] = {"required": False, "label": parameter.name, "help_text": parameter.says}
        if parameter.kind == BOOLEAN:
            fields[parameter.name] = forms.ChoiceField(choices=[("", "as it is set"), ("true", "yes"), ("false", "no")], **params)
        elif parameter.kind == TEXTS:
            fields[parameter.name] = forms.MultipleChoiceField(choices=[(choice, choice) for choice in parameter.choices],
                                                               widget=forms.CheckboxSelectMultiple, **params)
        elif parameter.kind == OBJECT:
            area = forms.Textarea(attrs={"rows": 2, "placeholder": '{"with_stack": true}'})
            fields[parameter.name] = forms.CharField(widget=area, **params)
        else:
            fields[parameter.name] = forms.CharField(widget=_number() if parameter.kind == INTEGER else None, **params)
    return type("ParameterForm", (forms.Form,), fields)


class ServerSelect(forms.Select):
    """Each option says which engine its server is: the page shows the parameters of that engine."""

    def create_option(self, name: str, value: Any, *given: Any, **more: Any) -> dict[str, Any]:
        option = super().create_option(name, value, *given, **more)
        if value:
            option["attrs"]["data-kind"] = value.instance.kind
        return option


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
    server = forms.ModelChoiceField(EngineServer.objects.none(), required=False, empty_label="none: processes of the job",
                                    widget=ServerSelect)
    milliseconds = forms.IntegerField(required=False, initial=MILLISECONDS, min_value=10, max_value=MOST_MS, label="Length (ms)",
                                      widget=_number())
    steps = forms.IntegerField(required=False, min_value=1, max_value=MOST_STEPS, label="or steps", widget=_number())
    shapes = forms.BooleanField(required=False, initial=True, label="Input shapes")
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
        return cls(initial={**{name: getattr(row, name) for name in names}, "requests": row.requests or None,
                            "at": f"{row.minute // 60:02}:{row.minute % 60:02}", "milliseconds": options.get("milliseconds"),
                            "steps": options.get("steps"), "shapes": options.get("shapes", True), "stacks": options.get("stacks")})

    def given(self) -> dict[str, Any]:
        """Return the fields for `schedule_save`, with the options of processes."""
        data = dict(self.cleaned_data)
        due = data.pop("at", None)
        steps, milliseconds, shapes, stacks = (data.pop(name) for name in ("steps", "milliseconds", "shapes", "stacks"))
        options = {**({"steps": steps} if steps else {"milliseconds": milliseconds or MILLISECONDS}), "shapes": bool(shapes),
                   "stacks": bool(stacks)}
        return {**data, "requests": data["requests"] or 0, "minute": due.hour * 60 + due.minute if due else 120, "options": options}


class ScheduleForms:
    """A schedule, when a capture of its server ends, and the parameters of each engine."""

    def __init__(self, data: Any = None, row: CaptureSchedule | None = None, filled: Mapping[str, str] | None = None) -> None:
        self.schedule = ScheduleForm(data) if data is not None else ScheduleForm.of(row) if row else ScheduleForm(initial=filled)
        options = row.options if row is not None and row.server is not None else {}
        ends = {name: f"{value:g}" if isinstance(value, float) else value for name, value in options.items() if name != "options"}
        self.engine = EngineForm(data, initial=ends or None)
        del self.engine.fields["build"]                 # of a schedule: its server's version
        parameters = as_text(options.get("options", {}))
        self.parameters = {kind: parameter_form(kind)(data, prefix=kind, initial=parameters) for kind in PARAMETERS}

    def is_valid(self) -> bool:
        """Return whether what counts is valid: without a server its capture does not."""
        if not self.schedule.is_valid():
            return False
        server = self.schedule.cleaned_data["server"]
        engine = self.engine.is_valid() if server else True
        return (self.parameters[server.kind].is_valid() if server else True) and engine

    def given(self) -> dict[str, Any]:
        """Return the fields for `schedule_save`; of a server its options are those of its captures."""
        fields = self.schedule.given()
        if server := fields["server"]:
            fields["options"] = {**self.engine.cleaned_data, "options": self.parameters[server.kind].cleaned_data}
        return fields

    def show(self, errors: Mapping[str, str]) -> list[tuple[forms.Form, str | None, str]]:
        """Return what belongs to which form and field; what belongs to none goes to the top."""
        server = self.schedule.cleaned_data.get("server")
        candidates = [self.schedule, *([self.engine, self.parameters[server.kind]] if server else [])]
        places = []
        for name, text in errors.items():
            owner = next((form for form in candidates if name in form.fields), None)
            places.append((owner or self.schedule, name if owner else None, text if owner or not name else f"{name}: {text}"))
        return places


def as_text(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return parameters as their form shows them."""
    def shown(value: Any) -> Any:
        if isinstance(value, bool):
            return "true" if value else "false"
        return json.dumps(value) if isinstance(value, Mapping) else value
    return {name: shown(value) for name, value in parameters.items()}
