"""HTML: all gates, one gate live, the evidence of one kernel, the form for a gate, the baselines; what a person does to them."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, cast
from urllib.parse import urlencode

from django import forms
from django.contrib import messages
from django.contrib.auth.decorators import permission_required
from django.core.paginator import Paginator
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from profiles.base.refused import Refused
from tuner import devices
from tuner.gate.baselines import table_selectors as table
from tuner.gate.baselines.charts import Spread, spread_plot
from tuner.gate.builds.selectors import ENVIRONMENT
from tuner.gate.regressions.services import change_baseline
from tuner.gate.stats.results import percent_text
from tuner.gate.verdicts import charts, decide_services, evidence_selectors, page_selectors, run_charts, selectors, services
from tuner.gate.verdicts.services import ENVIRONMENT_CHARS
from tuner.models import Build, Gate, GateKernel, KernelRun, Regression, Suite, SuiteJob

MOST_RUNS = 200
MOST_CHOICES = 500      # newest builds, suites by name


class GateForm(forms.Form):
    """One build of one suite; what is left empty is the suite's."""

    suite = forms.ChoiceField(help_text="Which kernels are measured and compared.")
    build = forms.CharField(max_length=80, help_text="A git sha or a name: what your runs and profiles call it.")
    against = forms.ChoiceField(required=False, help_text="The rolling or pinned baseline, or one build.")
    device = forms.ChoiceField(required=False, help_text="The GPU that measures. Baselines are of one GPU, toolkit and driver.")
    gpu = forms.CharField(required=False, max_length=ENVIRONMENT_CHARS["gpu"], label="GPU")
    toolkit = forms.CharField(required=False, max_length=ENVIRONMENT_CHARS["toolkit"])
    driver = forms.CharField(required=False, max_length=ENVIRONMENT_CHARS["driver"])
    recorded = forms.CharField(required=False, max_length=ENVIRONMENT_CHARS["recorded"], label="Recorded as")
    runs = forms.IntegerField(required=False, min_value=1, max_value=MOST_RUNS,
                              help_text="Fresh processes; empty: the suite's number.")
    parent = forms.CharField(required=False, max_length=80, help_text="The build before it, for the order of builds.")
    branch = forms.CharField(required=False, max_length=120)
    title = forms.CharField(required=False, max_length=300, help_text="First line of the commit message.")
    url = forms.URLField(required=False, max_length=500, assume_scheme="https", help_text="Pull request or pipeline.")

    def __init__(self, *arguments: Any, devices: list[tuple[str, str]] = [], **named: Any) -> None:  # noqa: B006 never changed
        super().__init__(*arguments, **named)
        suites = Suite.objects.filter(enabled=True).values_list("name", flat=True)[:MOST_CHOICES]
        builds = Build.objects.filter(pk__in=KernelRun.objects.order_by().values("build")).values_list("name", flat=True)
        suite, against, device = (cast(forms.ChoiceField, self.fields[name]) for name in ("suite", "against", "device"))
        suite.choices = [*([("", "choose")] if len(suites) != 1 else []), *((name, name) for name in suites)]
        against.choices = [("", "the baseline"), *((name, name) for name in builds[:MOST_CHOICES])]
        device.choices = [("", "the suite's own"), *devices]
        for name, field in self.fields.items():
            if field.help_text:
                field.widget.attrs["aria-describedby"] = f"help-{name}"
        self.fields["build"].widget.attrs |= {"list": "known-builds", "autocomplete": "off", "spellcheck": "false"}

    def where(self) -> list[forms.BoundField]:
        """The fields that name an environment."""
        return [self[name] for name in ENVIRONMENT]

    def environment(self) -> dict[str, str]:
        """What the form says of where the build is measured, or was."""
        return {name: self.cleaned_data[name] for name in ("device", *ENVIRONMENT) if self.cleaned_data[name]}

    def clean_url(self) -> str:
        url: str = self.cleaned_data["url"]
        if url and not url.lower().startswith(("http://", "https://")):
            raise forms.ValidationError("an address that begins with http:// or https://")
        return url


PICTURE_ROWS = 40
_FULL_SHA = re.compile(r"[0-9a-f]{40}")        # GitHub takes a check of nothing else
KNOWN_BUILDS = 200

# A gate may be stopped or asked for more by whoever may change gates.
changes_gates = permission_required("tuner.change_gate", raise_exception=True)


@require_safe
def gate_list(request: HttpRequest) -> HttpResponse:
    """Which builds were judged, and how?"""
    filters = {name: request.GET.get(name, "")[:200] for name in page_selectors.FILTERS}
    gates = page_selectors.filtered_gates(filters)
    page = Paginator(gates, page_selectors.PAGE_ROWS).get_page(request.GET.get("page"))
    rows = page_selectors.gate_rows(page)
    newest = next(iter(page_selectors.gate_rows(gates.exclude(verdict="")[:1])), None)      # whatever page is looked at
    return render(request, "gate/verdicts/list.html", {
        "rows": rows, "page": page, "total": page.paginator.count, "wanted": filters, "filtered": any(filters.values()),
        "choices": page_selectors.filter_choices(), "totals": page_selectors.gate_totals(), "newest": newest,
        "suites": Suite.objects.filter(enabled=True)[:100],
        "live": any(row.gate.status in Gate.UNDER_WAY for row in rows)})


@require_safe
def gate_detail(request: HttpRequest, pk: int) -> HttpResponse:
    """Did this build make anything slower? Parts that follow the rows while it is measured are marked data-live."""
    gate = get_object_or_404(Gate.objects.select_related("suite", "build", "against", "owner"), pk=pk)
    filters = {name: request.GET.get(name, "")[:200] for name in page_selectors.KERNEL_FILTERS}
    page = page_selectors.kernel_page(gate, filters, request.GET.get("page"))
    drawn = list(page_selectors.kernel_rows(gate)[:PICTURE_ROWS])
    for row in (*page, *drawn):
        row.kernel.suite = gate.suite
    chosen_pk = request.GET.get("at", "")
    chosen = next((row for row in drawn if str(row.pk) == chosen_pk), drawn[0] if drawn else None)
    rule, tally, builds = page_selectors.gate_rule(gate), page_selectors.verdict_tally(gate), page_selectors.baseline_builds(gate)
    around = selectors.gate_around(gate)
    lines, count = [page_selectors.KernelLine(row) for row in page], sum(tally.values())
    return render(request, "gate/verdicts/detail.html", {
        "gate": gate, "page": page, "lines": lines, "wanted": filters, "filtered": any(filters.values()), "count": count,
        "has_metrics": any(line.judged for line in lines), "rule": rule,
        "tally": tally, "rounds": page_selectors.gate_rounds(gate), "worth": page_selectors.error_rates(gate),
        "largest": page_selectors.largest_change(gate), "worst": drawn[0] if drawn else None,
        "plot": charts.interval_plot([_point(row) for row in drawn], rule.floor, rule.target, PICTURE_ROWS, count)
        if any(row.ratio_p50 for row in drawn) else None,
        "baseline_builds": builds, "compare_with": _compare_with(gate, builds), 
        "exit_code": 1 if around["later"] else selectors.exit_code(gate),
        "under_way": gate.status in Gate.UNDER_WAY, "document": around,
        "picture_says": _plot_description(drawn, count), "build_url": reverse("build", args=[gate.build.name]),
        "most_runs": MOST_RUNS, "more_runs": page_selectors.runs_to_offer(gate),
        "full_sha": _FULL_SHA.fullmatch(gate.build.name) is not None,
        "regressions": gate.kernels.filter(regression__isnull=False).exists(),
        "gone": list(gate.kernels.filter(facts__gone=True).values_list("kernel__key", flat=True)),
        "chosen": chosen and _evidence(chosen, evidence_selectors.run_rows(chosen), f"kernels/{chosen.pk}/")})


def _evidence(row: GateKernel, runs: list[evidence_selectors.RunRow], page: str = "") -> dict[str, Any]:
    """What a kernel's verdict rests on: its two sides, the strips of their run medians, what else changed.

    `page` is the address of the page with the table of runs, "" on that page.
    """
    sides, rule = evidence_selectors.compared_sides(runs), page_selectors.kernel_rule(row)
    return {
        "row": row, "sides": sides, "shift": _shift(row), "strips_say": _strips_description(sides, row), "page": page,
        "changes": evidence_selectors.metric_changes(row, runs),
        "strips": charts.strip_plot([(side.name, ", ".join(side.builds[:2]), [
            charts.RunMedian(run_row.run.p50_us, _run_title(run_row), f"{page}#run-{run_row.run.pk}") for run_row in runs
            if run_row.side == side.name and run_row.run.p50_us]) for side in sides], rule.floor, rule.target,
            (row.low, row.high) if row.low and row.high else None)}


def _compare_with(gate: Gate, builds: list[str]) -> str:
    """The build that the compare page puts beside this one, "" where there is no profile of both."""
    names = [gate.against.name] if gate.against else builds
    return next((name for name in names[:3] if page_selectors.can_compare(name, gate.build.name)), "")


def _plot_description(found: list[GateKernel], count: int) -> str:
    """The interval plot for who cannot see it."""
    texts = [f"{row.kernel.key} {row.verdict}" + (f" {by.name} {percent_text(by.ratio)}" if by.ratio else "")
             for row, by in ((row, row.decided) for row in found[:8])]
    rest = count - len(texts)
    return (f"Ratio of the build's p50 to the baseline's with its interval, {count:,} kernels, worst first: {'; '.join(texts)}"
            + (f"; and {rest:,} more, in the table below." if rest else ". The table below holds the same numbers."))


def _point(row: GateKernel) -> charts.Point:
    rule = page_selectors.kernel_rule(row)
    by = row.decided
    return charts.Point(row.kernel.key, row.verdict, f"kernels/{row.pk}/", by.ratio, by.low, by.high, row.ratio_p95,
                        row.detectable, rule.floor, rule.target, row.reason, row.pk, "" if by.name == "p50" else by.name)


@require_safe
def gate_kernel(request: HttpRequest, pk: int, kernel_pk: int) -> HttpResponse:
    """What does one kernel's verdict rest on?"""
    row = get_object_or_404(GateKernel.objects.select_related(
        "gate__suite", "gate__build", "gate__against", "kernel__suite", "regression__build"), pk=kernel_pk, gate_id=pk)
    runs = evidence_selectors.run_rows(row)
    evidence = _evidence(row, runs)
    sides = evidence["sides"]
    baseline, candidate = sides
    rule = page_selectors.kernel_rule(row)
    samples = [run_charts.RunSamples(each.side, each.run.build.name, each.label, each.order, each.run.us, each.run.sm_clock_mhz)
               for each in runs if each.run.us and each.run.p50_us]
    old = row.gate.against.name if row.gate.against else next(iter(baseline.builds), "")
    return render(request, "gate/verdicts/kernel.html", evidence | {
        "gate": row.gate, "row": row, "kernel": row.kernel, "title": evidence_selectors.kernel_title(row), "runs": runs,
        "baseline": baseline, "candidate": candidate, "rule": rule, "old": old,
        "counters": decide_services.verdict_counters(row, old),
        "ask": reverse("gate-kernel-counters", args=[pk, kernel_pk]), "arriving": evidence_selectors.round_under_way(row),
        "more_runs": page_selectors.runs_to_offer(row.gate, [row]),
        "order": run_charts.order_figure(samples),
        "samples": run_charts.samples_figure(samples),
        "configs": evidence_selectors.config_rows(sides),
        "unknown_counters": evidence_selectors.unknown_counters(runs),
        "ways": evidence_selectors.evidence_links(row, old, row.gate.build.name),
        "profiles": [(side, builds[0], evidence_selectors.build_profiles(row, builds)) for side, builds in (
            (side, side.builds or [name]) for side, name in zip(sides, (old, row.gate.build.name), strict=True))],
        "neighbours": _neighbours(row)})


def _run_title(each: evidence_selectors.RunRow) -> str:
    clock = f", {each.run.sm_clock_mhz:,.0f} MHz" if each.run.sm_clock_mhz else ""
    return f"{each.label} of {each.run.build.name}: median {each.run.p50_us:.2f} µs of {each.run.n} samples{clock}"


def _strips_description(sides: list[evidence_selectors.Side], row: GateKernel) -> str:
    """The run medians for who cannot see them."""
    texts = [f"{side.name}: {side.n} runs, median {side.p50_us:.2f} µs" for side in sides if side.p50_us]
    return f"Run medians of both builds. {'; '.join([*texts, *filter(None, [_shift(row)])])}. The table of runs holds each."


def _shift(row: GateKernel) -> str:
    return percent_text(row.ratio_p50) if row.ratio_p50 else ""


def _neighbours(row: GateKernel) -> dict[str, GateKernel | None]:
    """The kernels of the gate before and after this one."""
    order = list(row.gate.kernels.order_by("place", "id").values_list("pk", flat=True))
    index = order.index(row.pk)
    beside = row.gate.kernels.select_related("kernel").in_bulk([*order[max(0, index - 1):index], *order[index + 1:index + 2]])
    return {"before": beside.get(order[index - 1]) if index else None, "after": beside.get((order[index + 1:index + 2] or [0])[0])}


@permission_required("tuner.add_gate", raise_exception=True)
@require_http_methods(["GET", "HEAD", "POST"])
def gate_new(request: HttpRequest) -> HttpResponse:
    """The form, filled in from ?suite=&build=&against=; how many runs the suite needs is said before anything is run."""
    places = [(place.value, place.title) for place in devices.list_devices() if place.operator is None]
    if request.method != "POST":
        initial = {name: request.GET[name][:500] for name in GateForm.base_fields if request.GET.get(name)}
        return _render_form(request, GateForm(initial=initial, devices=places), initial.get("suite", ""))
    form = GateForm(request.POST, devices=places)
    if form.is_valid():
        fields = form.cleaned_data
        try:
            gate = services.create_gate(
                fields["suite"], fields["build"], owner=request.user, environment=form.environment(), runs=fields["runs"],
                **{name: fields[name] for name in ("against", "parent", "branch", "title", "url")})
        except Refused as refused:
            for name, problem in refused.fields.items():
                place = "gpu" if fields["gpu"] else "device"
                field = place if name.startswith("environment") else name if name in form.fields else None
                form.add_error(field, problem if field == name else f"{name}: {problem}")
        else:
            return redirect("gate", gate.pk)
    return _render_form(request, form, request.POST.get("suite", ""), status=400)


def _render_form(request: HttpRequest, form: GateForm, chosen: str, status: int = 200) -> HttpResponse:
    suites = list(Suite.objects.filter(enabled=True)[:100])
    return render(request, "gate/verdicts/new.html", {
        "form": form, "chosen": chosen, "plans": [(suite, selectors.plan_for_suite(suite)) for suite in suites],
        "builds": Build.objects.all()[:KNOWN_BUILDS]}, status=status)


# ---- what a person does to a gate: POST, then its page ----

@changes_gates
@require_POST
def gate_stop(request: HttpRequest, pk: int) -> HttpResponse:
    services.stop_gate(get_object_or_404(Gate, pk=pk))
    return redirect("gate", pk)


@changes_gates
@require_POST
def gate_again(request: HttpRequest, pk: int) -> HttpResponse:
    """More fresh runs, interleaved with the baseline's build: of all kernels, or of the one that is named."""
    gate = get_object_or_404(Gate, pk=pk)
    runs = request.POST.get("runs", "")
    kernels = [key for key in request.POST.getlist("kernel") if key][:1000]
    try:
        if runs and not (runs.isascii() and runs.isdecimal() and len(runs) < 5 and 1 <= int(runs) <= MOST_RUNS):
            raise Refused({"runs": f"a number from 1 to {MOST_RUNS}"})
        services.measure_gate_again(gate, owner=request.user, runs=int(runs) if runs else None, kernels=kernels or None)
    except Refused as refused:
        messages.error(request, f"Not measured again: {'; '.join(refused.fields.values()).rstrip('.')}.")
    return redirect("gate", pk)


@require_POST
@permission_required("tuner.change_gate", raise_exception=True)
def gate_gone(request: HttpRequest, pk: int) -> HttpResponse:
    """Accept that kernels are gone which the baseline has."""
    try:
        decide_services.accept_gone(get_object_or_404(Gate, pk=pk), by=request.user)
    except Refused as refused:
        messages.error(request, f"Not accepted: {'; '.join(refused.fields.values()).rstrip('.')}.")
    return redirect("gate", pk)


may_capture = permission_required("tuner.add_suitejob", raise_exception=True)


@require_POST
@may_capture
def gate_kernel_counters(request: HttpRequest, pk: int, kernel_pk: int) -> HttpResponse:
    row = get_object_or_404(GateKernel.objects.select_related("gate__suite", "gate__build", "gate__against", "kernel"),
                            pk=kernel_pk, gate_id=pk)
    return _capture(request, decide_services.capture_kernel_counters, row, reverse("gate-kernel", args=[pk, kernel_pk]))


@require_POST
@may_capture
def regression_counters(request: HttpRequest, pk: int) -> HttpResponse:
    row = get_object_or_404(Regression.objects.select_related("suite", "build", "good"), pk=pk)
    return _capture(request, decide_services.capture_regression_counters, row, reverse("regression", args=[pk]))


def _capture(request: HttpRequest, capture: Callable[..., SuiteJob], row: GateKernel | Regression, page: str) -> HttpResponse:
    """Queue a capture of the row's builds and return to the counters of its page."""
    try:
        job = capture(row, owner=request.user)
    except Refused as refused:
        messages.error(request, f"Not captured: {'; '.join(refused.fields.values()).rstrip('.')}.")
    else:
        builds = " and ".join(build["build"] for build in job.builds)
        messages.success(request, f"Counters and timelines of {builds} are being captured (job {job.pk}).")
    return redirect(f"{page}#counters")


MOST_BUILDS = 200
ACTIONS = (("pin", "always compare with this build"), ("roll", "roll on with the newest builds that passed"),
           ("intended", "the change was intended: the baseline begins with this build"))


@require_safe
def baselines(request: HttpRequest, pk: int) -> HttpResponse:
    return _render_baselines(request, get_object_or_404(Suite, pk=pk),
                             {name: request.GET[name] for name in ENVIRONMENT if request.GET.get(name)})


@require_POST
@permission_required("tuner.add_baselinechange", raise_exception=True)
def baseline_change(request: HttpRequest, pk: int) -> HttpResponse:
    suite = get_object_or_404(Suite, pk=pk)
    fields = {name: request.POST.get(name, "").strip() for name in ("action", "build", "kernel", "gpu", "note")}
    try:
        change = change_baseline(suite, fields, request.user)
    except Refused as error:
        return _render_baselines(request, suite, {}, fields, error.fields, status=400)
    messages.success(request, f"{change.get_action_display()}: {change.build or 'the newest builds that passed'}. "
                              "Gates from now on are judged by it; earlier verdicts stay.")
    return redirect(reverse("suite-baselines", args=[suite.pk]) + "#history")


def _render_baselines(request: HttpRequest, suite: Suite, asked: dict[str, str], said: dict[str, str] | None = None,
          wrong: dict[str, str] | None = None, status: int = 200) -> HttpResponse:
    env, every = table.choose_environment(suite, asked)
    kernels = list(suite.kernels.filter(enabled=True))
    page = table.kernels_page(kernels, request.GET.get("page"))
    lines, held = table.next_lines(kernels, list(page), env) if env else ([], [])
    changes = table.recent_changes(suite)
    force = table.changes_in_force(held)
    picture = spread_plot([_spread(line) for line in lines])
    return render(request, "gate/verdicts/baselines.html", {
        "suite": suite, "env": env, "lines": lines, "page": page, "plot": picture,
        "said": _missing_environment_note(asked, env) + table.summary_sentence(suite, env, held, lines),
        "environments": [{**place, "chosen": place["env"] == env, "query": urlencode(place["env"].where())} for place in every],
        "changes": [{"row": change, "in_force": change.pk in force} for change in changes],
        "kernels": list(page), "gpus": sorted({place["env"].gpu for place in every} - {""}),
        "builds": Build.objects.filter(pk__in=KernelRun.objects.filter(kernel__suite=suite).order_by().values("build").distinct())
        [:MOST_BUILDS],
        "actions": ACTIONS, "form": said or {"action": "intended", **{name: request.GET.get(name, "") for name in
                                                                   ("action", "build", "kernel", "gpu", "note")
                                                                   if request.GET.get(name)}},
        "wrong": wrong or {}, "may_change": request.user.has_perm("tuner.add_baselinechange")}, status=status)


def _missing_environment_note(asked: dict[str, str], env: Any) -> str:
    """Of an address that names an environment without runs: another one is shown, and said to be."""
    if env is None or all(getattr(env, name) == value for name, value in asked.items()):
        return ""
    return f"No run was taken on {', '.join(f'{name} {value}'[:80] for name, value in asked.items())}; shown instead: "


def _spread(line: Any) -> Spread:
    runs = line.baseline.runs
    titles = [f"{run.build.name}, {run.run}: {run.p50_us:.4g} µs, {run.created:%Y-%m-%d %H:%M}" for run in runs]
    says = f"±{line.spread:.2%}".replace("%", " %") if line.spread is not None else ""
    return Spread(line.baseline.kernel.key, [run.p50_us for run in runs], titles, says)
