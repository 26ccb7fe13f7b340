"""What a kernel family could give back: its time, and how far its launches are from their own roof.

    recoverable = Σ time × (1 − achieved / own roof)

over the launches of a family, each shape of launches by the best that is known of it:

1. *measured*: counters of this very shape on the same GPU, `is_same_shape`: same grid and block, and the same FLOP where both sides
   state those of a product (a persistent kernel has one grid for many problems), else about the same time per launch. The own roof
   of a launch is the roofline at its own arithmetic intensity (Williams, Waterman, Patterson, CACM 2009;
   `analysis.roofline.point`). Counters of other shapes say nothing of it.
2. *estimate from shapes*: where its dimensions are known, the least time that its FLOP and minimal bytes take under the GPU's
   roofs: between nothing and time − floor, as caches seldom reach the minimal bytes and no kernel all of its peak. Expected is
   the middle.
3. *estimate from its class*: kernels of the same operation (and of a vendor's library or not, where enough were counted) in this
   installation's own counter reports on this GPU reach a median share of their roof: time × (1 − median), between the quartiles.
4. *unknown*: none of these. It has no number; in the order it stands where half of its time would, the middle of what is possible.

Beside it stands what the largest global estimate of NVIDIA's rules in those reports would win ("Est. Speedup", Nsight
Compute's guided analysis). All of it is a bound under ideal conditions, not a promise.

Collectives have no roof of this kind: what they lose is waiting, which the topic of communication tells apart.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import quantiles

from profiles.analysis.core.sentences import share_pct

COMMUNICATION = "communication"
MEASURED, FROM_SHAPES, FROM_CLASS = "measured", "shapes", "class"       # what a number rests on
LEAST_COUNTED = 3           # kernels of a class: of fewer, quartiles say nothing
FLOP_TOLERANCE = 0.05       # counters and dimensions of one product: what tiles at the edge compute beyond it
TIME_TOLERANCE = 1.5        # of a launch whose FLOP one side does not know: Nsight Compute holds the base clock and clears caches
UNKNOWN_SHARE = 0.5         # of the time of a family of which nothing is known, for its place in the order alone
FLOOR_TOLERANCE = 1.02      # a floor above the measured time by more than this is wrong: it is not used
# Functions of `analysis.identity` that a vendor's library owns, by how they begin.
LIBRARIES = ("cuBLAS", "cuDNN", "Tensile", "cublas", "cudnn")


@dataclass(frozen=True)
class LaunchShape:
    """What tells the work of a launch. `grid`, `block`: "132×1×1"; `flop`: of one launch of a product, None: not known."""

    grid: str
    block: str
    flop: float | None = None


@dataclass(frozen=True)
class FamilyCounters:
    """What counters say of launches of one shape. `roof_pct`, `gain_pct` of the run time: 0-100; None: the report does not tell."""

    family: int
    gpu: str
    shape: LaunchShape | None
    time_ns: float              # of all launches together
    roof_pct: float | None
    side: str = ""
    gain_pct: float | None = None
    rule: str = ""
    launches: int = 1


@dataclass(frozen=True)
class FamilyTime:
    """Time of launches of one family on one GPU with one shape (None: not known, or nothing asks for it)."""

    family: int
    gpu: str
    shape: LaunchShape | None
    category: str
    total_ns: float
    launches: int
    floor_ns: float | None = None           # least time of all these launches together, by their shapes; None: not known
    own: FamilyCounters | None = None       # where these very launches were counted


def is_same_shape(spent: FamilyTime, counted: FamilyCounters) -> bool:
    """Return whether counters speak for launches: of this shape, by grid, block and FLOP, else by the time of a launch."""
    mine, other = spent.shape, counted.shape
    if mine is None or other is None or not mine.grid or not mine.block or (mine.grid, mine.block) != (other.grid, other.block):
        return False
    if mine.flop and other.flop:
        return abs(mine.flop / other.flop - 1.0) <= FLOP_TOLERANCE
    if not (spent.launches and spent.total_ns > 0 and counted.launches and counted.time_ns > 0):
        return False
    ratio = spent.total_ns / spent.launches / (counted.time_ns / counted.launches)
    return 1.0 / TIME_TOLERANCE <= ratio <= TIME_TOLERANCE


@dataclass(frozen=True)
class KernelClass:
    """What a family is by its name: `op` "" where it does not say; `library`: a vendor's."""

    op: str
    library: bool = False


@dataclass(frozen=True)
class Reach:
    """Share of their own roof, 0-1, that counted kernels of a class reach on one GPU: quartiles over `count` kernel shapes."""

    what: str                   # "matmul kernels of libraries"
    count: int
    q25: float
    median: float
    q75: float


Reaches = Mapping[tuple[str, str, bool | None], Reach]      # by GPU, operation, of a vendor's library or not (None: both)


@dataclass
class Worth:
    """Of one family. `known_ns` is the time that counters speak of, `estimated_ns` that of the estimates; the rest is unknown.

    `recoverable_ns`, `rule_ns`: None where no counters tell; `estimate_ns`, `low_ns`, `high_ns`: of the estimated part alone.
    """

    family: int
    total_ns: float = 0.0
    launches: int = 0
    category: str = "compute"
    known_ns: float = 0.0
    recoverable_ns: float | None = None
    estimated_ns: float = 0.0
    from_shapes_ns: float = 0.0                     # of `estimated_ns`: by its shapes
    floor_ns: float = 0.0                           # least time of `from_shapes_ns`
    estimate_ns: float | None = None
    low_ns: float = 0.0
    high_ns: float = 0.0
    reaches: dict[str, Reach] = field(default_factory=dict)    # GPU -> the class that an estimate rests on
    rule_ns: float | None = None
    rule: str = ""
    reason: str = ""                                # why nothing is known, "" where something is
    sides: dict[str, float] = field(default_factory=dict)      # roof -> time under it
    gpus: dict[str, float] = field(default_factory=dict)

    @property
    def roof_pct(self) -> float | None:
        """Return the share of its own roof, over the time that is known."""
        return None if self.recoverable_ns is None or not self.known_ns else 100.0 * (1.0 - self.recoverable_ns / self.known_ns)

    @property
    def shapes_roof_pct(self) -> float | None:
        """Return the share of the roof by the dimensions of its launches, over the time whose dimensions are known."""
        return share_pct(self.floor_ns, self.from_shapes_ns)

    @property
    def order_ns(self) -> float:
        """Return what the order goes by: what is expected; of what nothing is known the middle of what is possible."""
        return self.expected_ns if self.expected_ns is not None else UNKNOWN_SHARE * self.total_ns

    @property
    def side(self) -> str:
        return max(self.sides, key=lambda side: self.sides[side], default="")

    @property
    def unknown_ns(self) -> float:
        """Return the time of which neither counters nor an estimate speak."""
        return max(0.0, self.total_ns - self.known_ns - self.estimated_ns)

    @property
    def expected_ns(self) -> float | None:
        """Return what could be won back, measured and estimated; None where nothing is known of it."""
        if self.recoverable_ns is None and self.estimate_ns is None:
            return None
        return (self.recoverable_ns or 0.0) + (self.estimate_ns or 0.0)

    @property
    def interval_ns(self) -> tuple[float, float] | None:
        """Return the low and the high end of `expected_ns`; the measured part has no width."""
        measured_ns = self.recoverable_ns or 0.0
        return None if self.expected_ns is None else (measured_ns + self.low_ns, measured_ns + self.high_ns)

    @property
    def basis(self) -> str:
        """Return what most of the number rests on: MEASURED, FROM_SHAPES, FROM_CLASS, "" where there is none."""
        parts = {MEASURED: self.known_ns, FROM_SHAPES: self.from_shapes_ns, FROM_CLASS: self.estimated_ns - self.from_shapes_ns}
        return "" if self.expected_ns is None else max(parts, key=lambda each: parts[each])

    @property
    def at_most_ns(self) -> float:
        """Return what could be won back at most: of what is measured its distance to the roof, of the rest all of it."""
        return self.total_ns - self.known_ns + (self.recoverable_ns or 0.0)


def worth(spent: Iterable[FamilyTime], counted: Iterable[FamilyCounters],
          classes: Mapping[int, KernelClass] | None = None) -> list[Worth]:
    """Return every family that spent time, by `order_ns`: what is expected to be won back.

    `classes`: of each family, counted or not; without it nothing is estimated from classes.
    """
    classes = classes or {}
    counters = list(counted)
    of_family: dict[tuple[int, str], list[FamilyCounters]] = defaultdict(list)
    for family_counters in counters:
        of_family[family_counters.family, family_counters.gpu].append(family_counters)
    reaches = class_reaches(counters, classes)
    by_family: dict[int, Worth] = {}
    for part in spent:
        family_worth = by_family.setdefault(part.family, Worth(part.family, category=part.category))
        family_worth.total_ns += part.total_ns
        family_worth.launches += part.launches
        family_worth.gpus[part.gpu] = family_worth.gpus.get(part.gpu, 0.0) + part.total_ns
        if part.category == COMMUNICATION:
            family_worth.category = COMMUNICATION
        known = of_family.get((part.family, part.gpu), [])
        same = [part.own] if part.own else [each for each in known if is_same_shape(part, each)]
        if part.category == COMMUNICATION or not _add(family_worth, part, same):
            _estimate(family_worth, part, reaches, classes.get(part.family, KernelClass("")))
    for family_worth in by_family.values():
        family_worth.reason = "" if family_worth.expected_ns is not None else _reason(
            family_worth, reaches, classes.get(family_worth.family, KernelClass("")), of_family)
    return sorted(by_family.values(), key=lambda one: (-one.order_ns, one.expected_ns is None, -one.total_ns, one.family))


def class_reaches(counted: Sequence[FamilyCounters], classes: Mapping[int, KernelClass]) -> Reaches:
    """Return by (GPU, operation, library or not; None: both) what counted kernels reach of their own roofs.

    One number per family and shape, however often it was counted. Shares above the roof count as 1. Classes of fewer than
    LEAST_COUNTED have a count alone, their quartiles are NaN.
    """
    times: dict[tuple[int, str, LaunchShape | None], list[tuple[float, float]]] = defaultdict(list)
    for each in counted:
        if each.roof_pct is not None and each.time_ns > 0:
            times[each.family, each.gpu, each.shape].append((each.time_ns, min(1.0, max(0.0, each.roof_pct / 100.0))))
    shares: dict[tuple[str, str, bool | None], list[float]] = defaultdict(list)
    for (family, gpu, _), pairs in times.items():
        kind = classes.get(family)
        if kind is None or not kind.op or kind.op == COMMUNICATION:
            continue
        share = sum(ns * part for ns, part in pairs) / sum(ns for ns, _ in pairs)
        shares[gpu, kind.op, kind.library].append(share)
        shares[gpu, kind.op, None].append(share)
    return {key: _reach(key[1], key[2], parts) for key, parts in shares.items()}


def _reach(op: str, library: bool | None, shares: Sequence[float]) -> Reach:
    owned = {True: " of vendor libraries", False: " outside vendor libraries", None: ""}[library]
    if len(shares) < LEAST_COUNTED:
        return Reach(f"{op} kernels{owned}", len(shares), *[float("nan")] * 3)
    q25, median, q75 = quantiles(shares, n=4, method="inclusive")
    return Reach(f"{op} kernels{owned}", len(shares), q25, median, q75)


def _reach_of(reaches: Reaches, gpu: str, kind: KernelClass) -> Reach | None:
    """The narrowest class of which enough kernels were counted."""
    if not gpu or not kind.op:
        return None
    both = (reaches.get((gpu, kind.op, library)) for library in (kind.library, None))
    return next((reach for reach in both if reach is not None and reach.count >= LEAST_COUNTED), None)


def _estimate(one: Worth, spent: FamilyTime, reaches: Reaches, kind: KernelClass) -> None:
    """Add an estimate from shapes, else from the class; nothing where neither is known."""
    total_ns, reach = spent.total_ns, _reach_of(reaches, spent.gpu, kind)
    if spent.floor_ns is not None and 0 < spent.floor_ns <= FLOOR_TOLERANCE * total_ns:
        low_ns, high_ns = 0.0, max(0.0, total_ns - spent.floor_ns)
        middle_ns = (low_ns + high_ns) / 2.0
        one.from_shapes_ns += total_ns
        one.floor_ns += min(total_ns, spent.floor_ns)
    elif reach is not None and spent.category != COMMUNICATION:
        low_ns, middle_ns, high_ns = (total_ns * (1.0 - part) for part in (reach.q75, reach.median, reach.q25))
        one.reaches[spent.gpu] = reach
    else:
        return
    one.estimated_ns += total_ns
    one.estimate_ns = (one.estimate_ns or 0.0) + middle_ns
    one.low_ns += low_ns
    one.high_ns += high_ns


def _reason(one: Worth, reaches: Reaches, kind: KernelClass,
            counted: Mapping[tuple[int, str], Sequence[FamilyCounters]]) -> str:
    if one.category == COMMUNICATION:
        return "a collective waits as well as moves data: its time says nothing about a roof"
    if not any(one.gpus):
        return "the file names no GPU: its roofs are unknown"
    gpu = max(filter(None, one.gpus), key=lambda each: one.gpus[each])
    counters = f"its counters on {gpu} are of other shapes" if counted.get((one.family, gpu)) else f"no counters of it on {gpu}"
    if not kind.op:
        return f"{counters}, no dimensions, and its name does not say what it computes"
    reach = reaches.get((gpu, kind.op, None))
    alike = f"{reach.count} {kind.op} kernel{'s' * (reach.count != 1)}" if reach else f"no {kind.op} kernel"
    return f"{counters}, no dimensions, and {alike} counted there: {LEAST_COUNTED} would give an estimate"


def _add(one: Worth, spent: FamilyTime, counted: Sequence[FamilyCounters]) -> bool:
    """Apply the time-weighted means of these counts; False where none of them knows a roof."""
    roofs = [counters for counters in counted if counters.roof_pct is not None and counters.time_ns > 0]
    if not roofs:
        return False
    time_ns = sum(roof.time_ns for roof in roofs)
    lost = sum(roof.time_ns * max(0.0, 1.0 - (roof.roof_pct or 0.0) / 100.0) for roof in roofs) / time_ns
    one.known_ns += spent.total_ns
    one.recoverable_ns = (one.recoverable_ns or 0.0) + spent.total_ns * lost
    for roof in roofs:
        one.sides[roof.side] = one.sides.get(roof.side, 0.0) + spent.total_ns * roof.time_ns / time_ns
    gains = [counters for counters in counted if counters.gain_pct is not None and counters.time_ns > 0]
    if gains:
        gain = sum(each.time_ns * (each.gain_pct or 0.0) for each in gains) / sum(each.time_ns for each in counted) / 100.0
        one.rule_ns = (one.rule_ns or 0.0) + spent.total_ns * gain
        one.rule = max(gains, key=lambda each: each.time_ns * (each.gain_pct or 0.0)).rule
    return True
