"""What a kernel family could give back: its time, and how far its launches are from their own roof.

    recoverable = Σ time × (1 − achieved / own roof)

over the launches of a family, each group of launches (GPU, shape bucket) by the best that is known of it:

1. *measured*: counters of the same family on the same GPU, of the same bucket where there are any, else of the family as a
   whole. (A bucket is the launch's size in threads: a persistent kernel has one size for many problems, so this is a likeness,
   not an identity.) The own roof of a launch is the roofline at its own arithmetic intensity (Williams, Waterman, Patterson,
   CACM 2009; `analysis.roofline.point`).
2. *estimate from shapes*: the least time that its FLOP and minimal bytes take under the GPU's roofs, where its shapes are known:
   time − floor. That is the high end too: caches seldom reach the minimal bytes. The low end is what would be left if it
   reached only the share of its roof that kernels of its class reach here, 0 where that is not known.
3. *estimate from its class*: kernels of the same operation (and of a vendor's library or not, where enough were counted) in this
   installation's own counter reports on this GPU reach a median share of their roof: time × (1 − median), between the quartiles.
4. *unknown*: none of these. Such a family stands behind all that have a number, by its time; it is never worth all of its time.

Beside it stands what the largest global estimate of NVIDIA's rules in those reports would win ("Est. Speedup", Nsight
Compute's guided analysis). All of it is a bound under ideal conditions, not a promise.

Collectives have no roof of this kind: what they lose is waiting, which the topic of communication tells apart.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import quantiles

COMMUNICATION = "communication"
MEASURED, FROM_SHAPES, FROM_CLASS = "measured", "shapes", "class"       # what a number rests on
LEAST_COUNTED = 3           # kernels of a class: of fewer, quartiles say nothing
FLOOR_TOLERANCE = 1.02      # a floor above the measured time by more than this is wrong: it is not used
# Functions of `analysis.identity` that a vendor's library owns, by how they begin.
LIBRARIES = ("cuBLAS", "cuDNN", "Tensile", "cublas", "cudnn")


@dataclass(frozen=True)
class FamilyTime:
    """Time of launches of one family on one GPU in one shape bucket (None: not known)."""

    family: int
    gpu: str
    bucket: int | None
    category: str
    total_ns: float
    launches: int
    floor_ns: float | None = None       # least time of all these launches together, by their shapes; None: not known


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
    same_shape_ns: float = 0.0                      # of `known_ns`: counted in the same shape bucket
    recoverable_ns: float | None = None
    estimated_ns: float = 0.0
    from_shapes_ns: float = 0.0                     # of `estimated_ns`: by its shapes
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
    """Every family that spent time, the one with the most to win first; those of which nothing is known last, by their time.

    `classes`: of each family, counted or not; without it nothing is estimated from classes.
    """
    classes = classes or {}
    counters = list(counted)
    exact: dict[tuple[int, str, int | None], list[FamilyCounters]] = defaultdict(list)
    whole: dict[tuple[int, str], list[FamilyCounters]] = defaultdict(list)
    for launch in counters:
        exact[launch.family, launch.gpu, launch.bucket].append(launch)
        whole[launch.family, launch.gpu].append(launch)
    reaches = class_reaches(counters, classes)
    by_family: dict[int, Worth] = {}
    for each in spent:
        one = by_family.setdefault(each.family, Worth(each.family, category=each.category))
        one.total_ns += each.total_ns
        one.launches += each.launches
        one.gpus[each.gpu] = one.gpus.get(each.gpu, 0.0) + each.total_ns
        if each.category == COMMUNICATION:
            one.category = COMMUNICATION
        same = exact.get((each.family, each.gpu, each.bucket), []) if each.bucket is not None else []
        if each.category != COMMUNICATION and (_add(one, each, same, True)
                                               or _add(one, each, whole.get((each.family, each.gpu), []), False)):
            continue
        _estimate(one, each, reaches, classes.get(each.family, KernelClass("")))
    for one in by_family.values():
        one.reason = "" if one.expected_ns is not None else _reason(one, reaches, classes.get(one.family, KernelClass("")))
    return sorted(by_family.values(), key=lambda one: (
        one.expected_ns is None, -(one.expected_ns or 0.0), -one.total_ns, one.family))


def class_reaches(counted: Sequence[FamilyCounters], classes: Mapping[int, KernelClass]) -> Reaches:
    """Return by (GPU, operation, library or not; None: both) what counted kernels reach of their own roofs.

    One number per family and shape bucket, however often it was counted. Shares above the roof count as 1. Classes of fewer than
    LEAST_COUNTED have a count alone, their quartiles are NaN.
    """
    times: dict[tuple[int, str, int | None], list[tuple[float, float]]] = defaultdict(list)
    for each in counted:
        if each.roof_pct is not None and each.time_ns > 0:
            times[each.family, each.gpu, each.bucket].append((each.time_ns, min(1.0, max(0.0, each.roof_pct / 100.0))))
    shares: dict[tuple[str, str, bool | None], list[float]] = defaultdict(list)
    for (family, gpu, _), pairs in times.items():
        kind = classes.get(family)
        if kind is None or not kind.op or kind.op == COMMUNICATION:
            continue
        share = sum(ns * part for ns, part in pairs) / sum(ns for ns, _ in pairs)
        shares[gpu, kind.op, kind.library].append(share)
        shares[gpu, kind.op, None].append(share)
    return {key: _reach(key[1], key[2], each) for key, each in shares.items()}


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
    both = (reaches.get((gpu, kind.op, each)) for each in (kind.library, None))
    return next((each for each in both if each is not None and each.count >= LEAST_COUNTED), None)


def _estimate(one: Worth, spent: FamilyTime, reaches: Reaches, kind: KernelClass) -> None:
    """Add an estimate from shapes, else from the class; nothing where neither is known."""
    total_ns, reach = spent.total_ns, _reach_of(reaches, spent.gpu, kind)
    if spent.floor_ns is not None and 0 < spent.floor_ns <= FLOOR_TOLERANCE * total_ns:
        high_ns = middle_ns = max(0.0, total_ns - spent.floor_ns)
        low_ns = max(0.0, total_ns - spent.floor_ns / reach.median) if reach and reach.median else 0.0
        one.from_shapes_ns += total_ns
    elif reach is not None and spent.category != COMMUNICATION:
        low_ns, middle_ns, high_ns = (total_ns * (1.0 - part) for part in (reach.q75, reach.median, reach.q25))
    else:
        return
    if reach is not None:
        one.reaches[spent.gpu] = reach
    one.estimated_ns += total_ns
    one.estimate_ns = (one.estimate_ns or 0.0) + middle_ns
    one.low_ns += low_ns
    one.high_ns += high_ns


def _reason(one: Worth, reaches: Reaches, kind: KernelClass) -> str:
    if one.category == COMMUNICATION:
        return "a collective waits as well as moves data: its time says nothing about a roof"
    if not any(one.gpus):
        return "the file names no GPU: its roofs are unknown"
    gpu = max(filter(None, one.gpus), key=lambda each: one.gpus[each])
    if not kind.op:
        return f"no counters of it on {gpu}, no shapes, and its name does not say what it computes"
    found = reaches.get((gpu, kind.op, None))
    counted = f"{found.count} {kind.op} kernel{'s' * (found.count != 1)}" if found else f"no {kind.op} kernel"
    return f"no counters of it on {gpu}, no shapes, and {counted} counted there: {LEAST_COUNTED} would give an estimate"


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
