"""Shape buckets: which shapes share a cache entry, by a policy that is data.

Standard library only: the same few lines decide on the server, in a job's client and in a test.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Buckets:
    """How a dimension is rounded.

    exact_up_to         so small a dimension changes the tile that fits: it is its own bucket
    steps_per_doubling  1: powers of two; 2: each octave in halves; 0.5: powers of four; 0: every value for itself
    max_distance        powers of two, over all dimensions together, that an entry of another bucket may stand away
    """

    exact_up_to: int = 16
    steps_per_doubling: float = 1.0
    max_distance: float = 4.0

    def __post_init__(self) -> None:
        if not 0 <= self.exact_up_to <= 1 << 20:
            raise ValueError("exact_up_to must be between 0 and 1,048,576")
        if self.steps_per_doubling not in STEPS:
            raise ValueError(f"steps_per_doubling must be one of {', '.join(f'{step:g}' for step in STEPS)}")
        if not 0 <= self.max_distance <= 40:
            raise ValueError("max_distance must be between 0 and 40 powers of two")

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Buckets:
        return cls(int(data["exact_up_to"]), float(data["steps_per_doubling"]), float(data["max_distance"]))

    @property
    def text(self) -> str:
        """Return the policy in one sentence."""
        near = (f"An entry of another bucket may serve up to {self.max_distance:g} powers of two away."
                if self.max_distance else "An entry serves its own bucket only.")
        small = f"up to {self.exact_up_to}, and " if self.exact_up_to else ""
        if not self.steps_per_doubling:
            return f"Every shape is its own bucket. {near}"
        return (f"Each dimension falls into its nearest {STEPS[self.steps_per_doubling]} (on a log scale); {small}where the "
                f"kernel's code depends on it, it is its own bucket. {near}")

    def of(self, value: int) -> int:
        """Return the grid point that a dimension is rounded to."""
        if value <= self.exact_up_to or not self.steps_per_doubling:
            return value
        return round(2 ** (round(math.log2(value) * self.steps_per_doubling) / self.steps_per_doubling))

    def on_grid(self, value: int) -> bool:
        """Return whether a value is a grid point."""
        return self.of(value) == value


STEPS: dict[float, str] = {
    0.0: "value", 0.5: "power of four", 1.0: "power of two", 2.0: "half power of two", 4.0: "quarter power of two"}
BUCKETS = Buckets()


def bucket(shape: Mapping[str, int], exact: Collection[str] = (), policy: Buckets = BUCKETS) -> str:
    """Return the text of a shape's bucket, by name: {"M": 4100, "D": 64} -> "D=64 M=4096"."""
    return " ".join(f"{name}={value if name in exact else policy.of(value)}" for name, value in sorted(shape.items()))


def bucket_distance(left: str, right: str, exact: Collection[str] = (), policy: Buckets = BUCKETS) -> float | None:
    """Return Σ |log2| over the dimensions of two buckets; None when one cannot stand for the other.

    That is when they have other dimensions, or differ in one that is its own bucket.
    """
    a, b = parse_bucket(left), parse_bucket(right)
    if a.keys() != b.keys():
        return None
    distance = 0.0
    for name, value in a.items():
        other = b[name]
        if value == other:
            continue
        if name in exact or min(value, other) < policy.exact_up_to or not (policy.on_grid(value) and policy.on_grid(other)):
            return None
        distance += abs(math.log2(value / other))
    return distance


def off_centre(shape: Mapping[str, int], bucket_text: str) -> float:
    """Return powers of two from a shape to the middle of its bucket."""
    centre = parse_bucket(bucket_text)
    return sum(abs(math.log2(value / centre[name])) for name, value in shape.items() if value > 0 and centre.get(name, 0) > 0)


def bucket_edges(value: int, policy: Buckets = BUCKETS) -> tuple[int, int]:
    """Return the smallest and the largest dimension that share a bucket with `value`."""
    if value <= policy.exact_up_to or not policy.steps_per_doubling:
        return value, value
    centre = round(math.log2(value) * policy.steps_per_doubling)
    low, high = (2 ** ((centre + side) / policy.steps_per_doubling) for side in (-0.5, 0.5))
    first, last = max(math.ceil(low), policy.exact_up_to + 1), math.floor(high)
    grid = policy.of(value)                  # a value half way between two grid points belongs to one of them only
    return first + (policy.of(first) != grid), last - (policy.of(last) != grid)


def parse_bucket(text: str) -> dict[str, int]:
    """Return the numbers of a bucket's text."""
    return {name: int(value) for name, _, value in (part.partition("=") for part in text.split())}
