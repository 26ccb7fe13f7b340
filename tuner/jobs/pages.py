"""HTML: jobs, a new job, one job live. Each page also answers without JavaScript."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.decorators import permission_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from tuner import texts
from tuner.jobs import charts, devices, selectors, services
from tuner.jobs.forms import TuneForm, shape_text
from tuner.models import TuneJob
from tuner.operators import OPERATORS
from tuner.strategies import DEFAULT, STRATEGIES

LIST_LIMIT = 500
FASTEST = 12             # rows of the table that stands before the script fills it
ASSUMED_TRIAL_S = 1.5    # on a GPU where no job has run yet


@require_safe
def tune_list(request: HttpRequest) -> HttpResponse:
    jobs = selectors.job_list()
    status = request.GET.get("status", "")
    if status in TuneJob.Status.values:
        jobs = jobs.filter(status=status)
    rows = [{"job": job, "shape": texts.in_order(job.operator, job.shape), **selectors.speedups(job),
             "rate": texts.rate(job, job.best_ms), "progress": selectors.progress(job, job.n_trials)}
            for job in jobs[:LIST_LIMIT]]
    done = [row for row in rows if row["job"].status == TuneJob.Status.DONE and row["default"]]
    return render(request, "tuner/list.html", {
        "rows": rows, "total": jobs.count(), "status": status, "statuses": TuneJob.Status.values,
        "running": sum(row["job"].status == TuneJob.Status.RUNNING for row in rows),
        "best": max(done, key=lambda row: row["default"], default=None), "done": len(done)})


@permission_required("tuner.add_tunejob", raise_exception=True)
@require_http_methods(["GET", "HEAD", "POST"])
def tune_new(request: HttpRequest) -> HttpResponse:
    places = devices.devices()
    choices = {"devices": [(device.value, device.title) for device in places],
               "operators": [(op.name, op.title) for op in OPERATORS.values()]}
    if request.method != "POST":
        return _new_page(request, TuneForm(initial=_prefill(request, places), **choices), places)
    form = TuneForm(request.POST, **choices)
    if form.is_valid():
        try:
            job = services.tune_create(owner=request.user, **form.cleaned_data)
        except services.TuneError as error:
            for name, problem in error.fields.items():
                form.add_error(name if name in form.fields else "shape", problem)
        else:
            return redirect("tune", pk=job.pk)
    return _new_page(request, form, places, status=400)


def _prefill(request: HttpRequest, places: list[devices.Device]) -> dict[str, Any]:
    """From the query string (?operator=matmul&M=…), else the first operator's first preset, where it can run now."""
    given = request.GET
    operator = OPERATORS.get(given.get("operator", ""), next(iter(OPERATORS.values())))
    named = {dim.name: int(given[dim.name]) for dim in operator.dims if given.get(dim.name, "").isdecimal()}
    runs = [device for device in places if not device.why_not and device.operator in (None, operator.name)]
    fits = [device for device in runs if device.operator is None or not named or named in device.shapes]
    device = next(iter(fits or runs), None)
    plain = {name: given[name] for name in ("dtype", "device", "strategy", "budget_trials", "budget_seconds", "seed")
             if given.get(name)}
    return {"operator": operator.name, "dtype": operator.dtypes[0], "strategy": DEFAULT, "shape": shape_text(
        named or dict(operator.presets[0])), "device": device.value if device else places[0].value, **plain}


def _new_page(request: HttpRequest, form: TuneForm, places: list[devices.Device], status: int = 200) -> HttpResponse:
    known_s = selectors.gpu_seconds_per_trial()
    facts = {
        "operators": {op.name: {"dtypes": op.dtypes, "presets": [shape_text(dict(s)) for s in op.presets],
                                "dims": [{"name": d.name, "meaning": d.meaning} for d in op.dims]}
                      for op in OPERATORS.values()},
        "devices": {device.value: _device_facts(device) for device in places},
        "gpu_trial_s": known_s or ASSUMED_TRIAL_S, "gpu_trial_known": known_s is not None,
    }
    methods = [{"name": name, "method": method, "default": name == DEFAULT} for name, method in STRATEGIES.items()]
    return render(request, "tuner/new.html", {
        "form": form, "devices": places, "methods": methods, "facts": facts,
        "waiting": [device for device in places if device.why_not],
        "runs": any(not device.why_not for device in places)}, status=status)


def _device_facts(device: devices.Device) -> dict[str, Any]:
    """What the form's script needs to know of a device."""
    shapes = devices.replay_facts(device) if device.operator else []
    return {"operator": device.operator, "dtype": device.dtype, "label": device.label, "why_not": device.why_not,
            "shapes": [{**fact, "shape": shape_text(fact["shape"])} for fact in shapes]}


@require_safe
def tune_detail(request: HttpRequest, pk: int) -> HttpResponse:
    job = get_object_or_404(selectors.job_list(), pk=pk)
    trials = selectors.history(job)
    log = request.GET.get("scale") != "linear"
    figure = charts.progress_figure(trials, budget_trials=min(job.budget_trials, job.valid_size or job.budget_trials),
                                    default_ms=job.default_ms, library_ms=job.library_ms, log=log)
    return render(request, "tuner/detail.html", {
        "job": job, "shape": texts.in_order(job.operator, job.shape), "figure": figure, "log": log,
        "n_trials": len(trials), "measured_with": texts.measured_with(job),
        "finalists": [{**each, "config": texts.config_in_order(each["config"])} for each in job.finalists],
        "fastest": sorted((t for t in trials if t.median_ms is not None), key=lambda t: t.median_ms or 0)[:FASTEST],
        "failures": selectors.failures(job), "progress": selectors.progress(job, len(trials)),
        "speedups": selectors.speedups(job), "rate": texts.rate(job, job.best_ms),
        "triton": texts.triton_config(job.best_config), "active": job.status not in selectors.ENDED,
        "no_worker": _no_worker(job), "cached": job.cached.first(),
        "state": {"id": job.pk, "last": trials[-1].number if trials else -1, "budget_trials": job.budget_trials,
                  "budget_seconds": job.budget_seconds, "status": job.status}})


def _no_worker(job: TuneJob) -> str:
    """Why a waiting job is not taken."""
    if job.status != TuneJob.Status.QUEUED:
        return ""
    return next((device.why_not for device in devices.devices() if device.value == job.device), "")


@permission_required("tuner.change_tunejob", raise_exception=True)
@require_POST
def tune_stop(request: HttpRequest, pk: int) -> HttpResponse:
    services.tune_stop(get_object_or_404(TuneJob, pk=pk))
    return redirect("tune", pk=pk)
