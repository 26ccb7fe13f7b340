"""GPU metrics sampled beside a trace (Nsight Systems, `--gpu-metrics-devices`): over the time of kernels, and of each kernel.

A sample speaks for the time from it to the next one of its metric (as the reader keeps them; NaN: nothing is known from there
on). The mean over busy time weighs each sample by the part of its time in which a kernel ran on that GPU. Of one kernel only
samples count whose whole time lies within one of its launches while no other kernel ran, and only launches of DENSE periods and
more: shorter ones share their samples with their neighbours, so what they did is unknown.

Names of metrics: Nsight Systems User Guide, "GPU Metrics"; they differ between GPUs ("SM Active", "SMs Active"). Shares of
peak, 0-100.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from profiles.analysis.core import intervals
from profiles.analysis.core.frame import Array, Frame, Ints
from profiles.analysis.core.intervals import Intervals

# key -> title, beginnings of the metric's name in lower case; all in percent of peak
METRICS: dict[str, tuple[str, tuple[str, ...]]] = {
    "sm_active": ("SM active", ("sm active", "sms active")),
    "sm_issue": ("SM issue", ("sm issue", "sm instructions/sm issue")),
    "tensor_active": ("Tensor active", ("tensor active", "sm instructions/tensor active")),
    "warps": ("Compute warps in flight", ("compute warps in flight", "sm warp occupancy/compute warps in flight")),
    "dram_read": ("DRAM read", ("dram read", "dram bandwidth/dram read", "vram bandwidth/vram read")),
    "dram_write": ("DRAM write", ("dram write", "dram bandwidth/dram write", "vram bandwidth/vram write")),
    "pcie_rx": ("PCIe received", ("pcie rx", "pcie bandwidth/pcie rx")),
    "pcie_tx": ("PCIe sent", ("pcie tx", "pcie bandwidth/pcie tx")),
    "nvlink_rx": ("NVLink received", ("nvlink rx", "nvlink bandwidth/nvlink rx")),
    "nvlink_tx": ("NVLink sent", ("nvlink tx", "nvlink bandwidth/nvlink tx")),
}
DENSE = 4                       # periods that a launch must last for its own mean
MOST_KERNELS = 300


@dataclass(frozen=True)
class Sampled:
    """One metric of one GPU. `mean_pct` over the time in which kernels ran, `idle_pct` over samples without any; None: none."""

    key: str
    name: str                       # as the file has it
    period_ns: int
    samples: int
    mean_pct: float | None
    idle_pct: float | None
    peak_pct: float | None
    by_kernel: dict[int, tuple[float, int]] = field(default_factory=dict)       # name's code -> mean in percent, sampled ns


@dataclass(frozen=True)
class KernelTime:
    """Launches of one name on one GPU. `dense`: those of DENSE periods and more that ran alone."""

    name: int
    launches: int
    total_ns: int
    longest_ns: int
    dense: int


@dataclass(frozen=True)
class SampledGpu:
    device: int
    period_ns: int                  # of its densest metric
    busy_ns: int
    metrics: dict[str, Sampled]
    kernels: list[KernelTime]       # most time first


def sampled_gpus(frame: Frame) -> list[SampledGpu]:
    """Return the GPUs that have sampled metrics and kernels."""
    tracks: dict[int, dict[str, int]] = {}
    for number, track in enumerate(frame.tracks):
        key = _key(track.name) if track.kind == "counter" and track.unit == "%" and track.device is not None else None
        if key is not None and track.device is not None:
            tracks.setdefault(track.device, {}).setdefault(key, number)
    made = [_sampled_gpu(frame, device, found) for device, found in sorted(tracks.items())]
    return [each for each in made if each is not None]


def _key(name: str) -> str | None:
    lower = name[:300].lower()
    return next((key for key, (_, begins) in METRICS.items() if lower.startswith(begins)), None)


def _sampled_gpu(frame: Frame, device: int, tracks: dict[str, int]) -> SampledGpu | None:
    rows = frame.kernels[frame["device"][frame.kernels] == device]
    if not rows.size:
        return None
    start, end, name = frame["start_ns"][rows], frame.end_ns[rows], frame["name"][rows].astype(np.int64)
    busy = intervals.union(start, end)
    series = {key: _stretches(*frame.samples.of(track)) for key, track in tracks.items()}
    periods = [int(np.median(stop - begin)) for begin, stop, _ in series.values() if begin.size]
    if not periods:
        return None
    period = max(1, min(periods))
    before = np.maximum.accumulate(np.r_[np.int64(-1), end[:-1]])              # rows are in order of start
    after = np.r_[start[1:], np.iinfo(np.int64).max]
    alone = (start >= before) & (end <= after) & (end - start >= DENSE * period)
    metrics = {key: _sampled(key, frame.tracks[tracks[key]].name, busy, stretches, (start[alone], end[alone], name[alone]))
               for key, stretches in series.items() if stretches[0].size}
    return SampledGpu(device, period, busy.length_ns, metrics, _kernel_times(start, end, name, alone))


Stretches = tuple[Ints, Ints, Array]


def _stretches(time_ns: Ints, value: Array) -> Stretches:
    """Return (begin, end, value) of each sample's time, those without a value left out."""
    if time_ns.size < 2:
        return time_ns[:0], time_ns[:0], value[:0]
    begin, stop, kept = time_ns[:-1], time_ns[1:], value[:-1]
    good = np.isfinite(kept) & (stop > begin)
    return begin[good], stop[good], kept[good]


def _sampled(key: str, name: str, busy: Intervals, stretches: Stretches, launches: tuple[Ints, Ints, Ints]) -> Sampled:
    begin, stop, value = stretches
    inside = intervals.overlap_ns(busy, begin, stop).astype(np.float64)
    outside = np.where(inside > 0, 0.0, stop - begin)            # a gap shorter than a sample is no idle sample
    return Sampled(key, name, int(np.median(stop - begin)), int(begin.size), _mean(value, inside), _mean(value, outside),
                   float(value[inside > 0].max()) if (inside > 0).any() else None, _by_kernel(stretches, *launches))


def _mean(value: Array, weight: Array) -> float | None:
    total = float(weight.sum())
    return float((value * weight).sum() / total) if total > 0 else None


def _by_kernel(stretches: Stretches, start: Ints, end: Ints, name: Ints) -> dict[int, tuple[float, int]]:
    """Samples that lie within one launch, averaged over the launches of each name."""
    begin, stop, value = stretches
    if not start.size:
        return {}
    at = np.searchsorted(start, begin, side="right") - 1
    within = np.flatnonzero((at >= 0) & (stop <= end[np.maximum(at, 0)]))
    codes, index = np.unique(name[at[within]], return_inverse=True)
    length = (stop - begin)[within]
    spent = np.bincount(index, weights=length, minlength=codes.size)
    total = np.bincount(index, weights=length * value[within], minlength=codes.size)
    return {int(code): (float(total[i] / spent[i]), int(spent[i])) for i, code in enumerate(codes.tolist())}


def _kernel_times(start: Ints, end: Ints, name: Ints, alone: Array) -> list[KernelTime]:
    codes, index = np.unique(name, return_inverse=True)
    count, dense = np.bincount(index, minlength=codes.size), np.bincount(index[alone], minlength=codes.size)
    total, longest = np.zeros(codes.size, np.int64), np.zeros(codes.size, np.int64)
    np.add.at(total, index, end - start)
    np.maximum.at(longest, index, end - start)
    order = np.argsort(-total, kind="stable")[:MOST_KERNELS]
    return [KernelTime(int(codes[i]), int(count[i]), int(total[i]), int(longest[i]), int(dense[i])) for i in order.tolist()]
