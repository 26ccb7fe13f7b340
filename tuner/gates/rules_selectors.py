"""The rule that a suite or a kernel is judged by, from the fields that its rows hold."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from profiles.analysis.gate.rule import Rule

RULE_FIELDS = {each.name for each in fields(Rule)}


def rule_of(*given: Mapping[str, Any]) -> Rule:
    """Later ones go before earlier ones: the suite's, then the kernel's."""
    merged: dict[str, Any] = {}
    for each in given:
        merged |= {name: value for name, value in each.items() if name in RULE_FIELDS}
    return Rule(**merged)
