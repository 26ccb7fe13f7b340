"""HTML: benchmark suites: the list, one suite, one kernel's runs; a suite made, changed, measured, deleted."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.contrib.auth.decorators import permission_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.template.defaultfilters import pluralize
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from profiles.base.refused import Refused
from tuner.gate.stats.rule import rule_of
from tuner.gate.suite_pages import calibration_selectors, charts, page_selectors
from tuner.gate.suite_pages.forms import RunForm, SuiteForm, UploadForm, initial_fields
from tuner.gate.suites import job_services, records, selectors, suite_services
from tuner.gate.suites.definition import DefinitionError
from tuner.gate.suites.formats import MAX_BYTES, definition_toml, read_toml
from tuner.gate.suites.records import repeated_note
from tuner.gate.suites.selectors import environment_text, places, why_waiting
from tuner.gate.verdicts import services as gate_services
from tuner.models import Suite, SuiteCode, SuiteJob, SuiteKernel
from tuner.texts import config_in_order
from tuner.tuning.operators import all_operators

FACT_HEADS = {"smem_bytes": "shared memory (B)", "dram_bytes": "DRAM traffic (B)"}


@require_safe
def suite_list(request: HttpRequest) -> HttpResponse:
    rows = page_selectors.suite_rows(page_selectors.suites_counted()[:500])
    return render(request, "gate/suites/list.html", {
        "rows": rows, "watched": sum(row["suite"].kernel_count for row in rows),
        "live": sum(row["job"] is not None for row in rows)})


@require_safe
def suite_detail(request: HttpRequest, pk: int) -> HttpResponse:
    """?gpu=&toolkit=&driver=&recorded= names the environment whose runs are shown."""
    suite = get_object_or_404(selectors.suite_list(), pk=pk)
    upload = UploadForm(initial={"build": request.GET.get("build", "")[:80]})
    return _render_suite(request, suite, RunForm(initial={"runs": suite.runs}), upload)


def _render_suite(request: HttpRequest, suite: Suite, run: RunForm, upload: UploadForm, status: int = 200) -> HttpResponse:
    environments, environment = page_selectors.chosen_environment(suite, request.GET)
    text = request.GET.get("kernel", "")[:200]
    page = page_selectors.kernels_page(suite, text, request.GET.get("page"))
    lines, total = page_selectors.kernel_lines(page, environment), suite.kernels.filter(enabled=True).count()
    jobs = page_selectors.job_rows(suite)
    measured = [line for line in lines if line.runs]
    return render(request, "gate/suites/detail.html", {
        "suite": suite, "environments": _environments(environments, environment),
        "environment": environment, "lines": lines, "page": page, "total": total, "text": text, "measured": measured,
        "plan": page_selectors.plan_of(suite, total),
        "strips": charts.relative_strips(page_selectors.suite_strip_rows(measured)), "jobs": jobs,
        "has_facts": any(fact is not None for line in measured for fact in line.compiled),
        "live": any(row["live"] for row in jobs), "newest": page_selectors.newest_measured(suite), "run": run, "upload": upload,
        "builds": page_selectors.builds_known(), "places": places(), "rule": rule_of(suite.rule),
        "why_waiting": next((why_waiting(row["job"].device) for row in jobs if row["job"].status == "queued"), ""),
        "code": SuiteCode.objects.filter(suite=suite).first(),
        "has_switched_off": suite.kernels.filter(enabled=False).count(), "gates": suite.gates.select_related("build")[:5],
    }, status=status)


def _environments(known: list[dict[str, str]], chosen: dict[str, str] | None) -> list[tuple[dict[str, str], str, bool]]:
    """(environment, its words, whether it is the one shown)."""
    return [(each, environment_text(each["toolkit"], each["driver"]), each == chosen) for each in known]


@require_safe
def suite_kernel(request: HttpRequest, pk: int, kernel_pk: int) -> HttpResponse:
    kernel = get_object_or_404(SuiteKernel.objects.select_related("suite"), pk=kernel_pk, suite=pk)
    environments, environment = page_selectors.chosen_environment(kernel.suite, request.GET)
    runs = page_selectors.kernel_runs(kernel, environment)
    rows, facts = page_selectors.kernel_strip_rows(runs), page_selectors.fact_names(runs)
    for run in runs:
        run.shown_facts = [run.facts.get(name) for name in facts]
        run.shown_config = config_in_order(run.config or {})
    return render(request, "gate/suites/kernel.html", {
        "suite": kernel.suite, "kernel": kernel, "runs": runs, "rows": rows, "strips": charts.time_strips(rows),
        "environments": _environments(environments, environment),
        "environment": environment, "total": kernel.runs.count(),
        "fact_heads": [FACT_HEADS.get(name, name.replace("_", " ")) for name in facts]})


@require_safe
def suite_calibration(request: HttpRequest, pk: int) -> HttpResponse:
    """What the suite's own runs say of its gates: false alarms among identical runs, and the slowdown that would be seen."""
    suite = get_object_or_404(selectors.suite_list(), pk=pk)
    environments, environment = page_selectors.chosen_environment(suite, request.GET)
    return render(request, "gate/suites/calibration.html", {
        "suite": suite, "environment": environment, "plan": page_selectors.plan_of(suite),
        "environments": _environments(environments, environment),
        "found": calibration_selectors.calibrate_suite(suite, environment) if environment else None})


@require_safe
def suite_file(request: HttpRequest, pk: int) -> HttpResponse:
    """The suite as the file that a team keeps in its repository."""
    suite = get_object_or_404(selectors.suite_list(), pk=pk)
    answer = HttpResponse(definition_toml(selectors.definition_of(suite)), content_type="application/toml; charset=utf-8")
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
            job = job_services.job_create(suite, builds=form.builds, runs=given["runs"], device=given["device"], owner=request.user)
        except Refused as error:
            error.renamed({"builds": "build"}).show_in(form)
        else:
            messages.success(request, f"Job {job.pk} is queued: {job.runs} fresh runs of {' and '.join(form.builds)}.")
            return redirect("suite", pk=pk)
    return _render_suite(request, suite, form, UploadForm(), status=400)


@require_POST
@permission_required("tuner.add_kernelrun", raise_exception=True)
def suite_upload(request: HttpRequest, pk: int) -> HttpResponse:
    suite = get_object_or_404(selectors.suite_list(), pk=pk)
    form = UploadForm(request.POST, request.FILES)
    if form.is_valid():
        fields = form.cleaned_data
        try:
            stored = gate_services.upload_runs(
                suite, fields["build"], fields["file"].read(records.MAX_BYTES + 1), owner=request.user,
                **{name: fields[name] for name in ("gpu", "toolkit", "driver", "shard")})
        except Refused as error:
            error.renamed({"runs": "file"}).show_in(form)
        else:
            duplicates = f", {stored.known:,} were there already" if stored.known else ""
            bad = f", {stored.rejected:,} of them rejected ({stored.why[0]})" if stored.rejected else ""
            kernels = f"{len(stored.kernels):,} kernel{pluralize(len(stored.kernels))}"
            messages.success(request, f"{stored.stored:,} run{pluralize(stored.stored)} of {kernels} stored{bad}{duplicates}.")
            if stored.repeated:
                messages.warning(request, f"{repeated_note(stored.repeated)}.")
            return redirect("suite", pk=pk)
    return _render_suite(request, suite, RunForm(initial={"runs": suite.runs}), form, status=400)


@require_POST
@permission_required("tuner.change_suitejob", raise_exception=True)
def suite_stop(request: HttpRequest, pk: int, job_pk: int) -> HttpResponse:
    job = get_object_or_404(SuiteJob, pk=job_pk, suite=pk)
    if not gate_services.stop_job(job):
        messages.info(request, f"It had ended already: {job.status}.")
    return redirect("suite", pk=pk)


@require_POST
@permission_required("tuner.change_suite", raise_exception=True)
def suite_switch(request: HttpRequest, pk: int) -> HttpResponse:
    suite_services.suite_switch(get_object_or_404(Suite, pk=pk), request.POST.get("do") == "on")
    return redirect("suite", pk=pk)


@require_POST
@permission_required("tuner.delete_suite", raise_exception=True)
def suite_delete(request: HttpRequest, pk: int) -> HttpResponse:
    suite = get_object_or_404(Suite, pk=pk)
    if request.POST.get("name") != suite.name:
        messages.error(request, "Type the suite's name to delete it.")
        return redirect("suite", pk=pk)
    try:
        suite_services.suite_delete(suite)
    except Refused as error:
        messages.error(request, str(error))
        return redirect("suite", pk=pk)
    messages.success(request, f"{suite.name} and its runs are deleted.")
    return redirect("suite-list")


@permission_required("tuner.add_suite", raise_exception=True)
@require_http_methods(["GET", "HEAD", "POST"])
def suite_new(request: HttpRequest) -> HttpResponse:
    """?operator=&M=… fills in one kernel."""
    targets = page_selectors.targets_known()
    if request.method != "POST":
        return _render_form(request, SuiteForm(initial={"kernels": _first_kernel_line(request)}, targets=targets))
    form = SuiteForm(request.POST, targets=targets)
    if form.is_valid() and (suite := _save_form(request, form, new=True)):
        return redirect("suite", pk=suite.pk)
    return _render_form(request, form, status=400)


@permission_required("tuner.change_suite", raise_exception=True)
@require_http_methods(["GET", "HEAD", "POST"])
def suite_edit(request: HttpRequest, pk: int) -> HttpResponse:
    suite = get_object_or_404(selectors.suite_list(), pk=pk)
    before = selectors.definition_of(suite)
    arguments: dict[str, Any] = {"suite": suite, "before": before, "targets": page_selectors.targets_known()}
    if request.method != "POST":
        return _render_form(request, SuiteForm(initial=initial_fields(before), **arguments), suite)
    form = SuiteForm(request.POST, **arguments)
    if form.is_valid() and _save_form(request, form):
        return redirect("suite", pk=pk)
    return _render_form(request, form, suite, status=400)


@permission_required("tuner.add_suite", raise_exception=True)
@require_POST
def suite_apply(request: HttpRequest) -> HttpResponse:
    """A file of a team's repository, uploaded or pasted: the suite that it names is made or brought in line."""
    sent = request.FILES.get("file")
    text = sent.read(MAX_BYTES + 1) if sent else request.POST.get("text", "")
    try:
        changed = suite_services.suite_put(read_toml(text), owner=request.user, text=_decode(text))
    except DefinitionError as error:
        problems = [str(problem) for problem in error.problems[:20]]
    except Refused as error:
        problems = [f"{name}: {problem}" for name, problem in error.fields.items()]
    else:
        messages.success(request, changed.says)
        return redirect("suite", pk=changed.suite.pk)
    form = SuiteForm(targets=page_selectors.targets_known())
    return _render_form(request, form, status=400, problems=problems, text=_decode(text))


def _decode(text: bytes | str) -> str:
    return text.decode("utf-8", "replace").replace("\0", "") if isinstance(text, bytes) else text


def _first_kernel_line(request: HttpRequest) -> str:
    operator = all_operators().get(request.GET.get("operator", ""))
    if operator is None:
        return ""
    shape = " ".join(f"{dim.name}={request.GET[dim.name][:15]}" for dim in operator.dims if dim.name in request.GET)
    return " ".join(filter(None, (operator.name, shape, request.GET.get("dtype", operator.dtypes[0])[:16], "cache")))


def _save_form(request: HttpRequest, form: SuiteForm, new: bool = False) -> Suite | None:
    try:
        changed = suite_services.suite_put(form.cleaned_data["definition"], owner=request.user, new=new)
    except Refused as error:
        error.show_in(form)
        return None
    plan = page_selectors.plan_of(changed.suite)
    messages.success(request, changed.says)
    if not plan.enough and changed.suite.kind != Suite.Kind.TARGET:
        messages.warning(request, plan.says)
    return changed.suite


def _render_form(request: HttpRequest, form: SuiteForm, suite: Suite | None = None, status: int = 200,
                 problems: list[str] | None = None, text: str = "") -> HttpResponse:
    operators = [{"name": op.name, "title": op.title, "dtypes": op.dtypes, "preset": " ".join(
        f"{dim.name}={op.presets[0].get(dim.name, dim.low)}" for dim in op.dims) if op.presets else ""}
        for op in all_operators().values()]
    return render(request, "gate/suites/edit.html", {
        "form": form, "suite": suite, "places": places(), "operators": operators, "problems": problems or [], "text": text,
    }, status=status)
