"""All algorithms of cublasLt for one product: ids × capabilities, kept where the library's own check accepts them.

A tile, stages and custom option are looked at first. What is accepted is then varied in its cluster, swizzling, split of K with
its reduction, and inner shape, each alone, and the accepted values are combined. Algorithms take turns, so that a listing that ends
by its limits has some of each.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Protocol

from tuner.kernels.vendor.lt_library import Algorithm, Capabilities, Check
from tuner.vendor.lt_names import BY_NAME, PLACE, Numbers

SPLITS = (2, 3, 4, 5, 6, 8, 12, 16, 24, 32)        # those that NVIDIA's own samples try, and what lies between
CLUSTERS_FROM = (9, 0)                             # thread block clusters: from compute capability 9.0
REFUSED, TOO_LARGE = "cublasLt's own check refuses it", "needs more workspace"
UNSEEN = "algorithms that were not looked at to their end"


class Checks(Protocol):
    """What the listing asks of a product: see tuner.kernels.vendor.lt_library.Product."""

    def ids(self) -> list[int]: ...
    def capabilities(self, number: int) -> Capabilities | None: ...
    def algorithm(self, numbers: Sequence[int]) -> Algorithm | None: ...
    def check(self, algorithm: Algorithm) -> Check | None: ...


@dataclass(frozen=True)
class Limits:
    """When a listing ends: configurations, seconds, bytes of workspace."""

    configs: int = 20_000
    seconds: float = 6.0
    workspace_bytes: int = 32 << 20


@dataclass
class Listing:
    """What was found: attributes' values, what was left out by reason, counts of each algorithm."""

    found: list[Numbers] = field(default_factory=list)
    pruned: Counter[str] = field(default_factory=Counter)
    by_algorithm: Counter[int] = field(default_factory=Counter)
    whole: bool = True
    seconds: float = 0.0


def list_algorithms(of: Checks, capability: tuple[int, int], limits: Limits,
                    clock: Callable[[], float] = time.monotonic) -> Listing:
    """Return the algorithms that the library accepts for a product on a GPU of this compute capability."""
    began, listing = clock(), Listing()
    ways = {number: _walk(of, number, found, capability >= CLUSTERS_FROM, limits.workspace_bytes, listing)
            for number in of.ids() if (found := of.capabilities(number)) is not None}
    while ways:
        for number in list(ways):
            if clock() - began > limits.seconds or len(listing.found) >= limits.configs:
                listing.whole = False
                listing.pruned[UNSEEN] += len(ways)
                ways.clear()
                break
            numbers = next(ways[number], None)
            if numbers is None:
                del ways[number]
            elif numbers:
                listing.found.append(numbers)
                listing.by_algorithm[number] += 1
    listing.seconds = clock() - began
    return listing


def _walk(of: Checks, number: int, can: Capabilities, clusters: bool, workspace_bytes: int,
          listing: Listing) -> Iterator[Numbers]:
    """Yield accepted values of one algorithm, and () for each step without one, so that others have their turn."""
    def accepts(numbers: Numbers) -> bool:
        algorithm = of.algorithm(numbers)
        check = of.check(algorithm) if algorithm is not None else None
        if check is None:
            listing.pruned[REFUSED] += 1
        elif check.workspace_bytes > workspace_bytes:
            listing.pruned[f"{TOO_LARGE} than {workspace_bytes >> 20} MiB"] += 1
        return check is not None and check.workspace_bytes <= workspace_bytes

    plain = []
    for tile, stages, custom in product(can.tiles, can.stages, range(can.custom_max + 1)):
        numbers = _numbers(ALGO=number, TILE=tile, STAGES=stages, CUSTOM=custom)
        if accepts(numbers):
            plain.append(numbers)
            yield numbers
        else:
            yield ()
    for numbers in plain:
        ways = _variations(can, clusters)
        taken = [[way for way in choices if not any(way.values()) or accepts(_with(numbers, way))] for choices in ways]
        for chosen in product(*taken):
            changes = [way for way in chosen if any(way.values())]
            if not changes:
                continue                                       # it is the plain one
            varied = _with(numbers, *changes)
            yield varied if len(changes) == 1 or accepts(varied) else ()


def _variations(can: Capabilities, clusters: bool) -> list[list[dict[str, int]]]:
    """Return the values to try of each group of attributes, first the one that changes nothing."""
    known = [at for at, name in enumerate(BY_NAME["CLUSTER"].names) if at and name != "-"]
    inner = range(1, len(BY_NAME["INNER"].names))
    return [[{}, *({"CLUSTER": each} for each in known if clusters)],
            [{}, *({"SWIZZLE": 1} for _ in range(can.swizzle))],
            [{}, *({"SPLIT_K": split, "REDUCTION": scheme} for split in SPLITS for scheme in can.reductions if can.split_k)],
            [{}, *({"INNER": each} for each in inner)]]


def _numbers(**values: int) -> Numbers:
    return tuple({"SPLIT_K": 1, **values}.get(name, 0) for name in PLACE)


def _with(numbers: Numbers, *changes: dict[str, int]) -> Numbers:
    varied = list(numbers)
    for each in changes:
        for name, value in each.items():
            varied[PLACE[name]] = value
    return tuple(varied)
