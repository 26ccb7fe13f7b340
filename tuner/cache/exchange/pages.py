"""Pages: import and export, portability, and bucket policies."""

from __future__ import annotations

import re
from collections.abc import Mapping

from django.contrib import messages
from django.contrib.auth.decorators import permission_required
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from profiles.base.refused import Refused
from tuner import devices, texts
from tuner.cache.entries import portability_selectors, selectors, services
from tuner.cache.exchange import export_selectors
from tuner.cache.exchange import services as exchange_services
from tuner.cache.exchange.forms import BucketForm, ImportForm, known_gpus
from tuner.cache.formats import FORMATS
from tuner.cache.formats.document import FormatError
from tuner.models import CachedConfig, ImportedFile, TuneJob
from tuner.tuning import operators

FILES_SHOWN = 100


@require_http_methods(["GET", "HEAD", "POST"])
def cache_exchange(request: HttpRequest) -> HttpResponse:
    """Show import and export, and take a file."""
    form = ImportForm()
    error = None
    if request.method == "POST":
        if not request.user.has_perm("tuner.add_importedfile"):
            raise PermissionDenied
        form = ImportForm(request.POST, request.FILES)
        if form.is_valid():
            sent = form.cleaned_data["file"]
            try:
                file = _receive_file(sent.name, sent, form, request)
            except FormatError as refused:
                error = refused
            else:
                return redirect("cache-import", pk=file.pk)
    entries = CachedConfig.objects.all()
    return render(request, "tuner/cache/exchange.html", {
        "form": form, "error": error, "files": ImportedFile.objects.select_related("owner").defer("tested")[:FILES_SHOWN],
        "formats": FORMATS, "exports": [(name, FORMATS[name]) for name in export_selectors.EXPORTS],
        "operators": entries.order_by("operator").values_list("operator", flat=True).distinct(),
        "gpus": entries.order_by("gpu").values_list("gpu", flat=True).distinct(), "total": entries.count(),
        "jobs": [(job, texts.in_order(job.operator, job.shape)) for job in TuneJob.objects.filter(status=TuneJob.Status.DONE)[:8]],
        "max_bytes": exchange_services.MAX_BYTES,
        "may_import": request.user.has_perm("tuner.add_importedfile"),
    }, status=400 if error or form.errors else 200)


def _receive_file(name: str, sent: object, form: ImportForm, request: HttpRequest) -> ImportedFile:
    if sent.size > exchange_services.MAX_BYTES:      # type: ignore[attr-defined]
        raise FormatError(name, f"holds more than {exchange_services.MAX_BYTES // 2**20} MiB")
    return exchange_services.import_file(owner=request.user, name=name, data=sent.read(),      # type: ignore[attr-defined]
                                         format=form.cleaned_data["format"], hints=form.hints)


@require_safe
def cache_import(request: HttpRequest, pk: int) -> HttpResponse:
    """Show an imported file and what became of it."""
    file = get_object_or_404(ImportedFile.objects.select_related("owner"), pk=pk)
    listed = exchange_services.untimed_configs(file)
    where = [device for device in devices.list_devices() if devices.is_gpu(device.value) or device.operator == file.operator]
    return render(request, "tuner/cache/import.html", {
        "file": file, "format": FORMATS.get(file.format), "listed": [texts.config_in_order(config) for config in listed],
        "shape": texts.in_order(file.operator, file.shape),
        "entries": [{"row": row, "shape": texts.in_order(row.operator, row.shape), "config": texts.config_in_order(row.config)}
                    for row in file.cached.all()[:500]],
        "devices": where, "known": operators.find(file.operator)})


@permission_required("tuner.add_tunejob", raise_exception=True)
@require_POST
def cache_import_measure(request: HttpRequest, pk: int) -> HttpResponse:
    """Create a job over the listed configurations."""
    file = get_object_or_404(ImportedFile, pk=pk)
    try:
        job = exchange_services.create_measure_job(file, request.user, request.POST.get("device", ""))
    except Refused as error:
        messages.error(request, str(error))
        return redirect("cache-import", pk=pk)
    return redirect("tune", pk=job.pk)


@permission_required("tuner.add_importedfile", raise_exception=True)
@require_POST
def cache_import_forget(request: HttpRequest, pk: int) -> HttpResponse:
    """Delete an import."""
    file = get_object_or_404(ImportedFile, pk=pk)
    exchange_services.delete_import(file)
    messages.success(request, f"{file.name} and its entries are gone.")
    return redirect("cache-exchange")


@require_safe
def cache_export(request: HttpRequest) -> HttpResponse:
    """Send ?as=vllm&operator=…&gpu=…[&recorded=1] as a file, or a zip of several."""
    try:
        done = export_selectors.export_entries(request.GET.get("as", ""), request.GET, asks_recordings(request.GET))
    except FormatError as error:
        messages.error(request, str(error))
        return redirect("cache-exchange")
    return download_response(done)


@require_safe
def trials_export(request: HttpRequest, pk: int, kind: str) -> HttpResponse:
    """Send every trial of a job as another tuner reads it."""
    job = get_object_or_404(TuneJob, pk=pk)
    try:
        return download_response(export_selectors.export_trials(kind, job))
    except FormatError as error:
        messages.error(request, str(error))
        return redirect("tune", pk=pk)


def asks_recordings(query: Mapping[str, str]) -> bool:
    """Return whether ?recorded=1 asks for recordings too."""
    return query.get("recorded", "") in ("1", "true", "on")


def download_response(done: export_selectors.Export) -> HttpResponse:
    """Return one file, or several as a zip; a header says what was left out."""
    if len(done.files) == 1 and "/" not in next(iter(done.files)):
        (name, text), = done.files.items()
        answer = HttpResponse(text, content_type="text/x-python" if name.endswith(".py") else "application/json")
    else:
        name, body = "ridgepoint-configs.zip", exchange_services.zip_files(done.files)
        answer = HttpResponse(body, content_type="application/zip")
    shown = re.sub(r'[^ -~]|["\\]', "_", name)            # GPUs are named by whoever reported them
    answer["Content-Disposition"] = f'attachment; filename="{shown}"'
    if done.unverified:
        answer["X-Unverified"] = f"{len(done.unverified)} of {len(done.files)} files: never measured here"
    if done.left_out:
        summary = "; ".join(f"{count} x {why}" for why, count in done.left_out.items())
        answer["X-Left-Out"] = summary.encode("ascii", "replace").decode()[:900]
    return answer


# ---- portability and buckets ----

@require_safe
def cache_portability(request: HttpRequest) -> HttpResponse:
    """Show what winners are worth elsewhere."""
    names = portability_selectors.operator_names()
    operator = request.GET.get("operator", "")
    matrices = portability_selectors.matrices(operator if operator in names else "")
    return render(request, "tuner/cache/portability.html", {
        "operators": names, "operator": operator, "gpu": matrices["gpu"], "toolkit": matrices["toolkit"],
        "searches": matrices["searches"], "sections": [("GPU", matrices["gpu"]), ("toolkit", matrices["toolkit"])]})


@require_http_methods(["GET", "HEAD", "POST"])
def cache_buckets(request: HttpRequest) -> HttpResponse:
    """Show and take how an operator's shapes are rounded."""
    names = list(dict.fromkeys((*operators.all_operators(), *portability_selectors.operator_names())))
    operator = request.GET.get("operator", "") if request.GET.get("operator", "") in names else names[0]
    form = BucketForm(initial=_initial_fields(operator))
    if request.method == "POST":
        if not request.user.has_perm("tuner.change_bucketpolicy"):
            raise PermissionDenied
        form = BucketForm(request.POST)
        if form.is_valid():
            moved = services.policy_set(operator, form.policy, request.user)
            messages.success(request, f"{operator}: {moved} entr{'y' if moved == 1 else 'ies'} changed bucket.")
            return redirect(f"{request.path}?operator={operator}")
    return render(request, "tuner/cache/buckets.html", {
        "operators": names, "operator": operator, "form": form, "gpus": known_gpus(),
        "may_change": request.user.has_perm("tuner.change_bucketpolicy"), **portability_selectors.bucket_report(operator),
    }, status=400 if form.errors else 200)


def _initial_fields(operator: str) -> dict[str, object]:
    policy = selectors.bucket_policy(operator)
    return {**policy.as_json(), "steps_per_doubling": f"{policy.steps_per_doubling:g}"}
