"""What is said of a judged candidate: FASTER, SAME, SLOWER or AMBIGUOUS beside the operator's own, WRONG, or FAILED.

Times are compared as a gate compares builds (tuner.gate.stats: exact rank test and Hodges and Lehmann's ratio), with the medians of
rounds in the place of runs: all contenders were timed in turn in one process. Processes of identical code differ by about 0.5 %
and, near 10 µs, by 2 %: a smaller difference than FLOOR is called none, and whoever adopts a kernel lets a suite measure it anew.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np

from profiles.base.numbers import quantile
from tuner.ceilings.least_time import LeastTime
from tuner.gate.stats.distributions import rank_sum_p
from tuner.gate.stats.results import Decision, Levels, Limits, change_text, decide
from tuner.gate.stats.rule import Rule
from tuner.gate.stats.rule import Verdict as GateVerdict
from tuner.tuning.measure.statistics import median_interval

SLOWED = 0.15                       # clocks and temperature move a time by less between two looks some seconds apart
QUICKENED = 0.06                    # … and 1 % at most on an H200; lines of a candidate that outlive the flush make 9 to 14 %
FLOOR, TARGET = 0.01, 0.02          # as fractions of the time: what is called a difference, and what SAME rules out
BASELINES = ("best", "default", "library")
TITLES = {"candidate": "candidate", "best": "best configuration known", "default": "default configuration", "library": "library"}


class Verdict(StrEnum):
    FASTER = "FASTER"
    SAME = "SAME"
    SLOWER = "SLOWER"
    AMBIGUOUS = "AMBIGUOUS"         # faster or slower cannot be told from noise
    WRONG = "WRONG"                 # its results, or the way that it came to them
    FAILED = "FAILED"               # it does not run


SIGN: Mapping[str, str] = {Verdict.FASTER: "▼", Verdict.SAME: "=", Verdict.SLOWER: "▲", Verdict.AMBIGUOUS: "?", Verdict.WRONG: "✗",
                           Verdict.FAILED: "✗"}
EXIT_CODE = {Verdict.FASTER: 0, Verdict.SAME: 0, Verdict.SLOWER: 1, Verdict.AMBIGUOUS: 2, Verdict.WRONG: 3, Verdict.FAILED: 4}
_OF_GATE = {GateVerdict.SLOWER: Verdict.SLOWER, GateVerdict.FASTER: Verdict.FASTER}


@dataclass(frozen=True)
class Judgement:
    """`rows`: a line for each that was timed, the candidate first; `against`: the name of the one that the verdict is beside."""

    verdict: Verdict
    reason: str
    against: str = ""
    rows: Sequence[Mapping[str, Any]] = ()


def judge(told: Mapping[str, Any], least: LeastTime | None = None) -> Judgement:
    """Return the verdict on a judge's checked answer, as tuner.candidates.answer reads it.

    `least` of the problem on the GPU: a candidate below what that can do is WRONG, whatever its results were.
    """
    if failed := told.get("failed"):
        return Judgement(Verdict.FAILED, f"{_PLACES.get(failed['where'], failed['where'])}: {failed['what']}")
    times = told.get("times") or {}
    rows, decisions = compare_times(times)
    wrong = why_wrong(told) or _why_impossible(rows, least)
    if wrong:
        return Judgement(Verdict.WRONG, wrong, rows=rows)
    if "candidate" not in times or not decisions:
        return Judgement(Verdict.FAILED, "the process that judges it ended before it was timed", rows=rows)
    against = next(name for name in BASELINES if name in decisions)
    decision = decisions[against]
    verdict = verdict_of(decision)
    unsure = ": the rounds differ too far to tell" if verdict == Verdict.AMBIGUOUS else ""
    return Judgement(verdict, f"{_text(decision, times, against)} beside the {TITLES[against]}{unsure}", against, rows)


def _why_impossible(rows: Sequence[Mapping[str, Any]], least: LeastTime | None) -> str:
    """Return why the candidate's median cannot be; "" where it can, or nothing tells."""
    ms = next((row["median_us"] / 1000 for row in rows if row["name"] == "candidate"), None)
    return least.impossible_text(ms) if least is not None and ms is not None and least.is_impossible(ms) else ""


_PLACES = {"import": "it cannot be imported", "contract": "it is no candidate", "compile": "it does not compile",
           "launch": "it cannot be launched", "timing": "it failed while it was timed", "process": "its process"}


def why_wrong(told: Mapping[str, Any]) -> str:
    """Return why its result, or how it came to it, does not count; "" where nothing was found."""
    if told.get("twice"):
        return f"the answer was told more than once ({', '.join(told['twice'])}): the file speaks for its judge"
    if told.get("replaced"):
        return f"it replaced {', '.join(told['replaced'])}: what it is timed and compared with"
    for check in told.get("checks", ()):
        if not check["right"]:
            return str(check["message"])
        if check["changed"]:
            return f"it changes its inputs: {', '.join(check['changed'])}"
    if (told.get("streams") or {}).get("late"):
        streams = told["streams"]
        return (f"work is left when its stream is done: {streams['left_ms']:.3g} ms after {streams['event_ms']:.3g} ms of "
                f"{streams['launches']} launches")
    if wrong := (told.get("times") or {}).get("candidate", {}).get("wrong"):
        return f"right when it was checked, wrong while it was timed, on inputs that it had not seen: {wrong}"
    if (slowed := slowdown_of_default(told)) is not None and slowed > 1 + SLOWED:
        return f"the operator's own default takes {100 * (slowed - 1):.0f} % longer than before the file was imported"
    if slowed is not None and slowed < 1 - QUICKENED:
        return (f"the operator's own default takes {100 * (1 - slowed):.0f} % less than before the file was imported: what the "
                "file leaves behind makes launches faster, its own as well (inputs kept in the cache)")
    again = told.get("again")
    if again and not again["right"]:
        return f"wrong after it was timed, on fresh inputs: {again['message']}"
    return ""


def slowdown_of_default(told: Mapping[str, Any]) -> float | None:
    """Return the default's time in turn ÷ its time before the file was imported; None where either is unknown."""
    before, default = told.get("before"), (told.get("times") or {}).get("default")
    return quantile(sorted(default["samples_ms"]), 0.5) / before["default_ms"] if before and default else None


def compare_times(times: Mapping[str, Any]) -> tuple[list[dict[str, Any]], dict[str, Decision]]:
    """Return a line for each that was timed (µs, ratios candidate ÷ other), and the decisions on the candidate by baseline."""
    baselines = [name for name in BASELINES if name in times]
    decisions = {name: _decide(times["candidate"], times[name], len(baselines)) for name in baselines if "candidate" in times}
    rows = []
    for name in ("candidate", *baselines):
        if name not in times:
            continue
        ordered = sorted(ms * 1000 for ms in times[name]["samples_ms"])
        low, high = median_interval(ordered)
        row = {"name": name, "median_us": quantile(ordered, 0.5), "low_us": low, "high_us": high, "n": len(ordered),
               "min_us": ordered[0], "p90_us": quantile(ordered, 0.9)}
        if decision := decisions.get(name):
            row |= {"ratio": decision.bounds.ratio, "low": decision.bounds.low, "high": decision.bounds.high,
                    "confidence": decision.bounds.confidence, "verdict": verdict_of(decision).value,
                    "says": _text(decision, times, name)}
        rows.append(row)
    return rows, decisions


def verdict_of(decision: Decision) -> Verdict:
    """Return the word for a decision. A gate passes what is not slower; SAME here says that it is not faster by TARGET either."""
    if decision.verdict == GateVerdict.PASS:
        return Verdict.SAME if decision.bounds.low_kept and decision.bounds.low > 1 - TARGET else Verdict.AMBIGUOUS
    return _OF_GATE.get(decision.verdict, Verdict.AMBIGUOUS)


def _decide(candidate: Mapping[str, Any], baseline: Mapping[str, Any], comparisons: int) -> Decision:
    ours, theirs = (np.asarray(side["round_ms"], dtype=np.float64) * 1000 for side in (candidate, baseline))
    rule = Rule()
    level = rule.alpha / comparisons
    return decide(ours, theirs, rank_sum_p(ours, theirs), rank_sum_p(theirs, ours), Levels(level, level),
                  Limits(FLOOR, TARGET, rule.beta))


def _text(decision: Decision, times: Mapping[str, Any], against: str) -> str:
    before, after = (quantile(sorted(times[name]["samples_ms"]), 0.5) * 1000 for name in (against, "candidate"))
    return change_text(decision.bounds, before, after)
