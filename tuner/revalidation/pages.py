"""HTML: cached winners that are measured again: asked for, followed, stopped, and what serves from then on."""

from __future__ import annotations

from django.contrib import messages
from django.contrib.auth.decorators import permission_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.http import require_POST, require_safe

from tuner.clocks.wish import is_asked, told_text
from tuner.gate.verdicts.services import stop_job
from tuner.models import CachedConfig
from tuner.revalidation import selectors, services
from tuner.revalidation.charts import side_plot

AT_ONCE = 20                # winners that the button of the list takes
LIST_LIMIT = 100


@require_safe
def revalidation_list(request: HttpRequest) -> HttpResponse:
    waiting = selectors.waiting_entries()
    return render(request, "tuner/revalidation/list.html", {
        "winners": selectors.has_winner(), "waiting": waiting, "at_once": waiting[:AT_ONCE],
        "seconds": selectors.expected_seconds(waiting[:AT_ONCE]),
        "jobs": selectors.job_lines(selectors.recent_jobs(LIST_LIMIT)), "total": selectors.revalidation_jobs().count(),
        "under_way": selectors.jobs_under_way().exists()})


@require_safe
def revalidation(request: HttpRequest, pk: int) -> HttpResponse:
    found = selectors.job_document(get_object_or_404(selectors.revalidation_jobs(), pk=pk))
    job, lock = found["job"], found["job"].environment.get("clock_lock")
    took_s = (job.finished - job.started).total_seconds() if job.started and job.finished else None
    return render(request, "tuner/revalidation/detail.html", {**found, "plot": side_plot(found["kernels"]), "took_s": took_s,
                                                              "clocks": told_text(lock) if is_asked(lock) else ""})


@permission_required("tuner.add_tunejob", raise_exception=True)
@require_POST
def revalidate(request: HttpRequest) -> HttpResponse:
    """Measure unverified entries again: the one that is named, else those with the most at stake."""
    pk = request.POST.get("entry", "")
    if pk:
        found = CachedConfig.objects.select_related("job")
        chosen = [get_object_or_404(found, pk=int(pk) if pk.isdecimal() and len(pk) < 19 else 0)]
    else:
        chosen = selectors.waiting_entries()[:AT_ONCE]
    made = services.revalidate(chosen, request.user)
    if not made:
        why = selectors.why_not(chosen[0]) if pk else ""
        messages.info(request, f"Nothing was queued: {why}." if why else
                      "Nothing was queued: what could be measured again is being measured already.")
        return redirect("cache", pk=chosen[0].pk) if pk else redirect("cache-list")
    number = sum(len(selectors.entry_ids(job)) for job in made)
    messages.success(request, f"{number} winner{'s' * (number != 1)} will be measured again in {len(made)} "
                     f"job{'s' * (len(made) != 1)}.")
    return redirect("cache-revalidation", pk=made[0].pk) if len(made) == 1 else redirect("cache-revalidations")


@permission_required("tuner.change_suitejob", raise_exception=True)
@require_POST
def revalidation_stop(request: HttpRequest, pk: int) -> HttpResponse:
    """What was measured stays in the rows; the cache is as it was."""
    job = get_object_or_404(selectors.revalidation_jobs(), pk=pk)
    if not stop_job(job):
        messages.info(request, f"It had ended already: {job.status}.")
    return redirect("cache-revalidation", pk=pk)
