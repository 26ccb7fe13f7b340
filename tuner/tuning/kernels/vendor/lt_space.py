"""All algorithms of cublasLt for one product: ids × capabilities, kept where the library's own check accepts them.

Seen of cublasLt 13.1 on an H200: algorithm 66, which its heuristics choose on Hopper, is refused without a cluster that its tile
and custom option go with, so all three are combined. Older ones accept any cluster and inner shape, as they do not read them: an
attribute whose every value is accepted is left at its default. An algorithm for newer GPUs is listed as well and accepts nothing:
it is given up after GIVE_UP refusals, unless the heuristics chose it.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import product
from math import gcd
from typing import Protocol

from tuner.tuning.kernels.vendor.lt_library import Algorithm, Capabilities, Check
from tuner.tuning.vendor.lt_names import BY_NAME, PLACE, Numbers

SPLITS = (2, 3, 4, 5, 6, 8, 12, 16, 24, 32)        # those that NVIDIA's own samples try, and what lies between
CLUSTERS_FROM = (9, 0)                             # thread block clusters: from compute capability 9.0
FULL_WAVES = 2.0                                   # of blocks over the GPU, from which a split of K adds traffic alone
GIVE_UP = 20_000                                   # refusals in a row of an algorithm that accepts nothing
LOOK_EVERY = 256                                   # checks between two looks at the clock
STEP = 7919                                        # through the values of an algorithm: far ones follow each other
REFUSED, TOO_LARGE = "cublasLt's own check refuses it", "needs more workspace"
FULL, UNSEEN = "split of K: the GPU is full without", "algorithms that were not looked at to their end"
Change = dict[str, int]


class Checks(Protocol):
    """What the listing asks of a product: see tuner.tuning.kernels.vendor.lt_library.Product."""

    def ids(self) -> list[int]: ...
    def capabilities(self, number: int) -> Capabilities | None: ...
    def algorithm(self, numbers: Sequence[int]) -> Algorithm | None: ...
    def check(self, algorithm: Algorithm) -> Check | None: ...


@dataclass(frozen=True)
class Limits:
    """When a listing ends: configurations, seconds; bytes of workspace that a configuration may need."""

    configs: int = 20_000
    seconds: float = 6.0
    workspace_bytes: int = 32 << 20


@dataclass
class Listing:
    """What was found: attributes' values with the library's check, and what was left out by reason."""

    found: dict[Numbers, Check] = field(default_factory=dict)
    pruned: Counter[str] = field(default_factory=Counter)
    whole: bool = True
    checks: int = 0
    seconds: float = 0.0

    @property
    def by_algorithm(self) -> Counter[int]:
        """Return algorithm → configurations."""
        return Counter(numbers[PLACE["ALGO"]] for numbers in self.found)


class _Over(Exception):
    """A limit is reached."""


def list_algorithms(of: Checks, capability: tuple[int, int], limits: Limits, preferred: Collection[int] = (),
                    clock: Callable[[], float] = time.monotonic) -> Listing:
    """Return the algorithms that the library accepts for a product on a GPU of this compute capability.

    preferred   numbers of algorithms that the heuristics choose: they come first and are looked at to their end
    """
    began, walk = clock(), _Walk(of, capability >= CLUSTERS_FROM, limits, clock)
    listing = walk.listing
    left = sorted(of.ids(), key=lambda number: number not in preferred)
    try:
        while left:
            can = of.capabilities(left[0])
            if can is not None:
                walk.algorithm(left[0], can, patient=left[0] in preferred)
            del left[0]
    except _Over:
        listing.whole = False
        listing.pruned[UNSEEN] += len(left)
    listing.seconds = clock() - began
    return listing


class _Walk:
    """Walks through the values of one algorithm after the other."""

    def __init__(self, of: Checks, clusters: bool, limits: Limits, clock: Callable[[], float]) -> None:
        self._of, self._limits, self._clock, self._end = of, limits, clock, clock() + limits.seconds
        self._clusters = [{"CLUSTER": number} for number in _known("CLUSTER")] if clusters else []
        self._inner = [{"INNER": number} for number in _known("INNER")]
        self.listing = Listing()

    def algorithm(self, number: int, can: Capabilities, patient: bool) -> None:
        """Add what is accepted of one algorithm."""
        plain: dict[Numbers, Check] = {}
        clusters: Sequence[Change] = self._clusters
        inner: Sequence[Change] = self._inner
        begun = self.listing.checks
        for tile, stages, custom in _far_apart(can.tiles, can.stages, range(can.custom_max + 1)):
            numbers = _numbers(ALGO=number, TILE=tile, STAGES=stages, CUSTOM=custom)
            check = self._check(numbers)
            if check is not None:
                if not plain:                              # the first: what does this algorithm read?
                    clusters, inner = self._read(numbers, clusters), self._read(numbers, inner)
                self._add(plain, numbers, check)
            for change in clusters:
                varied = _with(numbers, change)
                if (check := self._check(varied)) is not None:
                    inner = inner if plain else self._read(varied, inner)
                    self._add(plain, varied, check)
            if not plain and not patient and self.listing.checks - begun > GIVE_UP:
                self.listing.whole = False
                self.listing.pruned[UNSEEN] += 1
                return
        for numbers, check in plain.items():
            self._vary(numbers, check, can, inner)

    def _vary(self, numbers: Numbers, check: Check, can: Capabilities, inner: Sequence[Change]) -> None:
        """Add what is accepted with other swizzling, splits of K and inner shapes, each alone and together."""
        splits = [{"SPLIT_K": split, "REDUCTION": scheme} for split in SPLITS for scheme in can.reductions if can.split_k]
        if splits and check.waves >= FULL_WAVES:
            self.listing.pruned[FULL] += len(splits)
            splits = []
        groups: list[list[Change]] = []
        for choices in ([{"SWIZZLE": 1} for _ in range(can.swizzle)], splits, inner):
            fine: list[Change] = []
            for change in choices:
                if (found := self._check(varied := _with(numbers, change))) is not None:
                    fine.append(change)
                    self._add(self.listing.found, varied, found)
            groups.append([{}, *fine])
        for chosen in product(*groups):
            changes = [change for change in chosen if change]
            if len(changes) > 1 and (found := self._check(together := _with(numbers, *changes))):
                self._add(self.listing.found, together, found)

    def _add(self, plain: dict[Numbers, Check], numbers: Numbers, check: Check) -> None:
        plain[numbers] = self.listing.found[numbers] = check
        if len(self.listing.found) >= self._limits.configs:
            raise _Over

    def _read(self, numbers: Numbers, changes: Sequence[Change]) -> Sequence[Change]:
        """Return the changes of an attribute; none where every value is accepted: no kernel runs with all of them."""
        told = [self._check(_with(numbers, change)) for change in changes]
        return () if None not in told else changes

    def _check(self, numbers: Numbers) -> Check | None:
        """Return the library's check where it accepts and the workspace is enough. Raises _Over when the time is."""
        listing = self.listing
        listing.checks += 1
        if listing.checks % LOOK_EVERY == 0 and self._clock() > self._end:
            raise _Over
        algorithm = self._of.algorithm(numbers)
        check = self._of.check(algorithm) if algorithm is not None else None
        if check is None:
            listing.pruned[REFUSED] += 1
        elif check.workspace_bytes > self._limits.workspace_bytes:
            listing.pruned[f"{TOO_LARGE} than {self._limits.workspace_bytes >> 20} MiB"] += 1
            return None
        return check


def _known(attribute: str) -> list[int]:
    """Return the numbers that the header names, without the first, which leaves the choice to the library."""
    return [number for number, name in enumerate(BY_NAME[attribute].names) if number and name != "-"]


def _far_apart(*values: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Yield every combination once, those that follow each other far apart: the first thousands are of all kinds."""
    total = 1
    for each in values:
        total *= len(each)
    step = STEP if gcd(STEP, total) == 1 else 1
    for place in range(total):
        at, chosen = place * step % total, []
        for each in values:
            at, index = divmod(at, len(each))
            chosen.append(each[index])
        yield tuple(chosen)


def _numbers(**values: int) -> Numbers:
    return tuple({"SPLIT_K": 1, **values}.get(name, 0) for name in PLACE)


def _with(numbers: Numbers, *changes: Change) -> Numbers:
    varied = list(numbers)
    for each in changes:
        for name, value in each.items():
            varied[PLACE[name]] = value
    return tuple(varied)
