"""Which configuration a launch gets: shape buckets, the key of an entry, and the order in which entries may serve.

An entry measured for one key may serve another, by stated rules, nearest first. Every answer says which rule served it.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from tuner.trial import Config

EXACT_UP_TO = 16          # dimensions this small change the tile that fits: each is its own bucket
BUCKET_POLICY = (f"Each dimension falls into its nearest power of two (on a log scale); up to {EXACT_UP_TO}, and where "
                 "the kernel's code depends on it, it is its own bucket.")


def bucket(shape: Mapping[str, int], exact: Collection[str] = ()) -> str:
    """Canonical text of a shape's bucket: {"M": 4100, "D": 64} -> "D=64 M=4096". Sorted by name."""
    return " ".join(f"{name}={value if name in exact else _nearest_power(value)}"
                    for name, value in sorted(shape.items()))


def _nearest_power(value: int) -> int:
    return value if value <= EXACT_UP_TO else 1 << round(math.log2(value))


def bucket_distance(left: str, right: str) -> float | None:
    """Sum of |log2| over the dimensions of two buckets; None when they cannot stand in for each other.

    That is when they have other dimensions or differ in one that is its own bucket.
    """
    a, b = _parse(left), _parse(right)
    if a.keys() != b.keys():
        return None
    distance = 0.0
    for name, value in a.items():
        other = b[name]
        if value == other:
            continue
        if min(value, other) < EXACT_UP_TO or value & (value - 1) or other & (other - 1):
            return None
        distance += abs(math.log2(value / other))
    return distance


def _parse(text: str) -> dict[str, int]:
    return {name: int(value) for name, _, value in (part.partition("=") for part in text.split())}


def toolkit(environment: Mapping[str, object]) -> str:
    """"cuda 13.0, triton 3.6.0": what the kernel was compiled with."""
    parts = [f"{name} {str(environment[name]).split('+')[0]}" for name in ("cuda", "triton") if environment.get(name)]
    return ", ".join(parts) or "unknown"


@dataclass(frozen=True)
class Key:
    """What an entry was measured for. `shape` is the exact one, `bucket` the one it speaks for."""

    operator: str
    dtype: str
    bucket: str
    gpu: str
    compute_capability: str = ""
    toolkit: str = ""
    source_hash: str = ""


class Rule(StrEnum):
    """Why an entry may serve, best first."""

    EXACT = "exact"                          # same bucket, GPU, toolkit
    OTHER_TOOLKIT = "older toolkit"          # same bucket and GPU, measured under another toolkit or kernel source
    SAME_ARCHITECTURE = "same architecture"  # same bucket, another GPU of the same compute capability
    NEAREST_BUCKET = "nearest bucket"        # same GPU, the closest other bucket
    DEFAULT = "default"                      # no entry: the operator's own default configuration


WHY = {
    Rule.EXACT: "measured for this shape bucket on this GPU with this toolkit",
    Rule.OTHER_TOOLKIT: "measured for this shape bucket on this GPU, under another toolkit or kernel source",
    Rule.SAME_ARCHITECTURE: "measured for this shape bucket on another GPU of the same compute capability",
    Rule.NEAREST_BUCKET: "measured on this GPU for the nearest other shape bucket",
    Rule.DEFAULT: "nothing measured fits: the operator's default configuration",
}
MAX_BUCKET_DISTANCE = 4.0      # at most a factor of 16 over all dimensions together


@dataclass(frozen=True)
class Entry:
    """One cached configuration with its key."""

    id: int
    key: Key
    config: Config
    recorded: bool = False     # from a replay: serves after what was measured here


@dataclass(frozen=True)
class Served:
    rule: Rule
    entry: Entry
    distance: float = 0.0      # of the buckets, in powers of two

    @property
    def why(self) -> str:
        return WHY[self.rule]


def lookup(entries: Sequence[Entry], wanted: Key) -> Served | None:
    """The entry that serves `wanted`, None when only the default can.

    An empty toolkit or source hash in `wanted` accepts any.
    """
    served = [found for entry in entries if (found := _serves(entry, wanted)) is not None]
    order = list(Rule)
    return min(served, key=lambda s: (order.index(s.rule), s.distance, s.entry.recorded, s.entry.id), default=None)


def _serves(entry: Entry, wanted: Key) -> Served | None:
    key = entry.key
    if (key.operator, key.dtype) != (wanted.operator, wanted.dtype):
        return None
    same_gpu = key.gpu == wanted.gpu
    if key.bucket == wanted.bucket:
        if same_gpu:
            fresh = wanted.toolkit in ("", key.toolkit) and wanted.source_hash in ("", key.source_hash)
            return Served(Rule.EXACT if fresh else Rule.OTHER_TOOLKIT, entry)
        if key.compute_capability and key.compute_capability == wanted.compute_capability:
            return Served(Rule.SAME_ARCHITECTURE, entry)
        return None
    distance = bucket_distance(key.bucket, wanted.bucket)
    if same_gpu and distance is not None and distance <= MAX_BUCKET_DISTANCE:
        return Served(Rule.NEAREST_BUCKET, entry, distance)
    return None
