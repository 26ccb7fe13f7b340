"""Measuring unverified entries again: the served configuration and the few that came next, beside the default; no search."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tuner import cache
from tuner.formats.document import config_of
from tuner.jobs import devices
from tuner.jobs.create_services import MAX_DEVICE
from tuner.jobs.services import tune_create
from tuner.jobs.worth_selectors import fleet
from tuner.models import CachedConfig, TuneJob
from tuner.operators import Operator, find, limits
from tuner.strategies import DEFAULT
from tuner.trial import Config, config_key

TOP = 5                            # of the job that proved the entry
SECONDS = 120.0                    # at most, per entry
SECONDS_PER_CONFIG = 6.0           # compile, measure and the finalists' rounds, for what the page expects
WAITING = (TuneJob.Status.QUEUED, TuneJob.Status.RUNNING)


def candidates(entry: CachedConfig) -> list[Config]:
    """What is measured again: the entry's, its near ties, then the fastest others of its job."""
    found: dict[str, Config] = {}
    listed = [entry.config, *entry.evidence.get("ties", [])]
    if entry.job is not None:
        listed += [row.config for row in entry.job.trials.filter(outcome="measured").order_by("median_ms")[:2 * TOP]]
    known = find(entry.operator)
    for config in listed:
        full = known.complete(config) if known else config
        found.setdefault(config_key(full), full)
    return list(found.values())[:TOP]


def worth(entry: CachedConfig) -> tuple[float, float]:
    """What goes first: fleet time × the gain over the default that is at stake; where the fleet never ran it, the gain alone."""
    gain = 1 - entry.median_ms / entry.default_ms if entry.default_ms and entry.median_ms else 0.0
    return fleet(entry.operator, entry.dtype, entry.shape, entry.gpu).ns * gain, gain


def unverified() -> list[CachedConfig]:
    """Entries that a job can measure again, in no order."""
    rows = list(CachedConfig.objects.filter(state=cache.State.UNVERIFIED, recorded="").select_related("job"))
    known = {name: find(name) for name in {row.operator for row in rows}}       # once each: teams' operators are rows
    return [row for row in rows if not _why_not(row, known[row.operator])]


def waiting() -> list[CachedConfig]:
    """The same, those with the most at stake first."""
    return sorted(unverified(), key=worth, reverse=True)


def why_not(entry: CachedConfig) -> str:
    """Why no job can measure this entry again; "" when one can."""
    return _why_not(entry, find(entry.operator))


def _why_not(entry: CachedConfig, known: Operator | None) -> str:
    if entry.recorded:
        return "it comes from a recording, which does not change"
    if known is None:
        return f"no operator {entry.operator} is known here"
    problems = known.problems(entry.shape, entry.dtype)
    if problems:
        return next(iter(problems.values()))
    if len(entry.gpu) > MAX_DEVICE - len(f"{devices.GPU}:"):
        return "its GPU's name is too long for a job"
    wrong = config_of(known.complete(entry.config))
    if isinstance(wrong, str):
        return f"its configuration cannot be run: {wrong}"
    names = set(known.default_config(entry.shape, entry.dtype, limits(entry.gpu, entry.compute_capability or None)))
    missing = names - set(known.complete(entry.config))
    return f"its configuration does not name {', '.join(sorted(missing))}" if missing else ""


def revalidate(entries: Sequence[CachedConfig], owner: Any) -> list[TuneJob]:
    """One job per entry, on its GPU model; none for an entry whose job waits or runs already."""
    made = []
    for entry in sorted(entries, key=worth, reverse=True):
        device = f"{devices.GPU}:{entry.gpu}" if entry.gpu else devices.GPU
        busy = TuneJob.objects.filter(purpose="revalidate", status__in=WAITING, operator=entry.operator, dtype=entry.dtype,
                                      shape=entry.shape, device=device)
        if why_not(entry) or busy.exists():
            continue
        only = candidates(entry)
        made.append(tune_create(owner=owner, operator=entry.operator, shape=entry.shape, dtype=entry.dtype, device=device,
                                strategy=DEFAULT, budget_trials=len(only) + 1, budget_seconds=SECONDS, purpose="revalidate",
                                only=only))
    return made


def expected_seconds(entries: Sequence[CachedConfig]) -> float:
    """GPU-seconds that revalidating these may take, for the page."""
    return SECONDS_PER_CONFIG * sum(len(candidates(entry)) + 1 for entry in entries)
