"""What a kernel wins by one advice, the least and the most that anybody states, and how far it is from its roof at all."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from profiles.analysis.kernel.advising import feeding, units
from profiles.analysis.kernel.advising.causes import Cause
from profiles.analysis.kernel.advising.units import Seen
from profiles.analysis.kernel.bounds import reached_roof, recoverable_ns
from profiles.analysis.kernel.facts import LaunchFacts

# How much a fault can cost at most: what it adds to the work of the unit that it loads, held against all of that unit's work.
#
# NVIDIA's estimate of one unit is no share of a kernel's time: one store of four bytes a block leaves 7/8 of its sector's bytes
# unused, next to nothing of all sectors. So each estimate, theirs or ours, is at most what falls away with the fault
# (`units.freed_pct`).

LANES = ("issue_pct", "alu_pct", "fma_pct", "xu_pct", "fp64_pct", "lsu_inst_pct", "lsu_data_pct")


def most_pct(cause: str, facts: LaunchFacts) -> float | None:
    """Return what the cause costs at most, 0-100 of the kernel's time; None where the counts for it are not in the report."""
    removed = REMOVED[cause](facts) if cause in REMOVED else None
    return None if removed is None else units.freed_pct(facts, removed)


def _uncoalesced(facts: LaunchFacts) -> dict[str, float] | None:
    """Sectors beyond what the addresses' own bytes fill; passes of the L1 beyond one for each word."""
    signals = facts.signals
    excess = signals.get("sector_excess_pct", signals.get("sector_unused_pct"))
    if excess is None:
        return None
    passes = min(signals["scattered_pct"], excess) if "scattered_pct" in signals else _of_passes(facts) * excess
    behind = excess / 100.0 * _beyond_l1(facts, excess)
    return {"lsu_data_pct": passes / 100.0, "l2_pct": behind, "dram_pct": behind}


def _beyond_l1(facts: LaunchFacts, excess: float) -> float:
    """Of what is too much, the share (0-1) that passes the L1: of two loads of a thread that take half a sector each, each is
    counted as half too many, and the second one hits."""
    signals = facts.signals
    if "ld_sectors" not in signals or "load_hit_pct" not in signals or not excess:
        return 1.0
    loads, stores = signals["ld_sectors"], signals.get("st_sectors", 0.0)
    passing = loads * (1.0 - signals["load_hit_pct"] / 100.0) + stores
    too_many = (loads + stores) * excess / 100.0
    if not passing:
        return 0.0
    beyond = max(0.0, passing - (loads + stores - too_many)) / passing
    return min(1.0, beyond * 100.0 / excess)


def _of_passes(facts: LaunchFacts) -> float:
    """The share of the L1's passes that are no shared memory's."""
    return 1.0 - facts.signals.get("shared_pct", 0.0) / 100.0


def _conflicts(facts: LaunchFacts) -> dict[str, float] | None:
    pct = facts.signals.get("conflict_pct")
    return None if pct is None else {"lsu_data_pct": feeding.conflict_kind(facts)[1] * pct / 100.0}


def _spills(facts: LaunchFacts) -> dict[str, float] | None:
    """Loads and stores of local memory, of all that is executed and of all that goes to memory."""
    signals = facts.signals
    local, inst = signals.get("local_inst"), signals.get("inst")
    if local is None or not inst:
        return None
    moved = local + sum(signals.get(f"{space}_{way}_inst", 0.0) for space in ("global", "shared") for way in ("load", "store"))
    share = local / moved if moved else 0.0
    return {"issue_pct": local / inst, "lsu_inst_pct": share, "lsu_data_pct": share, "l2_pct": share, "dram_pct": share}


def _lanes(facts: LaunchFacts) -> dict[str, float] | None:
    lanes = facts.signals.get("lanes")
    return None if lanes is None else dict.fromkeys(LANES, max(0.0, 1.0 - lanes / 32.0))


def _unfused(facts: LaunchFacts) -> dict[str, float] | None:
    """A pair of a multiplication and an addition becomes one instruction."""
    signals = facts.signals
    pairs, inst = min(signals.get("add_inst", 0.0), signals.get("mul_inst", 0.0)), signals.get("inst")
    if "add_inst" not in signals or not inst:
        return None
    arithmetic = signals["add_inst"] + signals["mul_inst"] + signals.get("fma_inst", 0.0)
    return {"issue_pct": pairs / inst, "fma_pct": pairs / arithmetic if arithmetic else 0.0}


REMOVED: dict[str, Callable[[LaunchFacts], dict[str, float] | None]] = {
    "uncoalesced": _uncoalesced, "bank_conflicts": _conflicts, "divergence": _lanes, "spills": _spills, "unfused": _unfused,
}


LEAST_PCT = 3.0                 # of the kernel's time: what is estimated below it is no advice
Gain = tuple[float | None, float | None, str]      # the least, the most, in ns, and who says the least


@dataclass(frozen=True)
class Ours:
    """A finding of ours about the kernel."""

    rule: str
    title: str
    advice: str
    worth_ns: float | None
    most_pct: float | None = None           # of its time, at most: `findings_source.most_pct`


@dataclass(frozen=True)
class Headroom:
    """How far a kernel is from its own roof: a measure, an upper bound for all advice together, no advice."""

    reached_pct: float                      # of the roof at its intensity, or of the ceiling that bounds it
    ceiling: str
    left_pct: float                         # of its time
    left_ns: float | None

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def headroom(whole: LaunchFacts | None, total_ns: float) -> Headroom | None:
    """Return the time above its roof (`bounds.reached_roof`); None where no roof is known."""
    if whole is None or not whole.bound or not total_ns:
        return None
    roof = reached_roof(whole.point, whole.sol, whole.bounded)
    if roof is None:
        return None
    reached, name = roof
    return Headroom(reached, name, max(0.0, 100.0 - reached), recoverable_ns(total_ns, reached))


def stated_gain(ours: Sequence[Ours], nvidia: Sequence[Mapping[str, Any]], seen: Seen | None,
                total_ns: float) -> Gain:
    """Return the least and the most that anybody states, in ns, and who says the least. "At most" is no least."""
    gains = [(finding.worth_ns, "our estimate") for finding in ours if finding.worth_ns]
    gains += [(rule["worth_ns"], "NVIDIA's estimate") for rule in nvidia if rule.get("worth_ns")]
    most = [gain for gain, _ in gains] or [total_ns * finding.most_pct / 100.0 for finding in ours if finding.most_pct]
    if seen and seen.least_pct:
        gains.append((total_ns * seen.least_pct / 100.0, "our estimate"))
    if seen and seen.most_pct is not None and (not gains or seen.least_pct or seen.always):
        most.append(total_ns * seen.most_pct / 100.0)
    least = min(gains, key=lambda gain: gain[0], default=None)
    most += [gain for gain, _ in gains]
    return least[0] if least else None, max(most, default=None), least[1] if least else "our estimate" if most else ""


def capped_gain(cause: Cause, gain: Gain, whole: LaunchFacts | None, total_ns: float, part: float = 1.0) -> Gain:
    """What falls away with the fault on its unit; a remedy that leaves operations and bytes as they are wins at most the distance
    to the roof of that work. `part` of the time is the launches' that `whole` speaks of."""
    share_pct = most_pct(cause.key, whole) if whole else None
    if share_pct is not None:
        gain = _at_most(gain, total_ns * part * share_pct / 100.0, "what it adds to the work of its unit")
    if cause.key == "tail" and whole:           # NVIDIA counts all of the last wave's time, also where it is nearly full
        loss_pct = whole.signals.get("tail_loss_pct", whole.occupancy.tail_loss_pct)
        sampled = gain[0] is not None and gain[2] == "our estimate"
        if loss_pct is not None and not sampled:
            gain = _at_most(gain, total_ns * loss_pct / 100.0, "the block slots that its last wave leaves empty")
    room = headroom(whole, total_ns) if cause.same_work and whole and whole.point.roof_pct is not None else None
    if room is None or room.left_ns is None:
        return gain
    return _at_most(gain, room.left_ns, "its distance to the roof")


def _at_most(gain: Gain, limit_ns: float, words: str) -> Gain:
    least, most, source = gain
    if least is not None and least > limit_ns:
        source += f", at most {words}"
    return (None if least is None else min(least, limit_ns)), (None if most is None else min(most, limit_ns)), source


def of_whole(seen: Seen | None, part: float) -> Seen | None:
    """The gains of one launch as shares of all launches' time."""
    if seen is None or part == 1.0:
        return seen
    return replace(seen, least_pct=None if seen.least_pct is None else seen.least_pct * part,
                   most_pct=None if seen.most_pct is None else seen.most_pct * part)


def is_nothing(cause: Cause, least: float | None, most: float | None, ours: Sequence[Ours], total_ns: float) -> bool:
    """Whether an estimate says that nothing is won; a tail that samples measured is said in any case."""
    bound_ns = most if most is not None else least
    if cause.key == "tail":
        bound_ns = None if ours else least
    return bound_ns is not None and bound_ns < total_ns * LEAST_PCT / 100
