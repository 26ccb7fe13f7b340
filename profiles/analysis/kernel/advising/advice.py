"""One ranked list of advice per kernel: what NVIDIA's rules, ours and the launch's facts say, by cause.

Whoever says the same is one entry. Its gain is an estimate, the least that anybody states (`gain_ns`), beside the greatest
(`gain_most_ns`); a local estimate of NVIDIA's says nothing about time and gives none. Without a gain `no_gain` says why.
Confidence follows from who agrees: "high" both NVIDIA and we see it, "medium" one with figures for the whole kernel, "low" a
symptom alone.

Each gain is at most what falls away with the fault on the unit that it loads (`advising.gains`). Where a unit is saturated, what
only hides waiting is left out, whoever says it.

Order: what explains most comes first. A fault that explains at least LIMITS["explains_pct"] of the time (on a unit that is
busy), then a part of the hardware that is busy (`limit`), then the rest; a symptom behind every fault that explains as much of
it as LIMITS["covers"] says; another algorithm or type behind all of them. Of the faults that explain the time, waste comes before
what organises the work anew. Within each by gain × the weight of its confidence. How far a kernel is from its roof is no advice:
`gains.headroom`.

Of several launches of a kernel the one that loses most to a cause speaks for it, not their mean, and it is named.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from profiles.analysis.core.sentences import capital, pct_text, time_text
from profiles.analysis.kernel import rules
from profiles.analysis.kernel.advising import gains, units
from profiles.analysis.kernel.advising.causes import CAUSES, Cause, cause_of_nvidia, cause_of_rule
from profiles.analysis.kernel.advising.causes import cause as cause_called
from profiles.analysis.kernel.advising.gains import LEAST_PCT, Ours, capped_gain, is_nothing, of_whole, stated_gain
from profiles.analysis.kernel.advising.units import Seen
from profiles.analysis.kernel.bounds import THRESHOLDS
from profiles.analysis.kernel.facts import LaunchFacts

CONFIDENCES = ("high", "medium", "low")
_WEIGHT = {"high": 1.0, "medium": 0.8, "low": 0.3}
LIMITS: dict[str, float] = {
    "waste_pct": 15.0,          # of the kernel's time: a fault that wastes as much leads
    "explains_pct": 10.0,       # of the kernel's time that a fault must win back to stand before a busy part of the hardware …
    "explains_below_pct": 5.0,  # … or as much, where that part is no roof yet (units.LIMITS["roof_pct"])
    "covers": 0.5,              # of a symptom's gain that a fault must reach to be what the symptom follows from
}
_CHARS = 400
_NO_TIME = "the report states no duration"
_UPPER_BOUND = "an upper bound: how much of it the fix wins is not known"
_LOCAL = "NVIDIA's estimate is of one unit by itself and says nothing of the kernel's time"


@dataclass(frozen=True)
class Advice:
    """`gain_ns` of all launches of the kernel in this profile; None where nobody can say, and `no_gain` says why."""

    cause: str
    title: str
    evidence: list[str]
    fix: str
    confidence: str
    gain_ns: float | None = None
    gain_most_ns: float | None = None       # may be known where the least is not: "at most"
    gain_pct: float | None = None           # of the kernel's time
    gain_source: str = ""                   # who says the gain
    said_by: list[str] = field(default_factory=list)      # "Ridgepoint", "NVIDIA: <title>"
    kind: str = "fault"                     # `causes.Cause.kind`
    no_gain: str = ""                       # why no least gain is stated, "" where one is

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def advise(whole: LaunchFacts | None, total_ns: float, findings: Sequence[Ours],
           nvidia: Sequence[Mapping[str, Any]], launches: Sequence[LaunchFacts] = ()) -> list[Advice]:
    """Return the advice about a kernel, the best first.

    `whole`: facts of the kernel (None: no counters), `nvidia`: `rules.merge_launch_rules` of its launches, `launches`: the complete
    ones that `whole` sums.
    """
    theirs = [(cause_of_nvidia(rule["identifier"], rule["title"]), rule) for rule in nvidia if _counts(rule, total_ns)]
    advice = [_advice(cause, _speaker(cause, whole, launches), total_ns,
                      [finding for finding in findings if cause_of_rule(finding.rule) is cause],
                      [rule for of, rule in theirs if of is cause])
              for cause in CAUSES if not why_idle(cause, whole, launches)]
    return rank([entry for entry in advice if entry is not None], whole, total_ns)


@dataclass(frozen=True)
class Speaker:
    """The facts that say a cause: of the whole kernel, or of the launch that loses most to it. `part` of the kernel's time."""

    facts: LaunchFacts | None
    seen: Seen | None
    part: float = 1.0
    name: str = ""


def _speaker(cause: Cause, whole: LaunchFacts | None, launches: Sequence[LaunchFacts]) -> Speaker:
    evidence = cause.seen(whole) if cause.seen and whole else None
    if cause.seen is None or len(launches) < 2:
        return Speaker(whole, evidence)
    total_ns = sum(launch.duration_ns or 0.0 for launch in launches)
    alike = [launch for launch in launches if launch.duration_ns]
    said = [(each, found) for each in alike for found in (cause.seen(each),) if found is not None and not why_idle(cause, each)]
    if not total_ns or not said or (len(said) == len(alike) and evidence is not None):
        return Speaker(whole, evidence)                             # none of them, or all alike: their sum says it
    worst, found = max(said, key=lambda pair: (pair[0].duration_ns or 0.0) * (pair[1].least_pct or pair[1].most_pct or 1.0))
    grid = f", grid {' × '.join(str(side) for side in worst.grid)}" if worst.grid else ""
    name = f"launch {worst.index} of {len(launches)} launches ({time_text(worst.duration_ns or 0.0)}{grid})"
    return Speaker(worst, found, (worst.duration_ns or 0.0) / total_ns, name)


def why_idle(cause: Cause, whole: LaunchFacts | None, launches: Sequence[LaunchFacts] = ()) -> str:
    """Return why a remedy wins nothing, "" where it may win something.

    It hides waiting where a unit is saturated, gives up a tile of results for more warps, or mends what the kernel does not do.
    """
    if whole is None:
        return ""
    roofs = [units.saturated(launch) for launch in launches or (whole,)]
    if cause.hides_latency and all(roofs):
        name, pct = max((roof for roof in roofs if roof), key=lambda roof: roof[1])
        return f"{name} at {pct_text(pct)} of the peak: to hide more waiting wins nothing"
    if cause.key == "occupancy" and units.holds_results(whole):
        return "registers or shared memory hold its operands and results: more warps would cost that tile"
    if cause.key == "atomics" and all(launch.signals.get("atomic_busiest_pct") == 0 for launch in launches or (whole,)):
        return "it has no atomics: what its warps wait for as they end are stores"
    return ""


def rank(advice: Sequence[Advice], whole: LaunchFacts | None, total_ns: float) -> list[Advice]:
    """Return the advice in order: see the module's first lines."""
    faults = [entry for entry in advice if _explains(entry, whole, total_ns)]

    def group(each: Advice) -> int:
        if each in faults:
            return 0
        if each.kind == "algorithm":
            return 3
        if each.cause == "imbalance" and any(other.cause == "tail" for other in advice):
            return 2                                            # the last wave is why some SMs stop earlier
        if each.kind == "limit":
            return 1
        gain = each.gain_ns or each.gain_most_ns or 0.0
        covers = [_covering(fault, each) for fault in faults]
        covered = any((value or 0.0) >= LIMITS["covers"] * gain for value in covers)
        return 0 if each.kind == "symptom" and gain and not covered and not _has_limit(advice) else 2

    def organises(advice: Advice) -> bool:
        """Waste of much of the time leads the faults."""
        cause = cause_called(advice.cause)
        gain = advice.gain_ns if advice.gain_ns is not None else advice.gain_most_ns
        wastes = cause is not None and cause.waste and 100.0 * (gain or 0.0) >= LIMITS["waste_pct"] * total_ns
        return not (advice in faults and wastes)

    return sorted(advice, key=lambda each: (group(each), organises(each), -_score(each), CONFIDENCES.index(each.confidence)))


def _covering(fault: Advice, symptom: Advice) -> float | None:
    """What a fault explains of a symptom: its gain; at most, where it is no mere hiding of the same waiting."""
    cause = cause_called(fault.cause)
    if fault.gain_ns is not None or (cause is not None and cause.hides_latency and symptom.gain_ns is not None):
        return fault.gain_ns
    return fault.gain_most_ns


def _has_limit(advice: Sequence[Advice]) -> bool:
    return any(entry.kind == "limit" for entry in advice)


def _score(advice: Advice) -> float:
    """By its gain; of what is known at most only, a half, so that it stands behind what is sure."""
    gain = advice.gain_ns if advice.gain_ns is not None else 0.5 * (advice.gain_most_ns or 0.0)
    return gain * _WEIGHT[advice.confidence]


def _explains(advice: Advice, whole: LaunchFacts | None, total_ns: float) -> bool:
    """A fault that wins a part of the time worth naming, on a unit that is busy enough to be what the time goes to."""
    cause = cause_called(advice.cause)
    if cause is None or cause.kind != "fault" or advice.confidence == "low" or not total_ns:
        return False
    gain = advice.gain_ns if advice.gain_ns is not None else advice.gain_most_ns
    least = "explains_pct" if whole is None or units.at_roof(whole) else "explains_below_pct"
    loaded = whole is not None and ((cause.key == "divergence" and bool(whole.signals.get("divergent_branches")))
                                    or (cause.key == "uncoalesced" and units.waits_for_sectors(whole)))
    return 100.0 * (gain or 0.0) / total_ns >= LIMITS[least] and (loaded or _is_loaded(cause.unit, whole))


def _is_loaded(unit: str, whole: LaunchFacts | None) -> bool:
    """Whether the unit that a fault loads is what bounds the kernel, or busy where nothing does; unknown counts as busy."""
    if not unit or whole is None:
        return True
    sol, occupied = whole.sol, whole.occupancy
    if unit == "warps":
        fit, there = occupied.theoretical_pct, occupied.achieved_pct
        return (fit is None or there is None or 2 * there >= fit) and whole.bound in ("latency", "launch", "")
    if whole.bound in ("memory", "compute"):
        return unit == whole.bound
    values = (sol.sm_pct,) if unit == "compute" else (sol.memory_pct, sol.dram_pct, sol.l2_pct, sol.l1_pct)
    shares = [value for value in values if value is not None]
    return not shares or max(shares) >= THRESHOLDS["busy_pct"]


def _counts(rule: Mapping[str, Any], total_ns: float) -> bool:
    """Advice, and not of next to nothing."""
    if rule.get("severity") not in ("optimization", "warning", "error"):
        return False
    worth = rule.get("worth_ns")
    return rule.get("speedup_pct") is None or rule.get("speedup_scope") == "local" or (worth or 0.0) >= total_ns * LEAST_PCT / 100


def _advice(cause: Cause, speaker: Speaker, total_ns: float, ours: Sequence[Ours],
            nvidia: Sequence[Mapping[str, Any]]) -> Advice | None:
    whole, seen = speaker.facts, speaker.seen
    if not ours and not nvidia and not seen:
        return None
    statement = seen if seen and (seen.always or not ours or speaker.name) else None
    least, most, source = capped_gain(cause, stated_gain(ours, nvidia, of_whole(seen, speaker.part), total_ns), whole, total_ns,
                                       speaker.part) if total_ns else (None, None, "")
    if cause.kind == "fault" and total_ns and is_nothing(cause, least, most, ours, total_ns):
        return None                                            # next to nothing once it is held against what its unit does
    return Advice(
        cause=cause.key, title=seen.title if seen and seen.title else cause.title,
        evidence=[*(_lines(_named(statement.text, speaker.name)) if statement and statement.always else []),
                  *(_without_name(finding.title) for finding in ours),
                  *(_lines(_named(statement.text, speaker.name)) if statement and not statement.always else []),
                  *(_cut(rules.plain(rule["text"])) for rule in nvidia)],
        fix=seen.fix if seen and seen.fix else cause.fix or next((each.advice for each in ours if each.advice), ""),
        confidence=_confidence(cause, bool(ours or seen), nvidia, whole),
        gain_ns=least, gain_most_ns=most,
        gain_pct=100.0 * least / total_ns if least is not None and total_ns else None, gain_source=source,
        said_by=[*(["Ridgepoint"] if ours or seen else []), *(f"NVIDIA: {rule['title']}" for rule in nvidia)], kind=cause.kind,
        no_gain="" if least is not None else _why_unknown(cause, seen, nvidia, most) if total_ns else _NO_TIME)


def _named(text: str, name: str) -> str:
    return f"{name}: {text}" if name else text


def _why_unknown(cause: Cause, seen: Seen | None, nvidia: Sequence[Mapping[str, Any]], most_ns: float | None) -> str:
    """Why no least gain is stated; where the most is known, what kind of estimate that is."""
    if seen and seen.why_unknown and (most_ns is None or seen.most_pct is not None):
        return seen.why_unknown
    if most_ns is not None:
        return _UPPER_BOUND
    if any(rule.get("speedup_scope") == "local" for rule in nvidia):
        return _LOCAL
    return cause.why_unknown


def _confidence(cause: Cause, ours: bool, nvidia: Sequence[Mapping[str, Any]], whole: LaunchFacts | None) -> str:
    wide = any(rule.get("speedup_scope") == "global" for rule in nvidia)
    if cause.kind == "symptom":
        return "medium" if ours and wide else "low"
    if ours and nvidia:
        return "high" if _is_loaded(cause.unit, whole) else "medium"
    return "medium" if ours or wide else "low"


def gain_words(advice: Advice, text: Any) -> str:
    """Return "19.4 µs to 30 µs (estimate)", "at most 30 µs (estimate)", or why there is none; `text` writes a time in ns."""
    if advice.gain_ns is not None:
        most = advice.gain_most_ns or 0.0
        more = f" to {text(most)}" if most > 1.005 * advice.gain_ns else ""
        share = f", {pct_text(advice.gain_pct)} of its time" if advice.gain_pct is not None else ""
        return f"{text(advice.gain_ns)}{more}{share} ({advice.gain_source})"
    if advice.gain_most_ns is not None:
        return f"at most {text(advice.gain_most_ns)} ({advice.gain_source})"
    return f"gain unknown: {advice.no_gain}"


def _without_name(title: str) -> str:
    """A finding's title begins with the kernel's short name: the page of the kernel needs none."""
    _, colon, rest = title.partition(": ")
    return capital(rest if colon else title)


def _lines(text: str) -> list[str]:
    return [capital(line) for line in text.splitlines()]


def _cut(text: str) -> str:
    return text if len(text) <= _CHARS else f"{text[:_CHARS].rsplit(' ', 1)[0]} …"


# NVIDIA's rules that the advice about a kernel leaves out, each with the reason: one filter for advice, findings and pages.

ADVICE = ("optimization", "warning", "error")       # severities that ask for something
UNUSUAL = ("MemoryL2Compression",)


def needs_no_action(rule: Mapping[str, Any]) -> str:
    """Return why a rule asks for nothing that people do, whatever the kernel; "" for all others."""
    if rule["identifier"] in UNUSUAL:
        return "compressible memory has to be allocated by the driver's API, which few programs do"
    if rule["identifier"].startswith("CPIStall") and rule["title"].startswith("Wait"):
        return "every instruction has such a latency, and other warps issue meanwhile"
    return ""


def most_ns(rule: Mapping[str, Any], whole: LaunchFacts | None, total_ns: float) -> float | None:
    """Return what a rule's fault costs at most, as the advice bounds it; None where the counts for it are not in the report."""
    cause = cause_of_nvidia(rule["identifier"], rule["title"])
    pct = gains.most_pct(cause.key, whole) if cause is not None and whole is not None else None
    return None if pct is None else total_ns * pct / 100.0


def why_left_out(nvidia: Sequence[Mapping[str, Any]], whole: LaunchFacts | None, total_ns: float,
                 launches: Sequence[LaunchFacts] = ()) -> list[str]:
    """Return, for each rule of `rules.merge_launch_rules`, why it is no advice about this kernel; "" where it is, or says no more
    than what it sees."""
    listed = {advice.cause for advice in advise(whole, total_ns, [], nvidia, launches)}

    def why(rule: Mapping[str, Any]) -> str:
        if rule.get("severity") not in ADVICE:
            return ""
        cause = cause_of_nvidia(rule["identifier"], rule["title"])
        if cause is None or cause.key in listed:
            return needs_no_action(rule)
        return why_idle(cause, whole, launches) or f"on the unit that it loads it costs less than {LEAST_PCT:.0f} % of the time"

    return [why(rule) for rule in nvidia]
