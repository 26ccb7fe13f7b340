"""HTML: what each kernel of a suite is compared with, how it spreads, and who said so; pin, roll on, intended."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

from django.contrib import messages
from django.contrib.auth.decorators import permission_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.views.decorators.http import require_POST, require_safe

from tuner.baselines import table_selectors as table
from tuner.baselines.charts import Spread, spread_plot
from tuner.gates import accept_services
from tuner.gates.refusal_services import GateRefused
from tuner.models import Build, KernelRun, Suite

WHERE = ("gpu", "toolkit", "driver", "recorded")
MOST_BUILDS = 200
ACTIONS = (("pin", "always compare with this build"), ("roll", "roll on with the newest builds that passed"),
           ("intended", "the change was intended: the baseline begins with this build"))


@require_safe
def baselines(request: HttpRequest, pk: int) -> HttpResponse:
    return _page(request, get_object_or_404(Suite, pk=pk), {name: request.GET[name] for name in WHERE if request.GET.get(name)})


@require_POST
@permission_required("tuner.add_baselinechange", raise_exception=True)
def baseline_change(request: HttpRequest, pk: int) -> HttpResponse:
    suite = get_object_or_404(Suite, pk=pk)
    said = {name: request.POST.get(name, "").strip() for name in ("action", "build", "kernel", "gpu", "note")}
    try:
        change = accept_services.baseline_said(suite, said, request.user)
    except GateRefused as error:
        return _page(request, suite, {}, said, error.fields, status=400)
    messages.success(request, f"{change.get_action_display()}: {change.build or 'the newest builds that passed'}. "
                              "Gates from now on are judged by it; earlier verdicts stay.")
    return redirect(reverse("suite-baselines", args=[suite.pk]) + "#history")


def _page(request: HttpRequest, suite: Suite, asked: dict[str, str], said: dict[str, str] | None = None,
          wrong: dict[str, str] | None = None, status: int = 200) -> HttpResponse:
    env, every = table.environment_chosen(suite, asked)
    kernels = list(suite.kernels.filter(enabled=True))
    page = table.kernels_page(kernels, request.GET.get("page"))
    lines, held = table.lines_and_all(kernels, list(page), env) if env else ([], [])
    changes = table.changes(suite)
    force = table.in_force(held)
    picture = spread_plot([_spread(line) for line in lines])
    return render(request, "gates/baselines.html", {
        "suite": suite, "env": env, "lines": lines, "page": page, "plot": picture,
        "said": _not_there(asked, env) + table.answer(suite, env, held, lines),
        "environments": [{**each, "chosen": each["env"] == env, "query": urlencode(each["env"].where())} for each in every],
        "changes": [{"row": change, "in_force": change.pk in force} for change in changes],
        "kernels": list(page), "gpus": sorted({each["env"].gpu for each in every} - {""}),
        "builds": Build.objects.filter(pk__in=KernelRun.objects.filter(kernel__suite=suite).order_by().values("build").distinct())
        [:MOST_BUILDS],
        "actions": ACTIONS, "form": said or {"action": "intended", **{name: request.GET.get(name, "") for name in
                                                                   ("action", "build", "kernel", "gpu", "note")
                                                                   if request.GET.get(name)}},
        "wrong": wrong or {}, "may_change": request.user.has_perm("tuner.add_baselinechange")}, status=status)


def _not_there(asked: dict[str, str], env: Any) -> str:
    """Of an address that names an environment without runs: another one is shown, and said to be."""
    if env is None or all(getattr(env, name) == value for name, value in asked.items()):
        return ""
    return f"No run was taken on {', '.join(f'{name} {value}'[:80] for name, value in asked.items())}; shown instead: "


def _spread(line: Any) -> Spread:
    runs = line.baseline.runs
    titles = [f"{run.build.name}, {run.run}: {run.p50_us:.4g} µs, {run.created:%Y-%m-%d %H:%M}" for run in runs]
    says = f"±{line.spread:.2%}".replace("%", " %") if line.spread is not None else ""
    return Spread(line.baseline.kernel.key, [run.p50_us for run in runs], titles, says)
