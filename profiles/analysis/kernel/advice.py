"""One ranked list of advice per kernel: what NVIDIA's rules, ours and the launch's facts say, by cause.

Whoever says the same is one entry. Its gain is the least that anybody states (`gain_ns`), beside the greatest
(`gain_most_ns`); a local estimate of NVIDIA's says nothing about time and gives none. Confidence follows from who agrees:
"high" both NVIDIA and we see it, "medium" one with figures for the whole kernel, "low" a symptom alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from profiles.analysis.kernel import rules
from profiles.analysis.kernel.causes import CAUSES, Cause, cause_of_nvidia, cause_of_rule
from profiles.analysis.kernel.counters import LaunchFacts

CONFIDENCES = ("high", "medium", "low")
_WEIGHT = {"high": 1.0, "medium": 0.8, "low": 0.3}
LEAST_PCT = 2.0                 # of the kernel's time: what NVIDIA alone estimates below it is no advice
_SYMPTOMS = ("latency", "roof", "imbalance")        # that follow from other causes: never more than "medium"
_CHARS = 400


@dataclass(frozen=True)
class Advice:
    """`gain_ns` of all launches of the kernel in this profile; None where nobody can say."""

    cause: str
    title: str
    evidence: list[str]
    fix: str
    confidence: str
    gain_ns: float | None = None
    gain_most_ns: float | None = None
    gain_pct: float | None = None           # of the kernel's time
    gain_source: str = ""                   # who says the gain
    said_by: list[str] = field(default_factory=list)      # "Ridgepoint", "NVIDIA: <title>"

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Ours:
    """A finding of ours about the kernel."""

    rule: str
    title: str
    advice: str
    worth_ns: float | None


def advise(whole: LaunchFacts | None, total_ns: float, findings: Sequence[Ours],
           nvidia: Sequence[Mapping[str, Any]]) -> list[Advice]:
    """Return the advice about a kernel, the best first.

    `whole`: facts of the kernel (None: no counters), `nvidia`: `rules.merge_launch_rules` of its launches.
    """
    theirs = [(cause_of_nvidia(each["identifier"], each["title"]), each) for each in nvidia if _counts(each, total_ns)]
    advice = [_advice(cause, whole, total_ns, [each for each in findings if cause_of_rule(each.rule) is cause],
                     [each for of, each in theirs if of is cause]) for cause in CAUSES]
    named = [each for each in advice if each is not None]
    return sorted(named, key=lambda each: (-(each.gain_ns or 0.0) * _WEIGHT[each.confidence], CONFIDENCES.index(each.confidence)))


def _counts(rule: Mapping[str, Any], total_ns: float) -> bool:
    """Advice, and not of next to nothing."""
    if rule.get("severity") not in ("optimization", "warning", "error"):
        return False
    worth = rule.get("worth_ns")
    return rule.get("speedup_pct") is None or rule.get("speedup_scope") == "local" or (worth or 0.0) >= total_ns * LEAST_PCT / 100


def _advice(cause: Cause, whole: LaunchFacts | None, total_ns: float, ours: Sequence[Ours],
            nvidia: Sequence[Mapping[str, Any]]) -> Advice | None:
    seen = cause.evidence(whole) if cause.evidence and whole and not ours else ""
    if not ours and not nvidia and not seen:
        return None
    gains = [(each.worth_ns, "our estimate") for each in ours if each.worth_ns]
    gains += [(each["worth_ns"], "NVIDIA's estimate") for each in nvidia if each.get("worth_ns")]
    gains.sort(key=lambda gain: gain[0])
    least = gains[0][0] if gains else None
    return Advice(
        cause=cause.key, title=cause.title,
        evidence=[*(_without_name(each.title) for each in ours), *([_sentence(seen)] if seen else []),
                  *(rules.plain(each["text"])[:_CHARS] for each in nvidia)],
        fix=cause.fix or next((each.advice for each in ours if each.advice), ""),
        confidence=_confidence(cause, bool(ours or seen), nvidia),
        gain_ns=least, gain_most_ns=gains[-1][0] if gains else None,
        gain_pct=100.0 * least / total_ns if least is not None and total_ns else None, gain_source=gains[0][1] if gains else "",
        said_by=[*(["Ridgepoint"] if ours or seen else []), *(f"NVIDIA: {each['title']}" for each in nvidia)])


def _confidence(cause: Cause, ours: bool, nvidia: Sequence[Mapping[str, Any]]) -> str:
    whole = any(each.get("speedup_scope") == "global" for each in nvidia)
    if cause.key in _SYMPTOMS:
        return "medium" if ours and whole else "low"
    if ours and nvidia:
        return "high"
    return "medium" if ours or whole else "low"


def _without_name(title: str) -> str:
    """A finding's title begins with the kernel's short name: the page of the kernel needs none."""
    _, colon, rest = title.partition(": ")
    return _sentence(rest if colon else title)


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]
