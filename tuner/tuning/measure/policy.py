"""The measurement policy: how times are taken; stored with every number.

cold     each launch between two CUDA events, after L2 was flushed (how: `flush`): nothing finds its inputs there
warm     each launch between two events, inputs as the launch before left them; the GPU waits until the launch is queued
graph    many launches captured into one CUDA graph: per launch, without what a launch costs the CPU; inputs warm
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

KINDS = {
    "cold": "CUDA events around one launch, L2 flushed before it",
    "warm": "CUDA events around one launch, L2 as the launch before left it",
    "graph": "CUDA events around a graph of launches, per launch, L2 warm",
}
TITLES = {"cold": "a cold L2 cache: as the first kernel to touch its inputs", "warm": "a warm L2 cache: inputs used just before",
          "graph": "a CUDA graph: launches as a serving engine replays them"}
MOST_LEAD_MS = 100.0
# How L2 is flushed (tuner.tuning.measure.flush): times under two ways are not compared.
WRITE = "write"              # of a buffer larger than L2; all times from before the others were known
UNPINNED = "unpin, write"    # lines with evict_last are displaced and given back first
RESET = "reset, write"       # … taken back by the driver, with a wait of the host
FLUSHES = {WRITE: "a write of {mb:.0f} MB; lines with evict_last may outlive it",
           UNPINNED: "evict_last lines displaced before each launch, then a write of {mb:.0f} MB",
           RESET: "persisting lines reset by the driver, then a write of {mb:.0f} MB"}


@dataclass(frozen=True)
class Policy:
    """Sampling ends at `spread_target` of the median, at `max_samples`, `max_ms` or a lost race."""

    kind: str = "cold"
    warmup: int = 2
    batch: int = 5                  # samples between two looks at the spread
    min_samples: int = 10
    max_samples: int = 50
    spread_target: float = 0.01     # half-width of the median's 95 % interval, relative to the median
    max_ms: float = 500.0           # of GPU time per configuration; a slow one keeps `batch` samples at least
    rounds: int = 8                 # of the finalists' interleaved measurement, `batch` samples each
    risk: float = 0.01              # of dropping a configuration that is as fast as the incumbent; 0: no racing
    clock_floor: float = 0.75       # samples at an SM clock below this share of the session's highest are thrown away (nvbench's)
    max_discards: int = 4           # batches that may be thrown away for one configuration
    pause_s: float = 0.25           # after a batch that was thrown away: the GPU cools
    lead_ms: float = 0.0            # the GPU waits so long before each batch: the host has queued it all by then

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"policy: kind must be one of {', '.join(KINDS)}, not {self.kind!r}")
        if not 0 <= self.risk < 0.5:
            raise ValueError(f"policy: risk must be from 0 to 0.5, not {self.risk!r}")
        if min(self.batch, self.min_samples, self.max_samples, self.rounds) < 1 or self.warmup < 0:
            raise ValueError("policy: batch, min_samples, max_samples and rounds are at least 1, warmup at least 0")
        if not 0 <= self.lead_ms <= MOST_LEAD_MS:
            raise ValueError(f"policy: lead_ms must be from 0 to {MOST_LEAD_MS:g}, not {self.lead_ms!r}")

    @classmethod
    def read(cls, given: Mapping[str, Any]) -> Policy:
        """Return the policy of a request. Raises ValueError with the field's name."""
        kinds: dict[str, type[Any]] = {field.name: type(field.default) for field in fields(cls)}
        values: dict[str, Any] = {}
        for name, value in given.items():
            kind = kinds.get(name)
            if kind is None:
                raise ValueError(f"policy: there is no {name!r}; there are {', '.join(kinds)}")
            if isinstance(value, bool) or not isinstance(value, (int, float) if kind is float else kind):
                raise ValueError(f"policy: {name} must be of type {kind.__name__}, not {value!r}")
            values[name] = kind(value)
        return cls(**values)

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "timer": KINDS[self.kind], "statistic": "median",
                "inputs": "normal random, fresh for each configuration"}


_TOLD = frozenset(field.name for field in fields(Policy)) | {"timer", "statistic", "inputs", "tolerance", "cold_l2", "flush",
                                                             "flush_bytes"}


def flush_way(recorded: Mapping[str, Any]) -> str:
    """Return how L2 was flushed for times under a recorded policy; "" where it was not, or nothing says so."""
    return str(recorded.get("flush") or (WRITE if recorded.get("flush_bytes") else ""))


def flush_text(recorded: Mapping[str, Any]) -> str:
    """Return how L2 was flushed and with how much, "unpin, write 256 MB"; "" where it was not, or nothing says so.

    Part of a cache entry's key: the way and the size change the time of a small kernel by 5 to 13 %.
    """
    way = flush_way(recorded)
    return f"{way} {float(recorded.get('flush_bytes') or 0) / 2**20:.0f} MB" if way else ""


def policy_rows(recorded: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return a recorded policy as (label, text); fields that it lacks are left out."""
    rows = []
    timer = recorded.get("timer") or KINDS.get(str(recorded.get("kind")))
    if timer:
        rows.append(("timed with", str(timer)))
    if way := flush_way(recorded):
        rows.append(("L2 flushed", FLUSHES.get(way, way).format(mb=float(recorded.get("flush_bytes") or 0) / 2**20)))
    if {"warmup", "min_samples", "max_samples", "spread_target", "max_ms"} <= recorded.keys():
        rows.append(("samples", f"{recorded['warmup']} to warm up, then {recorded['min_samples']} to {recorded['max_samples']} "
                                f"until the median is known to ±{recorded['spread_target']:.0%}; no more after "
                                f"{recorded['max_ms']:g} ms"))
    if "risk" in recorded:
        rows.append(("racing", f"dropped early when clearly slower than the best so far; at most {recorded['risk']:.0%} risk of "
                               "dropping one as fast" if recorded["risk"] else "off: each is measured to its end"))
    if "clock_floor" in recorded:
        rows.append(("throttling", f"samples under a thermal or hardware slowdown, or below {recorded['clock_floor']:.0%} "
                                   "of the highest clock, are taken again"))
    if "rounds" in recorded:
        rows.append(("finalists", f"in turn, {recorded['rounds']} rounds of {recorded['batch']} samples, with default and library"))
    if "tolerance" in recorded:
        rows.append(("right when", f"within {recorded['tolerance']:g} of a float32 reference, on fresh random inputs"))
    return rows + [(name.replace("_", " "), str(value)) for name, value in recorded.items()
                   if name not in _TOLD and value not in (None, "", [], {})]
