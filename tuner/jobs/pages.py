"""HTML: the jobs, and one job live with what a person may do to it. Each page also answers without JavaScript."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from django.contrib import messages
from django.contrib.auth.decorators import permission_required
from django.core.cache import cache
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.http import require_POST, require_safe

from tuner import texts
from tuner.jobs import charts, page_selectors, selectors, services
from tuner.models import TuneJob

LIST_LIMIT = 500
PARTS_FRESH_S = 1.0      # a hundred pages that watch one job are answered by one rendering a second …
PARTS_SHARE = 10         # … and by one that took long for ten times as long: a tenth of one core at most
PARTS_KEPT_S = 60        # an older answer serves while the next is made

# The buttons of a job's page may be pressed by whoever may change jobs.
changes_jobs = permission_required("tuner.change_tunejob", raise_exception=True)


@require_safe
def tune_list(request: HttpRequest) -> HttpResponse:
    """What waits and runs, in the order in which it is taken; then every job."""
    jobs = selectors.job_list()
    status = request.GET.get("status", "")
    if status in TuneJob.Status.values:
        jobs = jobs.filter(status=status)
    rows = [{"job": job, "shape": texts.in_order(job.operator, job.shape), **selectors.speedups(job),
             "rate": texts.rate(job, job.best_ms), "progress": selectors.progress(job, job.n_trials)}
            for job in jobs[:LIST_LIMIT]]
    done = [row for row in rows if row["job"].status == TuneJob.Status.DONE and row["default"]]
    queue = page_selectors.queue_rows()
    return render(request, "tuner/list.html", {
        "rows": rows, "total": jobs.count(), "status": status, "statuses": TuneJob.Status.values,
        "running": sum(row["job"].status == TuneJob.Status.RUNNING for row in queue),
        "waiting": sum(row["job"].status == TuneJob.Status.QUEUED for row in queue),
        "queue": queue, "queue_worth_s": page_selectors.total_worth(queue), "by_hand": any(row["by_hand"] for row in queue),
        "groups": page_selectors.group_rows(), "best": max(done, key=lambda row: row["default"], default=None), "done": len(done)})


@require_safe
def tune_detail(request: HttpRequest, pk: int) -> HttpResponse:
    job = get_object_or_404(selectors.job_list().select_related("group"), pk=pk)
    if request.GET.get("part") == "live":
        return _live(request, job)
    trials = page_selectors.trials_of(job)
    log, by_seconds = request.GET.get("scale") != "linear", request.GET.get("over") == "seconds"
    figure = charts.progress_figure(trials, budget_trials=min(job.budget_trials, job.valid_size or job.budget_trials),
                                    default_ms=job.default_ms, library_ms=job.library_ms, log=log,
                                    budget_seconds=page_selectors.seconds_axis(job) if by_seconds else None)
    return render(request, "tuner/detail.html", {
        **page_selectors.detail(job, trials), "figure": figure, "log": log, "by_seconds": by_seconds,
        "state": {"id": job.pk, "last": trials[-1].number if trials else -1, "budget_trials": job.budget_trials,
                  "budget_seconds": job.budget_seconds, "plateau": job.plateau, "status": job.status, "by_seconds": by_seconds}})


def _live(request: HttpRequest, job: TuneJob) -> HttpResponse:
    """Only what the server words anew while a job runs. Kept for a while: the rows of a job are not read for each page.

    A change of the job's state has a key of its own, so it shows at once.
    """
    user: Any = request.user
    may = f"{user.has_perm('tuner.add_tunejob')}{user.has_perm('tuner.change_tunejob')}"
    key = f"tune-live:{job.pk}:{may}:{job.status}{job.stop_requested}{job.pause_requested}{len(job.finalists)}"
    body = cache.get(key)
    if body is not None and not cache.add(f"{key}:fresh", True, PARTS_FRESH_S):
        return HttpResponse(body)
    began = time.monotonic()
    body = render(request, "tuner/job/live.html", page_selectors.detail(job, page_selectors.trials_of(job))).content
    cache.set(key, body, PARTS_KEPT_S)
    cache.set(f"{key}:fresh", True, max(PARTS_FRESH_S, PARTS_SHARE * (time.monotonic() - began)))
    return HttpResponse(body)


# ---- what a person does to a job: POST, then the job's page ----

def _does(service: Callable[[TuneJob], object]) -> Callable[..., HttpResponse]:
    @changes_jobs
    @require_POST
    def act(request: HttpRequest, pk: int) -> HttpResponse:
        service(get_object_or_404(TuneJob, pk=pk))
        return redirect("tune", pk=pk)
    return act


tune_stop, tune_pause, tune_resume = _does(services.tune_stop), _does(services.tune_pause), _does(services.tune_resume)


@changes_jobs
@require_POST
def tune_extend(request: HttpRequest, pk: int) -> HttpResponse:
    """More trials, more seconds, or both."""
    job = get_object_or_404(TuneJob, pk=pk)
    try:
        services.tune_extend(job, **page_selectors.extension(request.POST))
    except services.TuneError as error:
        messages.error(request, f"Not extended: {'; '.join(error.fields.values())}.")
    return redirect("tune", pk=pk)
