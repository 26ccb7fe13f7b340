"""The space that an operator has by itself: at a shape on a GPU, or as it was recorded."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import product
from typing import Any

from profiles.base.refused import Refused
from tuner import devices
from tuner.bring.samples import GPU
from tuner.models import ListedSpace
from tuner.spaces.edit import OwnSpace, Values
from tuner.team import selectors
from tuner.tuning.measure.landscape import Landscape
from tuner.tuning.offer import Offer, read_offer
from tuner.tuning.operators import OPERATORS, Limits, Operator, find, limits, variants
from tuner.tuning.operators.operator import BYTES
from tuner.tuning.operators.variants import UnionSpace
from tuner.tuning.space import MAX_PRODUCT, Constraint, Param, Space
from tuner.tuning.team.description import OF_GPU, constraints_of
from tuner.tuning.trial import Config, Value, config_key
from workers import jobs

# Keep what a worker listed of an operator whose space only the GPU's machine knows, and find it for the form of a new job.

KEPT = 50                    # listings of a project, the newest; one is at most some hundred kB


def store_listing(operator: str, shape: Mapping[str, int], dtype: str, gpu: str, offer: Offer) -> None:
    """Store the listing in the place of an older one of the same problem."""
    row, _ = ListedSpace.objects.update_or_create(
        operator=operator, dtype=dtype, shape_key=config_key(shape)[:200], gpu=gpu[:120],
        defaults={"library": offer.library, "offer": offer.as_json()})
    pks = ListedSpace.objects.values_list("pk", flat=True)[:KEPT]
    ListedSpace.objects.exclude(pk__in=[row.pk, *pks]).delete()


def find_listing(operator: str, shape: Mapping[str, int], dtype: str, gpu: str) -> tuple[Offer, str] | None:
    """Return the newest listing and its GPU model, of `gpu` where that is named; None where nobody listed the problem."""
    rows = ListedSpace.objects.filter(operator=operator, dtype=dtype, shape_key=config_key(shape)[:200])
    row = (rows.filter(gpu=gpu) if gpu else rows).first()
    if row is None:
        return None
    try:
        return read_offer(row.offer), row.gpu
    except ValueError:            # listed by another version of this code
        return None


BUILT_IN = "its kernels are not written for that value"
LISTED = "the kernel's autotuner lists its configurations: add it there"
LISTED_ON_GPU = "{} has no others"
NOT_LISTED = "a worker with the GPU lists the space as it opens the first job of this shape (effort none: in one trial)"
RECORDED = "only these were recorded"


def space_of_operator(operator: Operator, shape: Mapping[str, int], dtype: str, gpu: Limits,
                      space: Space | None = None) -> OwnSpace:
    """Return an operator's space; `space`: as a worker pruned it further."""
    names = {**_numbers(shape), "size": BYTES.get(dtype, 1), **{name: getattr(gpu, name) for name in OF_GPU}}
    described = None if operator.name in OPERATORS else selectors.operator_description(operator.name)
    if described is not None and described["params"]:
        params = tuple(Param(name, tuple(values)) for name, values in described["params"].items())
        rules = constraints_of(described, names, gpu)
        return OwnSpace(operator.name, gpu.gpu, params, names, operator.default_config(shape, dtype, gpu), "", {},
                        lambda values: _combine(values, rules), _count_combinations)
    base_space = operator.space(shape, dtype, gpu) if space is None else space
    own = _of_space(operator.name, gpu.gpu, base_space, names, operator.default_in(base_space, shape, dtype, gpu),
                    LISTED if described is not None else BUILT_IN)
    return _extended(own, base_space) if described is None and isinstance(base_space, UnionSpace) else own


def _listed(operator: Operator, shape: Mapping[str, int], dtype: str, gpu: str) -> OwnSpace:
    """Return what a worker listed last, on `gpu` where it is named; without parameters and `unknown` where none has."""
    listing = find_listing(operator.name, shape, dtype, gpu)
    if listing is not None:
        return own_space_of_offer(listing[0], operator, shape, dtype, listing[1])
    return OwnSpace(operator.name, gpu, (), _numbers(shape), None, "", {}, lambda values: iter(()), lambda values: 0, NOT_LISTED)


def own_space_of_offer(offer: Offer, operator: Operator, shape: Mapping[str, int], dtype: str, gpu: str) -> OwnSpace:
    """Return the space that the machine with the GPU listed for an operator at a shape."""
    names = {**_numbers(shape), "size": BYTES.get(dtype, 1)}
    return _of_space(operator.name, gpu, offer.space, names, offer.default_config, LISTED_ON_GPU.format(offer.library))


def space_of_recording(landscape: Landscape, index: int) -> OwnSpace:
    """Return the space that was recorded at a shape."""
    recording, operator = landscape.at(index), find(landscape.operator)
    gpu = limits(landscape.gpu, landscape.compute_capability, landscape.environment.get("sms"))
    dtype = devices.landscape_dtype(landscape)
    names = {**_numbers(recording.shape), "size": BYTES.get(dtype, 1), **{name: getattr(gpu, name) for name in OF_GPU}}
    space = landscape.space(index)
    is_known = operator is not None and not operator.problems(recording.shape, dtype)
    default = operator.default_in(space, recording.shape, dtype, gpu) if operator and is_known else None
    return _of_space(landscape.operator, landscape.gpu, space, names, default, RECORDED)


def space_on_device(operator: str, shape: Mapping[str, int], dtype: str, device: str) -> OwnSpace:
    """Return the space of a job that is valid but for it, within the limits of the GPU that it would run on."""
    if not devices.is_gpu(device):
        landscape = devices.load_landscape(device.removeprefix(devices.REPLAY))
        return space_of_recording(landscape, landscape.index_of(shape) or 0)
    known_operator = find(operator)
    if known_operator is None:
        raise Refused({"": f"there is no operator {operator}"})
    if known_operator.listed_on_gpu:
        return _listed(known_operator, shape, dtype, devices.gpu_model(device))
    return space_of_operator(known_operator, shape, dtype, gpu_limits(devices.gpu_model(device)))


def gpu_limits(model: str) -> Limits:
    """Return the limits of a GPU model; "" is the first that a living worker has, else one that most of them resemble."""
    present = sorted({gpu["name"] for worker in jobs.workers() for gpu in worker.get("gpus") or []})
    return limits(model or present[0]) if model or present else GPU


def _of_space(operator: str, gpu: str, space: Space, names: Mapping[str, float], default: Config | None, fixed: str) -> OwnSpace:
    def walk(values: Values) -> Iterator[tuple[Config, str]]:
        sets_by_name = {name: set(choices) for name, choices in values.items()}
        for config in space.configs():
            if all(value in sets_by_name[name] for name, value in config.items()):
                yield config, ""

    return OwnSpace(operator, gpu, space.params, names, default, fixed, space.pruned, walk, lambda values: space.size)


def _extended(own: OwnSpace, space: UnionSpace) -> OwnSpace:
    """Return the space of kernels of ours, which take further values: their constraints are asked of what those make."""
    takes = {param.name: variants.takes(space, param.name) for param in space.params}

    def walk(values: Values) -> Iterator[tuple[Config, str]]:
        if (more := variants.added_size(space, values)) > MAX_PRODUCT:
            raise Refused({"parameters": f"{more:,} combinations of what is added; at most {MAX_PRODUCT:,}: give fewer values"})
        yield from own.walk(values)
        yield from variants.added_configs(space, values)

    def refuses(name: str, value: Value) -> str:
        bounds = takes[name]
        return "" if bounds is not None and bounds.holds(value) else BUILT_IN

    return replace(own, fixed="", walk=walk, size=lambda values: space.size + variants.added_size(space, values),
                   takes={name: bounds.text if bounds else "" for name, bounds in takes.items()}, refuses=refuses)


def _combine(values: Values, rules: list[Constraint]) -> Iterator[tuple[Config, str]]:
    if (size := _count_combinations(values)) > MAX_PRODUCT:
        raise Refused({"parameters": f"{size:,} combinations; at most {MAX_PRODUCT:,}: give fewer values"})
    for chosen in product(*values.values()):
        config = dict(zip(values, chosen, strict=True))
        yield config, next((rule.reason for rule in rules if not rule.holds(config)), "")


def _count_combinations(values: Values) -> int:
    return math.prod(len(choices) for choices in values.values())


def _numbers(shape: Mapping[str, Any]) -> dict[str, float]:
    return {name: value for name, value in shape.items() if isinstance(value, int | float) and not isinstance(value, bool)}
