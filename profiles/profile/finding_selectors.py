"""What is told of a profile: its findings, as rows and as lines of its pages, and what its ingest kept.

The latter with what cannot be in it: the mark of lists, the card of the page.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from profiles.advice.selectors import run_decisions
from profiles.analysis.core.result import SEVERITIES
from profiles.analysis.core.sentences import plural, verb
from profiles.analysis.core.tunable import tuned_operator
from profiles.analysis.trace.plausibility.kinds import COUNTS, GPU_TIME, IDLE
from profiles.analysis.trace.plausibility.withhold import affected, touching
from profiles.models import AdviceDecision, Finding, Profile
from profiles.store.trace import READING

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
    return [(piece, bool(index % 2)) for index, piece in enumerate(text.split("`")) if piece]


def _numbers(numbers: dict[str, Any]) -> list[Number]:
    """Flat, labelled without the unit; of inner tables the largest few."""
    lines = []
    for key, value in numbers.items():
        suffix, unit = next(((suffix, unit) for suffix, unit in _UNITS if key.endswith(suffix)), ("", "count"))
        label = key.removesuffix(suffix).replace("_", " ")
        if isinstance(value, dict):
            inner = sorted(value.items(), key=lambda pair: -(pair[1] or 0))[:5]
            lines += [Number(f"{label}: {name or 'outside operators'}", unit, number) for name, number in inner]
        elif value is not None:
            lines.append(Number(label, unit if isinstance(value, int | float) else "text", value))
    return lines


def integrity_mark(profile: Profile) -> tuple[str, str]:
    """Return ("ok" | "warn" | "bad" | "", one sentence) about what the ingest kept, and what cannot be in it."""
    integrity = profile.integrity
    if profile.status == Profile.Status.FAILED:
        return "bad", "nothing was readable"
    if profile.status != Profile.Status.READY or not integrity:
        return "", "not read yet"
    records, valid = integrity["records_read"], integrity["records_kept"]
    if integrity.get("truncated_at"):
        were = verb(valid, "was", "were")
        return "bad", f"the file ends early, at {integrity['truncated_at']}; {plural(valid, 'record')} {were} kept"
    if doubts := touching(doubt_rows(profile)):
        return "warn", str(doubts[0]["sentence"]).replace("`", "")
    if records != valid:
        return "warn", f"{records - valid:,} of {plural(records, 'record')} {verb(records - valid, 'is', 'are')} not kept"
    if integrity.get("repaired"):
        return "warn", f"all {records:,} records kept; {sum(integrity['repaired'].values()):,} of them mended"
    return "ok", f"all {records:,} records kept"


def doubt_rows(profile: Profile) -> list[dict[str, Any]]:
    """Return what is in doubt, the weightiest kind first; of a profile that was stored before there was such a report: nothing."""
    return profile.integrity.get("plausibility") or []


@dataclass(frozen=True)
class IntegrityCard:
    """The integrity report as rows: every count has its words."""

    mark: str
    sentence: str
    records_read: int
    records_kept: int
    truncated_at: str | None
    not_kept: list[tuple[str, int]]
    repaired: list[tuple[str, int]]
    remarks: list[tuple[str, int]]
    kinds: list[tuple[str, int]]
    notes: list[str]
    plausibility: list[dict[str, Any]]      # ingest.trace.Doubt, with the `window` of the timeline that it is in
    is_outdated: bool                       # an earlier version read the trace


def integrity_card(profile: Profile) -> IntegrityCard | None:
    integrity = profile.integrity
    if not integrity:
        return None
    def largest(name: str) -> list[tuple[str, int]]:
        return sorted(integrity.get(name, {}).items(), key=lambda pair: -pair[1])

    mark, sentence = integrity_mark(profile)
    return IntegrityCard(mark, sentence, integrity["records_read"], integrity["records_kept"], integrity.get("truncated_at"),
                         largest("not_kept"), largest("repaired"), largest("remarks"), largest("kinds"), integrity.get("notes", []),
                         [{**doubt, "window": _window(doubt)} for doubt in doubt_rows(profile)], is_outdated(profile))


def is_outdated(profile: Profile) -> bool:
    """Return whether an earlier version read the trace, and this one may make something else of it."""
    return profile.kind == Profile.Kind.TRACE and profile.status == Profile.Status.READY and (
        profile.summary.get("reading", 1) < READING)


def _window(doubt: dict[str, Any]) -> str:
    """Return where in the timeline a doubt is, "" where it is no stretch of it."""
    first_ns, last_ns = doubt.get("first_ns"), doubt.get("last_ns")
    outside = doubt.get("kind") in ("second_document", "rest_of_another_file")
    return "" if outside or first_ns is None or last_ns is None or last_ns <= first_ns else f"{first_ns}-{last_ns}"


def is_time_doubtful(profile: Profile) -> bool:
    """Return whether GPU time, idle time or counts of launches must not be built on."""
    return bool(affected(doubt_rows(profile)) & {GPU_TIME, IDLE, COUNTS})
