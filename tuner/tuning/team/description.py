"""Descriptions of teams' operators as JSON, checked and made into operators. No team code.

The JSON comes from a child that ran a team's code: it is read like an upload, every number bounded.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from profiles.base.refused import Refused
from tuner.tuning.operators.limits import Limits
from tuner.tuning.operators.operator import BYTES, Dim, Operator, Shape
from tuner.tuning.space import Constraint, Param, Space
from tuner.tuning.team.expressions import Expression
from tuner.tuning.trial import Config

MAX_OPERATORS, MAX_CONFIGS, MAX_DIMS, MAX_PARAMS, MAX_VALUES = 100, 4096, 8, 16, 64
MAX_BYTES = 4 * 2**20
KERNEL_MODULE = "tuner.tuning.team.problem"
OF_GPU = ("smem_bytes", "threads", "sms", "registers_per_thread")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,39}\Z")
_DTYPE = re.compile(r"[a-z][a-z0-9_]{0,15}\Z")


def read_operators(text: bytes) -> list[dict[str, Any]]:
    """Return the checked descriptions of a child's answer. Raises Refused."""
    if len(text) > MAX_BYTES:
        raise Refused(f"{len(text):,} bytes of description; at most {MAX_BYTES:,}")
    try:
        told = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Refused("the description is no JSON") from error
    if not isinstance(told, list) or not 1 <= len(told) <= MAX_OPERATORS or not all(isinstance(each, dict) for each in told):
        raise Refused(f"a package offers 1 to {MAX_OPERATORS} operators")
    for description in told:
        make_operator(description)
    names = [description["name"] for description in told]
    if len(set(names)) < len(names):
        raise Refused("two operators have the same name")
    return told


def make_operator(description: Mapping[str, Any]) -> Operator:
    """Return the operator of a description. Raises Refused."""
    name = description.get("name")
    if not isinstance(name, str) or not _NAME.match(name):
        raise Refused(f"an operator's name is letters, digits and _, at most 40: not {str(name)[:60]!r}")
    try:
        return _make_operator(name, description)
    except Refused:
        raise
    except KeyError as error:
        raise Refused(f"{name}: {error} is missing") from error
    except (TypeError, ValueError, AttributeError) as error:
        raise Refused(f"{name}: {error}"[:500]) from error


def _make_operator(name: str, description: Mapping[str, Any]) -> Operator:
    dims = tuple(_make_dim(dim) for dim in _check_list(description["dims"], MAX_DIMS))
    dtypes = tuple(_check_list(description["dtypes"], 8))
    if not all(isinstance(dtype, str) and _DTYPE.match(dtype) for dtype in dtypes):
        raise Refused(f"{name}: a dtype is written like bf16")
    configs = [_check_config(config) for config in _check_list(description["configs"], MAX_CONFIGS, 0)]
    params = tuple(Param(_check_name(key), tuple(map(_check_value, _check_list(values, MAX_VALUES))))
                   for key, values in list((description["params"] or {}).items())[:MAX_PARAMS])
    if not configs and not params:
        raise Refused(f"{name}: a kernel that is not autotuned needs `params`")
    parameters = [param.name for param in params] or list(configs[0])
    if any(sorted(config) != sorted(parameters) for config in configs):
        raise Refused(f"{name}: every configuration names {', '.join(parameters)}")
    default = _check_config(description["default"])
    if sorted(default) != sorted(parameters):
        raise Refused(f"{name}: the default configuration must name {', '.join(parameters)}")
    of_shape = [*(dim.name for dim in dims), "size"]
    flops, moved = Expression(description["flops"], of_shape), Expression(description["bytes"], of_shape)
    rules = [(_check_text(reason), Expression(rule, [*of_shape, *parameters, *OF_GPU]))
             for reason, rule in list(description["constraints"].items())[:MAX_PARAMS]]
    operator = Operator(
        name=name, title=_check_text(description["title"]) or name, dims=dims, dtypes=dtypes,
        presets=tuple({_check_name(dim): _check_whole(value) for dim, value in preset.items()}
                      for preset in _check_list(description["presets"], 20)),
        space=_make_space(params, configs, default, rules), default_config=lambda shape, dtype, gpu: default,
        flops=lambda shape: int(flops.value({**shape, "size": 1})),
        bytes=lambda shape, dtype: int(moved.value({**shape, "size": BYTES.get(dtype, 1)})),
        kernel_module=KERNEL_MODULE, kernel_names=tuple(map(_check_text, _check_list(description["kernel_names"], 20, 0))),
        tolerance={dtype: float(value) for dtype, value in description["tolerance"].items() if 0 < float(value) < 1},
        unit="B/s" if description["unit"] == "B/s" else "FLOP/s")
    for preset in operator.presets:
        if problems := operator.problems(preset, dtypes[0]):
            raise Refused(f"{name}: preset {dict(preset)}: {'; '.join(problems.values())}")
        operator.flops(preset), operator.bytes(preset, dtypes[0])
    return operator


def _make_dim(description: Mapping[str, Any]) -> Dim:
    only = tuple(_check_whole(value) for value in _check_list(description["only"], MAX_VALUES, 0))
    return Dim(_check_name(description["name"]), _check_text(description["meaning"]) or description["name"],
               _check_whole(description["low"]), _check_whole(description["high"]),
               bool(description["exact"]), only)


def _make_space(params: tuple[Param, ...], configs: Sequence[Config], default: Config,
                rules: Sequence[tuple[str, Expression]]) -> Callable[[Shape, str, Limits], Space]:
    def space(shape: Shape, dtype: str, gpu: Limits) -> Space:
        names = {**shape, "size": BYTES.get(dtype, 1), **{name: getattr(gpu, name) for name in OF_GPU}}
        constraints = _constraints(rules, names, gpu)
        if params:
            return Space.enumerate(params, constraints)
        return narrow_space(list(configs), constraints)
    return space


def constraints_of(description: Mapping[str, Any], known: Mapping[str, Any], gpu: Limits) -> list[Constraint]:
    """Return the constraints of a description that was checked; `known`: shape, "size" and limits by name."""
    names = [*known, *(description["params"] or {})]
    rules = list(description["constraints"].items())[:MAX_PARAMS]
    return _constraints([(_check_text(reason), Expression(rule, names)) for reason, rule in rules], known, gpu)


def _constraints(rules: Sequence[tuple[str, Expression]], known: Mapping[str, Any], gpu: Limits) -> list[Constraint]:
    threads = Constraint("threads per block", lambda c: 32 * int(c.get("num_warps", 4)) <= gpu.threads, ("num_warps",))
    return [threads, *(Constraint(reason, _make_constraint(rule, known), tuple(rule.names)) for reason, rule in rules)]


def _make_constraint(rule: Expression, known: Mapping[str, Any]) -> Callable[[Config], bool]:
    return lambda config: bool(rule.value({**known, **config}))


def narrow_space(configs: Sequence[Config], constraints: Sequence[Constraint]) -> Space:
    """Return the listed configurations that all constraints allow, others counted by reason."""
    valid_configs: list[Config] = []
    pruned: dict[str, int] = {}
    for config in configs:
        broken = next((constraint.reason for constraint in constraints if not constraint.holds(config)), None)
        if broken is None:
            valid_configs.append(config)
        else:
            pruned[broken] = pruned.get(broken, 0) + 1
    return Space.listed(valid_configs, pruned)


def _check_list(value: Any, most: int, least: int = 1) -> list[Any]:
    if not isinstance(value, list) or not least <= len(value) <= most:
        raise Refused(f"expected a list of {least} to {most}, not {str(value)[:60]!r}")
    return value


def _check_config(value: Any) -> Config:
    if not isinstance(value, dict) or not 1 <= len(value) <= MAX_PARAMS:
        raise Refused(f"a configuration names 1 to {MAX_PARAMS} parameters")
    return {_check_name(name): _check_value(setting) for name, setting in value.items()}


def _check_name(value: Any) -> str:
    if not isinstance(value, str) or not _NAME.match(value):
        raise Refused(f"{str(value)[:60]!r} is no name")
    return value


def _check_value(value: Any) -> Any:
    if isinstance(value, bool | float) or (isinstance(value, str) and len(value) <= 60):
        return value
    if isinstance(value, int) and abs(value) < 2**31:
        return value
    raise Refused(f"{str(value)[:60]!r} is no parameter's value")


def _check_whole(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or abs(value) > 2**40:
        raise Refused(f"{str(value)[:60]!r} is no whole number below 2⁴⁰")
    return value


def _check_text(value: Any) -> str:
    return str(value)[:120].replace("\0", "")
