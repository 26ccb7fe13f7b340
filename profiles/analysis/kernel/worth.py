"""What a kernel family could give back: its time, and how far its launches are from their own roof.

    recoverable = Σ time × (1 − achieved / own roof)

over the launches of a family, each group of launches (GPU, shape bucket) with the roof that counters of the same family
measured on the same GPU: of the same bucket where there are any, else of the family as a whole. (A bucket is the launch's
size in threads: a persistent kernel has one size for many problems, so this is a likeness, not an identity.) The own
roof of a launch is the roofline at its own arithmetic intensity (Williams, Waterman, Patterson, CACM 2009;
`analysis.roofline.point`). Beside it stands what the largest global estimate of NVIDIA's rules in those reports would win
("Est. Speedup", Nsight Compute's guided analysis). Both are bounds under ideal conditions, not promises. Where nothing was
counted, nothing is known: at most all of the time could be won back, and that is how such families are ranked.

Collectives have no roof of this kind: what they lose is waiting, which the topic of communication tells apart.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

COMMUNICATION = "communication"


@dataclass(frozen=True)
class FamilyTime:
    """Time of launches of one family on one GPU in one shape bucket (None: not known)."""

    family: int
    gpu: str
    bucket: int | None
    category: str
    total_ns: float
    launches: int


@dataclass(frozen=True)
class FamilyCounters:
    """What counters say of the same. `roof_pct` and `gain_pct` of the run time, 0-100; None: the report does not tell."""

    family: int
    gpu: str
    bucket: int | None
    time_ns: float
    roof_pct: float | None
    side: str = ""
    gain_pct: float | None = None
    rule: str = ""


@dataclass
class Worth:
    """Of one family. None where no counters tell it; `known_ns` is the time that the two estimates speak of."""

    family: int
    total_ns: float = 0.0
    launches: int = 0
    category: str = "compute"
    known_ns: float = 0.0
    same_shape_ns: float = 0.0                      # of `known_ns`: counted in the same shape bucket
    recoverable_ns: float | None = None
    rule_ns: float | None = None
    rule: str = ""
    sides: dict[str, float] = field(default_factory=dict)      # roof -> time under it
    gpus: dict[str, float] = field(default_factory=dict)

    @property
    def roof_pct(self) -> float | None:
        """Return the share of its own roof, over the time that is known."""
        return None if self.recoverable_ns is None or not self.known_ns else 100.0 * (1.0 - self.recoverable_ns / self.known_ns)

    @property
    def side(self) -> str:
        return max(self.sides, key=lambda side: self.sides[side], default="")

    @property
    def at_most_ns(self) -> float:
        """Return what could be won back at most.

        All that is unknown, and of the rest what is recoverable.
        """
        return self.total_ns - self.known_ns + (self.recoverable_ns or 0.0)


def worth(spent: Iterable[FamilyTime], counted: Iterable[FamilyCounters]) -> list[Worth]:
    """Every family that spent time, the one with the most to win first."""
    exact: dict[tuple[int, str, int | None], list[FamilyCounters]] = defaultdict(list)
    whole: dict[tuple[int, str], list[FamilyCounters]] = defaultdict(list)
    for launch in counted:
        exact[launch.family, launch.gpu, launch.bucket].append(launch)
        whole[launch.family, launch.gpu].append(launch)
    by_family: dict[int, Worth] = {}
    for each in spent:
        one = by_family.setdefault(each.family, Worth(each.family, category=each.category))
        one.total_ns += each.total_ns
        one.launches += each.launches
        one.gpus[each.gpu] = one.gpus.get(each.gpu, 0.0) + each.total_ns
        if each.category == COMMUNICATION:
            one.category = COMMUNICATION
            continue
        same = exact.get((each.family, each.gpu, each.bucket), []) if each.bucket is not None else []
        if not _add(one, each, same, True):
            _add(one, each, whole.get((each.family, each.gpu), []), False)
    return sorted(by_family.values(), key=lambda one: (-one.at_most_ns, -one.total_ns, one.family))


def _add(one: Worth, spent: FamilyTime, counted: list[FamilyCounters], same_shape: bool) -> bool:
    """Apply the time-weighted means of these counts; False where none of them knows a roof."""
    roofs = [each for each in counted if each.roof_pct is not None and each.time_ns > 0]
    if not roofs:
        return False
    time_ns = sum(each.time_ns for each in roofs)
    lost = sum(each.time_ns * max(0.0, 1.0 - (each.roof_pct or 0.0) / 100.0) for each in roofs) / time_ns
    one.known_ns += spent.total_ns
    one.same_shape_ns += spent.total_ns if same_shape else 0.0
    one.recoverable_ns = (one.recoverable_ns or 0.0) + spent.total_ns * lost
    for each in roofs:
        one.sides[each.side] = one.sides.get(each.side, 0.0) + spent.total_ns * each.time_ns / time_ns
    gains = [each for each in counted if each.gain_pct is not None and each.time_ns > 0]
    if gains:
        gain = sum(each.time_ns * (each.gain_pct or 0.0) for each in gains) / sum(each.time_ns for each in counted) / 100.0
        one.rule_ns = (one.rule_ns or 0.0) + spent.total_ns * gain
        one.rule = max(gains, key=lambda each: each.time_ns * (each.gain_pct or 0.0)).rule
    return True
