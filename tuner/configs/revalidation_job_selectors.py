"""One re-validation as pages, the API and the command tell it: what is measured, how far it is, and what serves from then on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tuner.configs import revalidation_selectors as selectors
from tuner.jobs.devices import gpu_model, is_gpu
from tuner.models import CachedConfig, SuiteJob, SuiteKernel
from tuner.suites.devices_selectors import why_waiting
from tuner.suites.job_services import LIVE
from tuner.suites.selectors import job_progress, jobs_progress
from tuner.texts import config_in_order

Status = SuiteJob.Status
STAYS, REPLACED, DEFAULT, UNKNOWN, OPEN = "stays", "replaced", "default", "unknown", "once more"
MEANS = {STAYS: "what served is still surely faster than the default and stays", REPLACED: "another configuration serves now",
         DEFAULT: "nothing is surely faster than the default: the default serves",
         UNKNOWN: "nothing can be said: the cache is as it was", OPEN: "cannot be told apart yet: it is measured once more"}


def outcome(found: Mapping[str, Any]) -> str:
    """In one word, of what was found of one kernel."""
    if found["open"]:
        return OPEN
    if found["serves"] is None or found["written"] is None:
        return UNKNOWN
    if found["serves"] == found["served"]:
        return STAYS if found["served"] else DEFAULT
    return REPLACED if found["serves"] else DEFAULT


def lines(jobs: Sequence[SuiteJob]) -> list[dict[str, Any]]:
    """For lists: each job with its progress and how many kernels ended how."""
    progress = jobs_progress(jobs)
    return [{"job": job, "progress": progress[job.pk], "live": job.status in LIVE, "kernels": len(selectors.asked(job)),
             "gpu": job.environment.get("gpu") or gpu_model(job.device) or "any GPU", "says": says(job)} for job in jobs]


def counts(job: SuiteJob) -> dict[str, int]:
    ended = [outcome(each) for each in (job.about.get("found") or {}).values()]
    return {word: ended.count(word) for word in MEANS if word in ended}


def says(job: SuiteJob) -> str:
    """One sentence."""
    kernels = len(selectors.asked(job))
    of = f"{kernels} winner{'s' * (kernels != 1)}"
    if job.status == Status.QUEUED:
        takes = f", about {job.about.get('expected_s', 0.0):.0f} s of GPU time" if is_gpu(job.device) else ""
        return f"{of} will be measured again{takes}"
    if job.status == Status.RUNNING:
        return f"{of} measured again now" if kernels != 1 else "1 winner is measured again now"
    if job.status != Status.DONE:
        return f"{job.status}: the cache is as it was"
    if "decided" not in job.about:
        return "measured; what serves is being decided"
    found = counts(job)
    words = {STAYS: "{} of {} stay{s} as served", REPLACED: "{} replaced by a rival", DEFAULT: "{} served by the default now",
             UNKNOWN: "nothing can be said of {}", OPEN: "{} measured once more"}
    return "; ".join(words[word].format(number, kernels, s="s" * (number == 1)) for word, number in found.items())


def document(job: SuiteJob) -> dict[str, Any]:
    """Everything of one job, worst first: what no longer stays, then what is open or unknown, then what stays."""
    found, entries = job.about.get("found") or {}, CachedConfig.objects.in_bulk(selectors.asked(job).values())
    written = CachedConfig.objects.in_bulk([each["written"] for each in found.values() if each["written"]])
    kernels = []
    for kernel in SuiteKernel.objects.filter(suite=job.suite, key__in=selectors.asked(job)):
        asked, told = selectors.asked(job)[kernel.key], found.get(kernel.key)
        kernels.append({
            "key": kernel.key, "op": kernel.op, "shape": kernel.shape, "dtype": kernel.dtype, "entry": entries.get(asked),
            "entry_id": asked, "served": job.about["served"].get(kernel.key, ""), "found": told,
            "outcome": outcome(told) if told else "", "written": written.get(told["written"]) if told else None,
            "sides": [_side(each, kernel.key, told) for each in job.builds if kernel.key in each["configs"]]})
    order = (DEFAULT, REPLACED, OPEN, UNKNOWN, STAYS, "")
    kernels.sort(key=lambda each: order.index(each["outcome"]))
    return {"job": job, "kernels": kernels, "progress": job_progress(job), "live": job.status in LIVE,
            "under_way": job.status in LIVE or (job.status == Status.DONE and "decided" not in job.about), "says": says(job),
            "on_gpu": is_gpu(job.device), "why_waiting": why_waiting(job.device) if job.status == Status.QUEUED else "",
            "first": job.about.get("first"), "again": job.about.get("again"), "means": {word: MEANS[word] for word in counts(job)}}


def _side(build: Mapping[str, Any], key: str, told: Mapping[str, Any] | None) -> dict[str, Any]:
    known = (told or {}).get("sides", {}).get(build["build"], {})
    return {**known, "name": build["build"], "config": config_in_order(build["configs"][key]),
            "serves": told is not None and told["serves"] is not None and build["build"] == (told["serves"] or selectors.DEFAULT)}


def document_json(found: Mapping[str, Any]) -> dict[str, Any]:
    job: SuiteJob = found["job"]
    times = {name: value.isoformat() if (value := getattr(job, name)) else None for name in ("created", "started", "finished")}
    return {"id": job.pk, "status": job.status, "says": found["says"], "device": job.device, "recorded": job.recorded,
            "runs": job.runs, "progress": found["progress"], "error": job.error, "environment": job.environment,
            "expected_gpu_seconds": job.about.get("expected_s"), "round": job.about.get("round"), "first": found["first"],
            "again": found["again"], "decided": job.about.get("decided"), **times, "kernels": [
                {**{name: each[name] for name in ("key", "op", "shape", "dtype", "outcome", "served", "sides")},
                 "entry": each["entry_id"], "written": each["written"].pk if each["written"] else None,
                 "serves": each["found"]["serves"] if each["found"] else None,
                 "says": each["found"]["says"] if each["found"] else ""} for each in found["kernels"]]}


def job_json(job: SuiteJob) -> dict[str, Any]:
    return document_json(document(job))
