"""HTML: jobs, a new job, one job live, the config cache. Each page also answers without JavaScript."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.decorators import permission_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from tuner import cache, charts, selectors, services
from tuner.forms import TuneForm, shape_text
from tuner.models import CachedConfig, TuneJob
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
    rows = [{"job": job, "shape": selectors.in_order(job.operator, job.shape), **selectors.speedups(job),
             "rate": selectors.rate(job, job.best_ms), "progress": selectors.progress(job, job.n_trials)}
            for job in jobs[:LIST_LIMIT]]
    done = [row for row in rows if row["job"].status == TuneJob.Status.DONE and row["default"]]
    return render(request, "tuner/list.html", {
        "rows": rows, "total": jobs.count(), "status": status, "statuses": TuneJob.Status.values,
        "running": sum(row["job"].status == TuneJob.Status.RUNNING for row in rows),
        "best": max(done, key=lambda row: row["default"], default=None), "done": len(done)})


@permission_required("tuner.add_tunejob", raise_exception=True)
@require_http_methods(["GET", "HEAD", "POST"])
def tune_new(request: HttpRequest) -> HttpResponse:
    devices = selectors.devices()
    choices = {"devices": [(device.value, device.title) for device in devices],
               "operators": [(op.name, op.title) for op in OPERATORS.values()]}
    if request.method != "POST":
        return _new_page(request, TuneForm(initial=_prefill(request, devices), **choices), devices)
    form = TuneForm(request.POST, **choices)
    if form.is_valid():
        try:
            job = services.tune_create(owner=request.user, **form.cleaned_data)
        except services.TuneError as error:
            for name, problem in error.fields.items():
                form.add_error(name if name in form.fields else "shape", problem)
        else:
            return redirect("tune", pk=job.pk)
    return _new_page(request, form, devices, status=400)


def _prefill(request: HttpRequest, devices: list[selectors.Device]) -> dict[str, Any]:
    """From the query string (?operator=matmul&M=…), else the first operator's first preset, where it can run now."""
    given = request.GET
    operator = OPERATORS.get(given.get("operator", ""), next(iter(OPERATORS.values())))
    named = {dim.name: int(given[dim.name]) for dim in operator.dims if given.get(dim.name, "").isdecimal()}
    runs = [device for device in devices if not device.why_not and device.operator in (None, operator.name)]
    fits = [device for device in runs if device.operator is None or not named or named in device.shapes]
    device = next(iter(fits or runs), None)
    plain = {name: given[name] for name in ("dtype", "device", "strategy", "budget_trials", "budget_seconds", "seed")
             if given.get(name)}
    return {"operator": operator.name, "dtype": operator.dtypes[0], "strategy": DEFAULT, "shape": shape_text(
        named or dict(operator.presets[0])), "device": device.value if device else devices[0].value, **plain}


def _new_page(request: HttpRequest, form: TuneForm, devices: list[selectors.Device], status: int = 200) -> HttpResponse:
    known_s = selectors.gpu_seconds_per_trial()
    facts = {
        "operators": {op.name: {"dtypes": op.dtypes, "presets": [shape_text(dict(s)) for s in op.presets],
                                "dims": [{"name": d.name, "meaning": d.meaning} for d in op.dims]}
                      for op in OPERATORS.values()},
        "devices": {device.value: _device_facts(device) for device in devices},
        "gpu_trial_s": known_s or ASSUMED_TRIAL_S, "gpu_trial_known": known_s is not None,
    }
    methods = [{"name": name, "method": method, "default": name == DEFAULT} for name, method in STRATEGIES.items()]
    return render(request, "tuner/new.html", {
        "form": form, "devices": devices, "methods": methods, "facts": facts,
        "waiting": [device for device in devices if device.why_not],
        "runs": any(not device.why_not for device in devices)}, status=status)


def _device_facts(device: selectors.Device) -> dict[str, Any]:
    """What the form's script needs to know of a device."""
    shapes = selectors.replay_facts(device) if device.operator else []
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
        "job": job, "shape": selectors.in_order(job.operator, job.shape), "figure": figure, "log": log,
        "n_trials": len(trials), "measured_with": selectors.measured_with(job),
        "finalists": [{**each, "config": selectors.config_in_order(each["config"])} for each in job.finalists],
        "fastest": sorted((t for t in trials if t.median_ms is not None), key=lambda t: t.median_ms or 0)[:FASTEST],
        "failures": selectors.failures(job), "progress": selectors.progress(job, len(trials)),
        "speedups": selectors.speedups(job), "rate": selectors.rate(job, job.best_ms),
        "triton": selectors.triton_config(job.best_config), "active": job.status not in selectors.ENDED,
        "no_worker": _no_worker(job), "cached": job.cached.first(),
        "state": {"id": job.pk, "last": trials[-1].number if trials else -1, "budget_trials": job.budget_trials,
                  "budget_seconds": job.budget_seconds, "status": job.status}})


def _no_worker(job: TuneJob) -> str:
    """Why a waiting job is not taken."""
    if job.status != TuneJob.Status.QUEUED:
        return ""
    return next((device.why_not for device in selectors.devices() if device.value == job.device), "")


@permission_required("tuner.change_tunejob", raise_exception=True)
@require_POST
def tune_stop(request: HttpRequest, pk: int) -> HttpResponse:
    services.tune_stop(get_object_or_404(TuneJob, pk=pk))
    return redirect("tune", pk=pk)


@require_safe
def cache_list(request: HttpRequest) -> HttpResponse:
    entries = list(selectors.config_list()[:LIST_LIMIT])
    gains = [entry.default_ms / entry.median_ms for entry in entries if entry.default_ms]
    return render(request, "tuner/cache_list.html", {
        "entries": [{"entry": entry, "config": selectors.config_in_order(entry.config),
                     "gain": entry.default_ms / entry.median_ms if entry.default_ms else None,
                     "library": entry.library_ms / entry.median_ms if entry.library_ms else None} for entry in entries],
        "best": max(gains, default=None), "gpus": len({entry.gpu for entry in entries}),
        "recorded": sum(bool(entry.recorded) for entry in entries), "policy": cache.BUCKET_POLICY,
        "rules": [(str(rule), why) for rule, why in cache.WHY.items()]})


@require_safe
def cache_detail(request: HttpRequest, pk: int) -> HttpResponse:
    entry = get_object_or_404(CachedConfig.objects.select_related("job"), pk=pk)
    return render(request, "tuner/cache_detail.html", {
        "entry": entry, "triton": selectors.triton_config(entry.config), "jobs": selectors.key_jobs(entry),
        "facts": selectors.facts_text(entry.evidence.get("facts", {})), "history": _history(entry),
        "policy": cache.BUCKET_POLICY, "measured_with": selectors.measured_with(entry.job),
        "ties": [selectors.config_in_order(config) for config in entry.evidence.get("ties", [])],
        "shape": selectors.in_order(entry.operator, entry.evidence.get("shape", {})),
        "gain": entry.default_ms / entry.median_ms if entry.default_ms else None,
        "library": entry.library_ms / entry.median_ms if entry.library_ms else None,
        "rate": selectors.rate(entry.job, entry.median_ms)})


def _history(entry: CachedConfig) -> list[dict[str, Any]]:
    """What was found for the key, newest first."""
    return [{**each, "config": selectors.config_in_order(each["config"]),
             "shape": selectors.in_order(entry.operator, each["shape"])}
            for each in reversed(entry.evidence.get("history", []))]
