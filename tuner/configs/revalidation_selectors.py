"""Which entries are to be measured again, what is measured beside each, what is at stake, and the GPU time that it may take."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from django.db.models import QuerySet

from profiles.analysis.gate.winner import runs_needed
from tuner import cache
from tuner.bench.policy import KINDS
from tuner.configs.selectors import quarantined
from tuner.formats.document import config_of
from tuner.jobs import devices
from tuner.jobs.create_services import MAX_DEVICE
from tuner.jobs.worth_selectors import fleet_ns
from tuner.models import CachedConfig, SuiteJob, TrialRow
from tuner.operators import Operator, find, limits
from tuner.suites.job_services import LIVE, REVALIDATE
from tuner.suites.orders import config_plain
from tuner.trial import Config, config_key

SERVED, DEFAULT, RIVAL = "cached winner", "operator's default", "near tie"       # what the sides are called, as builds are
RIVALS = 2                         # beside what served: near ties first, then the fastest others of its job
# Seconds on an H200: 20 processes of six kernels took 68 s, 21 of three to four 63.6 s; 29 configurations were compiled in 48 s
# (docs/gate-gpu.md).
PROCESS_S, KERNEL_S, COMPILE_S = 2.4, 0.16, 1.7
Banned = frozenset[tuple[str, str, str, str]]


# ---- what is measured beside what ----

def sides(entry: CachedConfig, banned: Banned | None = None) -> dict[str, dict[str, Any]]:
    """Configurations by the name of their side: the default, what is served where it is another one, and its rivals.

    What is in quarantine is not run again: it is left out.
    """
    known = find(entry.operator)
    assert known is not None, "why_not was asked before"
    banned = quarantined() if banned is None else banned
    default = known.complete(known.default_config(entry.shape, entry.dtype, limits(entry.gpu, entry.compute_capability or None)))
    found = {DEFAULT: dict(default)}
    keys, rivals = {config_key(default)}, 0
    for number, config in enumerate(_listed(entry, known)):
        key = config_key(config)
        held = any((entry.operator, entry.dtype, key, capability) in banned for capability in (entry.compute_capability, ""))
        if key in keys or held or (number and rivals == RIVALS):
            continue
        keys.add(key)
        rivals += bool(number)
        found[f"{RIVAL} {rivals}" if number else SERVED] = config
    return found


def _listed(entry: CachedConfig, known: Operator) -> list[dict[str, Any]]:
    """What is served first, then what came next when it was found, nearest first; complete configurations that can be run."""
    was = (entry.evidence.get("revalidation") or {}).get("was")
    listed = [*entry.evidence.get("ties", []), *([was] if was else [])]
    if entry.job_id is not None:
        measured = TrialRow.objects.filter(job=entry.job_id, outcome="measured").order_by("median_ms")
        listed += measured.values_list("config", flat=True)[:4 * RIVALS]
    names = set(known.default_config(entry.shape, entry.dtype, limits(entry.gpu, entry.compute_capability or None)))
    rivals = [known.complete(config) for config in listed if config_plain(config)]
    return [dict(known.complete(entry.config)), *(dict(config) for config in rivals if names <= set(config))]


def candidates(entry: CachedConfig, banned: Banned | None = None) -> list[Config]:
    """What is measured beside the default: what is served, where that is another one, and its rivals."""
    return [] if why_not(entry) else [config for name, config in sides(entry, banned).items() if name != DEFAULT]


# ---- which entries ----

def worths(entries: Sequence[CachedConfig]) -> dict[int, tuple[float, float]]:
    """By entry: (fleet time × the gain over the default that is at stake, ns; that gain, for what the fleet never ran)."""
    ns = fleet_ns({entry.operator for entry in entries}) if entries else {}
    found = {}
    for entry in entries:
        gain = 1 - entry.median_ms / entry.default_ms if entry.default_ms and entry.median_ms else 0.0
        found[entry.pk] = ns.get((entry.operator, entry.dtype, config_key(entry.shape), entry.gpu), 0) * gain, gain
    return found


def hottest(entries: Sequence[CachedConfig]) -> list[CachedConfig]:
    """Those with the most at stake first."""
    worth = worths(entries)
    return sorted(entries, key=lambda entry: worth[entry.pk], reverse=True)


def unverified() -> list[CachedConfig]:
    """Entries that can be measured again, in no order."""
    rows = list(CachedConfig.objects.filter(state=cache.State.UNVERIFIED, recorded=""))
    known = {name: find(name) for name in {row.operator for row in rows}}       # once each: teams' operators are rows
    return [row for row in rows if not _why_not(row, known[row.operator])]


def waiting() -> list[CachedConfig]:
    """Those of them that no job is measuring, the ones with the most at stake first."""
    busy = being_measured()
    return hottest([row for row in unverified() if row.pk not in busy])


def any_winner() -> bool:
    """Whether the cache holds anything that could be measured again at all."""
    return CachedConfig.objects.filter(recorded="").exists()


def being_measured() -> dict[int, int]:
    """Entries that a job waits for, measures, or has measured and not decided on → the job."""
    return {entry: job.pk for job in under_way() for entry in asked(job).values()}


def why_not(entry: CachedConfig) -> str:
    """Why this entry cannot be measured again; "" when it can."""
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
    wrong = config_of(known.complete(entry.config))
    if isinstance(wrong, str):
        return f"its configuration cannot be run: {wrong}"
    if not config_plain(wrong):
        return "its configuration cannot be run: it is too large, or a number in it is none"
    names = set(known.default_config(entry.shape, entry.dtype, limits(entry.gpu, entry.compute_capability or None)))
    missing = names - set(known.complete(entry.config))
    return f"its configuration does not name {', '.join(sorted(missing))}" if missing else ""


# ---- what it takes ----

def expected_seconds(entries: Sequence[CachedConfig]) -> float:
    """GPU-seconds that measuring these again may take, if they go into one job for each GPU model."""
    banned = quarantined()
    groups: dict[tuple[str, str], list[int]] = {}
    for entry in entries:
        groups.setdefault((entry.gpu, entry.policy), []).append(len(sides(entry, banned)))
    return sum(expected_of(counts) for counts in groups.values())


def expected_of(counts: Sequence[int]) -> float:
    """GPU-seconds of one job; `counts`: sides of each of its kernels, the default among them."""
    return seconds_of(max(counts, default=0), sum(counts), runs_needed(max(1, sum(counts) - len(counts))))


def seconds_of(builds: int, configs: int, runs: int) -> float:
    """`builds` processes a run, `configs` kernels in them, compiled once each."""
    return builds * PROCESS_S * runs + configs * (KERNEL_S * runs + COMPILE_S)


# ---- jobs ----

def jobs() -> QuerySet[SuiteJob]:
    """Of re-validation, newest first."""
    return SuiteJob.objects.filter(reason=REVALIDATE).select_related("suite", "owner")


def under_way() -> QuerySet[SuiteJob]:
    """Jobs that wait, run, or whose measurements nobody has decided on yet."""
    live = jobs().filter(status__in=LIVE)
    return live | undecided()


def undecided() -> QuerySet[SuiteJob]:
    return jobs().filter(status=SuiteJob.Status.DONE).exclude(about__has_key="decided")


def asked(job: SuiteJob) -> Mapping[str, int]:
    """Entry by key of the suite's kernel."""
    return job.about.get("entries") or {}


def recent(limit: int) -> list[SuiteJob]:
    """Newest first."""
    return list(jobs().order_by("-pk")[:limit])
