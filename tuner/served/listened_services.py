"""What Triton's autotuner found in somebody's job becomes entries of the cache, as evidence of its own kind."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from tuner.configs import services as config_services
from tuner.models import CachedConfig
from tuner.operators import Operator, all_operators, limits
from tuner.served.services import ServedError
from tuner.trial import Config, storable

MAX_FOUND, MAX_TIMINGS, MAX_PARAMETERS, MAX_DIMS = 500, 64, 24, 12
MAX_SHAPE_TEXT = 160             # characters; the column of the bucket that it is rounded to has 200
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,59}\Z")
PREFIX = "triton:"               # of kernels that no operator here is


def listened_record(*, gpu: str, toolkit: str, host: str, found: Sequence[Mapping[str, Any]]) -> list[CachedConfig]:
    """One entry per kernel, shape, dtype, GPU and toolkit. ServedError names the finding that is wrong; then none is taken."""
    if len(found) > MAX_FOUND:
        raise ServedError({"found": f"{len(found):,} findings; at most {MAX_FOUND} at once"})
    if not gpu:
        raise ServedError({"gpu": "name the GPU as its driver does: a configuration means nothing without it"})
    checked = [_checked(number, each, gpu) for number, each in enumerate(found)]
    return [config_services.evidence_put(origin="listener", gpu=gpu, toolkit=toolkit,
                                         **{**each, "evidence": {**each["evidence"], "host": host}}) for each in checked]


def _checked(number: int, told: Mapping[str, Any], gpu: str) -> dict[str, Any]:
    where = f"found[{number}]"
    try:
        kernel, name = _text(told["kernel"], 200), _text(told["name"], 60)
        shape = _shape(told["shape"])
        config, median_ms = _config(told["config"]), _ms(told["median_ms"])
        dtypes = [_text(each, 16) for each in told["dtypes"]][:16]
        variant = {_named(key): _text(value, 40) for key, value in list(told["variant"].items())[:MAX_DIMS]}
        timings = [[_config(config), _ms(ms)] for config, ms in told["timings"][:MAX_TIMINGS]]
        source_hash = _text(told["source_hash"], 64)
        tried, failed = _count(told["tried"]), _count(told["failed"])
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ServedError({where: f"{type(error).__name__}: {error}"[:200]}) from error
    dtype = dtypes[0] if dtypes else ""
    operator = operator_of(name, shape, dtype, config, gpu)
    return {
        "operator": operator.name if operator else _called(kernel, name, variant), "dtype": dtype,
        "shape": {dim.name: shape[dim.name] for dim in operator.dims} if operator else shape, "config": config,
        "median_ms": median_ms, "source_hash": source_hash,
        "evidence": {"kernel": kernel, "dtypes": dtypes, "variant": variant, "trials": tried, "failed": failed,
                     "timings": timings, "how": "Triton's do_bench in the job itself"}}


def operator_of(name: str, shape: Mapping[str, int], dtype: str, config: Config, gpu: str) -> Operator | None:
    """The operator whose kernel this is: it has the name, its dimensions are in the key, and it takes these parameters."""
    for operator in all_operators().values():
        dims = {dim.name for dim in operator.dims}
        if name not in operator.kernel_names or not dims <= shape.keys() or dtype not in operator.dtypes:
            continue
        own = {dim: shape[dim] for dim in dims}
        if not operator.problems(own, dtype) and operator.default_config(own, dtype, limits(gpu)).keys() == config.keys():
            return operator
    return None


def _called(kernel: str, name: str, variant: Mapping[str, str]) -> str:
    """Within the column: the module's path gives way before the function's name does."""
    marks = "".join(f"[{key}={value}]" for key, value in sorted(variant.items()))
    return f"{PREFIX}{kernel}{marks}" if len(kernel + marks) <= 53 else f"{PREFIX}{(name + marks)[:53]}"


def _text(value: Any, longest: int) -> str:
    if not isinstance(value, str) or len(value) > longest or not storable(value):
        raise ValueError(f"expected a text of at most {longest} characters, not {str(value)[:40]!r}")
    return value


def _named(value: Any) -> str:
    if not isinstance(value, str) or not _NAME.match(value):
        raise ValueError(f"{str(value)[:40]!r} is no name")
    return value


def _shape(value: Any) -> dict[str, int]:
    if not isinstance(value, dict) or len(value) > MAX_DIMS:
        raise ValueError(f"shape: at most {MAX_DIMS} dimensions")
    for name, size in value.items():
        _named(name)
        if isinstance(size, bool) or not isinstance(size, int) or not 0 <= size < 2**40:
            raise ValueError(f"shape: {name} must be a whole number")
    if len(config_services.shape_key(value)) > MAX_SHAPE_TEXT:
        raise ValueError(f"shape: at most {MAX_SHAPE_TEXT} characters in all")
    return dict(value)


def _config(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict) or not 1 <= len(value) <= MAX_PARAMETERS:
        raise ValueError(f"a configuration names 1 to {MAX_PARAMETERS} parameters")
    for name, each in value.items():
        _named(name)
        fine = isinstance(each, bool) or (isinstance(each, str) and len(each) <= 60 and storable(each)) or (
            isinstance(each, int | float) and abs(each) < 2**40)                   # NaN and Infinity are not
        if not fine:
            raise ValueError(f"{name}={str(each)[:40]!r} is no parameter's value")
    return dict(value)


def _count(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**31:
        raise ValueError(f"{str(value)[:40]!r} is no number of configurations")
    return value


def _ms(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e7:
        raise ValueError(f"{str(value)[:40]!r} is no time in ms")
    return float(value)
