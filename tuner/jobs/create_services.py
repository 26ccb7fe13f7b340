"""Create tune jobs; everything is checked first, and each wrong field is named."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.db import transaction

from profiles.base.refused import Refused
from tuner import devices
from tuner.jobs import selectors
from tuner.jobs.worth_selectors import search_worth
from tuner.models import TuneGroup, TuneJob
from tuner.spaces.edit import Edit, count_edited, read_edit
from tuner.spaces.own import space_on_device
from tuner.tuning.measure.landscape import LandscapeError
from tuner.tuning.measure.policy import KINDS
from tuner.tuning.operators import all_operators, find
from tuner.tuning.search.strategies import STRATEGIES, plateau_of
from tuner.tuning.trial import Config, storable
from workers import jobs


@dataclass(frozen=True)
class Effort:
    """A named budget; `plateau`: trials in a row that gain < 1 % end the search, None: never."""

    title: str
    trials: int
    seconds: float
    plateau: int | None
    explanation: str


# `quick` is what a search needs on recorded spaces to come within 5 % of the best (median 20 trials); `normal` leaves room
# for the hard ones (60); `full` ends when the space does.
EFFORTS: dict[str, Effort] = {
    "none": Effort("None", 1, 120, None, "Only the default configuration, beside the vendor library: is there anything to win?"),
    "quick": Effort("Quick", 30, 90, 15, "Within 5 % of the best on most recorded spaces."),
    "normal": Effort("Normal", 100, 180, 40, "The search ends when 40 trials in a row won nothing."),
    "thorough": Effort("Thorough", 400, 1200, 120, "For a kernel that many GPUs run all day."),
    "full": Effort("Full", 100_000, 24 * 3600, None, "Every configuration of the space, however long it takes."),
}
DEFAULT_EFFORT = "normal"


MAX_TRIALS = 100_000
MAX_SECONDS = 7 * 24 * 3600
MAX_LISTED = 200                           # configurations that a job may name
MAX_CONFIG_CHARACTERS = 2000
MAX_DEVICE = 120


def tune_create(*, owner: Any, operator: str, shape: Mapping[str, int], dtype: str, device: str, strategy: str,
                budget_trials: int | None = None, budget_seconds: float | None = None, seed: int = 0, effort: str = "",
                plateau: int | None = None, worth_s: float | None = None,
                only: Sequence[Config] | None = None, first: Sequence[Config] | None = None,
                group: TuneGroup | None = None, group_place: int = 0, timing: str = "cold",
                space: Mapping[str, Any] | None = None, ceiling_pct: float | None = None) -> TuneJob:
    """Check everything, store a queued job and wake a worker on commit. Raises Refused.

    effort   a name of EFFORTS: gives the trials, seconds and plateau that are not given
    only     configurations to measure in this order; nothing is searched
    first    configurations tried before the search begins
    timing   a name of policy.KINDS: with a cold L2, a warm one, or as a graph of launches
    space    {"parameters": {name: values}, "constraints": [expression]}: where it differs from the operator's own
    ceiling_pct  the search ends when its best reaches so many percent of what this GPU can do (tuner.ceilings)
    worth_s  GPU-seconds of the profiles here that a winner is expected to save; None: as worth_selectors estimates, if it can
    """
    columns, problems = tune_problems(
        operator=operator, shape=shape, dtype=dtype, device=device, strategy=strategy, budget_trials=budget_trials,
        budget_seconds=budget_seconds, seed=seed, effort=effort, plateau=plateau, only=only, first=first, timing=timing,
        space=space, ceiling_pct=ceiling_pct)
    if problems:
        raise Refused(problems)
    if worth_s is None:
        worth_s = search_worth(operator, dtype, shape, devices.gpu_model(device)).seconds
    with transaction.atomic():
        job = TuneJob.objects.create(**columns, owner=owner, worth_s=worth_s, group=group, group_place=group_place)
        enqueue_job(job)
    publish_status(job)
    return job


def tune_problems(*, operator: str, shape: Mapping[str, int], dtype: str, device: str, strategy: str,
                  budget_trials: int | None = None, budget_seconds: float | None = None, seed: int = 0, effort: str = "",
                  plateau: int | None = None, only: Sequence[Config] | None = None, first: Sequence[Config] | None = None,
                  timing: str = "cold", space: Mapping[str, Any] | None = None,
                  ceiling_pct: float | None = None) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the columns of the job that is asked for, with what its effort fills in, and field -> what is wrong with it.

    Parameters as of `tune_create`, which takes the columns only where nothing is wrong; forms ask while somebody types.
    """
    preset = EFFORTS.get(effort)
    if preset is not None:
        budget_trials = preset.trials if budget_trials is None else budget_trials
        budget_seconds = preset.seconds if budget_seconds is None else budget_seconds
        plateau = plateau_of(strategy, preset.plateau) if plateau is None else plateau
    if only is not None:
        budget_trials = len(only) + 1              # and the default configuration, which they are compared with
    device_problems = _device_problems(operator, shape, dtype, device)
    edit, space_problems = (None, {}) if space is None or device_problems else _read_space(operator, shape, dtype, device, space)
    if edit and only is not None:
        space_problems = {"space": "this job measures listed configurations and searches no space: leave one of both out"}
    problems = {
        **device_problems, **space_problems,
        **budget_problems(budget_trials, budget_seconds, plateau), **_ceiling_problems(ceiling_pct),
        **({} if 0 <= seed < 2**63 else {"seed": "must be 0 or a positive whole number"}),
        **({} if strategy in STRATEGIES else {"strategy": f"choose one of {', '.join(STRATEGIES)}"}),
        **({} if effort in ("", *EFFORTS) else {"effort": f"choose one of {', '.join(EFFORTS)}"}),
        **_plateau_problems(strategy, plateau),
        **_timing_problems(timing, device),
        **_listed_problems("only", only), **_listed_problems("first", first),
    }
    columns = {
        "operator": operator, "shape": dict(shape), "dtype": dtype, "device": device, "strategy": strategy, "seed": seed,
        "effort": effort, "budget_trials": budget_trials, "budget_seconds": budget_seconds, "plateau": plateau, "timing": timing,
        "ceiling_pct": ceiling_pct,
        "only": None if only is None or "only" in problems else [dict(config) for config in only],
        "first": [] if "first" in problems else [dict(config) for config in first or ()],
        "space": edit.as_json() if edit else None}
    return columns, problems


def enqueue_job(job: TuneJob) -> None:
    """Put an entry into the job's queue on commit."""
    jobs.enqueue_on_commit(queue_of(job), "tune", job.pk)


def queue_of(job: TuneJob) -> str:
    """Return the queue of a job."""
    return "gpu" if devices.is_gpu(job.device) else "replay"


def publish_status(job: TuneJob) -> None:
    """Publish the job's status to pages that watch it."""
    jobs.publish(f"tune.{job.pk}", "status", selectors.job_json(job))
    jobs.publish("home", "tune", {"id": job.pk, "status": job.status})


def _plateau_problems(strategy: str, plateau: int | None) -> dict[str, str]:
    if plateau == plateau_of(strategy, plateau):
        return {}
    return {"plateau": f"leave it empty: {strategy} search ends with the space or its budget only"}


def _ceiling_problems(ceiling_pct: float | None) -> dict[str, str]:
    if ceiling_pct is None or 1 <= ceiling_pct <= 100:
        return {}
    return {"ceiling_pct": "must be between 1 and 100 % of the ceiling, or empty: the search does not end by it"}


def _timing_problems(timing: str, device: str) -> dict[str, str]:
    if timing not in KINDS:
        return {"timing": f"choose one of {', '.join(KINDS)}"}
    if timing != "cold" and not devices.is_gpu(device):
        return {"timing": "a replay serves times as they were recorded: leave it at cold"}
    return {}


def _device_problems(operator: str, shape: Mapping[str, int], dtype: str, device: str) -> dict[str, str]:
    if len(device) > MAX_DEVICE:
        return {"device": f"at most {MAX_DEVICE} characters"}
    if devices.is_gpu(device):
        known = find(operator)
        return {"operator": f"choose one of {', '.join(all_operators())}"} if known is None else known.problems(shape, dtype)
    if not device.startswith(devices.REPLAY):
        return {"device": 'choose "gpu", one model ("gpu:NVIDIA H200") or a recorded landscape ("replay:matmul")'}
    try:
        landscape = devices.load_landscape(device.removeprefix(devices.REPLAY))
    except LandscapeError as error:
        return {"device": str(error)}
    if landscape.operator != operator:
        return {"device": f"this landscape recorded {landscape.operator}, not {operator}"}
    problems = {}
    if landscape.index_of(shape) is None:
        recorded = "; ".join(" ".join(f"{k}={v}" for k, v in recording.shape.items()) for recording in landscape.shapes)
        problems["shape"] = f"not recorded; this landscape holds: {recorded}"
    if dtype != devices.landscape_dtype(landscape):
        problems["dtype"] = f"recorded with {devices.landscape_dtype(landscape)} only"
    return problems


def _read_space(operator: str, shape: Mapping[str, int], dtype: str, device: str, space: Mapping[str, Any],
                ) -> tuple[Edit | None, dict[str, str]]:
    """Return an edit of the space of a problem that is valid, and field → what is wrong with it."""
    try:
        own = space_on_device(operator, shape, dtype, device)
        edit = read_edit(space, own)
        if edit and (counted := count_edited(own, edit)).whole and not counted.valid:
            raise Refused({"": "nothing of it can run: take less out"})
    except Refused as refused:
        return None, {f"space.{name}" if name else "space": problem for name, problem in refused.fields.items()}
    return edit, {}


def budget_problems(trials: int | None, seconds: float | None, plateau: int | None) -> dict[str, str]:
    """Return field -> what is wrong with a budget."""
    problems = {}
    if trials is None or not 1 <= trials <= MAX_TRIALS:
        problems["budget_trials"] = f"must be between 1 and {MAX_TRIALS:,}"
    if seconds is None or not 1 <= seconds <= MAX_SECONDS:
        problems["budget_seconds"] = f"must be between 1 and {MAX_SECONDS:,} (7 days)"
    if plateau is not None and not 1 <= plateau <= MAX_TRIALS:
        problems["plateau"] = f"must be between 1 and {MAX_TRIALS:,}, or empty: the search does not end by it"
    return problems


def _listed_problems(name: str, configs: Sequence[Config] | None) -> dict[str, str]:
    """Return field -> what is wrong with listed configurations: bounded, plain values only."""
    if configs is None:
        return {}
    if len(configs) > MAX_LISTED or (name == "only" and not configs):
        return {name: f"give 1 to {MAX_LISTED} configurations"}
    if all(isinstance(config, Mapping) and _is_plain_config(config) for config in configs):
        return {}
    return {name: "a configuration is parameters by name, each a number or a text"}


def _is_plain_config(config: Config) -> bool:
    names = all(isinstance(name, str) and storable(name) for name in config)
    plain = bool(config) and names and all(map(_is_plain_value, config.values()))
    return plain and len(json.dumps(dict(config))) <= MAX_CONFIG_CHARACTERS


def _is_plain_value(value: Any) -> bool:
    if isinstance(value, str):
        return storable(value)
    return (isinstance(value, int) and abs(value) < 2**53) or (isinstance(value, float) and math.isfinite(value))
