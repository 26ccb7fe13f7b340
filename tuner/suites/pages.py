"""HTML: benchmark suites: the list, one suite with its runs and jobs, one kernel's runs, and what a person may do to them."""

from __future__ import annotations

from django.contrib import messages
from django.contrib.auth.decorators import permission_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.template.defaultfilters import pluralize
from django.views.decorators.http import require_POST, require_safe

from tuner.models import Suite, SuiteJob, SuiteKernel
from tuner.suites import calibration_selectors, charts, control_services, page_selectors, selectors, services
from tuner.suites.devices_selectors import places, why_waiting
from tuner.suites.forms import RunForm, UploadForm
from tuner.suites.run_selectors import environment_text
from tuner.suites.toml import as_toml
from tuner.texts import config_in_order

FACT_HEADS = {"smem_bytes": "shared memory (B)", "dram_bytes": "DRAM traffic (B)"}


@require_safe
def suite_list(request: HttpRequest) -> HttpResponse:
    rows = page_selectors.rows()
    return render(request, "suites/list.html", {
        "rows": rows, "watched": sum(row["suite"].kernel_count for row in rows),
        "live": sum(row["job"] is not None for row in rows)})


@require_safe
def suite_detail(request: HttpRequest, pk: int) -> HttpResponse:
    """?gpu=&toolkit=&driver=&recorded= names the environment whose runs are shown."""
    suite = get_object_or_404(selectors.suite_list(), pk=pk)
    upload = UploadForm(initial={"build": request.GET.get("build", "")[:80]})
    return _detail(request, suite, RunForm(initial={"runs": suite.runs}), upload)


def _detail(request: HttpRequest, suite: Suite, run: RunForm, upload: UploadForm, status: int = 200) -> HttpResponse:
    known, environment = page_selectors.chosen_environment(suite, request.GET)
    text = request.GET.get("kernel", "")[:200]
    page = page_selectors.kernels_page(suite, text, request.GET.get("page"))
    lines, total = page_selectors.kernel_lines(page, environment), suite.kernels.filter(enabled=True).count()
    jobs = page_selectors.jobs_shown(suite)
    measured = [line for line in lines if line.runs]
    return render(request, "suites/detail.html", {
        "suite": suite, "environments": [(each, environment_text(each["toolkit"], each["driver"]), each == environment)
                                         for each in known],
        "environment": environment, "lines": lines, "page": page, "total": total, "text": text, "measured": measured,
        "plan": page_selectors.plan_of(suite, total),
        "strips": charts.relative_strips(page_selectors.suite_strip_rows(measured)), "jobs": jobs,
        "has_facts": any(fact is not None for line in measured for fact in line.compiled),
        "live": any(each["live"] for each in jobs), "newest": page_selectors.newest_measured(suite), "run": run, "upload": upload,
        "builds": page_selectors.builds_known(), "places": places(), "rule": page_selectors.rule_of(suite),
        "why_waiting": next((why_waiting(each["job"].device) for each in jobs if each["job"].status == "queued"), ""),
        "has_switched_off": suite.kernels.filter(enabled=False).count(), "gates": suite.gates.select_related("build")[:5],
    }, status=status)


@require_safe
def suite_kernel(request: HttpRequest, pk: int, kernel_pk: int) -> HttpResponse:
    kernel = get_object_or_404(SuiteKernel.objects.select_related("suite"), pk=kernel_pk, suite=pk)
    known, environment = page_selectors.chosen_environment(kernel.suite, request.GET)
    runs = page_selectors.kernel_runs(kernel, environment)
    rows, facts = page_selectors.kernel_strip_rows(runs), page_selectors.fact_names(runs)
    for run in runs:
        run.shown_facts = [run.facts.get(name) for name in facts]
        run.shown_config = config_in_order(run.config or {})
    return render(request, "suites/kernel.html", {
        "suite": kernel.suite, "kernel": kernel, "runs": runs, "rows": rows, "strips": charts.time_strips(rows),
        "environments": [(each, environment_text(each["toolkit"], each["driver"]), each == environment) for each in known],
        "environment": environment, "total": kernel.runs.count(),
        "fact_heads": [FACT_HEADS.get(name, name.replace("_", " ")) for name in facts]})


@require_safe
def suite_calibration(request: HttpRequest, pk: int) -> HttpResponse:
    """What the suite's own runs say of its gates: false alarms among identical runs, and the slowdown that would be seen."""
    suite = get_object_or_404(selectors.suite_list(), pk=pk)
    known, environment = page_selectors.chosen_environment(suite, request.GET)
    return render(request, "suites/calibration.html", {
        "suite": suite, "environment": environment, "plan": page_selectors.plan_of(suite),
        "environments": [(each, environment_text(each["toolkit"], each["driver"]), each == environment) for each in known],
        "found": calibration_selectors.calibration(suite, environment) if environment else None})


@require_safe
def suite_file(request: HttpRequest, pk: int) -> HttpResponse:
    """The suite as the file that a team keeps in its repository."""
    suite = get_object_or_404(selectors.suite_list(), pk=pk)
    answer = HttpResponse(as_toml(services.definition_of(suite)), content_type="application/toml; charset=utf-8")
    answer["Content-Disposition"] = f'attachment; filename="{suite.name}.toml"'
    return answer


# ---- what a person may do ----

@require_POST
@permission_required("tuner.add_suitejob", raise_exception=True)
def suite_run(request: HttpRequest, pk: int) -> HttpResponse:
    """Measure one build, or two that take turns."""
    suite = get_object_or_404(selectors.suite_list(), pk=pk)
    form = RunForm(request.POST)
    if form.is_valid():
        given = form.cleaned_data
        try:
            job = services.job_create(suite, builds=form.builds, runs=given["runs"], device=given["device"], owner=request.user)
        except services.SuiteError as error:
            _tell(form, error, {"builds": "build"})
        else:
            messages.success(request, f"Job {job.pk} is queued: {job.runs} fresh runs of {' and '.join(form.builds)}.")
            return redirect("suite", pk=pk)
    return _detail(request, suite, form, UploadForm(), status=400)


@require_POST
@permission_required("tuner.add_kernelrun", raise_exception=True)
def suite_upload(request: HttpRequest, pk: int) -> HttpResponse:
    suite = get_object_or_404(selectors.suite_list(), pk=pk)
    form = UploadForm(request.POST, request.FILES)
    if form.is_valid():
        given = form.cleaned_data
        try:
            stored = control_services.runs_upload(
                suite, given["build"], given["file"].read(control_services.MAX_BYTES + 1), owner=request.user,
                **{name: given[name] for name in ("gpu", "toolkit", "driver")})
        except services.SuiteError as error:
            _tell(form, error, {"runs": "file"})
        else:
            known = f", {stored.known:,} were there already" if stored.known else ""
            bad = f", {stored.rejected:,} of them rejected ({stored.why[0]})" if stored.rejected else ""
            kernels = f"{len(stored.kernels):,} kernel{pluralize(len(stored.kernels))}"
            messages.success(request, f"{stored.stored:,} run{pluralize(stored.stored)} of {kernels} stored{bad}{known}.")
            return redirect("suite", pk=pk)
    return _detail(request, suite, RunForm(initial={"runs": suite.runs}), form, status=400)


def _tell(form: RunForm | UploadForm, error: services.SuiteError, names: dict[str, str]) -> None:
    for field, problem in error.fields.items():
        name = names.get(field, field)
        form.add_error(name if name in form.fields else None, problem)


@require_POST
@permission_required("tuner.change_suitejob", raise_exception=True)
def suite_stop(request: HttpRequest, pk: int, job_pk: int) -> HttpResponse:
    job = get_object_or_404(SuiteJob, pk=job_pk, suite=pk)
    if not control_services.job_end(job):
        messages.info(request, f"It had ended already: {job.status}.")
    return redirect("suite", pk=pk)


@require_POST
@permission_required("tuner.change_suite", raise_exception=True)
def suite_switch(request: HttpRequest, pk: int) -> HttpResponse:
    services.suite_switch(get_object_or_404(Suite, pk=pk), request.POST.get("do") == "on")
    return redirect("suite", pk=pk)


@require_POST
@permission_required("tuner.delete_suite", raise_exception=True)
def suite_delete(request: HttpRequest, pk: int) -> HttpResponse:
    suite = get_object_or_404(Suite, pk=pk)
    if request.POST.get("name") != suite.name:
        messages.error(request, "Type the suite's name to delete it.")
        return redirect("suite", pk=pk)
    try:
        services.suite_delete(suite)
    except services.SuiteError as error:
        messages.error(request, str(error))
        return redirect("suite", pk=pk)
    messages.success(request, f"{suite.name} and its runs are deleted.")
    return redirect("suite-list")
