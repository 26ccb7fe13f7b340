"""The topic "GPU metrics": what sampled metrics say of the GPU while it worked, and of each kernel that is long enough for
them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from profiles.analysis.core import intervals
from profiles.analysis.core.frame import Frame
from profiles.analysis.core.intervals import Intervals
from profiles.analysis.core.result import Finding, Result
from profiles.analysis.core.sentences import pct_text, time_text
from profiles.ingest.arrays import Array, Ints, stable_order
from profiles.ingest.naming.bands import BANDS
from profiles.ingest.naming.names import operator_of, short_name
from profiles.ingest.trace import CellRows, SummaryTable, summary_columns, with_rows

# GPU metrics sampled beside a trace (Nsight Systems, `--gpu-metrics-devices`): over the time of kernels, and of each kernel.
#
# A sample speaks for the time from it to the next one of its metric (as the reader keeps them; NaN: nothing is known from there
# on). The mean over busy time weighs each sample by the part of its time in which a kernel ran on that GPU. Of one kernel only
# samples count whose whole time lies within one of its launches while no other kernel ran, and only launches of DENSE periods and
# more: shorter ones share their samples with their neighbours, so what they did is unknown.
#
# Names of metrics: Nsight Systems User Guide, "GPU Metrics"; they differ between GPUs ("SM Active", "SMs Active"). Shares of
# peak, 0-100.

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
    gpus = [_sampled_gpu(frame, device, numbers) for device, numbers in sorted(tracks.items())]
    return [sampled for sampled in gpus if sampled is not None]


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
    begin, stop, values = time_ns[:-1], time_ns[1:], value[:-1]
    good = np.isfinite(values) & (stop > begin)
    return begin[good], stop[good], values[good]


def _sampled(key: str, name: str, busy: Intervals, stretches: Stretches, launches: tuple[Ints, Ints, Ints]) -> Sampled:
    begin, stop, value = stretches
    inside = intervals.overlap_ns(busy, begin, stop).astype(np.float64)
    outside = np.where(inside > 0, 0.0, stop - begin)            # a gap shorter than a sample is no idle sample
    return Sampled(key, name, int(np.median(stop - begin)), int(begin.size), _weighted_mean(value, inside),
                   _weighted_mean(value, outside),
                   float(value[inside > 0].max()) if (inside > 0).any() else None, _by_kernel(stretches, *launches))


def _weighted_mean(value: Array, weight: Array) -> float | None:
    total = float(weight.sum())
    return float((value * weight).sum() / total) if total > 0 else None


def _by_kernel(stretches: Stretches, start: Ints, end: Ints, name: Ints) -> dict[int, tuple[float, int]]:
    """Samples that lie within one launch, averaged over the launches of each name."""
    begin, stop, value = stretches
    if not start.size:
        return {}
    positions = np.searchsorted(start, begin, side="right") - 1
    within = np.flatnonzero((positions >= 0) & (stop <= end[np.maximum(positions, 0)]))
    codes, index = np.unique(name[positions[within]], return_inverse=True)
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
    order = stable_order(-total)[:MOST_KERNELS]
    return [KernelTime(int(codes[i]), int(count[i]), int(total[i]), int(longest[i]), int(dense[i])) for i in order.tolist()]


LIMITS: dict[str, float] = {
    "dram_pct": 70.0,            # read and written together: DRAM is what limits (a rule of thumb, as in kernel.advising.evidence)
    "tensor_pct": 1.0,           # below it the tensor cores did nothing
    "sm_pct": BANDS["sm_active"].limits[-1],      # below it SMs stood without a warp while a kernel ran
    "share_pct": 10.0,           # of the kernels' time, to be a finding
}
_BANDS = {"sm_active": "sm_active", "tensor_active": "tensor"}       # metric -> what calls its mean
SHOWN = ("sm_active", "sm_issue", "tensor_active", "warps", "dram_read", "dram_write")


def sampled_result(frame: Frame) -> Result:
    gpus = sampled_gpus(frame)
    if not gpus:
        return Result("The trace holds no sampled GPU metrics (SM active, tensor active, DRAM bandwidth) beside its kernels. "
                      "Record "
                      "them with `nsys profile --gpu-metrics-devices=all`.", applies=False)
    numbers: dict[str, Any] = {"limits": LIMITS, "dense_periods": DENSE, "gpus": [
        {"gpu": gpu.device, "period_ns": gpu.period_ns, "busy_ns": gpu.busy_ns,
         **{f"{key}_pct": metric.mean_pct for key, metric in gpu.metrics.items()}} for gpu in gpus]}
    tables = [metric_table(frame, gpus), *(kernel_table(frame, gpu, len(gpus) > 1) for gpu in gpus)]
    return Result(_answer(gpus[0]), numbers, with_rows(tables),
                  [finding for gpu in gpus for finding in _findings(frame, gpu)])


def _answer(gpu: SampledGpu) -> str:
    texts = [f"{METRICS[key][0]} {pct_text(value)}" for key in SHOWN if (value := _mean(gpu, key)) is not None]
    dram = dram_pct(gpu)
    if dram is not None:
        texts = [text for text in texts if not text.startswith("DRAM")] + [f"DRAM {pct_text(dram)} of its peak"]
    long = sum(kernel.total_ns for kernel in gpu.kernels if kernel.dense) / max(1, sum(kernel.total_ns for kernel in gpu.kernels))
    return (f"While a kernel ran on GPU {gpu.device} ({time_text(gpu.busy_ns)}), it was on average: {', '.join(texts)}; one "
            "sample every "
            f"{time_text(gpu.period_ns)}, dense enough to speak of kernels that make {pct_text(100 * long)} of the kernels' "
            "time.")


def _mean(gpu: SampledGpu, key: str) -> float | None:
    return gpu.metrics[key].mean_pct if key in gpu.metrics else None


def dram_pct(gpu: SampledGpu, kernel: int | None = None) -> float | None:
    """Return read and written bandwidth together, of the peak; None where one of them is not known."""
    parts = [_of(gpu, key, kernel) for key in ("dram_read", "dram_write")]
    return None if None in parts else sum(part for part in parts if part is not None)


def _of(gpu: SampledGpu, key: str, kernel: int | None) -> float | None:
    if kernel is None:
        return _mean(gpu, key)
    metric = gpu.metrics.get(key)
    return metric.by_kernel[kernel][0] if metric and kernel in metric.by_kernel else None


def metric_table(frame: Frame, gpus: list[SampledGpu]) -> SummaryTable:
    rows: CellRows = [
        [frame.device_label(gpu.device), METRICS[key][0], one.name, one.mean_pct, one.idle_pct, one.peak_pct, one.samples,
         one.period_ns, BANDS[_BANDS[key]].reading(one.mean_pct) or None if key in _BANDS else None]
        for gpu in gpus for key in METRICS if (one := gpu.metrics.get(key)) is not None]
    columns = summary_columns("GPU: text | Metric: text | As the file names it: text | While kernels ran: pct | "
                              "Without kernels: pct | Highest sample: pct | Samples: count | Sampling period: ns | "
                              "While kernels ran it reads as: text")
    return SummaryTable("Metrics of the GPU", columns, rows,
                        "Of the unit's peak, each sample weighed by the time it speaks for. While kernels ran: means over "
                        "that time, so gaps between kernels do not lower them. How a mean reads: "
                        + "; ".join(f"{BANDS[band].what}: {BANDS[band].source}" for band in _BANDS.values()) + ".")


def kernel_table(frame: Frame, gpu: SampledGpu, several: bool) -> SummaryTable:
    rows: CellRows = [
        [frame.names[kernel.name], kernel.launches, kernel.total_ns, kernel.dense,
         *(_of(gpu, key, kernel.name) for key in ("sm_active", "sm_issue", "tensor_active", "warps")), dram_pct(gpu, kernel.name),
         verdict(frame, gpu, kernel)] for kernel in gpu.kernels]
    columns = summary_columns("Kernel: kernel | Launches: count | Time: ns | Sampled launches: count | SM active: pct | "
                              "SM issue: pct | Tensor active: pct | Warps in flight: pct | DRAM: pct | What they say: text")
    return SummaryTable(f"Metrics of each kernel{f', {frame.device_label(gpu.device)}' if several else ''}", columns, rows,
                        f"Means of the samples that lie within launches of {DENSE} sampling periods "
                        f"({time_text(DENSE * gpu.period_ns)}) "
                        "and more which ran alone; shorter launches share their samples with others: unknown. DRAM: read and "
                        "written.")


def verdict(frame: Frame, gpu: SampledGpu, kernel: KernelTime) -> str:
    """Return what the samples say of a kernel, or why they say nothing."""
    if not kernel.dense:
        short = kernel.longest_ns < DENSE * gpu.period_ns
        return "unknown: its launches are too short for the sampling period" if short else "unknown: other kernels ran beside it"
    texts = []
    dram, tensor, active = dram_pct(gpu, kernel.name), _of(gpu, "tensor_active", kernel.name), _of(gpu, "sm_active", kernel.name)
    if dram is not None and dram >= LIMITS["dram_pct"]:
        texts.append(f"DRAM is saturated ({pct_text(dram)})")
    if tensor is not None and tensor < LIMITS["tensor_pct"] and operator_of(frame.names[kernel.name]) in ("matmul", "attention"):
        texts.append("the tensor cores are idle in a product")
    if active is not None and active < LIMITS["sm_pct"]:
        texts.append(f"SMs stand without work ({pct_text(active)} active)")
    return "; ".join(texts) or "nothing stands out"


def _findings(frame: Frame, gpu: SampledGpu) -> list[Finding]:
    whole = max(1, sum(kernel.total_ns for kernel in gpu.kernels))
    findings = []
    for kernel in gpu.kernels:
        text = verdict(frame, gpu, kernel)
        if not kernel.dense or text == "nothing stands out" or 100.0 * kernel.total_ns / whole < LIMITS["share_pct"]:
            continue
        name = frame.names[kernel.name]
        findings.append(Finding(
            "sampled_metrics", "info", f"`{short_name(name)}`: {text}, as samples every {time_text(gpu.period_ns)} show",
            "Capture its counters to see why: samples of the whole GPU name the unit, not the instruction.",
            {"sampling_period_ns": gpu.period_ns, "sampled_launches": kernel.dense, "total_ns": kernel.total_ns,
             **{f"{key}_pct": _of(gpu, key, kernel.name) for key in SHOWN}}, None, name))
    return findings
