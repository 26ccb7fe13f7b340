"""HTML: a group of tune jobs, one for each shape."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.http import require_POST, require_safe

from tuner.jobs import group_selectors, services
from tuner.jobs.pages import changes_jobs
from tuner.models import TuneGroup

ACTIONS = {"stop": services.group_stop, "pause": services.group_pause, "resume": services.group_resume}


@require_safe
def tune_group(request: HttpRequest, pk: int) -> HttpResponse:
    group = get_object_or_404(TuneGroup.objects.select_related("owner"), pk=pk)
    found = group_selectors.rows(group)
    return render(request, "tuner/group.html", {
        "group": group, "rows": found, "sum": group_selectors.summary(found), "carries": group_selectors.carries(found),
        "state": {"id": group.pk, "jobs": [row["job"].pk for row in found]}})


@changes_jobs
@require_POST
def tune_group_act(request: HttpRequest, pk: int) -> HttpResponse:
    """`do`: stop, pause or resume all of them."""
    group = get_object_or_404(TuneGroup, pk=pk)
    act = ACTIONS.get(request.POST.get("do", ""))
    if act is not None:
        act(group)
    return redirect("tune-group", pk=pk)
