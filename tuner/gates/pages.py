"""HTML: all gates, one gate live, the evidence of one kernel, and the form that asks for a gate."""

from __future__ import annotations

import re

from django.contrib import messages
from django.contrib.auth.decorators import permission_required
from django.core.paginator import Paginator
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from tuner.gates import (
    arriving_selectors,
    charts,
    counter_selectors,
    evidence_selectors,
    kernel_selectors,
    page_selectors,
    run_charts,
    selectors,
    services,
    strip_charts,
)
from tuner.gates.forms import MOST_RUNS, GateForm
from tuner.jobs import devices
from tuner.models import Build, Gate, GateKernel, Suite

PICTURE_ROWS = 40
_FULL_SHA = re.compile(r"[0-9a-f]{40}")        # GitHub takes a check of nothing else
KNOWN_BUILDS = 200

# A gate may be stopped or asked for more by whoever may change gates.
changes_gates = permission_required("tuner.change_gate", raise_exception=True)


@require_safe
def gate_list(request: HttpRequest) -> HttpResponse:
    """Which builds were judged, and how?"""
    wanted = {name: request.GET.get(name, "")[:200] for name in page_selectors.FILTERS}
    found = page_selectors.gates(wanted)
    page = Paginator(found, page_selectors.PAGE_ROWS).get_page(request.GET.get("page"))
    rows = page_selectors.gate_rows(page)
    newest = next(iter(page_selectors.gate_rows(found.exclude(verdict="")[:1])), None)      # whatever page is looked at
    return render(request, "gates/list.html", {
        "rows": rows, "page": page, "total": page.paginator.count, "wanted": wanted, "filtered": any(wanted.values()),
        "choices": page_selectors.choices(), "totals": page_selectors.totals(), "newest": newest,
        "suites": Suite.objects.filter(enabled=True)[:100],
        "live": any(row.gate.status in page_selectors.UNDER_WAY for row in rows)})


@require_safe
def gate_detail(request: HttpRequest, pk: int) -> HttpResponse:
    """Did this build make anything slower? Parts that follow the rows while it is measured are marked data-live."""
    gate = get_object_or_404(Gate.objects.select_related("suite", "build", "against", "owner"), pk=pk)
    wanted = {name: request.GET.get(name, "")[:200] for name in kernel_selectors.FILTERS}
    page = kernel_selectors.page(gate, wanted, request.GET.get("page"))
    drawn = list(kernel_selectors.kernels(gate)[:PICTURE_ROWS])
    for row in (*page, *drawn):
        row.kernel.suite = gate.suite
    rule, tally, builds = page_selectors.rule_of(gate), kernel_selectors.tally(gate), kernel_selectors.baseline_builds(gate)
    lines, count = [kernel_selectors.Line(row) for row in page], sum(tally.values())
    return render(request, "gates/detail.html", {
        "gate": gate, "page": page, "lines": lines, "wanted": wanted, "filtered": any(wanted.values()), "count": count,
        "has_metrics": any(line.judged for line in lines), "rule": rule,
        "tally": tally, "rounds": page_selectors.rounds(gate), "worth": kernel_selectors.worth(gate),
        "largest": kernel_selectors.largest(gate), "worst": drawn[0] if drawn else None,
        "plot": charts.interval_plot([_point(row) for row in drawn], rule.floor, rule.target, PICTURE_ROWS, count)
        if any(row.ratio_p50 for row in drawn) else None,
        "baseline_builds": builds, "compare_with": _compare_with(gate, builds), "exit_code": page_selectors.exit_code(gate),
        "under_way": gate.status in page_selectors.UNDER_WAY, "document": selectors.gate_around(gate),
        "picture_says": _picture_says(drawn, count), "build_url": page_selectors.build_url(gate.build.name),
        "most_runs": MOST_RUNS, "more_runs": kernel_selectors.more_runs(gate),
        "full_sha": _FULL_SHA.fullmatch(gate.build.name) is not None,
        "regressions": gate.kernels.filter(regression__isnull=False).exists()})


def _compare_with(gate: Gate, builds: list[str]) -> str:
    """The build that the compare page puts beside this one, "" where there is no profile of both."""
    names = [gate.against.name] if gate.against else builds
    return next((name for name in names[:3] if page_selectors.comparable(name, gate.build.name)), "")


def _picture_says(found: list[GateKernel], count: int) -> str:
    """The interval plot for who cannot see it."""
    told = [f"{row.kernel.key} {row.verdict}" + (f" {charts.percent(row.ratio_p50)}" if row.ratio_p50 else "") for row in found[:8]]
    rest = count - len(told)
    return (f"Ratio of the build's p50 to the baseline's with its interval, {count:,} kernels, worst first: {'; '.join(told)}"
            + (f"; and {rest:,} more, in the table below." if rest else ". The table below holds the same numbers."))


def _point(row: GateKernel) -> charts.Point:
    rule = page_selectors.kernel_rule(row)
    p95 = row.ratio_p95
    return charts.Point(row.kernel.key, row.verdict, f"kernels/{row.pk}/", row.ratio_p50, row.low, row.high, p95, row.detectable,
                        rule.floor, rule.target, row.reason)


@require_safe
def gate_kernel(request: HttpRequest, pk: int, kernel_pk: int) -> HttpResponse:
    """What does one kernel's verdict rest on?"""
    row = get_object_or_404(GateKernel.objects.select_related(
        "gate__suite", "gate__build", "gate__against", "kernel__suite", "regression__build"), pk=kernel_pk, gate_id=pk)
    runs = evidence_selectors.runs(row)
    sides = evidence_selectors.sides(runs)
    baseline, candidate = sides
    rule = page_selectors.kernel_rule(row)
    samples = [run_charts.RunSamples(each.side, each.run.build.name, each.label, each.order, each.run.us, each.run.sm_clock_mhz)
               for each in runs if each.run.us and each.run.p50_us]
    old = row.gate.against.name if row.gate.against else next(iter(baseline.builds), "")
    return render(request, "gates/kernel.html", {
        "gate": row.gate, "row": row, "kernel": row.kernel, "title": evidence_selectors.title(row), "runs": runs, "sides": sides,
        "baseline": baseline, "candidate": candidate, "rule": rule, "old": old, "counters": counter_selectors.of_verdict(row, old),
        "ask": reverse("gate-kernel-counters", args=[pk, kernel_pk]), "arriving": arriving_selectors.arriving(row),
        "more_runs": kernel_selectors.more_runs(row.gate, [row]), "shift": _shift(row),
        "strips": strip_charts.strip_plot([(side.name, ", ".join(side.builds[:2]), [
            strip_charts.RunMedian(each.run.p50_us, _said(each), f"#run-{each.run.pk}") for each in runs
            if each.side == side.name and each.run.p50_us]) for side in sides], rule.floor, rule.target,
            (row.low, row.high) if row.low and row.high else None),
        "strips_say": _strips_say(sides, row), "order": run_charts.order_figure(samples),
        "samples": run_charts.samples_figure(samples),
        "changes": evidence_selectors.changes(row, runs), "configs": evidence_selectors.config_rows(sides),
        "unknown_counters": evidence_selectors.unknown_counters(runs),
        "ways": evidence_selectors.ways(row, old, row.gate.build.name),
        "profiles": [(side, evidence_selectors.profiles_of(row, side.builds or [name]))
                     for side, name in zip(sides, (old, row.gate.build.name), strict=True)],
        "neighbours": _neighbours(row)})


def _said(each: evidence_selectors.RunRow) -> str:
    clock = f", {each.run.sm_clock_mhz:,.0f} MHz" if each.run.sm_clock_mhz else ""
    return f"{each.label} of {each.run.build.name}: median {each.run.p50_us:.2f} µs of {each.run.n} samples{clock}"


def _strips_say(sides: list[evidence_selectors.Side], row: GateKernel) -> str:
    """The run medians for who cannot see them."""
    told = [f"{side.name}: {side.n} runs, median {side.p50_us:.2f} µs" for side in sides if side.p50_us]
    return f"Run medians of both builds. {'; '.join([*told, *filter(None, [_shift(row)])])}. The table of runs holds each."


def _shift(row: GateKernel) -> str:
    return charts.percent(row.ratio_p50) if row.ratio_p50 else ""


def _neighbours(row: GateKernel) -> dict[str, GateKernel | None]:
    """The kernels of the gate before and after this one."""
    order = list(row.gate.kernels.order_by("place", "id").values_list("pk", flat=True))
    at = order.index(row.pk)
    beside = row.gate.kernels.select_related("kernel").in_bulk([*order[max(0, at - 1):at], *order[at + 1:at + 2]])
    return {"before": beside.get(order[at - 1]) if at else None, "after": beside.get((order[at + 1:at + 2] or [0])[0])}


@permission_required("tuner.add_gate", raise_exception=True)
@require_http_methods(["GET", "HEAD", "POST"])
def gate_new(request: HttpRequest) -> HttpResponse:
    """The form, filled in from ?suite=&build=&against=; how many runs the suite needs is said before anything is run."""
    places = [(place.value, place.title) for place in devices.devices() if place.operator is None]
    if request.method != "POST":
        initial = {name: request.GET[name][:500] for name in GateForm.base_fields if request.GET.get(name)}
        return _form(request, GateForm(initial=initial, devices=places), initial.get("suite", ""))
    form = GateForm(request.POST, devices=places)
    if form.is_valid():
        given = form.cleaned_data
        try:
            gate = services.gate_create(
                given["suite"], given["build"], owner=request.user, environment=form.environment(), runs=given["runs"],
                **{name: given[name] for name in ("against", "parent", "branch", "title", "url")})
        except services.GateRefused as refused:
            for name, problem in refused.fields.items():
                place = "gpu" if given["gpu"] else "device"
                field = place if name.startswith("environment") else name if name in form.fields else None
                form.add_error(field, problem if field == name else f"{name}: {problem}")
        else:
            return redirect("gate", gate.pk)
    return _form(request, form, request.POST.get("suite", ""), status=400)


def _form(request: HttpRequest, form: GateForm, chosen: str, status: int = 200) -> HttpResponse:
    suites = list(Suite.objects.filter(enabled=True)[:100])
    return render(request, "gates/new.html", {
        "form": form, "chosen": chosen, "plans": [(suite, selectors.plan_for(suite)) for suite in suites],
        "builds": Build.objects.all()[:KNOWN_BUILDS]}, status=status)


# ---- what a person does to a gate: POST, then its page ----

@changes_gates
@require_POST
def gate_stop(request: HttpRequest, pk: int) -> HttpResponse:
    services.gate_stop(get_object_or_404(Gate, pk=pk))
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
            raise services.GateRefused({"runs": f"a number from 1 to {MOST_RUNS}"})
        services.gate_again(gate, owner=request.user, runs=int(runs) if runs else None, kernels=kernels or None)
    except services.GateRefused as refused:
        messages.error(request, f"Not measured again: {'; '.join(refused.fields.values()).rstrip('.')}.")
    return redirect("gate", pk)
