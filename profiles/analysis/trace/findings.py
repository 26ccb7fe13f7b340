"""Advice from a trace: each rule is a pure function of the facts and its thresholds, and says the numbers it rests on.

RULES is the list, thresholds included, as data. `worth_ns` is the time that would be won if the cause went away
entirely, an upper bound from this trace alone; None where the trace cannot say.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from profiles.analysis.core import gpus
from profiles.analysis.core.digest import Digest
from profiles.analysis.core.intervals import mean_covered_ns
from profiles.analysis.core.kernels import KernelRow
from profiles.analysis.core.result import SEVERITIES, Finding
from profiles.analysis.core.sentences import pct_of, pct_text, plural, time_text, times_text, verb
from profiles.analysis.kernel.occupancy import occupancy
from profiles.analysis.trace.breakdown import Breakdown
from profiles.analysis.trace.host import Activity, Gaps, Host, Syncs
from profiles.ingest.arrays import stable_order
from profiles.ingest.naming.names import short_name
from profiles.ingest.trace import KERNELS, Category, Trace
from profiles.ingest.windows import MISSING

# Theoretical occupancy of a trace's kernels, calculated where the file states none.
#
# Kineto writes 0 where it did not compute its estimate ("est. achieved occupancy %"), and Nsight Systems states none. Block size,
# registers and shared memory of each launch are in the file, so CUDA's rules (`profiles.analysis.kernel.occupancy`) give the
# theoretical occupancy: what fits an SM at once, an upper bound for what was achieved. The grid sets a second bound: warps of all
# its blocks over the warps that the GPU's SMs hold.

MOST_NAMES, MOST_FORMS = 500, 20_000
_BLOCK, _GRID = ("block_x", "block_y", "block_z"), ("grid_x", "grid_y", "grid_z")


def calculated_occupancy(digest: Digest) -> dict[str, float]:
    """Return kernel name -> occupancy in percent, weighted by time, for kernels whose file states none or 0.

    Of the MOST_NAMES with most time. Left out: a GPU that is not in the table of GPUs, a launch without block size or registers.
    """
    work = digest.work
    rows = np.flatnonzero(np.isin(work["category"], [int(kind) for kind in KERNELS]) & ~work["instant"])
    if not rows.size:
        return {}
    stated = np.nan_to_num(work["occupancy_pct"][rows].astype(np.float64), nan=0.0) > 0
    unstated = rows[~np.isin(work["name"][rows], np.unique(work["name"][rows[stated]]))]
    if not unstated.size:
        return {}
    keys = [work["name"][unstated], work["device"][unstated], work["registers_per_thread"][unstated], work["smem_bytes"][unstated],
            _product(work, _BLOCK, unstated), _product(work, _GRID, unstated)]
    forms, place = np.unique(np.stack([key.astype(np.int64) for key in keys]), axis=1, return_inverse=True)
    spent = np.bincount(place.reshape(-1), weights=np.maximum(work["dur_ns"][unstated], 1), minlength=forms.shape[1])
    sums: dict[int, list[float]] = {}
    for form in stable_order(-spent)[:MOST_FORMS].tolist():
        name, device, registers, smem, threads, blocks = forms[:, form].tolist()
        pct = _occupancy_pct(digest.device_names.get(device, ""), registers, max(smem, 0), threads, blocks)
        if pct is not None:
            entry = sums.setdefault(name, [0.0, 0.0])
            entry[0] += pct * spent[form]
            entry[1] += spent[form]
    most = sorted(sums, key=lambda name: -sums[name][1])[:MOST_NAMES]
    return {digest.names[name]: float(sums[name][0] / sums[name][1]) for name in most}


def _product(work: Mapping[str, np.ndarray], axes: tuple[str, ...], rows: np.ndarray) -> np.ndarray:
    """Of three sides; 0 where one is not known."""
    sides = [work[axis][rows].astype(np.int64) for axis in axes]
    product: np.ndarray = np.where(np.all([side > 0 for side in sides], axis=0), np.prod(sides, axis=0), 0)
    return product


def _occupancy_pct(device: str, registers: int, smem_bytes: int, threads: int, blocks: int) -> float | None:
    gpu = gpus.lookup(device)
    if gpu is None or not 0 < threads <= gpu.limits.threads_per_block or not 0 < registers <= gpu.limits.registers_per_thread:
        return None
    fits = occupancy(gpu.limits, threads, registers, smem_bytes)
    if not fits.blocks_per_sm:
        return None
    warps = blocks * -(-threads // gpu.limits.warp_threads)
    there_pct = 100.0 * warps / (gpu.sm_count * gpu.limits.warps_per_sm)
    return min(fits.theoretical_pct, there_pct) if blocks > 0 else fits.theoretical_pct


_AUTOGRAD = "autograd::engine::evaluate_function: "


@dataclass(frozen=True)
class Facts:
    """What rules may look at. `time` is `Breakdown.as_json()`."""

    kernels: Sequence[KernelRow]
    time: Mapping[str, Any]
    host: Host

    @cached_property
    def gaps(self) -> dict[int, Gaps]:
        """Idle gaps by GPU."""
        start_ns = self.time["start_ns"]
        return {device["index"]: self.host.gaps(device["index"], start_ns, start_ns + device["wall_ns"])
                for device in self.time["devices"]}

    @cached_property
    def activities(self) -> dict[int, Activity]:
        """Return what the host did while each GPU starved."""
        return dict(zip(self.gaps, self.host.activities(list(self.gaps.values())), strict=True))

    @property
    def wall_ns(self) -> int:
        return int(self.time["wall_ns"] or 0)

    @property
    def steps(self) -> int:
        return len(self.time["steps"])

    @cached_property
    def gpu_time_ns(self) -> int:
        return sum(kernel.time_ns for kernel in self.kernels)


Limits = Mapping[str, float]


@dataclass(frozen=True)
class Rule:
    """`find(facts, limits)` yields findings; `limits` holds its thresholds, units in the names."""

    name: str
    find: Callable[[Facts, Limits], Iterator[Finding]]
    limits: Limits


def find(trace: Trace, kernels: Sequence[KernelRow], time: Breakdown) -> list[Finding]:
    """Return all findings, the worst first: by severity, then by worth."""
    facts = Facts(kernels, time.as_json(), Host(trace))
    findings = [finding for rule in RULES for finding in rule.find(facts, rule.limits)]
    return sorted(findings, key=lambda each: (SEVERITIES.index(each.severity), -(each.worth_ns or 0)))


def find_gpu_idle(facts: Facts, limits: Limits) -> Iterator[Finding]:
    """Find GPUs without work between their first and their last, and why.

    Says whether the host was late.
    """
    for device in facts.time["devices"]:
        share_pct, in_span_pct = pct_of(device["idle_ns"], device["wall_ns"]), pct_of(device["idle_in_span_ns"], device["span_ns"])
        if in_span_pct < limits["idle_pct"]:
            continue
        gaps = facts.gaps[device["index"]]
        activity, syncs = facts.activities[device["index"]], facts.host.syncs(gaps)
        late_pct = pct_of(activity.starved_ns, device["idle_ns"])
        host_bound = pct_of(activity.starved_ns, device["idle_in_span_ns"]) >= limits["host_late_pct"]
        title = f"GPU {device['index']} is idle {pct_text(share_pct)} of {time_text(device['wall_ns'])}"
        if host_bound:
            title += f": for {pct_text(late_pct)} of that time the host had launched nothing (host-bound)"
        if host_bound and syncs.count:
            title += f"; it waits for the GPU {times_text(syncs.count)}{_caller_text(syncs, facts.steps)}"
        yield Finding(
            "gpu_idle", "high" if in_span_pct >= limits["high_pct"] else "medium", title,
            _idle_advice(host_bound, device, activity, syncs),
            {"gpu": device["index"], "wall_ns": device["wall_ns"], "idle_ns": device["idle_ns"], "idle_pct": share_pct,
             "idle_between_work_ns": device["idle_in_span_ns"], "host_late_ns": activity.starved_ns, "gaps": len(gaps.start_ns),
             **_activity_numbers(activity), **_sync_numbers(syncs)},
            worth_ns=float(device["idle_in_span_ns"]))


def _caller_text(syncs: Syncs, steps: int) -> str:
    """" in `aten::item`, once per step"."""
    caller = max(syncs.callers, key=lambda name: syncs.callers[name])
    calls = syncs.callers[caller]
    often = f", {times_text(calls // steps)} per step" if caller and steps and calls % steps == 0 else ""
    return f" ({times_text(calls)} in `{caller}`{often})" if caller else ""


def _idle_advice(host_bound: bool, device: Mapping[str, Any], activity: Activity, syncs: Syncs) -> str:
    if 2 * device["idle_causes"].get("unknown_ns", 0) > device["idle_in_span_ns"]:
        return "The file does not say what launched the work: why the GPU waited is unknown. The timeline shows what the host did."
    if not host_bound:
        return "The work was launched in time but did not start: look at stream waits and launch latency in the timeline."
    parts = [f"the longest on the host were {_names_text(activity)}"] if activity.names else []
    if syncs.count and any(_is_item(name) for name in syncs.callers):
        parts.append("read values such as `loss.item()` rarely or without waiting, so that launches run ahead")
    if activity.outside_ns > activity.starved_ns / 3:
        parts.append("much of it is outside any operator: Python, data loading or the optimizer's own code")
    parts.append("torch.compile or CUDA graphs launch many kernels at once; larger batches give each launch more work")
    text = "; ".join(parts)
    return text[0].upper() + text[1:] + "."


def _names_text(activity: Activity) -> str:
    named = [(name.removeprefix(_AUTOGRAD), ns) for name, ns in list(activity.names.items())[:3]]
    return ", ".join(f"`{short_name(name)}` ({time_text(ns)})" for name, ns in named)


def _is_item(name: str) -> bool:
    return name in ("aten::item", "aten::_local_scalar_dense", "aten::is_nonzero", "aten::nonzero", "aten::equal")


def _activity_numbers(activity: Activity) -> dict[str, Any]:
    return {"host_synchronising_ns": activity.synchronising_ns, "host_runtime_calls_ns": activity.runtime_ns,
            "host_operators_ns": activity.operator_ns, "host_outside_operators_ns": activity.outside_ns,
            "host_profiler_ns": activity.profiler_ns, "host_names_ns": activity.names}


def _sync_numbers(syncs: Syncs) -> dict[str, Any]:
    return {"syncs": syncs.count, "sync_waited_ns": syncs.waited_ns, "idle_after_sync_ns": syncs.drained_ns,
            "sync_callers": syncs.callers, "sync_calls": syncs.calls}


def find_host_syncs(facts: Facts, limits: Limits) -> Iterator[Finding]:
    """Find operators that make the host wait for the GPU, and the idle time that follows.

    It follows because nothing is queued.
    """
    for device in facts.time["devices"]:
        syncs = facts.host.syncs(facts.gaps[device["index"]])
        callers = {name: calls for name, calls in syncs.callers.items() if name}
        share_pct = pct_of(syncs.drained_ns, device["wall_ns"])
        if not callers or share_pct < limits["drained_pct"]:
            continue
        caller = max(callers, key=lambda name: callers[name])
        yield Finding(
            "host_syncs", "high" if share_pct >= limits["high_pct"] else "medium",
            f"The host waits for GPU {device['index']} {times_text(syncs.count)} (`{caller}` "
            f"{times_text(callers[caller])}): {time_text(syncs.waited_ns)} waiting, then the GPU is idle "
            f"{time_text(syncs.drained_ns)} until new work arrives",
            "Keep the value on the GPU and read it every few steps, or copy it with non_blocking=True and read it later.",
            {"gpu": device["index"], **_sync_numbers(syncs), "idle_after_sync_pct": share_pct},
            worth_ns=float(syncs.drained_ns))


def find_top_kernel(facts: Facts, limits: Limits) -> Iterator[Finding]:
    """Find one kernel that owns much of the kernel time: the first to tune."""
    if not facts.kernels or facts.gpu_time_ns <= 0:
        return
    kernel = max(facts.kernels, key=lambda each: each.time_ns)
    share_pct = 100 * kernel.time_ns / facts.gpu_time_ns
    if share_pct < limits["share_pct"]:
        return
    collective = kernel.category == "communication"
    yield Finding(
        "top_kernel", "info" if collective else "medium",
        f"`{kernel.short_name}` takes {pct_text(share_pct)} of the kernel time: {time_text(kernel.time_ns)} in "
        f"{plural(kernel.launches, 'launch')}, {time_text(kernel.mean_ns or 0.0)} each",
        "It includes waiting for the other ranks: compare with their traces before changing the collective." if collective
        else "Capture its counters to see what bounds it; tune it if it is yours or a Triton kernel.",
        {"launches": kernel.launches, "total_ns": kernel.total_ns, "mean_ns": kernel.mean_ns, "share_pct": share_pct},
        kernel=kernel.name)


def find_low_occupancy(facts: Facts, limits: Limits) -> Iterator[Finding]:
    """Find kernels with a share of the time and few resident warps.

    An estimate of 0 is Kineto's word for "not computed": then it is calculated from block, registers and shared memory.
    """
    calculated = calculated_occupancy(facts.host.digest)
    for kernel in facts.kernels:
        share_pct, occupancy_pct = pct_of(kernel.time_ns, facts.gpu_time_ns), kernel.occupancy_pct or calculated.get(kernel.name)
        source = "as the trace estimates it" if kernel.occupancy_pct else "at most (calculated: the trace states none)"
        if not occupancy_pct or share_pct < limits["share_pct"] or occupancy_pct >= limits["occupancy_pct"]:
            continue
        yield Finding(
            "low_occupancy", "info",
            f"`{kernel.short_name}` ({pct_text(share_pct)} of the kernel time) runs at {pct_text(occupancy_pct)} "
            f"occupancy {source}",
            "Tensor-core kernels are often best at low occupancy: look at its counters before changing anything.",
            {"occupancy_pct": occupancy_pct, "occupancy_source": "trace" if kernel.occupancy_pct else "calculated",
             "registers_per_thread": kernel.registers_per_thread,
             "smem_bytes": kernel.smem_bytes, "share_pct": share_pct, "total_ns": kernel.total_ns},
            kernel=kernel.name)


def find_pageable_copies(facts: Facts, limits: Limits) -> Iterator[Finding]:
    """Find copies from or to pageable host memory.

    They go through a staging buffer and block the host.
    """
    work, names = facts.host.digest.work, facts.host.digest.names
    rows = np.flatnonzero(work["category"] == Category.MEMCPY)
    used, code = np.unique(work["name"][rows], return_inverse=True)
    rows = rows[np.array(["ageable" in names[name_code] for name_code in used.tolist()] or [False], np.bool_)[code]]
    time_ns = int(work["dur_ns"][rows].sum())
    if not time_ns or 100 * time_ns / max(1, facts.wall_ns) < limits["time_pct"]:
        return
    gpus = max(1, len(facts.time["devices"]))
    moved = work["bytes"][rows]
    copied_bytes = int(moved[moved != MISSING].sum())
    yield Finding(
        "pageable_copies", "medium",
        f"{plural(rows.size, 'copy')} from or to pageable host memory {verb(rows.size, 'takes', 'take')} {time_text(time_ns)}"
        + (f" for {copied_bytes / 1e6:,.1f} MB" if copied_bytes else ""),
        "Pin the host memory (pin_memory=True) and copy with non_blocking=True.",
        {"copies": rows.size, "time_ns": time_ns, "copied_bytes": copied_bytes,
         "gbytes_per_s": copied_bytes / time_ns if copied_bytes else None},
        worth_ns=mean_covered_ns(work["start_ns"][rows], work["start_ns"][rows] + work["dur_ns"][rows], work["device"][rows], gpus))



RULES: tuple[Rule, ...] = (
    Rule("gpu_idle", find_gpu_idle, {"idle_pct": 20, "high_pct": 40, "host_late_pct": 50}),
    Rule("host_syncs", find_host_syncs, {"drained_pct": 2, "high_pct": 25}),
    Rule("top_kernel", find_top_kernel, {"share_pct": 25}),
    Rule("low_occupancy", find_low_occupancy, {"share_pct": 10, "occupancy_pct": 25}),
    Rule("pageable_copies", find_pageable_copies, {"time_pct": 0.5}),
)
