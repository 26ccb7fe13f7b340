"""What the tuner's pages and API read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from django.conf import settings
from django.db.models import Count, Q, QuerySet

from tuner import cache
from tuner.bench.landscape import Landscape, LandscapeError
from tuner.bench.replay import SPEED, pace_s
from tuner.models import CachedConfig, TrialRow, TuneJob
from tuner.operators import OPERATORS, limits
from tuner.trial import Measured, Outcome, Reason, Rejected, Trial
from workers import jobs

RECORDINGS = settings.BASE_DIR / "tests" / "data"
REPLAY = "replay:"
GPU = "gpu"
PARAMETERS = tuple(dict.fromkeys(        # in the order people write them
    name for op in OPERATORS.values() for name in op.default_config(op.presets[0], op.dtypes[0], limits(""))))
ENDED = (TuneJob.Status.DONE, TuneJob.Status.STOPPED, TuneJob.Status.FAILED)


# ---- where a job can run ----

@dataclass(frozen=True)
class Device:
    """One choice of the form: `why_not` says why a job would wait, and for what."""

    value: str
    title: str
    label: str = ""                    # "recorded on …"
    operator: str | None = None        # a replay serves one operator …
    shapes: tuple[Mapping[str, int], ...] = ()       # … at these shapes …
    dtype: str | None = None
    why_not: str = ""


def landscape_paths() -> dict[str, Path]:
    """Stem -> file of every recorded landscape that comes with the repository."""
    found = sorted(RECORDINGS.glob("*/landscapes/*.json.gz"))
    return {path.name.removesuffix(".json.gz"): path for path in found}


@lru_cache(maxsize=16)
def _landscape(path: Path, changed_ns: int) -> Landscape:
    return Landscape.load(path)


def landscape(stem: str) -> Landscape:
    """A recorded landscape by its file stem; LandscapeError when there is none or it cannot be read."""
    paths = landscape_paths()
    if stem not in paths:
        raise LandscapeError(stem[:80], "there is no such recorded landscape", f"Known: {', '.join(paths)}.")
    path = paths[stem]
    return _landscape(path, path.stat().st_mtime_ns)


def landscape_dtype(one: Landscape) -> str:
    """As the file says, else the operator's first: what the recordings were made with."""
    operator = OPERATORS.get(one.operator)
    return one.dtype or (operator.dtypes[0] if operator else "")


def devices() -> list[Device]:
    """GPU first, then the recorded landscapes; each with the reason when no worker serves it now."""
    alive = jobs.workers()
    gpu_workers = [worker for worker in alive if GPU in worker.get("queues", [])]
    gpus = sorted({gpu["name"] for worker in gpu_workers for gpu in worker.get("gpus") or []})
    no_replay = "" if any("replay" in worker.get("queues", []) for worker in alive) else (
        "no replay worker is running; start one: manage.py worker replay")
    found = [Device(GPU, f"GPU: {', '.join(gpus)}" if gpus else "GPU", why_not=_why_no_gpu(gpu_workers, gpus))]
    for stem in landscape_paths():
        try:
            one = landscape(stem)
        except LandscapeError as error:
            found.append(Device(REPLAY + stem, stem, why_not=str(error)))
            continue
        found.append(Device(REPLAY + stem, f"Replay of {stem}, {one.recorded}", one.recorded, one.operator,
                            tuple(dict(s.shape) for s in one.shapes), landscape_dtype(one), no_replay))
    return found


def _why_no_gpu(gpu_workers: Sequence[Mapping[str, Any]], gpus: Sequence[str]) -> str:
    if gpus:
        return ""
    if gpu_workers:
        return "the gpu worker that is running sees no NVIDIA GPU"
    return "no gpu worker is running; start one on a machine with a GPU: manage.py worker gpu"


# ---- jobs and trials ----

def job_list() -> QuerySet[TuneJob]:
    """Newest first, with their trials counted."""
    return TuneJob.objects.select_related("owner").annotate(
        n_trials=Count("trials"), n_rejected=Count("trials", filter=Q(trials__outcome="rejected")),
    ).order_by("-created", "-id")


def trial_list(job: TuneJob, after: int = -1) -> QuerySet[TrialRow]:
    """In the order asked; those after a number only, so that a page can catch up."""
    return job.trials.filter(number__gt=after).order_by("number")


def history(job: TuneJob) -> list[Trial]:
    """The trials of earlier attempts, as the loop wants them."""
    return [Trial(row.number, config_in_order(row.config), _outcome(row), row.at_s) for row in trial_list(job)]


def _outcome(row: TrialRow) -> Outcome:
    if row.outcome == "measured" and row.median_ms is not None:
        low, high = row.min_ms or row.median_ms, row.p90_ms or row.median_ms
        return Measured(row.median_ms, low, high, row.n or 1, row.facts)
    return Rejected(Reason(row.reason or Reason.OTHER), row.message, row.facts)


def trial_json(row: TrialRow) -> dict[str, Any]:
    """One trial as pages and API see it; the raw samples stay in the row."""
    names = ("number", "outcome", "reason", "message", "median_ms", "min_ms", "p90_ms", "n", "at_s")
    facts = {name: value for name, value in row.facts.items() if name != "samples_ms"}
    return {"id": row.number, "config": config_in_order(row.config), **{name: getattr(row, name) for name in names},
            "facts": facts}


def job_json(job: TuneJob) -> dict[str, Any]:
    """Everything about a job but its trials."""
    names = ("id", "operator", "shape", "dtype", "device", "strategy", "seed", "budget_trials", "budget_seconds",
             "status", "stop_requested", "error", "gpu", "recorded", "environment", "space_size", "valid_size",
             "pruned", "library_ms", "default_ms", "policy", "best_ms", "best_config", "finalists", "elapsed_s",
             "worker", "attempts")
    dates = {name: value.isoformat() if (value := getattr(job, name)) else None
             for name in ("created", "started", "finished")}
    ordered = {"shape": in_order(job.operator, job.shape),
               "best_config": config_in_order(job.best_config) if job.best_config else None}
    counts = Counter(job.trials.values_list("outcome", flat=True))
    return {**{name: getattr(job, name) for name in names}, **ordered, **dates, "trials": sum(counts.values()),
            "rejected": counts["rejected"], "owner": job.owner.get_username() if job.owner else None,
            "rate": rate(job, job.best_ms)}


def in_order(job_operator: str, shape: Mapping[str, Any]) -> dict[str, Any]:
    """A shape with its dimensions as the operator names them: the database does not keep the order of keys."""
    operator = OPERATORS.get(job_operator)
    names = [dim.name for dim in operator.dims] if operator else []
    return {name: shape[name] for name in (*(n for n in names if n in shape), *(n for n in shape if n not in names))}


def config_in_order(config: Mapping[str, Any]) -> dict[str, Any]:
    """A configuration as one writes it: the kernel's own parameters, then warps and stages."""
    last = [name for name in ("num_warps", "num_stages") if name in config]
    known = [name for name in PARAMETERS if name in config and name not in last]
    rest = [name for name in config if name not in known and name not in last]
    return {name: config[name] for name in (*known, *rest, *last)}


def measured_with(job: TuneJob) -> list[tuple[str, str]]:
    """Environment and policy as label and text."""
    pairs = [*job.environment.items(), *job.policy.items()]
    return [(name.replace("_", " "), ", ".join(map(str, value)) if isinstance(value, list) else str(value))
            for name, value in pairs if name != "source_hash" and value not in (None, "", [], {})]


def facts_text(facts: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What is known of a compiled configuration, as label and text."""
    return [(name.replace("_", " "), f"{value:.3g}" if isinstance(value, float) else str(value))
            for name, value in facts.items() if isinstance(value, int | float | str)]


def failures(job: TuneJob) -> list[dict[str, Any]]:
    """Rejected trials by reason, most frequent first, each with one message."""
    rejected = job.trials.filter(outcome="rejected")
    rows = rejected.values("reason").annotate(count=Count("id")).order_by("-count", "reason")
    first = {row.reason: row.message for row in rejected.order_by("-number")}
    return [{**row, "message": first[row["reason"]]} for row in rows]


def rate(job: TuneJob, ms: float | None) -> dict[str, Any] | None:
    """Work per second at a time: {"value", "unit"} in the unit that the operator is compared by."""
    operator = OPERATORS.get(job.operator)
    if ms is None or operator is None or operator.problems(job.shape, job.dtype):
        return None
    work = operator.flops(job.shape) if operator.unit == "FLOP/s" else operator.bytes(job.shape, job.dtype)
    return {"value": work / (ms / 1000), "unit": operator.unit}


def triton_config(config: Mapping[str, Any] | None) -> str:
    """What one pastes into a Triton autotune list."""
    if not config:
        return ""
    config = config_in_order(config)
    options = {name: config[name] for name in ("num_warps", "num_stages") if name in config}
    meta = {name: value for name, value in config.items() if name not in options}
    inside = ", ".join([repr(meta), *(f"{name}={value}" for name, value in options.items())])
    return f"triton.Config({inside})"


def gpu_seconds_per_trial(operator: str | None = None) -> float | None:
    """From the jobs that ran on a GPU, compiling included; None when none did."""
    done = job_list().filter(device=GPU, status=TuneJob.Status.DONE, elapsed_s__gt=0)
    done = done.filter(operator=operator)[:20] if operator else done[:20]
    trials = sum(job.n_trials for job in done)
    return sum(job.elapsed_s for job in done) / trials if trials else None


def replay_facts(device: Device) -> list[dict[str, Any]]:
    """For each shape of a recorded landscape: valid configurations, and seconds that a trial of its replay takes."""
    try:
        one = landscape(device.value.removeprefix(REPLAY))
    except LandscapeError:
        return []
    facts = []
    for recorded in one.shapes:
        paces = [pace_s(outcome, SPEED) for _, outcome in recorded.outcomes.values()]
        trial_s = sum(paces) / len(paces) if paces else None
        facts.append({"shape": dict(recorded.shape), "valid": len(paces), "trial_s": trial_s})
    return facts


def progress(job: TuneJob, trials: int) -> dict[str, Any]:
    """How far a job is: share of whichever part of the budget ends it first, and seconds left at the present rate."""
    most = min(job.budget_trials, job.valid_size or job.budget_trials)
    by_trials, by_seconds = trials / most if most else 0.0, job.elapsed_s / job.budget_seconds
    left = None
    if trials and job.elapsed_s:
        left = max(0.0, min((most - trials) * job.elapsed_s / trials, job.budget_seconds - job.elapsed_s))
    return {"trials": trials, "most": most, "share_pct": min(100.0, 100 * max(by_trials, by_seconds)), "left_s": left}


def speedups(job: TuneJob) -> dict[str, float | None]:
    """How many times faster the best is than the default configuration and the vendor library of the same session."""
    return {name: ms / job.best_ms if ms and job.best_ms else None
            for name, ms in (("default", job.default_ms), ("library", job.library_ms))}


# ---- the cache ----

def config_list() -> QuerySet[CachedConfig]:
    return CachedConfig.objects.select_related("job")


def bucket(operator: str, shape: Mapping[str, int]) -> str:
    known = OPERATORS.get(operator)
    return cache.bucket(shape, [dim.name for dim in known.dims if dim.exact] if known else ())


def config_best(operator: str, dtype: str, gpu: str, shape: Mapping[str, int], toolkit: str = "") -> dict[str, Any]:
    """The configuration that a launch gets, which rule served it, and why. The operator must know the shape."""
    known = OPERATORS[operator]
    device = limits(gpu)
    wanted = cache.Key(operator, dtype, bucket(operator, shape), gpu, device.compute_capability, toolkit)
    rows = {row.pk: row for row in config_list().filter(operator=operator, dtype=dtype)}
    entries = [_entry(row) for row in rows.values()]
    served = cache.lookup(entries, wanted)
    answer: dict[str, Any] = {
        "operator": operator, "dtype": dtype, "gpu": gpu, "shape": dict(shape), "bucket": wanted.bucket}
    if served is None:
        rule, config = cache.Rule.DEFAULT, dict(known.default_config(shape, dtype, device))
        return {**answer, "rule": rule, "why": cache.WHY[rule], "config": config, "entry": None}
    return {**answer, "rule": served.rule, "why": served.why, "config": dict(served.entry.config),
            "entry": config_json(rows[served.entry.id])}


def _entry(row: CachedConfig) -> cache.Entry:
    key = cache.Key(row.operator, row.dtype, row.shape_bucket, row.gpu, row.compute_capability, row.toolkit,
                    row.source_hash)
    return cache.Entry(row.pk, key, row.config, bool(row.recorded))


def config_json(row: CachedConfig) -> dict[str, Any]:
    names = ("id", "operator", "dtype", "shape_bucket", "gpu", "compute_capability", "toolkit", "source_hash", "config",
             "median_ms", "default_ms", "library_ms", "evidence", "recorded", "state")
    return {**{name: getattr(row, name) for name in names}, "job": row.job_id, "updated": row.updated.isoformat(),
            "triton": triton_config(row.config)}


def key_jobs(row: CachedConfig) -> Sequence[TuneJob]:
    """Finished jobs for the same operator, dtype, GPU and bucket, newest first: the history of a key."""
    done = TuneJob.objects.filter(operator=row.operator, dtype=row.dtype, gpu=row.gpu, recorded=row.recorded,
                                  status=TuneJob.Status.DONE)[:200]
    return [job for job in done if bucket(job.operator, job.shape) == row.shape_bucket]
