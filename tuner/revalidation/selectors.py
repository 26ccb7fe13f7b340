"""Re-validation of cached winners: which entries, measured beside what, at what cost, and each job as a document."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NotRequired, TypedDict

from django.db.models import QuerySet

from profiles.base.answers import ErrorJson, Facts, Scalar, make_answer
from tuner import devices
from tuner.cache import rules
from tuner.cache.entries.bans import Bans, read_bans
from tuner.cache.formats.document import check_config
from tuner.devices import gpu_model, is_gpu
from tuner.gate.stats.winner import runs_needed
from tuner.gate.suites.job_services import REVALIDATE, is_plain_config
from tuner.gate.suites.selectors import LIVE, ProgressJson, job_progress, jobs_progress, why_waiting
from tuner.jobs.create_services import MAX_DEVICE
from tuner.jobs.worth_selectors import fleet_ns
from tuner.models import CachedConfig, SuiteJob, SuiteKernel, TrialRow
from tuner.texts import config_in_order
from tuner.tuning.measure.policy import KINDS
from tuner.tuning.operators import Operator, find, limits
from tuner.tuning.trial import Config, config_key

SERVED, DEFAULT, RIVAL = "cached winner", "operator's default", "near tie"       # what the sides are called, as builds are
RIVALS = 2                         # beside what served: near ties first, then the fastest others of its job
# Seconds on an H200: 20 processes of six kernels took 68 s, 21 of three to four 63.6 s; 29 configurations were compiled in 48 s
# (docs/gate-gpu.md).
PROCESS_S, KERNEL_S, COMPILE_S = 2.4, 0.16, 1.7


# ---- what is measured beside what ----

def entry_sides(entry: CachedConfig, bans: Bans | None = None) -> dict[str, dict[str, Any]]:
    """Return configurations by side: the default, what is served where it is another one, and its rivals.

    What is in quarantine under the toolkit that it would run with, the newest seen on its GPU, is left out.
    """
    known = find(entry.operator)
    assert known is not None, "why_not was asked before"
    bans = read_bans() if bans is None else bans
    default = known.complete(known.default_config(entry.shape, entry.dtype, limits(entry.gpu, entry.compute_capability or None)))
    toolkit = bans.newest.get(entry.gpu, entry.toolkit)
    configs_by_side = {DEFAULT: dict(default)}
    keys, rivals = {config_key(default)}, 0
    for number, config in enumerate(_configs_to_try(entry, known)):
        key = config_key(config)
        ban = bans.holding(entry.operator, entry.dtype, config, entry.compute_capability, toolkit, entry.source_hash)
        if key in keys or ban or (number and rivals == RIVALS):
            continue
        keys.add(key)
        rivals += bool(number)
        configs_by_side[f"{RIVAL} {rivals}" if number else SERVED] = config
    return configs_by_side


def _configs_to_try(entry: CachedConfig, known: Operator) -> list[dict[str, Any]]:
    """Return what is served, then what came next when it was found; complete configurations that can be run."""
    was = (entry.evidence.get("revalidation") or {}).get("was")
    listed = [*entry.evidence.get("ties", []), *([was] if was else [])]
    if entry.job_id is not None:
        measured = TrialRow.objects.filter(job=entry.job_id, outcome="measured").order_by("median_ms")
        listed += measured.values_list("config", flat=True)[:4 * RIVALS]
    names = set(known.default_config(entry.shape, entry.dtype, limits(entry.gpu, entry.compute_capability or None)))
    rivals = [known.complete(config) for config in listed if is_plain_config(config)]
    return [dict(known.complete(entry.config)), *(dict(config) for config in rivals if names <= set(config))]


def candidate_configs(entry: CachedConfig, bans: Bans | None = None) -> list[Config]:
    """Return what is measured beside the default: what is served, where that is another one, and its rivals."""
    return [] if why_not(entry) else [config for name, config in entry_sides(entry, bans).items() if name != DEFAULT]


# ---- which entries ----

def entry_stakes(entries: Sequence[CachedConfig]) -> dict[int, tuple[float, float]]:
    """Return by entry (fleet time × gain over the default, ns; that gain, for what the fleet never ran)."""
    ns = fleet_ns({entry.operator for entry in entries}) if entries else {}
    stakes = {}
    for entry in entries:
        gain = 1 - entry.median_ms / entry.default_ms if entry.default_ms and entry.median_ms else 0.0
        stakes[entry.pk] = ns.get((entry.operator, entry.dtype, config_key(entry.shape), entry.gpu), 0) * gain, gain
    return stakes


def hottest_first(entries: Sequence[CachedConfig]) -> list[CachedConfig]:
    """Return entries with the most at stake first."""
    worth = entry_stakes(entries)
    return sorted(entries, key=lambda entry: worth[entry.pk], reverse=True)


def unverified_entries() -> list[CachedConfig]:
    """Return entries that can be measured again, in no order."""
    rows = list(CachedConfig.objects.filter(state=rules.State.UNVERIFIED, recorded=""))
    operators = {name: find(name) for name in {row.operator for row in rows}}       # once each: teams' operators are rows
    return [row for row in rows if not _why_not(row, operators[row.operator])]


def waiting_entries() -> list[CachedConfig]:
    """Return those of them that no job is measuring, the ones with the most at stake first."""
    busy = being_measured()
    return hottest_first([row for row in unverified_entries() if row.pk not in busy])


def has_winner() -> bool:
    """Return whether the cache holds anything that could be measured again at all."""
    return CachedConfig.objects.filter(recorded="").exists()


def being_measured() -> dict[int, int]:
    """Return entry -> job for entries that a job waits for, measures, or has not decided on."""
    return {entry: job.pk for job in jobs_under_way() for entry in entry_ids(job).values()}


def why_not(entry: CachedConfig) -> str:
    """Return why this entry cannot be measured again, "" when it can."""
    return _why_not(entry, find(entry.operator))


def _why_not(entry: CachedConfig, known: Operator | None) -> str:
    if entry.recorded:
        return "it comes from a recording, which does not change"
    if known is None:
        return f"no operator {entry.operator} is known here"
    problems = known.problems(entry.shape, entry.dtype)
    if problems:
        return next(iter(problems.values()))
    if entry.policy and entry.policy not in KINDS:
        return f"nobody here knows how it was timed: {entry.policy}"
    if len(entry.gpu) > MAX_DEVICE - len(f"{devices.GPU}:"):
        return "its GPU's name is too long for a job"
    wrong = check_config(known.complete(entry.config))
    if isinstance(wrong, str):
        return f"its configuration cannot be run: {wrong}"
    if not is_plain_config(wrong):
        return "its configuration cannot be run: it is too large, or a number in it is none"
    names = set(known.default_config(entry.shape, entry.dtype, limits(entry.gpu, entry.compute_capability or None)))
    missing = names - set(known.complete(entry.config))
    return f"its configuration does not name {', '.join(sorted(missing))}" if missing else ""


# ---- what it takes ----

def expected_seconds(entries: Sequence[CachedConfig], bans: Bans | None = None) -> float:
    """Return GPU-seconds that measuring these again may take, in one job for each GPU model."""
    bans = read_bans() if bans is None else bans
    groups: dict[tuple[str, str], list[int]] = {}
    for entry in entries:
        groups.setdefault((entry.gpu, entry.policy), []).append(len(entry_sides(entry, bans)))
    return sum(expected_job_seconds(counts) for counts in groups.values())


def expected_job_seconds(counts: Sequence[int]) -> float:
    """Return GPU-seconds of one job; `counts`: sides of each of its kernels, the default among them."""
    return seconds_of(max(counts, default=0), sum(counts), runs_needed(max(1, sum(counts) - len(counts))))


def seconds_of(builds: int, configs: int, runs: int) -> float:
    """Return GPU-seconds of `builds` processes a run with `configs` kernels in them, compiled once each."""
    return builds * PROCESS_S * runs + configs * (KERNEL_S * runs + COMPILE_S)


# ---- jobs ----

def revalidation_jobs() -> QuerySet[SuiteJob]:
    """Return re-validation jobs, newest first."""
    return SuiteJob.objects.filter(reason=REVALIDATE).select_related("suite", "owner")


def jobs_under_way() -> QuerySet[SuiteJob]:
    """Return jobs that wait, run, or whose measurements nobody has decided on yet."""
    live = revalidation_jobs().filter(status__in=LIVE)
    return live | undecided_jobs()


def undecided_jobs() -> QuerySet[SuiteJob]:
    """Return jobs that were measured and that nobody has decided on."""
    return revalidation_jobs().filter(status=SuiteJob.Status.DONE).exclude(about__has_key="decided")


def entry_ids(job: SuiteJob) -> Mapping[str, int]:
    """Return the entry's id by key of the suite's kernel."""
    return job.about.get("entries") or {}


def recent_jobs(limit: int) -> list[SuiteJob]:
    """Newest first."""
    return list(revalidation_jobs().order_by("-pk")[:limit])


Status = SuiteJob.Status
STAYS, REPLACED, JOB_DEFAULT, UNKNOWN, OPEN = "stays", "replaced", "default", "unknown", "once more"
MEANS = {STAYS: "what served is still surely faster than the default and stays", REPLACED: "another configuration serves now",
         JOB_DEFAULT: "nothing is surely faster than the default: the default serves",
         UNKNOWN: "nothing can be said: the cache is as it was", OPEN: "cannot be told apart yet: it is measured once more"}


def outcome(found: Mapping[str, Any]) -> str:
    """Return in one word what was found of one kernel."""
    if found["open"]:
        return OPEN
    if found["serves"] is None or found["written"] is None:
        return UNKNOWN
    if found["serves"] == found["served"]:
        return STAYS if found["served"] else JOB_DEFAULT
    return REPLACED if found["serves"] else JOB_DEFAULT


def job_lines(jobs: Sequence[SuiteJob]) -> list[dict[str, Any]]:
    """Return rows of lists: each job with its progress and how many kernels ended how."""
    progress = jobs_progress(jobs)
    return [{"job": job, "progress": progress[job.pk], "live": job.status in LIVE, "kernels": len(entry_ids(job)),
             "gpu": job.environment.get("gpu") or gpu_model(job.device) or "any GPU", "says": job_sentence(job)} for job in jobs]


def outcome_counts(job: SuiteJob) -> dict[str, int]:
    """Return outcome -> kernels that ended so."""
    ended = [outcome(finding) for finding in (job.about.get("found") or {}).values()]
    return {word: ended.count(word) for word in MEANS if word in ended}


def job_sentence(job: SuiteJob) -> str:
    """Return what became of a job in one sentence."""
    kernels = len(entry_ids(job))
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
    counts = outcome_counts(job)
    words = {STAYS: "{} of {} stay{s} as served", REPLACED: "{} replaced by a rival", JOB_DEFAULT: "{} served by the default now",
             UNKNOWN: "nothing can be said of {}", OPEN: "{} measured once more"}
    return "; ".join(words[word].format(number, kernels, s="s" * (number == 1)) for word, number in counts.items())


def job_document(job: SuiteJob) -> dict[str, Any]:
    """Return everything of one job, worst first: what no longer stays, what is open or unknown, what stays."""
    findings, entries = job.about.get("found") or {}, CachedConfig.objects.in_bulk(entry_ids(job).values())
    written = CachedConfig.objects.in_bulk([finding["written"] for finding in findings.values() if finding["written"]])
    kernels = []
    for kernel in SuiteKernel.objects.filter(suite=job.suite, key__in=entry_ids(job)):
        entry_id, finding = entry_ids(job)[kernel.key], findings.get(kernel.key)
        kernels.append({
            "key": kernel.key, "op": kernel.op, "shape": kernel.shape, "dtype": kernel.dtype, "entry": entries.get(entry_id),
            "entry_id": entry_id, "served": job.about["served"].get(kernel.key, ""), "found": finding,
            "outcome": outcome(finding) if finding else "", "written": written.get(finding["written"]) if finding else None,
            "sides": [_side(build, kernel.key, finding) for build in job.builds if kernel.key in build["configs"]]})
    order = (JOB_DEFAULT, REPLACED, OPEN, UNKNOWN, STAYS, "")
    kernels.sort(key=lambda each: order.index(each["outcome"]))
    return {"job": job, "kernels": kernels, "progress": job_progress(job), "live": job.status in LIVE,
            "under_way": job.status in LIVE or (job.status == Status.DONE and "decided" not in job.about),
            "says": job_sentence(job),
            "on_gpu": is_gpu(job.device), "why_waiting": why_waiting(job.device) if job.status == Status.QUEUED else "",
            "first": job.about.get("first"), "again": job.about.get("again"),
            "means": {word: MEANS[word] for word in outcome_counts(job)}}


def _side(build: Mapping[str, Any], key: str, told: Mapping[str, Any] | None) -> dict[str, Any]:
    fields = (told or {}).get("sides", {}).get(build["build"], {})
    return {**fields, "name": build["build"], "config": config_in_order(build["configs"][key]),
            "serves": told is not None and told["serves"] is not None and build["build"] == (told["serves"] or DEFAULT)}


class SideJson(TypedDict):
    """One configuration: its median and every run's, what went wrong; against the default the ratio, its bounds and verdict."""

    name: str
    config: dict[str, Scalar]
    serves: bool
    us: NotRequired[float | None]
    runs: NotRequired[int]
    p50_us: NotRequired[list[float]]
    failed: NotRequired[int]
    refused: NotRequired[str]
    verdict: NotRequired[str]
    reason: NotRequired[str]
    ratio: NotRequired[float]
    low: NotRequired[float]
    high: NotRequired[float]
    p_value: NotRequired[float | None]


class RevalidatedJson(TypedDict):
    """A winner that was measured again, each side of it with every run's median; `serves`: what does from then on."""

    key: str
    op: str
    shape: dict[str, int]
    dtype: str
    outcome: str
    served: str
    sides: list[SideJson]
    entry: int
    written: int | None
    serves: str | None
    says: str


class RevalidationJson(TypedDict):
    """A job that measures winners again."""

    id: int
    status: str
    says: str
    device: str
    recorded: str
    runs: int
    progress: ProgressJson
    error: ErrorJson | None
    environment: Facts
    expected_gpu_seconds: float | None
    round: int | None
    first: int | None
    again: int | None
    decided: str | None
    created: str
    started: str | None
    finished: str | None
    kernels: list[RevalidatedJson]


def job_document_json(found: Mapping[str, Any]) -> RevalidationJson:
    """Return the JSON of a `job_document`."""
    job: SuiteJob = found["job"]
    return make_answer(
        RevalidationJson, job, says=found["says"], progress=found["progress"], first=found["first"], again=found["again"],
        expected_gpu_seconds=job.about.get("expected_s"), round=job.about.get("round"), decided=job.about.get("decided"), kernels=[
            {**{name: kernel[name] for name in ("key", "op", "shape", "dtype", "outcome", "served", "sides")},
             "entry": kernel["entry_id"], "written": kernel["written"].pk if kernel["written"] else None,
             "serves": kernel["found"]["serves"] if kernel["found"] else None,
             "says": kernel["found"]["says"] if kernel["found"] else ""} for kernel in found["kernels"]])


def job_json(job: SuiteJob) -> RevalidationJson:
    """Return the JSON of one job."""
    return job_document_json(job_document(job))
