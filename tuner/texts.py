"""Texts of shapes, configurations and rates."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypedDict

from django.utils.formats import localize

from tuner.clocks.wish import told_text
from tuner.models import TuneJob
from tuner.tuning.measure.policy import policy_rows
from tuner.tuning.operators import OPERATORS, VENDORS, find, limits

PARAMETERS = tuple(dict.fromkeys(        # in the order people write them
    name for op in (*OPERATORS.values(), *VENDORS.values())
    for name in (*op.parameters, *op.default_config(op.presets[0], op.dtypes[0], limits("")))))

REASON_WORDS = {"crash": "crashed", "timeout": "hung", "wrong": "computed wrong"}        # of a quarantine


def in_order(job_operator: str, shape: Mapping[str, Any]) -> dict[str, Any]:
    """Return a shape with its dimensions as the operator orders them."""
    operator = find(job_operator)
    names = [dim.name for dim in operator.dims] if operator else []
    return {name: shape[name] for name in (*(n for n in names if n in shape), *(n for n in shape if n not in names))}


def config_in_order(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a configuration with kernel parameters first, then warps and stages."""
    last = [name for name in ("num_warps", "num_stages") if name in config]
    parameters = [name for name in PARAMETERS if name in config and name not in last]
    rest = [name for name in config if name not in parameters and name not in last]
    return {name: config[name] for name in (*parameters, *rest, *last)}


def config_text(config: Mapping[str, Any]) -> str:
    """Return "BM=128 BN=64 num_warps=8", as tuner/_config.html writes it."""
    return " ".join(f"{name}={localize(value)}" for name, value in config_in_order(config).items())


def measured_with(job: TuneJob) -> list[tuple[str, str]]:
    """Return policy and environment as (label, text)."""
    return policy_rows(job.policy) + [(name.replace("_", " "), told_text(value) if name == "clock_lock" else _value_text(value))
                                      for name, value in job.environment.items()
                                      if name != "source_hash" and value not in (None, "", [], {})]


def recorded_policy(evidence: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the policy that an entry's times were taken under (how L2 was flushed, …), where its job is gone."""
    policy = evidence.get("policy")
    return policy_rows(policy) if isinstance(policy, Mapping) else []


def _value_text(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name.replace('_', ' ')} {_value_text(element)}" for name, element in value.items()
                         if element not in (None, "", [], {}))
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def facts_text(facts: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return facts of a compiled configuration as (label, text)."""
    return [(name.replace("_", " "), f"{value:.3g}" if isinstance(value, float) else str(value))
            for name, value in facts.items() if isinstance(value, int | float | str)]


class RateJson(TypedDict):
    """Work per second in the operator's unit."""

    value: float
    unit: str


def rate(job: TuneJob, ms: float | None) -> RateJson | None:
    """Return work per second at a time; None if unknown."""
    operator = find(job.operator)
    if ms is None or operator is None or operator.problems(job.shape, job.dtype):
        return None
    try:
        work = operator.flops(job.shape) if operator.unit == "FLOP/s" else operator.bytes(job.shape, job.dtype)
    except ValueError:                       # a team's formula that does not hold for this shape: the rate is unknown
        return None
    return {"value": work / (ms / 1000), "unit": operator.unit}


def triton_config(config: Mapping[str, Any] | None) -> str:
    """Return the text to paste into a Triton autotune list."""
    if not config:
        return ""
    config = config_in_order(config)
    options = {name: config[name] for name in ("num_warps", "num_stages") if name in config}
    meta = {name: value for name, value in config.items() if name not in options}
    inside = ", ".join([repr(meta), *(f"{name}={value}" for name, value in options.items())])
    return f"triton.Config({inside})"


def paste_text(operator: str, config: Mapping[str, Any] | None) -> str:
    """Return what applies a configuration, to paste: the operator's own text, else one for a Triton autotune list."""
    known_operator = find(operator)
    return known_operator.apply_text(config or {}) if known_operator and known_operator.apply_text else triton_config(config)


def line_text(operator: str, config: Mapping[str, Any] | None) -> str:
    """Return the same on one line: the parameters where the operator's own text has several."""
    known_operator = find(operator)
    return config_text(config or {}) if known_operator and known_operator.apply_text else triton_config(config)


def default_name(operator: str) -> str:
    """Return what the default configuration of an operator is, as a sentence says it."""
    known_operator = find(operator)
    return known_operator.default_name if known_operator else "the default"


def library_name(operator: str) -> str:
    """Return what an operator is compared with, as a sentence says it."""
    known_operator = find(operator)
    return known_operator.library if known_operator else "the library"


def keep_library_text(operator: str, gain: float | None) -> str:
    """Return "keep cuBLAS: 1.04× faster than the best found"; "" where the library did not win."""
    return f"keep {library_name(operator)}: {gain:.2f}× faster than the best found" if gain else ""
