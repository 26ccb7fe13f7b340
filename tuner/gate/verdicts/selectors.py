"""What pages, reports, clients and the API read of gates."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypedDict, cast
from urllib.parse import urlencode

from django.db.models import Count, Min, Q, QuerySet
from django.db.models.fields.json import KT
from django.urls import reverse

from profiles.base.answers import make_answer
from tuner.clocks.wish import is_asked, told_text
from tuner.gate.builds.selectors import ENVIRONMENT
from tuner.gate.reports import words
from tuner.gate.reports.words import GateDocument
from tuner.gate.stats.rule import ERROR_EXIT_CODE, EXIT_CODE, Verdict
from tuner.gate.suites.selectors import why_waiting
from tuner.models import Gate, GateKernel, KernelRun, SlowerVerdict, SuiteJob
from tuner.tuning.trial import storable

FILTERS = {"suite": "suite__name", "build": "build__name", "verdict": "verdict", "status": "status", "gpu": "gpu"}
REPORTS = ("md", "junit", "json", "github")
STOPPED_EXIT_CODE = EXIT_CODE[Verdict.AMBIGUOUS]


def gate_list(filters: Mapping[str, str] | None = None) -> QuerySet[Gate]:
    """Return gates newest first. A filter that nothing can match finds nothing."""
    rows = Gate.objects.select_related("suite", "build", "against", "owner").order_by("-created", "-id")
    for name, field in FILTERS.items():
        value = (filters or {}).get(name, "")
        if value:
            rows = rows.filter(**{field: value}) if storable(value) else rows.none()
    return rows


def exit_code(gate: Gate) -> int | None:
    """Return what a pipeline exits with; None while the gate goes on."""
    if gate.status in Gate.UNDER_WAY:
        return None
    if gate.status == Gate.Status.FAILED:
        return ERROR_EXIT_CODE
    if is_first_of_suite(gate):
        return EXIT_CODE[Verdict.PASS]
    return EXIT_CODE[Verdict(gate.verdict)] if gate.verdict else STOPPED_EXIT_CODE


def is_first_of_suite(gate: Gate) -> bool:
    """Return whether there can be no verdict yet, as no other build was measured and this one was, whole: no failure."""
    return words.is_first_of_suite({"verdict": gate.verdict, "offer": gate.report.get("offer")})


class GateLinksJson(TypedDict):
    page: str
    api: str


class GateLineJson(TypedDict):
    """A gate without its kernels; `verdict` "" while it goes on."""

    id: int
    suite: str
    build: str
    status: str
    verdict: str
    exit_code: int | None
    reason: str
    rounds: int
    progress: dict[str, Any]
    created: str
    finished: str | None
    links: GateLinksJson


def gate_short(gate: Gate, base: str = "") -> GateLineJson:
    """Return the JSON of lists and live pages: everything but the kernels."""
    return make_answer(
        GateLineJson, gate, suite=gate.suite.name, build=gate.build.name, exit_code=exit_code(gate), progress=progress(gate),
        verdict=gate.verdict if gate.status not in Gate.UNDER_WAY else "",
        links={"page": link(base, "gate", gate.pk), "api": link(base, "api-gate", gate.pk)})


def progress(gate: Gate, asks_workers: bool = False) -> dict[str, Any]:
    """Return kernel runs of the round that is measured now, {} without one; `asks_workers`: with why its job waits."""
    if gate.status == Gate.Status.WAITING and gate.reason.startswith("waits for shard"):
        return {"says": gate.reason}
    if gate.status != Gate.Status.MEASURING:
        return {}
    job = gate.jobs.filter(status__in=(SuiteJob.Status.QUEUED, SuiteJob.Status.RUNNING)).order_by("-id").first()
    if job is None:
        return {}
    kernels = len(job.kernels) if job.kernels is not None else gate.suite.kernels.filter(enabled=True).count()
    done = KernelRun.objects.filter(job=job).count()
    wanted = max(len(job.builds) * job.runs * kernels, done)
    waits = why_waiting(job.device) if asks_workers and job.status == SuiteJob.Status.QUEUED else ""
    says = f"round {gate.rounds}: {done:,} of {wanted:,} kernel runs" if wanted else f"round {gate.rounds}"
    return {"done": done, "wanted": wanted, "job": job.pk, "round": gate.rounds, "waits": waits,
            "says": f"{says}; it waits: {waits}" if waits else says}


def gate_document(gate: Gate, *, base: str = "") -> GateDocument:
    """Return the JSON that API, reports, client and webhooks share; `base` ("https://host") goes before every link."""
    kernels = [kernel_json(row, base) for row in gate.kernels.select_related("kernel").order_by("place", "pk")]
    report, later = gate.report, later_verdict(gate)
    return cast(GateDocument, {
        **gate_short(gate, base), "progress": progress(gate, asks_workers=True),
        "against": gate.against.name if gate.against else None, "branch": gate.build.branch,
        "title": gate.build.title, "parent": gate.build.parent,
        "environment": {name: getattr(gate, name) for name in ENVIRONMENT}, "code": code_commits(gate),
        "clocks_held": clocks_held(gate), "asked": gate.environment, "asked_url": gate.url, "alpha": report.get("alpha"),
        "plan": report.get("plan") or {},
        **({"exit_code": EXIT_CODE[Verdict.SLOWER]} if later else {}),
        "rule": report.get("rule") or {}, "notes": [*(report.get("notes") or []), *filter(None, [later])],
        "standing": report.get("standing") or [], "green": report.get("green") or "", "offer": offer_json(gate, base),
        "history": report.get("rounds") or [], "error": gate.error, "kernels": kernels,
        "jobs": list(gate.jobs.order_by("id").values_list("id", flat=True)), "links": links(gate, base)})


def code_commits(gate: Gate) -> dict[str, str]:
    """Return build → what its code was resolved to, of builds whose code workers fetched: git's commit, or "sha256:…"."""
    builds = [each for told in gate.jobs.order_by("id").values_list("builds", flat=True) for each in told]
    return {each["build"]: each["commit"] for each in builds if each.get("commit")}


def clocks_held(gate: Gate) -> list[str]:
    """Return what its jobs did to the clocks of the GPU, in words, each once; [] where nobody asked for anything."""
    told = [environment.get("clock_lock") for environment in gate.jobs.order_by("id").values_list("environment", flat=True)]
    return list(dict.fromkeys(told_text(lock) for lock in told if is_asked(lock)))


def later_verdict(gate: Gate) -> str:
    """Return what a later gate says of a build that this one let pass, where it still stands; "" nothing."""
    if gate.status != Gate.Status.DONE or gate.verdict not in (Verdict.PASS, Verdict.FASTER) or gate.finished is None:
        return ""
    rows = SlowerVerdict.objects.filter(suite=gate.suite_id, build=gate.build_id, over=None, created__gt=gate.finished)
    asked = gate.against.name if gate.against else ""
    row = rows.exclude(number=gate.pk).filter(Q(against__in=["", asked]) | Q(first=True)).select_related("kernel").first()
    return f"since then gate {row.number} says SLOWER of {row.kernel.key} in this build: the build's exit code is 1" if row else ""


def gate_around(gate: Gate) -> dict[str, Any]:
    """Return what the gate's own page needs of the document; it reads kernels one page at a time."""
    return {"code": code_commits(gate), "clocks_held": clocks_held(gate), "progress": progress(gate, asks_workers=True),
            "offer": offer_json(gate, ""), "links": links(gate, ""), "later": later_verdict(gate)}


def offer_json(gate: Gate, base: str) -> dict[str, Any] | None:
    """Return what can be measured where there is no baseline yet."""
    offer = gate.report.get("offer")
    if not offer:
        return None
    return {**offer, "again": link(base, "api-gate-again", gate.pk) if offer.get("measurable") else ""}


def kernel_json(row: GateKernel, base: str = "") -> dict[str, Any]:
    """Return the JSON of one kernel's verdict."""
    facts = row.facts
    p95, mean, by = facts.get("p95") or {}, facts.get("mean") or {}, row.decided
    return {
        "id": row.pk, "key": row.kernel.key, "op": row.kernel.op, "shape": row.kernel.shape, "config": facts.get("config"),
        "family": row.kernel.family, "verdict": row.verdict, "reason": row.reason, "ratio_p50": row.ratio_p50,
        "ci": [row.low, row.high] if row.low is not None and row.high is not None else None, "ratio_p95": row.ratio_p95,
        "ci_p95": [p95["low"], p95["high"]] if p95.get("low") is not None and p95.get("high") is not None else None,
        "ratio_mean": mean.get("ratio"),
        "decided": {"quantity": by.name, "ratio": by.ratio, "ci": None if by.low is None or by.high is None else [by.low, by.high]},
        "ci_mean": [mean["low"], mean["high"]] if mean.get("low") is not None and mean.get("high") is not None else None,
        "speeds": facts.get("speeds") or "", "believed": facts.get("believed", True), "back_at": facts.get("back_at") or "",
        "p_value": row.p_value, "baseline_us": row.baseline_us, "candidate_us": row.candidate_us,
        "baseline_runs": len(row.baseline_runs), "candidate_runs": len(row.candidate_runs), "detectable": row.detectable,
        **{name: facts.get(name) for name in ("false_alarms", "more_runs", "change")},
        **{name: facts.get(name) or [] for name in ("metrics", "excluded")}, "clocks": facts.get("clocks") or {},
        "baseline": facts.get("baseline") or {}, "stays": facts.get("stays"), "confirmed": bool(facts.get("confirmed")),
        "gone": bool(facts.get("gone")), "environment": facts.get("environment"), "regression": row.regression_id,
        "links": {"page": link(base, "gate-kernel", row.gate_id, row.pk)}}


def links(gate: Gate, base: str) -> dict[str, Any]:
    """Return where the evidence is."""
    other = gate.against.name if gate.against else newest_baseline(gate)
    compare = link(base, "compare")
    report = link(base, "api-gate-report", gate.pk)
    return {"page": link(base, "gate", gate.pk), "api": link(base, "api-gate", gate.pk),
            "baselines": link(base, "suite-baselines", gate.suite_id),
            "compare": f"{compare}?{urlencode({'build_a': other, 'build_b': gate.build.name})}" if other else "",
            "report": {name: f"{report}?format={name}" for name in REPORTS}}


def newest_baseline(gate: Gate) -> str:
    """Return the newest build that most of the gate's kernels were compared with, "" without one."""
    firsts = gate.kernels.order_by().annotate(first=KT("facts__baseline__builds__0")).exclude(first__isnull=True).values("first")
    counted = firsts.annotate(number=Count("pk"), worst=Min("place")).order_by("-number", "worst")
    return counted.values_list("first", flat=True).first() or ""


def link(base: str, name: str, *args: Any) -> str:
    """Return an address with `base` before it."""
    return base + reverse(name, args=args)


def verdict_counts(filters: Mapping[str, str] | None = None) -> dict[str, int]:
    """Return verdict -> gates, of those that have ended."""
    found = gate_list(filters).filter(status=Gate.Status.DONE).order_by()
    return dict(found.values_list("verdict").annotate(number=Count("id")))
