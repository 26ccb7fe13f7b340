"""Fresh runs: what one new process is asked to time, and what it tells. No torch, no Django.

The process is the unit of replication: between processes the same binary differs by 0.1 to 2.6 %, whatever their samples say.
So a run times every kernel once, each as a cold first toucher of its inputs, with a fixed number of samples.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tuner.bench.policy import Policy
from tuner.trial import Config

SAMPLES = 100
# Fixed, not adaptive: sides of a comparison must be sampled alike. Nothing is raced.
POLICY: Mapping[str, Any] = {"kind": "cold", "warmup": 50, "batch": 10, "min_samples": SAMPLES, "max_samples": SAMPLES,
                             "max_ms": 4000.0, "risk": 0.0, "lead_ms": 3.0}


@dataclass(frozen=True)
class Wanted:
    """One kernel to time. Without `config`, `choose` names one for the GPU that is found, else it is the operator's default."""

    key: str
    operator: str
    shape: Mapping[str, int]
    dtype: str
    config: Config | None = None
    choose: Callable[[Mapping[str, Any]], Config | None] | None = None


@dataclass(frozen=True)
class Taken:
    """One kernel of one fresh process: samples, or why there are none."""

    key: str
    us: Sequence[float] = ()                    # in the order taken
    rejected: str = ""
    config: Config | None = None                # with which it was launched
    source_hash: str = ""
    process: int = 0                            # of this run: a new one took over where the one before died
    session: Mapping[str, Any] = field(default_factory=dict)   # gpu, driver, cuda, torch, triton … as the process found them
    facts: Mapping[str, Any] = field(default_factory=dict)     # registers, spills, smem_bytes, relative_error, clocks …

    @property
    def sm_clock_mhz(self) -> float | None:
        """Median while it was timed; None where nobody sampled it."""
        clock = (self.facts.get("clocks") or {}).get("sm_clock_mhz") or {}
        median = clock.get("median")
        return float(median) if isinstance(median, int | float) else None


def policy_of(given: Mapping[str, Any]) -> dict[str, Any]:
    """A suite's own fields over POLICY. Raises ValueError with the field's name."""
    asked = {**POLICY, **given}
    Policy.read(asked)
    return asked


def in_short(policy: Mapping[str, Any]) -> str:
    """"cold, 100 samples after 50": runs that were sampled otherwise are not to be compared with them."""
    few, most = policy.get("min_samples"), policy.get("max_samples")
    samples = f"{few}" if few == most else f"{few} to {most}"
    return f"{policy.get('kind')}, {samples} samples after {policy.get('warmup')}"


def line(run: int, wanted: Wanted, taken: Taken) -> dict[str, Any]:
    """As a line of recorded runs (`timing_runs.jsonl`): what the gate's files, uploads and replays are made of."""
    clocks = taken.facts.get("clocks") or {}
    medians = [(clocks.get(name) or {}).get("median") for name in ("sm_clock_mhz", "memory_clock_mhz", "temperature_c", "power_w")]
    told = {"run": run, "op": wanted.operator, "shape": dict(wanted.shape), "dtype": wanted.dtype,
            "config": dict(taken.config or {})}
    if taken.rejected:
        return {**told, "us": [], "rejected": taken.rejected}
    facts = {name: taken.facts[name] for name in ("registers", "spills", "smem_bytes") if name in taken.facts}
    said: dict[str, Any] = {"clocks": ", ".join(f"{value:g}" for value in medians)} if None not in medians else {}
    if taken.sm_clock_mhz is not None:
        said["sm_clock_mhz"] = taken.sm_clock_mhz
    where = {name: taken.session[name] for name in ("gpu", "driver", "cuda", "torch", "triton") if taken.session.get(name)}
    return {**told, **facts, **said, **where, "us": list(taken.us)}
