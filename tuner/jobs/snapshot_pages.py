"""One job's page and its snapshots: a document from which every part of the page is painted, so that no two disagree."""

from __future__ import annotations

import hashlib
import time
from typing import Any

from django.core.cache import cache
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import get_object_or_404, render
from django.template.loader import render_to_string
from django.views.decorators.http import require_safe

from tuner.jobs import page_selectors, selectors
from tuner.jobs.progress_charts import OVERS, progress_figure
from tuner.models import TuneJob

FRESH_S = 0.5            # a hundred pages that watch one job are answered by two documents a second …
SHARE = 10               # … and by one that took long for ten times as long: a tenth of one core at most
KEPT_S = 60              # an older document serves while the next is made
TRIALS_LIMIT = 5000      # in one answer; the page asks again for the rest
PARTS = ("chips", "answer", "progress", "again", "winner", "effects", "failures", "time", "facts")       # templates, each one part
TABS = {"trials": "Trials", "parameters": "Parameters", "failures": "Failures", "saved": "What was saved", "method": "Method"}


@require_safe
def tune_detail(request: HttpRequest, pk: int) -> HttpResponse:
    """Show one job: the latest snapshot, and what its script needs to follow it."""
    document = _document(request, pk)
    tab = request.GET.get("tab", "")
    return render(request, "tuner/job/detail.html", {
        **document, "job": document["row"], "state": _public(document), "tabs": TABS, "figure": _figure(request),
        "tab": tab if tab in TABS else next(iter(TABS))})


@require_safe
def tune_figure(request: HttpRequest, pk: int) -> HttpResponse:
    """The job's figure without its trials, over ?over=trials or seconds, with times ?scale=log or linear."""
    get_object_or_404(TuneJob, pk=pk)
    return JsonResponse(_figure(request))


def _figure(request: HttpRequest) -> dict[str, Any]:
    over = request.GET.get("over", "")
    return progress_figure(over if over in OVERS else next(iter(OVERS)), log=request.GET.get("scale") != "linear")


@require_safe
def tune_snapshot(request: HttpRequest, pk: int) -> HttpResponse:
    """The job as one statement of the database saw it: its state, its page's parts, and the trials after number ?after.

    Of two documents the one of the greater `version` is the newer. `parts` is left out where ?stamp names what the page shows
    already; `more`: ask again after the last trial before painting.
    """
    document = _document(request, pk)
    text = request.GET.get("after", "")
    after = int(text) if text.isdecimal() and len(text) < 10 else -1
    rows = selectors.lean_rows(document["row"], after).filter(number__lte=document["last"])[:TRIALS_LIMIT]
    trials = [selectors.page_trial(row) for row in rows]
    answer = _public(document) | {"trials": trials, "more": bool(trials) and trials[-1]["number"] < document["last"]}
    if request.GET.get("stamp") != document["stamp"]:
        answer["parts"] = document["parts"]
    return JsonResponse(answer, json_dumps_params={"separators": (",", ":")})


def _public(document: dict[str, Any]) -> dict[str, Any]:
    return {name: document[name] for name in ("version", "stamp", "last", "state")}


def _document(request: HttpRequest, pk: int) -> dict[str, Any]:
    """Return the newest snapshot, or one at most FRESH_S old of the same state. Raises Http404."""
    job = selectors.job_with_last(pk)
    if job is None:
        raise Http404(f"there is no tune job {pk}")
    user: Any = request.user
    may_add = user.has_perm("tuner.add_tunejob")
    # Trials may wait for the next document; a change of the job's state is shown at once.
    key = f"tune-snapshot:{pk}:{may_add}:{job.status}{job.stop_requested}{job.pause_requested}{len(job.finalists)}"
    snapshot: dict[str, Any] | None = cache.get(key)
    if snapshot is not None and not cache.add(f"{key}:fresh", True, FRESH_S):
        return snapshot
    began = time.monotonic()
    document = _make_document(job, may_add)
    cache.set(key, document, KEPT_S)
    cache.set(f"{key}:fresh", True, max(FRESH_S, SHARE * (time.monotonic() - began)))
    return document


def _make_document(job: Any, may_add: bool) -> dict[str, Any]:
    trials = selectors.lean_trials(job, job.last)
    context = {**page_selectors.job_detail(job, trials), "may_add": may_add}
    parts = {name: render_to_string(f"tuner/job/_{name}.html", context) for name in PARTS}
    stamp = hashlib.sha256("".join(parts.values()).encode()).hexdigest()[:16]
    return {"version": job.version, "stamp": stamp, "last": job.last, "state": _state(job, context["ceiling"]), "parts": parts,
            "row": job, "shape": context["shape"], "fastest": context["fastest"]}


def _state(job: Any, ceiling: dict[str, Any] | None) -> dict[str, Any]:
    """Return what the buttons and the figure are painted from; it is as wide as the budget, then as what was used of it."""
    ended = job.status in selectors.ENDED
    most = job.last + 1 if ended else min(job.budget_trials, job.valid_size or job.budget_trials)
    return {"status": job.status, "asked": selectors.asked_of(job), "ended": ended,
            "most": most, "seconds": page_selectors.seconds_axis(job),
            "default_ms": job.default_ms, "library_ms": job.library_ms, "ceiling_ms": ceiling["ms"] if ceiling else None}
