"""Pages of new jobs: one job, one for each of several shapes, or for a profile's hot shapes."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from django.contrib.auth.decorators import permission_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods

from profiles.base.refused import Refused
from profiles.base.words import pairs_text
from tuner import devices
from tuner.jobs import new_services
from tuner.jobs.create_services import DEFAULT_EFFORT, EFFORTS
from tuner.jobs.forms import BudgetForm, job_form
from tuner.tuning.operators import all_operators
from tuner.tuning.search.strategies import DEFAULT, STRATEGIES

PLAIN = ("dtype", "device", "strategy", "effort", "budget_trials", "budget_seconds", "plateau", "ceiling_pct", "seed")


@permission_required("tuner.add_tunejob", raise_exception=True)
@require_http_methods(["GET", "HEAD", "POST"])
def tune_new(request: HttpRequest) -> HttpResponse:
    """Show and take the form; ?profile=ID picks its shapes, ?operator=…&M=… fills it in, ?space_of=JOB its edited space."""
    places = new_services.device_choices()
    if request.GET.get("profile"):
        return _tune_from_profile(request, places)
    if request.method != "POST":
        return _render_form(request, job_form(places, initial=_initial_fields(request, places)), places)
    form = job_form(places, typed=request.POST)
    if form.is_valid():
        try:
            destination = new_services.create_jobs(request.user, dict(form.cleaned_data))
        except Refused as error:
            _add_errors(form, error)
        else:
            return redirect(*destination)
    return _render_form(request, form, places, status=400)


def _tune_from_profile(request: HttpRequest, places: list[devices.Device]) -> HttpResponse:
    problems = new_services.profile_problems(request.GET["profile"])
    if problems is None:
        return redirect("tune-new")
    profile, hot = problems
    gpu = new_services.serving_device(places, profile.gpu)
    suggested = [row["problem"] for row in hot if row["suggested"]]
    initial = {"device": gpu.value, "strategy": DEFAULT, **_effort_fields(DEFAULT_EFFORT), "hot": suggested}
    form = job_form(places, hot, request.POST if request.method == "POST" else None, initial)
    if request.method == "POST" and form.is_valid():
        try:
            destination = new_services.create_hot_group(request.user, profile, hot, dict(form.cleaned_data))
        except Refused as error:
            _add_errors(form, error)
        else:
            return redirect(*destination)
    return _render_form(request, form, places, status=400 if request.method == "POST" else 200, profile=profile, hot=hot,
                 picked=form["hot"].value() or [])


def _add_errors(form: BudgetForm, error: Refused) -> None:
    """Put each problem at its field; others at the shapes."""
    for name, problem in error.fields.items():
        own, _, part = name.partition(".")
        if own == "space" and part and own in form.fields:
            form.add_error(own, f"{part}: {problem}")
            continue
        field = name if name in form.fields else "shape" if "shape" in form.fields else None
        form.add_error(field, problem if field == name else f"{name}: {problem}" if field is None or "[" in name else problem)


def _effort_fields(name: str) -> dict[str, Any]:
    effort = EFFORTS[name]
    return {"effort": name, "budget_trials": effort.trials, "budget_seconds": effort.seconds, "plateau": effort.plateau}


def _initial_fields(request: HttpRequest, places: list[devices.Device]) -> dict[str, Any]:
    """Return initial fields from the query, else the first operator's first preset."""
    query, operators = request.GET, all_operators()
    operator = operators.get(query.get("operator", ""), next(iter(operators.values())))
    named = {dim.name: int(query[dim.name]) for dim in operator.dims if query.get(dim.name, "").isdecimal()}
    runs = [device for device in places if not device.why_not and device.operator in (None, operator.name)]
    fits = [device for device in runs if device.operator is None or not named or named in device.shapes]
    device = next(iter(fits or runs), None)
    plain = {name: query[name] for name in PLAIN if query.get(name)}
    effort = _effort_fields(query["effort"]) if query.get("effort") in EFFORTS else _effort_fields(DEFAULT_EFFORT)
    if any(name in plain for name in ("budget_trials", "budget_seconds")):
        effort["effort"] = ""
    edited = new_services.edited_space_of(query.get("space_of", ""))
    return {"space": json.dumps(edited) if edited else "", "operator": operator.name,
            "dtype": operator.dtypes[0], "strategy": DEFAULT,
            "shape": pairs_text(named or dict(operator.presets[0])), "device": device.value if device else places[0].value,
            **effort, **plain}


def _render_form(request: HttpRequest, form: BudgetForm, places: list[devices.Device], status: int = 200,
                 **more: Any) -> HttpResponse:
    operators = all_operators()
    facts = {
        "operators": {op.name: {"dtypes": op.dtypes, "presets": [pairs_text(dict(s)) for s in op.presets],
                                "dims": [{"name": d.name, "meaning": d.meaning} for d in op.dims]} for op in operators.values()},
        "devices": {device.value: _device_facts(device) for device in places},
        "efforts": {name: asdict(effort) for name, effort in EFFORTS.items()},
        "whole_space": [name for name, method in STRATEGIES.items() if method.whole_space], **new_services.trial_seconds(),
    }
    return render(request, "tuner/job/new.html", {
        "form": form, "devices": places, "facts": facts, "profiles": new_services.profile_choices(),
        "methods": [{"name": name, "method": method, "default": name == DEFAULT} for name, method in STRATEGIES.items()],
        "efforts": [{"name": name, "effort": effort, "default": name == DEFAULT_EFFORT} for name, effort in EFFORTS.items()],
        "waiting": [device for device in places if device.why_not and not device.value.startswith(f"{devices.GPU}:")],
        "runs": any(not device.why_not for device in places), **more,
    }, status=status)


def _device_facts(device: devices.Device) -> dict[str, Any]:
    """Return what the form's script needs to know of a device."""
    shapes = devices.replay_facts(device) if device.operator else []
    return {"operator": device.operator, "dtype": device.dtype, "label": device.label, "why_not": device.why_not,
            "shapes": [{**fact, "shape": pairs_text(fact["shape"])} for fact in shapes]}
