"""HTML: a new suite, from a form or from a file; a suite changed."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.contrib.auth.decorators import permission_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.http import require_http_methods, require_POST

from tuner.models import Suite
from tuner.operators import all_operators
from tuner.suites import page_selectors, selectors, services
from tuner.suites.checks import DefinitionError
from tuner.suites.devices_selectors import places
from tuner.suites.forms import SuiteForm, initial
from tuner.suites.toml import MAX_BYTES, file_read


@permission_required("tuner.add_suite", raise_exception=True)
@require_http_methods(["GET", "HEAD", "POST"])
def suite_new(request: HttpRequest) -> HttpResponse:
    """?operator=&M=… fills in one kernel."""
    targets = page_selectors.targets_known()
    if request.method != "POST":
        return _page(request, SuiteForm(initial={"kernels": _prefill(request)}, targets=targets))
    form = SuiteForm(request.POST, targets=targets)
    if form.is_valid() and (found := _put(request, form, new=True)):
        return redirect("suite", pk=found.pk)
    return _page(request, form, status=400)


@permission_required("tuner.change_suite", raise_exception=True)
@require_http_methods(["GET", "HEAD", "POST"])
def suite_edit(request: HttpRequest, pk: int) -> HttpResponse:
    suite = get_object_or_404(selectors.suite_list(), pk=pk)
    before = services.definition_of(suite)
    asked: dict[str, Any] = {"suite": suite, "before": before, "targets": page_selectors.targets_known()}
    if request.method != "POST":
        return _page(request, SuiteForm(initial=initial(before), **asked), suite)
    form = SuiteForm(request.POST, **asked)
    if form.is_valid() and _put(request, form):
        return redirect("suite", pk=pk)
    return _page(request, form, suite, status=400)


@permission_required("tuner.add_suite", raise_exception=True)
@require_POST
def suite_apply(request: HttpRequest) -> HttpResponse:
    """A file of a team's repository, uploaded or pasted: the suite that it names is made or brought in line."""
    sent = request.FILES.get("file")
    text = sent.read(MAX_BYTES + 1) if sent else request.POST.get("text", "")
    try:
        changed = services.suite_put(file_read(text), owner=request.user, text=_text(text))
    except DefinitionError as error:
        problems = [str(problem) for problem in error.problems[:20]]
    except services.SuiteError as error:
        problems = [f"{name}: {problem}" for name, problem in error.fields.items()]
    else:
        messages.success(request, changed.says)
        return redirect("suite", pk=changed.suite.pk)
    return _page(request, SuiteForm(targets=page_selectors.targets_known()), status=400, problems=problems, text=_text(text))


def _text(text: bytes | str) -> str:
    return text.decode("utf-8", "replace").replace("\0", "") if isinstance(text, bytes) else text


def _prefill(request: HttpRequest) -> str:
    operator = all_operators().get(request.GET.get("operator", ""))
    if operator is None:
        return ""
    shape = " ".join(f"{dim.name}={request.GET[dim.name][:15]}" for dim in operator.dims if dim.name in request.GET)
    return " ".join(filter(None, (operator.name, shape, request.GET.get("dtype", operator.dtypes[0])[:16], "cache")))


def _put(request: HttpRequest, form: SuiteForm, new: bool = False) -> Suite | None:
    try:
        changed = services.suite_put(form.cleaned_data["definition"], owner=request.user, new=new)
    except services.SuiteError as error:
        for name, problem in error.fields.items():
            form.add_error(name if name in form.fields else None, problem)
        return None
    plan = page_selectors.plan_of(changed.suite)
    messages.success(request, changed.says)
    if not plan.enough and changed.suite.kind != Suite.Kind.TARGET:
        messages.warning(request, plan.says)
    return changed.suite


def _page(request: HttpRequest, form: SuiteForm, suite: Suite | None = None, status: int = 200, problems: list[str] | None = None,
          text: str = "") -> HttpResponse:
    operators = [{"name": op.name, "title": op.title, "dtypes": op.dtypes, "preset": " ".join(
        f"{dim.name}={op.presets[0].get(dim.name, dim.low)}" for dim in op.dims) if op.presets else ""}
        for op in all_operators().values()]
    return render(request, "suites/edit.html", {
        "form": form, "suite": suite, "places": places(), "operators": operators, "problems": problems or [], "text": text,
    }, status=status)
