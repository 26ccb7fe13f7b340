"""How much a fault can cost at most: what it adds to the work of the unit that it loads, held against all of that unit's work.

NVIDIA's estimate of one unit is no share of a kernel's time: one store of four bytes a block leaves 7/8 of its sector's bytes
unused, next to nothing of all sectors. So each estimate, theirs or ours, is at most what falls away with the fault
(`units.freed_pct`).
"""

from __future__ import annotations

from collections.abc import Callable

from profiles.analysis.kernel.advising import feeding, units
from profiles.analysis.kernel.facts import LaunchFacts

LANES = ("issue_pct", "alu_pct", "fma_pct", "xu_pct", "fp64_pct", "lsu_inst_pct", "lsu_data_pct")


def most_pct(cause: str, facts: LaunchFacts) -> float | None:
    """Return what the cause costs at most, 0-100 of the kernel's time; None where the counts for it are not in the report."""
    removed = REMOVED[cause](facts) if cause in REMOVED else None
    return None if removed is None else units.freed_pct(facts, removed)


def _uncoalesced(facts: LaunchFacts) -> dict[str, float] | None:
    """Sectors beyond what the addresses' own bytes fill; passes of the L1 beyond one for each word."""
    known = facts.signals
    excess = known.get("sector_excess_pct", known.get("sector_unused_pct"))
    if excess is None:
        return None
    passes = min(known["scattered_pct"], excess) if "scattered_pct" in known else _of_passes(facts) * excess
    behind = excess / 100.0 * _beyond_l1(facts, excess)
    return {"lsu_data_pct": passes / 100.0, "l2_pct": behind, "dram_pct": behind}


def _beyond_l1(facts: LaunchFacts, excess: float) -> float:
    """Of what is too much, the share (0-1) that passes the L1: of two loads of a thread that take half a sector each, each is
    counted as half too many, and the second one hits."""
    known = facts.signals
    if "ld_sectors" not in known or "load_hit_pct" not in known or not excess:
        return 1.0
    loads, stores = known["ld_sectors"], known.get("st_sectors", 0.0)
    passing = loads * (1.0 - known["load_hit_pct"] / 100.0) + stores
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
    known = facts.signals
    local, inst = known.get("local_inst"), known.get("inst")
    if local is None or not inst:
        return None
    moved = local + sum(known.get(f"{space}_{way}_inst", 0.0) for space in ("global", "shared") for way in ("load", "store"))
    share = local / moved if moved else 0.0
    return {"issue_pct": local / inst, "lsu_inst_pct": share, "lsu_data_pct": share, "l2_pct": share, "dram_pct": share}


def _lanes(facts: LaunchFacts) -> dict[str, float] | None:
    lanes = facts.signals.get("lanes")
    return None if lanes is None else dict.fromkeys(LANES, max(0.0, 1.0 - lanes / 32.0))


def _unfused(facts: LaunchFacts) -> dict[str, float] | None:
    """A pair of a multiplication and an addition becomes one instruction."""
    known = facts.signals
    pairs, inst = min(known.get("add_inst", 0.0), known.get("mul_inst", 0.0)), known.get("inst")
    if "add_inst" not in known or not inst:
        return None
    arithmetic = known["add_inst"] + known["mul_inst"] + known.get("fma_inst", 0.0)
    return {"issue_pct": pairs / inst, "fma_pct": pairs / arithmetic if arithmetic else 0.0}


REMOVED: dict[str, Callable[[LaunchFacts], dict[str, float] | None]] = {
    "uncoalesced": _uncoalesced, "bank_conflicts": _conflicts, "divergence": _lanes, "spills": _spills, "unfused": _unfused,
}
