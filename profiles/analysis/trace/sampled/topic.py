"""The topic "GPU metrics": what sampled metrics say of the GPU while it worked, and of each kernel that is long enough for
them."""

from __future__ import annotations

from typing import Any

from profiles.analysis.core.frame import Frame
from profiles.analysis.core.result import Finding, Result
from profiles.analysis.core.sentences import pct_text, time_text
from profiles.analysis.trace.sampled.metrics import DENSE, METRICS, KernelTime, SampledGpu, sampled_gpus
from profiles.ingest.naming.bands import BANDS
from profiles.ingest.naming.names import operator_of, short_name
from profiles.ingest.trace import Cell, SummaryColumn, SummaryTable

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
        {"gpu": each.device, "period_ns": each.period_ns, "busy_ns": each.busy_ns,
         **{f"{key}_pct": metric.mean_pct for key, metric in each.metrics.items()}} for each in gpus]}
    tables = [metric_table(frame, gpus), *(kernel_table(frame, each, len(gpus) > 1) for each in gpus)]
    return Result(_answer(gpus[0]), numbers, [table for table in tables if table.rows],
                  [found for each in gpus for found in _findings(frame, each)])


def _answer(gpu: SampledGpu) -> str:
    said = [f"{METRICS[key][0]} {pct_text(value)}" for key in SHOWN if (value := _mean(gpu, key)) is not None]
    dram = dram_pct(gpu)
    if dram is not None:
        said = [each for each in said if not each.startswith("DRAM")] + [f"DRAM {pct_text(dram)} of its peak"]
    long = sum(each.total_ns for each in gpu.kernels if each.dense) / max(1, sum(each.total_ns for each in gpu.kernels))
    return (f"While a kernel ran on GPU {gpu.device} ({time_text(gpu.busy_ns)}), it was on average: {', '.join(said)}; one "
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
    rows: list[list[Cell]] = [
        [frame.device_label(gpu.device), METRICS[key][0], one.name, one.mean_pct, one.idle_pct, one.peak_pct, one.samples,
         one.period_ns, BANDS[_BANDS[key]].reading(one.mean_pct) or None if key in _BANDS else None]
        for gpu in gpus for key in METRICS if (one := gpu.metrics.get(key)) is not None]
    columns = [SummaryColumn("GPU", text=True), SummaryColumn("Metric", text=True),
               SummaryColumn("As the file names it", text=True), SummaryColumn("While kernels ran", "pct"),
               SummaryColumn("Without kernels", "pct"), SummaryColumn("Highest sample", "pct"),
               SummaryColumn("Samples", "count"), SummaryColumn("Sampling period", "ns"),
               SummaryColumn("While kernels ran it reads as", text=True)]
    return SummaryTable("Metrics of the GPU", columns, rows,
                        "Of the unit's peak, each sample weighed by the time it speaks for. While kernels ran: means over "
                        "that time, so gaps between kernels do not lower them. How a mean reads: "
                        + "; ".join(f"{BANDS[band].what}: {BANDS[band].source}" for band in _BANDS.values()) + ".")


def kernel_table(frame: Frame, gpu: SampledGpu, several: bool) -> SummaryTable:
    rows: list[list[Cell]] = [
        [frame.names[each.name], each.launches, each.total_ns, each.dense,
         *(_of(gpu, key, each.name) for key in ("sm_active", "sm_issue", "tensor_active", "warps")), dram_pct(gpu, each.name),
         verdict(frame, gpu, each)] for each in gpu.kernels]
    columns = [SummaryColumn("Kernel", "kernel", text=True), SummaryColumn("Launches", "count"), SummaryColumn("Time", "ns"),
               SummaryColumn("Sampled launches", "count"), SummaryColumn("SM active", "pct"), SummaryColumn("SM issue", "pct"),
               SummaryColumn("Tensor active", "pct"), SummaryColumn("Warps in flight", "pct"), SummaryColumn("DRAM", "pct"),
               SummaryColumn("What they say", text=True)]
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
    said = []
    dram, tensor, active = dram_pct(gpu, kernel.name), _of(gpu, "tensor_active", kernel.name), _of(gpu, "sm_active", kernel.name)
    if dram is not None and dram >= LIMITS["dram_pct"]:
        said.append(f"DRAM is saturated ({pct_text(dram)})")
    if tensor is not None and tensor < LIMITS["tensor_pct"] and operator_of(frame.names[kernel.name]) in ("matmul", "attention"):
        said.append("the tensor cores are idle in a product")
    if active is not None and active < LIMITS["sm_pct"]:
        said.append(f"SMs stand without work ({pct_text(active)} active)")
    return "; ".join(said) or "nothing stands out"


def _findings(frame: Frame, gpu: SampledGpu) -> list[Finding]:
    whole = max(1, sum(each.total_ns for each in gpu.kernels))
    found = []
    for each in gpu.kernels:
        said = verdict(frame, gpu, each)
        if not each.dense or said == "nothing stands out" or 100.0 * each.total_ns / whole < LIMITS["share_pct"]:
            continue
        name = frame.names[each.name]
        found.append(Finding(
            "sampled_metrics", "info", f"`{short_name(name)}`: {said}, as samples every {time_text(gpu.period_ns)} show",
            "Capture its counters to see why: samples of the whole GPU name the unit, not the instruction.",
            {"sampling_period_ns": gpu.period_ns, "sampled_launches": each.dense, "total_ns": each.total_ns,
             **{f"{key}_pct": _of(gpu, key, each.name) for key in SHOWN}}, None, name))
    return found
