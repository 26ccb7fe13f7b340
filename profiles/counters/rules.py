"""NVIDIA's rules of a kernel's launches, as pages show them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from profiles.analysis.kernel import rules
from profiles.analysis.kernel.advising.left_out import why_left_out
from profiles.analysis.kernel.counters import combine_launches, from_json
from profiles.analysis.kernel.facts import LaunchFacts
from profiles.models import KernelStat, LaunchCounters


def kernel_rules(kernel: KernelStat) -> list[dict[str, Any]]:
    """Return NVIDIA's rules of all complete launches of a kernel, as `rule_rows` orders them."""
    rows = list(kernel.counter_launches.filter(incomplete=""))
    return rule_rows(rows, kernel.total_ns, [from_json(row.facts) for row in rows])


def rule_rows(rows: Iterable[LaunchCounters], total_ns: float | None, launches: Sequence[LaunchFacts]) -> list[dict[str, Any]]:
    """Return NVIDIA's rules of these launches, the largest estimate first; behind them those that are no advice about this kernel.

    `launches`: the facts of these launches, `total_ns` their time. `left_out` says why a rule is no advice.
    """
    listed = rules.merge_launch_rules([(row.duration_ns, row.rules) for row in rows])
    reasons = why_left_out(listed, combine_launches(launches) if launches else None, float(total_ns or 0), launches)
    shown = [_rule(rule, reason) for rule, reason in zip(listed, reasons, strict=True)]
    return sorted(shown, key=lambda rule: bool(rule["left_out"]))


def _rule(rule: Mapping[str, Any], left_out: str) -> dict[str, Any]:
    return {**rule, "pieces": rules.pieces(rule["text"]), "left_out": left_out,
            "focus": [{**each, "info": rules.plain(each.get("info") or "")} for each in rule["focus"]]}
