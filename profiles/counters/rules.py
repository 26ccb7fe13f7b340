"""NVIDIA's rules of a kernel's launches, as pages show them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from profiles.analysis.kernel import rules
from profiles.models import LaunchCounters


def rule_rows(rows: Iterable[LaunchCounters]) -> list[dict[str, Any]]:
    """Return NVIDIA's rules of these launches, the largest estimate first."""
    return [_rule(rule) for rule in rules.merge_launch_rules([(row.duration_ns, row.rules) for row in rows])]


def _rule(rule: Mapping[str, Any]) -> dict[str, Any]:
    return {**rule, "pieces": rules.pieces(rule["text"]),
            "focus": [{**each, "info": rules.plain(each.get("info") or "")} for each in rule["focus"]]}
