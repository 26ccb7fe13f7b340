"""A profile's findings: as rows, and as lines of its pages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from profiles.advice.selectors import run_decisions
from profiles.analysis.core.result import SEVERITIES
from profiles.analysis.core.tunable import tuned_operator
from profiles.models import AdviceDecision, Finding, Profile

_UNITS = (("_ns", "ns"), ("_pct", "pct"), ("_bytes", "bytes"))
# rule -> the kinds of work that need not be (`analysis.trace.needed`) that say the same with its gain
SAID_BY = {"fusion": ("passes",),
           "casts_and_copies": ("passes", "scores_in_memory", "layouts", "remade_weights", "repeated_keys", "pieces",
                                "copied_operands")}


def finding_rows(profile: Profile) -> list[Finding]:
    """The lead first, then high before medium before info; within, by what they are worth."""
    return sorted(profile.findings.select_related("kernel"),
                  key=lambda row: (not row.numbers.get("leads"), SEVERITIES.index(row.severity), -(row.worth_ns or 0), row.pk))


@dataclass(frozen=True)
class Number:
    """One number that a finding rests on; `unit` chooses its format: "ns", "pct", "bytes", "count", "text"."""

    label: str
    unit: str
    value: Any


@dataclass(frozen=True)
class FindingLine:
    finding: Finding
    title: list[tuple[str, bool]]       # (text, is code) in turn
    advice: list[tuple[str, bool]]
    numbers: list[Number]
    operator: str                       # that can be tuned in place of its kernel, "" where none
    decision: AdviceDecision | None = None      # of a finding about the whole run

    @property
    def dismissed(self) -> bool:
        return self.decision is not None and self.decision.state == AdviceDecision.State.DISMISSED


def rows_once(profile: Profile) -> list[Finding]:
    """Return `finding_rows` without those that another one says with its gain: these stay on the pages of their analyses."""
    rows = finding_rows(profile)
    kinds = {row.rule for row in rows if row.source == "needed"}
    return [row for row in rows if not kinds & set(SAID_BY.get(row.rule, ()))]


def finding_lines(profile: Profile, findings: list[Finding] | None = None) -> list[FindingLine]:
    """Return findings, `rows_once` unless some are given, as lines, those that were dismissed last."""
    decided = run_decisions(profile)
    lines = [FindingLine(finding, code_pieces(finding.title), code_pieces(finding.advice), _numbers(finding.numbers),
                         tuned_operator(finding.kernel.name) if finding.kernel else "",
                         None if finding.kernel else decided.get(finding.rule))
             for finding in (rows_once(profile) if findings is None else findings)]
    return sorted(lines, key=lambda line: line.dismissed)


def code_pieces(text: str) -> list[tuple[str, bool]]:
    """"waits in `aten::item`" -> [("waits in ", False), ("aten::item", True)]."""
    return [(piece, bool(at % 2)) for at, piece in enumerate(text.split("`")) if piece]


def _numbers(numbers: dict[str, Any]) -> list[Number]:
    """Flat, labelled without the unit; of inner tables the largest few."""
    lines = []
    for key, value in numbers.items():
        suffix, unit = next(((suffix, unit) for suffix, unit in _UNITS if key.endswith(suffix)), ("", "count"))
        label = key.removesuffix(suffix).replace("_", " ")
        if isinstance(value, dict):
            inner = sorted(value.items(), key=lambda pair: -(pair[1] or 0))[:5]
            lines += [Number(f"{label}: {name or 'outside operators'}", unit, each) for name, each in inner]
        elif value is not None:
            lines.append(Number(label, unit if isinstance(value, int | float) else "text", value))
    return lines
