"""A suite's verdict as JSON: what the command prints, what gates keep, what reports are made of."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from enum import Enum
from typing import Any

from profiles.analysis.gate.results import Interval, KernelVerdict, SuiteVerdict


def as_json(suite: SuiteVerdict) -> dict[str, Any]:
    """Ratios are candidate / baseline (1.08: 8 % slower), times µs, shares 0 to 1; null is unknown."""
    return {"verdict": suite.verdict.value, "reason": suite.reason, "alpha": suite.alpha, "plan": plain(dict(suite.plan)),
            "kernels": [kernel_json(kernel) for kernel in suite.kernels]}


def kernel_json(kernel: KernelVerdict) -> dict[str, Any]:
    p50, p95 = kernel.p50, kernel.p95
    found = {
        "op": kernel.op, "shape": kernel.shape, "config": kernel.config, "key": kernel.key, "name": kernel.name,
        "verdict": kernel.verdict.value, "reason": kernel.reason,
        "ratio_p50": p50.ratio if p50 else None, "ci": _ends(p50), "p_value": p50.p_value if p50 else None,
        "ratio_p95": p95.ratio if p95 else None, "ci_p95": _ends(p95), "p_value_p95": p95.p_value if p95 else None,
        "confidence": p50.confidence if p50 else None,
        "verdict_p50": p50.verdict if p50 else None, "verdict_p95": p95.verdict if p95 else None,
        "change": kernel.change, "baseline_us": kernel.baseline_us, "candidate_us": kernel.candidate_us,
        "baseline_runs": kernel.baseline_runs, "candidate_runs": kernel.candidate_runs,
        "detectable": kernel.detectable, "false_alarms": kernel.false_alarms, "more_runs": kernel.more_runs,
        "metrics": [dict(row) for row in kernel.metrics], "clocks": dict(kernel.clocks), "excluded": list(kernel.excluded),
        "baseline_config": kernel.baseline_config,
    }
    return {name: plain(value) for name, value in found.items()}


def interval_json(interval: Interval | None) -> dict[str, Any] | None:
    return None if interval is None else {name: plain(value) for name, value in asdict(interval).items()}


def plain(value: Any) -> Any:
    """Only what JSON has; a number that is none is null."""
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(name): plain(each) for name, each in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, (str, bytes)):
        return [plain(each) for each in value]
    return value


def _ends(interval: Interval | None) -> list[float] | None:
    """None too where so few runs hold the true ratio less often than a coin says."""
    return None if interval is None or (interval.confidence or 0) < 0.5 else [interval.low, interval.high]
