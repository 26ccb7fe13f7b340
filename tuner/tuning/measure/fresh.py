"""Requests to and results of fresh processes that time kernels. Imports neither torch nor Django.

The process is the unit of replication: between processes the same binary differs by 0.1 to 2.6 %, whatever their samples say.
So a run times every kernel once, each as a cold first toucher of its inputs, with a fixed number of samples.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tuner.tuning.measure.policy import Policy
from tuner.tuning.trial import Config

SAMPLES = 100
# Fixed, not adaptive: sides of a comparison must be sampled alike. Nothing is raced.
POLICY: Mapping[str, Any] = {"kind": "cold", "warmup": 50, "batch": 10, "min_samples": SAMPLES, "max_samples": SAMPLES,
                             "max_ms": 4000.0, "risk": 0.0, "lead_ms": 3.0}


@dataclass(frozen=True)
class KernelRequest:
    """A kernel to time; without `config`, `choose` names one for the GPU found, else the default."""

    key: str
    operator: str
    shape: Mapping[str, int]
    dtype: str
    config: Config | None = None
    choose: Callable[[Mapping[str, Any]], Config | None] | None = None


@dataclass(frozen=True)
class KernelSamples:
    """Samples of one kernel in one fresh process, or why there are none."""

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
        """Return the median SM clock while timing; None where nobody sampled it."""
        clock = (self.facts.get("clocks") or {}).get("sm_clock_mhz") or {}
        median = clock.get("median")
        return float(median) if isinstance(median, int | float) else None


def make_policy(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return a suite's fields over POLICY. Raises ValueError with the field's name."""
    policy = {**POLICY, **given}
    Policy.read(policy)
    return policy


def policy_text(policy: Mapping[str, Any]) -> str:
    """Return e.g. "cold, 100 samples after 50"; runs of other policies are not comparable."""
    few, most = policy.get("min_samples"), policy.get("max_samples")
    samples = f"{few}" if few == most else f"{few} to {most}"
    return f"{policy.get('kind')}, {samples} samples after {policy.get('warmup')}"


def recorded_line(run: int, request: KernelRequest, samples: KernelSamples) -> dict[str, Any]:
    """Return a run as a line of `timing_runs.jsonl`: the form of files, uploads and replays."""
    clocks = samples.facts.get("clocks") or {}
    medians = [(clocks.get(name) or {}).get("median") for name in ("sm_clock_mhz", "memory_clock_mhz", "temperature_c", "power_w")]
    fields = {"run": run, "op": request.operator, "shape": dict(request.shape), "dtype": request.dtype,
              "config": dict(samples.config or {})}
    if samples.rejected:
        return {**fields, "us": [], "rejected": samples.rejected}
    facts = {name: samples.facts[name] for name in ("registers", "spills", "smem_bytes") if name in samples.facts}
    clock_fields: dict[str, Any] = {"clocks": ", ".join(f"{value:g}" for value in medians)} if None not in medians else {}
    if samples.sm_clock_mhz is not None:
        clock_fields["sm_clock_mhz"] = samples.sm_clock_mhz
    where = {name: samples.session[name] for name in ("gpu", "driver", "cuda", "torch", "triton") if samples.session.get(name)}
    return {**fields, **facts, **clock_fields, **where, "us": list(samples.us)}
