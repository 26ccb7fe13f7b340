"""Why a kernel takes longer than it did: its time as a product of five counted factors, and the change split among them.

    time = instructions × wait / (warps × share × clock)

per warp scheduler: instructions issued, cycles from one instruction of a warp to its next, warps in flight, share of the
kernel's cycles in which the SM had work, cycles per second. It is an identity of counters (Little's law: issue rate = warps
in flight / wait), so nothing is left over. The change of a product is divided among its factors by their logarithms (LMDI-I:
Ang, "The LMDI approach to decomposition analysis", Energy Policy 33, 2005): the parts add up to the change, exactly.

Counters (Nsight Compute, "Kernel Profiling Guide", Warp State and Scheduler statistics): gpu__time_duration.sum,
smsp__inst_issued.avg, smsp__warps_active.avg.per_cycle_active, smsp__cycles_active.avg, sm__cycles_elapsed.max. They come
from several replay passes; wait, share and clock are quotients of them, so that the identity holds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from profiles.analysis.core.sentences import plain_number, time_text
from profiles.analysis.kernel import stalls
from profiles.base.numbers import median

# Counters of a kernel on both sides of a comparison.


@dataclass(frozen=True)
class CounterChange:
    """One counter of a kernel on both sides: medians over its launches."""

    name: str
    unit: str
    old: float | None
    new: float | None


def counter_changes(old: Sequence[Mapping[str, Any]], new: Sequence[Mapping[str, Any]],
                    wanted: Sequence[tuple[str, str, str]]) -> list[CounterChange]:
    """Return the medians of `wanted` over the launches of each side.

    `wanted` names "part.key" in the facts' JSON, the name for people and the unit.
    """
    changes = [CounterChange(name, unit, _median(old, path), _median(new, path)) for path, name, unit in wanted]
    return [change for change in changes if change.old is not None or change.new is not None]


def _median(facts: Sequence[Mapping[str, Any]], path: str) -> float | None:
    return median(value for fact in facts if isinstance(value := _at(fact, path), (int, float)))


def _at(facts: Mapping[str, Any], path: str) -> Any:
    value: Any = facts
    for key in path.split("."):
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


Metrics = Mapping[str, Any]
TIME = "gpu__time_duration.sum"
WARPS = ("smsp__warps_active.avg.per_cycle_active", "sm__warps_active.avg.per_cycle_active")
SCHEDULERS = 4              # of an SM, from Maxwell on
INSTRUCTIONS = ("smsp__inst_issued.avg", "smsp__inst_issued.sum", "smsp__inst_executed.avg", "smsp__inst_executed.sum")
ACTIVE = ("smsp__cycles_active.avg", "sm__cycles_active.avg")
ELAPSED = ("sm__cycles_elapsed.max", "smsp__cycles_elapsed.max", "sm__cycles_elapsed.avg", "gpc__cycles_elapsed.max")
REASONS = tuple(f"{stalls.PREFIX}{reason}{stalls.SUFFIX}" for reason in stalls.STALLS)
# What a factor's change rests on: metric -> name for people, unit. Shown where it changed.
CAUSES: dict[str, tuple[tuple[str, str, str], ...]] = {
    "instructions": (
        ("derived__local_spilling_requests", "register spills", "requests"),
        ("smsp__inst_executed_op_local_ld.sum", "loads of local memory", "instructions"),
        ("smsp__sass_inst_executed_op_shared.sum", "shared-memory instructions", "instructions"),
        ("sm__inst_executed_pipe_tensor.sum", "tensor-core instructions", "instructions"),
        ("launch__thread_count", "threads", "")),
    "warps": (
        ("sm__maximum_warps_per_active_cycle_pct", "theoretical occupancy", "%"),
        ("launch__registers_per_thread", "registers per thread", ""),
        ("launch__shared_mem_per_block_dynamic", "dynamic shared memory per block", "B"),
        ("launch__shared_mem_per_block_static", "static shared memory per block", "B"),
        ("launch__block_size", "threads per block", ""), ("launch__grid_size", "blocks", "")),
    "share": (
        ("launch__waves_per_multiprocessor", "waves", ""), ("launch__grid_size", "blocks", "")),
    "clock": (),
    "wait": (
        ("l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum", "bank conflicts", ""),
        ("lts__t_sector_hit_rate.pct", "L2 hits", "%"), ("l1tex__t_sector_hit_rate.pct", "L1 hits", "%"),
        ("dram__bytes.sum", "DRAM traffic", "B")),
}
WANTED = (TIME, *WARPS, *INSTRUCTIONS, *ACTIVE, *ELAPSED, *REASONS,
          *dict.fromkeys(name for rows in CAUSES.values() for name, _, _ in rows))
SAID = 0.1                  # of the change: a factor with a smaller part of it is not in the sentence
MOVED = 1.05                # a counter that changed by less does not explain anything
_TITLES = {"instructions": "instructions issued", "wait": "cycles a warp waits between its instructions",
           "warps": "warps in flight per scheduler", "share": "share of the time that the SMs had work", "clock": "SM clock"}


@dataclass(frozen=True)
class Evidence:
    """A counter on both sides, means over the launches."""

    name: str
    unit: str
    old: float
    new: float
    metric: str

    @property
    def change(self) -> str:
        """"100 % → 18.8 %"."""
        return f"{_value(self.old, self.unit)} → {_value(self.new, self.unit)}"


@dataclass(frozen=True)
class Factor:
    """`part_ns` of the change of one launch's mean time. `old` and `new` are the factor's own values: instructions per
    scheduler, cycles, warps, share 0-1, Hz."""

    key: str
    title: str
    old: float
    new: float
    part_ns: float
    evidence: list[Evidence] = field(default_factory=list)


@dataclass(frozen=True)
class Why:
    """The parts add up to `delta_ns`, the change of the mean launch. Most important first."""

    delta_ns: float
    factors: list[Factor]
    sentence: str
    stalls: list[Evidence]      # cycles per issued instruction by reason; they add up to the wait

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def why(old: Sequence[Metrics], new: Sequence[Metrics]) -> Why | None:
    """Split the change of a kernel's time into its factors, from the raw metrics of both sides.

    None where a counter of the identity is missing or zero.
    """
    names = {key: _common_counter(choices, [*old, *new]) for key, choices in
             (("time", (TIME,)), ("instructions", INSTRUCTIONS), ("warps", WARPS), ("active", ACTIVE), ("elapsed", ELAPSED))}
    if not old or not new or not all(names.values()):
        return None
    a, b = _factors(old, names), _factors(new, names)
    before, after = a.pop("time_ns"), b.pop("time_ns")
    weight = (after - before) / math.log(after / before) if after != before else before
    sign = {"instructions": 1.0, "wait": 1.0, "warps": -1.0, "share": -1.0, "clock": -1.0}
    factors = [Factor(key, _TITLES[key], a[key], b[key], sign[key] * weight * math.log(b[key] / a[key]), _evidence(key, old, new))
               for key in sign]
    factors.sort(key=lambda each: -abs(each.part_ns))
    return Why(after - before, factors, _sentence(after - before, factors), _stalls(old, new))


def _common_counter(choices: Sequence[str], launches: Sequence[Metrics]) -> str:
    """The first counter that all launches of both sides have: one counter is not compared with another."""
    return next((name for name in choices if all(_number(launch, name) for launch in launches)), "")


def _factors(launches: Sequence[Metrics], names: Mapping[str, str]) -> dict[str, float]:
    """Of the mean launch: sums of times, instructions and cycles, so that the identity holds for it too."""
    n = len(launches)
    time_ns, instructions, active, elapsed = (
        sum(_number(launch, names[key]) for launch in launches) / n for key in ("time", "instructions", "active", "elapsed"))
    warps = sum(_number(launch, names["warps"]) * _number(launch, names["active"]) for launch in launches) / n / active
    warps /= SCHEDULERS if names["warps"] == WARPS[1] else 1
    return {"time_ns": time_ns, "instructions": instructions, "wait": warps * active / instructions, "warps": warps,
            "share": active / elapsed, "clock": elapsed / time_ns * 1e9}


def _number(metrics: Metrics, name: str) -> float:
    """0.0 where it is not there: no factor of the identity can be 0."""
    value = metrics.get(name)
    return float(value) if isinstance(value, int | float) and math.isfinite(value) and value > 0 else 0.0


def _mean(launches: Sequence[Metrics], name: str) -> float | None:
    values = [float(launch[name]) for launch in launches if isinstance(launch.get(name), int | float)]
    return sum(values) / len(values) if values else None


def _evidence(key: str, old: Sequence[Metrics], new: Sequence[Metrics]) -> list[Evidence]:
    evidence = []
    for metric, name, unit in CAUSES[key]:
        a, b = _mean(old, metric), _mean(new, metric)
        if a is not None and b is not None and (_has_changed(a, b) or (a != b and metric.startswith("launch__"))):
            evidence.append(Evidence(name, unit, a, b, metric))
    return (_stall_evidence(old, new) + evidence) if key == "wait" else evidence


def _has_changed(a: float, b: float) -> bool:
    return a != b and (min(a, b) <= 0 or max(a, b) / min(a, b) >= MOVED)


def _stalls(old: Sequence[Metrics], new: Sequence[Metrics]) -> list[Evidence]:
    """Every reason that both sides counted, the most changed first."""
    pairs = [(reason, name, _mean(old, name), _mean(new, name)) for reason, name in zip(stalls.STALLS, REASONS, strict=True)]
    reasons = [Evidence(stalls.explain(reason).title, "cycles", a, b, name) for reason, name, a, b in pairs
             if a is not None and b is not None and max(a, b) > 0]
    return sorted(reasons, key=lambda stall: -abs(stall.new - stall.old))


def _stall_evidence(old: Sequence[Metrics], new: Sequence[Metrics]) -> list[Evidence]:
    """The reasons whose cycles per instruction changed most."""
    return [replace(each, name=f"stall: {each.name.lower()}") for each in _stalls(old, new)[:3] if abs(each.new - each.old) >= 0.05]


def _sentence(delta_ns: float, factors: Sequence[Factor]) -> str:
    """The factors that make at least a tenth of the change, each with what it rests on."""
    return "; ".join(_words(factor) for factor in factors if factor.part_ns and abs(factor.part_ns) >= SAID * abs(delta_ns))


def _words(factor: Factor) -> str:
    """"+52.1 µs: 0.99 in place of 14.8 warps in flight per scheduler (theoretical occupancy 100 → 6.25 %)"."""
    sign = "+" if factor.part_ns > 0 else "−"
    ratio = factor.new / factor.old
    phrase = {
        "instructions": f"{_times(ratio)} instructions",
        "wait": f"a warp waits {plain_number(factor.new)} in place of {plain_number(factor.old)} cycles between its instructions",
        "warps": f"{plain_number(factor.new)} in place of {plain_number(factor.old)} warps in flight per scheduler",
        "share": f"the SMs had work for {plain_number(100 * factor.new)} in place of {plain_number(100 * factor.old)} % of the "
                 "time",
        "clock": f"SM clock {factor.new / 1e6:,.0f} in place of {factor.old / 1e6:,.0f} MHz"}[factor.key]
    causes = ", ".join(f"{evidence.name} {evidence.change}" for evidence in factor.evidence[:2])
    return f"{sign}{time_text(abs(factor.part_ns))}: {phrase}" + (f" ({causes})" if causes else "")


def _times(ratio: float) -> str:
    """"4.64 times as many", "38.5 % fewer"."""
    if ratio >= 2 or ratio <= 0.5:
        return f"{plain_number(ratio)} times as many"
    return f"{plain_number(100 * abs(ratio - 1))} % {'more' if ratio > 1 else 'fewer'}"


def _value(value: float, unit: str) -> str:
    text = f"{value:,.0f}" if abs(value) >= 1000 else plain_number(value)
    return f"{text} {unit}" if unit in ("%", "B", "cycles") else text
