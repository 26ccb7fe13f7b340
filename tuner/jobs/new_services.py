"""Choices for the form of a new job, and the jobs made from its answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from profiles.models import Profile
from tuner import devices
from tuner.jobs import control_services, create_services, groups, selectors, worth_selectors
from tuner.models import TuneJob
from tuner.tuning.operators import find

ASSUMED_TRIAL_S = 1.5    # on a GPU where no job has run yet
MODELS = 10              # GPU models of profiles that a job can be kept for
SUGGESTED = 8            # hot shapes that are ticked at first
BUDGET = ("strategy", "effort", "budget_trials", "budget_seconds", "plateau", "ceiling_pct", "seed", "timing", "space")
SUGGESTED_LEAST_PCT = 1  # … of the profile's GPU time, each
Destination = tuple[str, int]   # the page to go to: its name and the id


def device_choices() -> list[devices.Device]:
    """Return where a job can run, then GPU models of profiles that no worker has now."""
    choices = devices.list_devices()
    values = {device.value for device in choices}
    models = Profile.objects.exclude(gpu="").order_by("gpu").values_list("gpu", flat=True).distinct()[:MODELS]
    missing = [devices.Device(f"{devices.GPU}:{model}", f"Only {model}", why_not="no worker with this GPU is running")
               for model in models if f"{devices.GPU}:{model}" not in values]
    index = 1 + sum(devices.is_gpu(device.value) for device in choices[1:])
    return [*choices[:index], *missing, *choices[index:]]


def trial_seconds() -> dict[str, Any]:
    """Return the job time of a GPU trial, from jobs that ran; assumed where none has."""
    known_s = selectors.gpu_seconds_per_trial()
    ran = TuneJob.objects.filter(device__startswith=devices.GPU).order_by().values_list("operator", flat=True).distinct()
    by_operator = {name: seconds for name in ran if (seconds := selectors.gpu_seconds_per_trial(name))}
    return {"gpu_trial_s": known_s or ASSUMED_TRIAL_S, "gpu_trial_known": known_s is not None, "gpu_trial_by_operator": by_operator}


def profile_choices() -> list[Profile]:
    """Return profiles with shapes that can be tuned."""
    return worth_selectors.profiles_with_shapes()


def profile_problems(text: str) -> tuple[Profile, list[dict[str, Any]]] | None:
    """Return a profile and its hot shapes; None where there is no such profile."""
    profile = Profile.objects.filter(pk=int(text)).first() if text.isdecimal() and len(text) < 12 else None
    if profile is None:
        return None
    rows = []
    for index, each in enumerate(worth_selectors.hot_shapes(profile)):
        wins = each.worth.seconds is None or each.worth.seconds > 0     # unknown may win
        suggested = index < SUGGESTED and each.share_pct >= SUGGESTED_LEAST_PCT and each.tuned is None and wins
        rows.append({"hot": each, "problem": problem_text(each.operator, each.dtype, each.shape), "suggested": suggested})
    return profile, rows


def problem_text(operator: str, dtype: str, shape: Mapping[str, int]) -> str:
    """Return a problem as "operator dtype M=… N=…"."""
    return f"{operator} {dtype} {' '.join(f'{name}={value}' for name, value in shape.items())}"


def asked_problems(given: Mapping[str, Any], hot: Sequence[Mapping[str, Any]] | None = None) -> list[dict[str, Any]]:
    """Return operator, dtype and shape of each job that a form asks for, as far as it is filled in."""
    if hot is not None:
        picked = [row["hot"] for row in hot if row["problem"] in set(given.get("hot", ()))]
        return [{"operator": hot_shape.operator, "dtype": hot_shape.dtype, "shape": dict(hot_shape.shape)} for hot_shape in picked]
    if "operator" not in given or "dtype" not in given:
        return []
    return [{"operator": given["operator"], "dtype": given["dtype"], "shape": shape} for shape in given.get("shape", ())]


def asked_errors(problems: Sequence[Mapping[str, Any]], given: Mapping[str, Any]) -> dict[str, str]:
    """Return field -> what is wrong with the jobs of `problems` on the device and with the budget that is `given`."""
    wrong: dict[str, str] = {}
    if given.get("space") and len(problems) > groups.MAX_EDITED:
        return {"space": f"an edited space is for at most {groups.MAX_EDITED} shapes at once"}
    for problem in problems:
        fields: dict[str, Any] = {**problem, **{name: given.get(name) for name in ("device", *BUDGET)}}
        wrong |= create_services.tune_problems(**fields)[1]
    return wrong


def asked_outlook(problems: Sequence[Mapping[str, Any]], device: str) -> control_services.Outlook:
    """Return what the first of the jobs would meet in its queue."""
    first: list[dict[str, Any]] = [dict(problem) for problem in problems[:1] if _is_valid(**problem)]
    worths = [worth_selectors.search_worth(**problem, gpu=gpu_of_device(device)).seconds for problem in first]
    return control_services.queue_outlook(device, next(iter(worths), None))


def edited_space_of(text: str) -> dict[str, Any] | None:
    """Return the edited space of a job; None where there is no such job or its space is the operator's own."""
    job = TuneJob.objects.filter(pk=int(text)).first() if text.isdecimal() and len(text) < 12 else None
    return job.space if job is not None else None


def serving_device(places: Sequence[devices.Device], gpu: str) -> devices.Device:
    """Return where shapes of a profile run: on its GPU model where a worker has one, else where any GPU worker is."""
    on_gpus = [place for place in places if devices.is_gpu(place.value)]
    own = [place for place in on_gpus if gpu and devices.gpu_model(place.value) == gpu]
    served = [place for place in (*own, *on_gpus) if not place.why_not]
    return next(iter(served or own or on_gpus), places[0])


def create_jobs(owner: Any, given: dict[str, Any]) -> Destination:
    """Create one job, or a group with one per shape; return the page to go to."""
    operator, dtype, shapes = given.pop("operator"), given.pop("dtype"), given.pop("shape")
    gpu = gpu_of_device(given["device"])
    worths = [worth_selectors.search_worth(operator, dtype, shape, gpu).seconds if _is_valid(operator, shape, dtype) else None
              for shape in shapes]
    if len(shapes) == 1:
        job = create_services.tune_create(owner=owner, operator=operator, dtype=dtype, shape=shapes[0], worth_s=worths[0], **given)
        return "tune", job.pk
    items = [{"operator": operator, "dtype": dtype, "shape": shape, "worth_s": worth_s}
             for shape, worth_s in zip(shapes, worths, strict=True)]
    return _create_group(owner, f"{len(shapes)} shapes of {operator}", items, given, {})


def _is_valid(operator: str, shape: Mapping[str, int], dtype: str) -> bool:
    known_operator = find(operator)
    return known_operator is not None and not known_operator.problems(shape, dtype)


def create_hot_group(owner: Any, profile: Profile, hot: Sequence[dict[str, Any]], given: dict[str, Any]) -> Destination:
    """Create a group of the picked shapes of a profile, the most worth first."""
    picked = set(given.pop("hot"))
    chosen = [row["hot"] for row in hot if row["problem"] in picked]
    chosen.sort(key=lambda each: (-(each.worth.seconds or 0.0), -each.fleet.ns))
    items = [{"operator": each.operator, "dtype": each.dtype, "shape": dict(each.shape), "worth_s": each.worth.seconds}
             for each in chosen]
    return _create_group(owner, f"Hot shapes of {profile.name}", items, given, {"profile": profile.pk, "name": profile.name})


def _create_group(owner: Any, name: str, shapes: list[dict[str, Any]], given: dict[str, Any], source: dict[str, Any],
                  ) -> Destination:
    return "tune-group", groups.group_create(owner=owner, name=name, shapes=shapes, source=source, **given).pk


def gpu_of_device(device: str) -> str:
    """Return the GPU model that a device names; "" is any."""
    return devices.gpu_model(device) if devices.is_gpu(device) else ""
