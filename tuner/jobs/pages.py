"""Pages of jobs, groups, comparisons, queue and quarantine; all work without JavaScript."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.contrib import messages
from django.contrib.auth.decorators import permission_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.views.decorators.http import require_POST, require_safe

from profiles.base.refused import Refused
from tuner import texts
from tuner.ceilings.selectors import Ceilings, job_ceiling
from tuner.jobs import comparison, control_services, groups, page_selectors, progress_charts, quarantine, selectors
from tuner.jobs.outcomes import job_outcome, library_text
from tuner.models import Quarantine, TuneGroup, TuneJob
from tuner.texts import config_in_order, in_order

LIST_LIMIT = 500
PAIRS_SHOWN = 100

# The buttons of a job's page may be pressed by whoever may change jobs.
changes_jobs = permission_required("tuner.change_tunejob", raise_exception=True)


@require_safe
def tune_list(request: HttpRequest) -> HttpResponse:
    """Show the queue in order, then every job."""
    jobs = selectors.job_list()
    status = request.GET.get("status", "")
    if status in TuneJob.Status.values:
        jobs = jobs.filter(status=status)
    ceilings = Ceilings()
    rows: list[dict[str, Any]] = [
        {"job": job, "ceiling": job_ceiling(job, ceilings), "shape": texts.in_order(job.operator, job.shape),
         **selectors.speedups(job), "rate": texts.rate(job, job.best_ms), "progress": selectors.progress(job, job.n_trials),
         "outcome": job_outcome(job), "keep": library_text(job)} for job in jobs[:LIST_LIMIT]]
    done = [row for row in rows if row["job"].status == TuneJob.Status.DONE and row["default"]]
    queue = page_selectors.queue_rows()
    return render(request, "tuner/job/list.html", {
        "rows": rows, "total": jobs.count(), "status": status, "statuses": TuneJob.Status.values,
        "running": sum(row["job"].status == TuneJob.Status.RUNNING for row in queue),
        "waiting": sum(row["job"].status == TuneJob.Status.QUEUED for row in queue),
        "queue": queue, "queue_worth_s": page_selectors.total_worth(queue), "by_hand": any(row["by_hand"] for row in queue),
        "groups": page_selectors.recent_groups(), "done": len(done),
        "best": max(done, key=lambda row: row["default"], default=None)})


# ---- what a person does to a job: POST, then the job's page ----

def _make_action(service: Callable[[TuneJob], object]) -> Callable[..., HttpResponse]:
    @changes_jobs
    @require_POST
    def act(request: HttpRequest, pk: int) -> HttpResponse:
        service(get_object_or_404(TuneJob, pk=pk))
        return redirect("tune", pk=pk)
    return act


tune_stop = _make_action(control_services.tune_stop)
tune_pause = _make_action(control_services.tune_pause)
tune_resume = _make_action(control_services.tune_resume)


@changes_jobs
@require_POST
def tune_extend(request: HttpRequest, pk: int) -> HttpResponse:
    """Add trials, seconds, or both."""
    job = get_object_or_404(TuneJob, pk=pk)
    try:
        control_services.tune_extend(job, **page_selectors.parse_extension(request.POST))
    except Refused as error:
        messages.error(request, f"Not extended: {'; '.join(error.fields.values())}.")
    return redirect("tune", pk=pk)


# ---- the order of the queue: moving a job is a POST of its new neighbour ----

@changes_jobs
@require_POST
def tune_move(request: HttpRequest, pk: int) -> HttpResponse:
    """Move a waiting job `before` or `after` another, else to the end."""
    other = {name: _find_job(request.POST.get(name, "")) for name in ("before", "after")}
    control_services.queue_move(get_object_or_404(TuneJob, pk=pk), **{name: job for name, job in other.items() if job is not None})
    return redirect(f"{reverse('tune-list')}#queue")


@changes_jobs
@require_POST
def queue_by_worth(request: HttpRequest) -> HttpResponse:
    """Forget the order that people chose."""
    control_services.queue_reset()
    return redirect(f"{reverse('tune-list')}#queue")


def _find_job(text: str) -> TuneJob | None:
    return TuneJob.objects.filter(pk=int(text)).first() if text.isdecimal() and len(text) < 12 else None


# ---- groups ----

ACTIONS = {"stop": groups.group_stop, "pause": groups.group_pause, "resume": groups.group_resume}


@require_safe
def tune_group(request: HttpRequest, pk: int) -> HttpResponse:
    """Show one group."""
    group = get_object_or_404(TuneGroup.objects.select_related("owner"), pk=pk)
    rows = groups.group_rows(group)
    return render(request, "tuner/job/group.html", {
        "group": group, "rows": rows, "sum": groups.group_summary(rows), "carries": groups.winner_transfers(rows),
        "state": {"id": group.pk, "jobs": [row["job"].pk for row in rows]}})


@changes_jobs
@require_POST
def tune_group_act(request: HttpRequest, pk: int) -> HttpResponse:
    """Stop, pause or resume all jobs of the group (POST `do`)."""
    group = get_object_or_404(TuneGroup, pk=pk)
    act = ACTIONS.get(request.POST.get("do", ""))
    if act is not None:
        act(group)
    return redirect("tune-group", pk=pk)


# ---- two jobs side by side ----

@require_safe
def tune_compare(request: HttpRequest) -> HttpResponse:
    """Compare jobs ?a=1&b=2; without both show the form."""
    chosen = [_find_job(request.GET.get(name, "")) for name in ("a", "b")]
    offered = comparison.job_choices(limit=comparison.LISTED)
    listed = {choice.value for choice in offered}
    offered += [comparison.job_choice(job) for job in chosen if job is not None and str(job.pk) not in listed]
    context: dict[str, Any] = {"a": chosen[0], "b": chosen[1], "choices": offered}
    if chosen[0] is None or chosen[1] is None:
        missing = request.GET.get("a") and request.GET.get("b")
        return render(request, "tuner/job/compare.html", context, status=404 if missing else 200)
    pair = comparison.compare_jobs(chosen[0], chosen[1])
    by_seconds = request.GET.get("over") == "seconds"
    return render(request, "tuner/job/compare.html", {
        **context, "found": pair, "result": pair.result, "answer": comparison.answer_text(pair), "by_seconds": by_seconds,
        "differences": comparison.differences(pair), "winners": comparison.winner_parameters(pair),
        "soon": list(zip(*pair.result.reached, strict=False)),
        "pairs": sorted(pair.result.pairs, key=lambda pair: min(pair.a_ms, pair.b_ms))[:PAIRS_SHOWN],
        "curves": progress_charts.progress_curves(pair.trials, _job_labels(pair), best_ms=pair.result.best_ms,
                                         same=pair.same_problem, by_seconds=by_seconds),
        "scatter": progress_charts.pairs_figure(pair.result.pairs, _job_labels(pair)) if pair.result.pairs else None})


def _job_labels(pair: comparison.JobPair) -> tuple[str, str]:
    label, other = (f"job {job.pk}: {job.strategy}" for job in (pair.a, pair.b))
    return label, other


# ---- the quarantine ----

@require_safe
def quarantine_list(request: HttpRequest) -> HttpResponse:
    """Show the quarantine."""
    filters = {name: request.GET.get(name, "") for name in ("operator", "reason", "gpu")}
    rows = quarantine.quarantine_list(filters)
    shown: list[dict[str, Any]] = [{"row": row, "config": config_in_order(row.config), "shape": in_order(row.operator, row.shape)}
             for row in rows[:LIST_LIMIT]]
    return render(request, "tuner/quarantine.html", {
        "in_force": [entry for entry in shown if entry["row"].lifted is None],
        "lifted": [entry for entry in shown if entry["row"].lifted is not None], "total": rows.count(), "filters": filters,
        "by_reason": quarantine.count_reasons(filters), "filtered": any(filters.values())})


@permission_required("tuner.change_tunejob", raise_exception=True)
@require_POST
def quarantine_lift(request: HttpRequest, pk: int) -> HttpResponse:
    """Lift a quarantine."""
    row = quarantine.quarantine_lift(get_object_or_404(Quarantine, pk=pk), request.user)
    messages.success(request, f"{row.operator}: workers may try it again. Where it fails again, it comes back.")
    return redirect("quarantine-list")
