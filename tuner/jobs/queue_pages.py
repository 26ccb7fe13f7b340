"""HTML: the order of the queue. Moving a job is a POST of its new neighbour; the page does it by drag, keys and buttons."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect
from django.urls import reverse
from django.views.decorators.http import require_POST

from tuner.jobs import services
from tuner.jobs.pages import changes_jobs
from tuner.models import TuneJob


@changes_jobs
@require_POST
def tune_move(request: HttpRequest, pk: int) -> HttpResponse:
    """`before` or `after`: the id of another waiting job; neither: to the end."""
    other = {name: _job(request.POST.get(name, "")) for name in ("before", "after")}
    services.queue_move(get_object_or_404(TuneJob, pk=pk), **{name: job for name, job in other.items() if job is not None})
    return redirect(f"{reverse('tune-list')}#queue")


@changes_jobs
@require_POST
def queue_by_worth(request: HttpRequest) -> HttpResponse:
    """Forget what people put first."""
    services.queue_by_worth()
    return redirect(f"{reverse('tune-list')}#queue")


def _job(text: str) -> TuneJob | None:
    return TuneJob.objects.filter(pk=int(text)).first() if text.isdecimal() and len(text) < 12 else None
