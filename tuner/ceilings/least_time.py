"""The least time of one launch, from its work and the rates of its GPU. Plain Python.

Two limits that are not the same:

ceiling      work ÷ what was measured on this model of GPU (or its data sheet's peak, where nothing was): what a very good kernel
             reaches. A time may come to lie a little below it, as a better kernel than the one that measured it may exist.
physical     work ÷ what the silicon cannot exceed: no right kernel is faster, a time below was not measured right.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from profiles.analysis.core.gpus import Gpu
from profiles.analysis.kernel.ceilings import MeasuredCeilings

# The fastest pipe that an operator may use for a type: the least time is then never too long, whichever the kernel takes.
PIPES: Mapping[str, tuple[str, ...]] = {"bf16": ("bf16_tensor",), "fp16": ("fp16_tensor",), "fp8": ("fp8_tensor",),
                                        "fp32": ("tf32_tensor", "fp32"), "int8": ("int8_tensor",)}
TIMER_STEP_MS = 1.024e-3         # the coarsest clock of CUDA events seen: a time may be told so much too short
COLD = "cold"


@dataclass(frozen=True)
class Rate:
    """Work per second, and where the number is from."""

    value: float
    source: str


@dataclass(frozen=True)
class Rates:
    """What a model of GPU reaches, and what it cannot exceed; a missing key is unknown.

    reached    by precision (operations/s at the highest clock), "dram" and "l2" (bytes/s)
    physical   by precision, and "dram": the data sheet's, at the highest clock
    l2_bytes   of the cache, which may hold inputs of a warm launch and results that never leave it
    """

    gpu: str
    reached: Mapping[str, Rate] = field(default_factory=dict)
    physical: Mapping[str, float] = field(default_factory=dict)
    l2_bytes: int = 0
    sms: int | None = None


def gpu_rates(name: str, model: Gpu | None, measured: MeasuredCeilings | None) -> Rates:
    """Return the rates of a GPU: of each kind the measured one, else the data sheet's.

    Arithmetic is put at the highest clock of the model: the kernel that measured it ran long enough to be slowed by its power,
    a launch of 0.1 ms is not (profiles.analysis.kernel.ceilings).
    """
    reached: dict[str, Rate] = {}
    physical: dict[str, float] = {}
    clock_hz = highest_clock_hz(model) if model else None
    if model is not None and clock_hz:
        physical = {key: peak * clock_hz / model.peak_clock_hz(key) for key, peak in model.peaks.items()}
        physical["dram"] = model.dram_bytes_s
        reached = {key: Rate(value, f"data sheet of {model.name}") for key, value in physical.items()}
    for key, ceiling in (measured.ceilings if measured else {}).items():
        suffix = "" if key == "dram" or clock_hz is None or ceiling.per_cycle is None else f" at {clock_hz / 1e6:,.0f} MHz"
        reached[key] = Rate(ceiling.at(clock_hz), f"{ceiling.label}{suffix}, {measured.label if measured else ''}")
    return Rates(name, reached, physical, model.l2_bytes if model else 0, model.sm_count if model else None)


def highest_clock_hz(model: Gpu) -> float:
    """Return the highest SM clock that its data sheet tells: its boost clock, or the one that its FP32 peak stands for."""
    return max(model.boost_hz, model.peak_clock_hz("fp32") if "fp32" in model.peaks else 0.0)


@dataclass(frozen=True)
class LeastTime:
    """Times in ms; `flop_ms` or `bytes_ms` None where the GPU's rate is unknown.

    physical_ms   nothing can be faster; None where the model is in no table
    """

    ms: float
    side: str                        # "compute" | "memory": which work takes that long
    flop_ms: float | None
    bytes_ms: float | None
    source: str                      # of the rate that decides
    physical_ms: float | None

    def share(self, ms: float | None) -> float | None:
        """Return how much of what the GPU can do a time reaches, 0-1."""
        return self.ms / ms if ms else None

    def is_impossible(self, ms: float) -> bool:
        """Return whether no right measurement gives this time: it is below the physical limit by more than a timer's step."""
        return self.physical_ms is not None and ms + TIMER_STEP_MS < self.physical_ms

    def impossible_text(self, ms: float) -> str:
        """Return why a time is refused."""
        return (f"impossible: {1e3 * ms:.4g} µs, where the data sheet's rates at the highest clock allow no less than "
                f"{1e3 * (self.physical_ms or 0):.4g} µs. It did not do the work, or was not measured right")


def least_time(flops: float, moved_bytes: float, dtype: str, rates: Rates, *, timing: str = COLD) -> LeastTime | None:
    """Return the least time of work on a GPU; None where no rate of it is known.

    flops        operations, a multiply-add is 2
    moved_bytes  each input read once, each output written once
    timing       "cold": all bytes come from or go to memory. Otherwise L2 may hold as much as it has room for: only what is beyond
                 comes from memory, and all of it passes L2
    """
    pipe = next((key for key in PIPES.get(dtype, ()) if key in rates.reached), None)
    flop_ms = 1e3 * flops / rates.reached[pipe].value if pipe else None
    bytes_ms, bytes_key = _bytes_ms(moved_bytes, rates, timing)
    if flop_ms is None and bytes_ms is None:
        return None
    compute = (flop_ms or 0.0) > (bytes_ms or 0.0)
    deciding = pipe if compute else bytes_key
    source = rates.reached[deciding].source if deciding else ""
    ms = max(flop_ms or 0.0, bytes_ms or 0.0)
    if ms <= 0:
        return None
    return LeastTime(ms, "compute" if compute else "memory", flop_ms, bytes_ms, source,
                     _physical_ms(flops, moved_bytes, dtype, rates))


def _bytes_ms(moved: float, rates: Rates, timing: str) -> tuple[float | None, str | None]:
    """Return the time of the bytes in ms, and the memory that decides it."""
    dram, l2 = rates.reached.get("dram"), rates.reached.get("l2")
    if timing == COLD:
        return (1e3 * moved / dram.value, "dram") if dram else (None, None)
    beyond_ms = 1e3 * max(0.0, moved - rates.l2_bytes) / dram.value if dram and rates.l2_bytes else None
    through_ms = 1e3 * moved / l2.value if l2 else None
    bounds = [(ms, key) for ms, key in ((beyond_ms, "dram"), (through_ms, "l2")) if ms is not None]
    return max(bounds, key=lambda each: each[0], default=(None, None))


def _physical_ms(flops: float, moved: float, dtype: str, rates: Rates) -> float | None:
    """Return what no launch can be faster than, in ms; None where the model is in no table.

    Of the bytes as much as L2 holds is left out, however the launch was timed: results may stay in it until after the launch, and a
    flush may leave lines.
    """
    pipes = [rates.physical[key] for key in PIPES.get(dtype, ()) if key in rates.physical]
    if "dram" not in rates.physical or not pipes:
        return None
    return 1e3 * max(flops / max(pipes), max(0.0, moved - rates.l2_bytes) / rates.physical["dram"])


def sol_score(ms: float | None, baseline_ms: float | None, least_ms: float | None) -> float | None:
    """Return the SOL score of a time, 0-1: 0.5 as fast as the baseline, 1 at the least time; None where it is not defined.

    S = 1 / (1 + (T − T_sol) / (T_base − T_sol)), of NVIDIA's SOL-ExecBench; at or below T_sol it is 1.
    """
    if not ms or not baseline_ms or not least_ms or baseline_ms <= least_ms:
        return None
    return 1.0 / (1.0 + max(0.0, ms - least_ms) / (baseline_ms - least_ms))
