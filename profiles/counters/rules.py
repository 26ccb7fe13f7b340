"""NVIDIA's rules of a kernel's launches, as pages show them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from profiles.analysis.kernel import rules
from profiles.analysis.kernel.advising.advice import most_ns, why_left_out
from profiles.analysis.kernel.counters import combine_launches, from_json
from profiles.analysis.kernel.facts import LaunchFacts
from profiles.models import KernelStat, LaunchCounters


def kernel_rules(kernel: KernelStat) -> list[dict[str, Any]]:
    """Return NVIDIA's rules of all complete launches of a kernel, as `rule_rows` orders them."""
    rows = list(kernel.counter_launches.filter(incomplete=""))
    return rule_rows(rows, kernel.total_ns, [from_json(row.facts) for row in rows])


def rule_rows(rows: Iterable[LaunchCounters], total_ns: float | None, launches: Sequence[LaunchFacts]) -> list[dict[str, Any]]:
    """Return NVIDIA's rules of these launches, the largest estimate first; behind them those that are no advice about this kernel.

    `launches`: the facts of these launches, `total_ns` their time. `left_out` says why a rule is no advice; where it is `capped`,
    `worth_ns` is what the fault costs at most, less than NVIDIA's estimate.
    """
    listed = rules.merge_launch_rules([(row.duration_ns, row.rules) for row in rows])
    whole, time_ns = combine_launches(launches) if launches else None, float(total_ns or 0)
    reasons = why_left_out(listed, whole, time_ns, launches)
    shown = [_rule(rule, reason, most_ns(rule, whole, time_ns)) for rule, reason in zip(listed, reasons, strict=True)]
    return sorted(shown, key=lambda rule: (bool(rule["left_out"]), -(rule["worth_ns"] or 0.0)))


def _rule(rule: Mapping[str, Any], left_out: str, at_most_ns: float | None) -> dict[str, Any]:
    worth_ns = rule.get("worth_ns")
    capped = worth_ns is not None and at_most_ns is not None and at_most_ns < 0.995 * worth_ns
    return {**rule, "pieces": rules.pieces(rule["text"]), "left_out": left_out, "capped": capped,
            "worth_ns": at_most_ns if capped else worth_ns,
            "focus": [{**each, "info": rules.plain(each.get("info") or "")} for each in rule["focus"]]}
