"""What pages, reports, clients and the API read of gates; how many fresh runs are measured, of which builds, before each round."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, TypedDict, cast
from urllib.parse import urlencode

from django.db.models import Count, Min, Q, QuerySet
from django.db.models.fields.json import KT
from django.urls import reverse

from profiles.base.answers import make_answer
from tuner.clocks.wish import is_asked, told_text
from tuner.gate.baselines.selectors import Env, Expected, expected_baselines
from tuner.gate.builds.selectors import ENVIRONMENT
from tuner.gate.reports import words
from tuner.gate.reports.words import GateDocument, GateProgressJson
from tuner.gate.stats import plan
from tuner.gate.stats.results import KernelVerdict
from tuner.gate.stats.rule import ERROR_EXIT_CODE, EXIT_CODE, Rule, Verdict, rule_of
from tuner.gate.suites.selectors import newest_environment, why_waiting
from tuner.gate.verdicts import sides_selectors
from tuner.gate.verdicts.sides_selectors import AGAIN, KernelComparison, Sides
from tuner.models import Build, Gate, GateKernel, KernelRun, SlowerVerdict, Suite, SuiteJob
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
    progress: GateProgressJson
    created: str
    finished: str | None
    links: GateLinksJson


def gate_short(gate: Gate, base: str = "") -> GateLineJson:
    """Return the JSON of lists and live pages: everything but the kernels."""
    return make_answer(
        GateLineJson, gate, suite=gate.suite.name, build=gate.build.name, exit_code=exit_code(gate), progress=progress(gate),
        verdict=gate.verdict if gate.status not in Gate.UNDER_WAY else "",
        links={"page": link(base, "gate", gate.pk), "api": link(base, "api-gate", gate.pk)})


def progress(gate: Gate, asks_workers: bool = False) -> GateProgressJson:
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
    total = max(len(job.builds) * job.runs * kernels, done)
    waits = why_waiting(job.device) if asks_workers and job.status == SuiteJob.Status.QUEUED else ""
    says = f"round {gate.rounds}: {done:,} of {total:,} kernel runs" if total else f"round {gate.rounds}"
    return {"done": done, "wanted": total, "job": job.pk, "round": gate.rounds, "waits": waits,
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
    builds = [build for job_builds in gate.jobs.order_by("id").values_list("builds", flat=True) for build in job_builds]
    return {build["build"]: build["commit"] for build in builds if build.get("commit")}


def clocks_held(gate: Gate) -> list[str]:
    """Return what its jobs did to the clocks of the GPU, in words, each once; [] where nobody asked for anything."""
    locks = [environment.get("clock_lock") for environment in gate.jobs.order_by("id").values_list("environment", flat=True)]
    return list(dict.fromkeys(told_text(lock) for lock in locks if is_asked(lock)))


def later_verdict(gate: Gate) -> str:
    """Return what a later gate says of a build that this one let pass, where it still stands; "" nothing."""
    if gate.status != Gate.Status.DONE or gate.verdict not in (Verdict.PASS, Verdict.FASTER) or gate.finished is None:
        return ""
    rows = SlowerVerdict.objects.filter(suite=gate.suite_id, build=gate.build_id, over=None, created__gt=gate.finished)
    against = gate.against.name if gate.against else ""
    row = rows.exclude(number=gate.pk).filter(Q(against__in=["", against]) | Q(first=True)).select_related("kernel").first()
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
    gates = gate_list(filters).filter(status=Gate.Status.DONE).order_by()
    return dict(gates.values_list("verdict").annotate(number=Count("id")))


RE_RUNS = 2                         # by itself; a person may ask for more
MOST_FRESH = 40                     # fresh runs of each build in one round


@dataclass(frozen=True)
class PlannedRound:
    """What is to be measured next."""

    builds: list[dict[str, Any]]            # as SuiteJob.builds, in turn
    runs: int                               # of each build
    kernels: list[str]                      # keys
    why: str                                # one sentence


def can_measure_again(suite: Suite) -> bool:
    """Return whether an earlier build's code can be run today: a capture's program is whatever is installed now."""
    return suite.kind == Suite.Kind.OPERATORS


def runs_each(kernels: int, least: int, rule: Rule) -> int:
    """Return fresh runs of each of two builds that can decide so many kernels: no fewer than `least`."""
    return min(MOST_FRESH, max(least, plan.plan_runs(kernels, least, least, rule).needed_each))


def next_round(gate: Gate, sides: Sides, verdicts: Mapping[str, KernelVerdict], rule: Rule) -> PlannedRound | None:
    """Return the round that a gate just judged needs, None where the verdict stands."""
    jobs = list(gate.jobs.order_by("id"))
    if gate.suite.kind == Suite.Kind.UPLOADED or sides.env is None or _count_automatic(jobs) > RE_RUNS or not jobs:
        return None
    if any(verdict.verdict == Verdict.SLOWER and _is_settled(compared, verdict) for compared, verdict in _pairs(sides, verdicts)):
        return None                         # the suite's verdict is known, whatever the others would say
    doubtful = [(compared, verdict) for compared, verdict in _pairs(sides, verdicts)
                if verdict.verdict in (Verdict.AMBIGUOUS, Verdict.SLOWER) or _lacks_named_baseline(gate, compared, verdict)]
    if not doubtful:
        return None
    if len(jobs) > 1 and len(jobs[-1].builds) > 1 and not any(compared.stage == AGAIN for compared, _ in doubtful):
        return None                         # the re-run gave no runs of both builds: another would not either
    more = max((verdict.more_runs for _, verdict in doubtful), default=0)
    return plan_round(gate, sides, [compared for compared, _ in doubtful], rule, more, _round_reason(doubtful))


def plan_round(gate: Gate, sides: Sides, kernels: Sequence[KernelComparison], rule: Rule, more: int, why: str,
             baseline: str = "") -> PlannedRound:
    """Return a round of those kernels, in turn with the baseline's build where its code can be run."""
    name = baseline or partner_build(gate, sides, kernels)
    keys = [comparison.kernel.key for comparison in kernels]
    runs = runs_each(len(kernels), max(1, more), rule)
    ours = {"build": gate.build.name, "configs": {key: config for key, config in gate.configs.items() if key in keys}}
    if not name or not can_measure_again(gate.suite):
        return PlannedRound([ours], runs, keys, why)
    theirs = {"build": name, "configs": last_configs(gate.suite, name, keys)}
    return PlannedRound([theirs, ours], runs, keys, why)


def _pairs(sides: Sides, verdicts: Mapping[str, KernelVerdict]) -> list[tuple[KernelComparison, KernelVerdict]]:
    return [(comparison, verdicts[comparison.kernel.key]) for comparison in sides.kernels if comparison.kernel.key in verdicts]


def _is_settled(compared: KernelComparison, verdict: KernelVerdict) -> bool:
    """A slowdown that another round would not take back: measured in turn, or a metric that is the same in every run."""
    return compared.confirmed or any(metric.get("verdict") == Verdict.SLOWER for metric in verdict.metrics)


def _lacks_named_baseline(gate: Gate, compared: KernelComparison, verdict: KernelVerdict) -> bool:
    """Somebody named the build to compare with, and it has no runs here yet."""
    return gate.against is not None and verdict.verdict == Verdict.NO_DATA and bool(compared.candidate) \
        and not compared.baseline.runs and can_measure_again(gate.suite)


def _count_automatic(jobs: Sequence[SuiteJob]) -> int:
    return sum(job.reason == "gate" for job in jobs)


def _round_reason(doubtful: Sequence[tuple[KernelComparison, KernelVerdict]]) -> str:
    counts = Counter(str(verdict.verdict) for _, verdict in doubtful)
    words = {Verdict.SLOWER: "SLOWER against runs of another session", Verdict.AMBIGUOUS: "AMBIGUOUS",
             Verdict.NO_DATA: "without runs of the build to compare with"}
    return ", ".join(f"{number} kernel{'s' if number != 1 else ''} {words[Verdict(verdict)]}" for verdict, number in counts.items())


def partner_build(gate: Gate, sides: Sides, kernels: Sequence[KernelComparison]) -> str:
    """Return the build measured in turn with the gate's: the same in every round, else the newest of most baselines."""
    if gate.against is not None:
        return gate.against.name
    before = sides_selectors.interleaved_jobs(gate)
    if before:
        return sides_selectors.job_partner(before[-1], gate)
    newest = Counter(comparison.baseline.builds[0].name for comparison in kernels if comparison.baseline.builds)
    return newest.most_common(1)[0][0] if newest else ""


def last_configs(suite: Suite, build: str, keys: Sequence[str]) -> dict[str, Any]:
    """Return the configurations that a build was measured with before, by kernel key."""
    rows = KernelRun.objects.filter(kernel__suite=suite, kernel__key__in=keys, build__name=build, rejected="").exclude(config=None)
    newest = rows.order_by("kernel_id", "-created", "-id").distinct("kernel_id")
    return {key: config for key, config in newest.values_list("kernel__key", "config") if config}


# ---- before anything is run ----

def plan_for_suite(suite: Suite, runs: int | None = None) -> dict[str, Any]:
    """Return what `plan_runs` says of the next build, for a form, and the smallest slowdowns that so much noise lets it show."""
    plan = plan_runs(suite, runs, likely_baselines(suite, {}))
    return {**plan, "says": " ".join(filter(None, (plan["says"], _shown_last(suite))))}


def _shown_last(suite: Suite) -> str:
    """Return what the runs of the last gate could have shown, in words; "" before there was one."""
    last = Gate.objects.filter(suite=suite, status=Gate.Status.DONE).order_by("-pk").first()
    rows = last.kernels.exclude(detectable=None).order_by("detectable") if last is not None else GateKernel.objects.none()
    least = [(share, key) for share, key in rows.values_list("detectable", "kernel__key") if share is not None]
    if not least:
        return ""
    low, (high, key) = least[0][0], least[-1]
    ends = f"{100 * low:.2g} %" if len(least) == 1 else f"{100 * low:.2g} to {100 * high:.2g} % (largest: {key})"
    return f"The smallest slowdowns that the last gate's runs could show: {ends}."


def likely_baselines(suite: Suite, asked: Mapping[str, str], before: Build | None = None,
                       against: Build | None = None) -> list[Expected]:
    """Return baselines in the environment of the newest run that fits the request; [] before there are runs."""
    where = {name: asked[name] for name in ENVIRONMENT if asked.get(name)}
    here = newest_environment(suite, **where)
    kernels = list(suite.kernels.filter(enabled=True).only("suite", "key"))         # thousands, of which no more is asked
    return expected_baselines(kernels, Env(*here), before, against) if here else []


def plan_runs(suite: Suite, runs: int | None, baselines: Sequence[Expected]) -> dict[str, Any]:
    """Return whether a gate with so many fresh runs could decide anything, in words and numbers; nothing is run for it.

    The baseline counts with the runs that it has, or, before there is one, with those that it may come to hold. Where it is
    short of runs and its build can be run again, both builds are measured in turn (`interleaved`, `runs_each`).
    """
    rule = rule_of(suite.rule)
    kernels = suite.kernels.filter(enabled=True).count()
    candidate = suite.runs if runs is None else runs
    baseline_runs = min((entry.runs for entry in baselines if entry.runs), default=0)
    baseline, again = suite.baseline_runs, False
    run_plan = plan.plan_runs(kernels, baseline, candidate, rule)
    if run_plan.enough and baseline_runs and not (now := plan.plan_runs(kernels, baseline_runs, candidate, rule)).enough:
        again = can_measure_again(suite)
        candidate = runs_each(kernels, candidate, rule) if again else candidate
        run_plan, baseline = (plan.plan_runs(kernels, candidate, candidate, rule), candidate) if again else (now, baseline_runs)
    elif run_plan.enough and baseline_runs:
        run_plan, baseline = plan.plan_runs(kernels, baseline_runs, candidate, rule), baseline_runs
    return {**asdict(run_plan), "kernels": kernels, "candidate_runs": candidate, "baseline_runs": baseline, "interleaved": again,
            "has_baseline": bool(baseline_runs)}
