"""What benchmark suites read of captured profiles: what each kernel's launches took, and its counters in two builds.

Of one kernel in the reports of two builds: which launches are its, its numbers beside each other, and why it changed.

A report says in which NVTX ranges each launch lay; a suite's captures name the kernel there. Where the capture was of that one
kernel, every launch is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, TypedDict

import numpy as np
from django.db.models import Q
from numpy.typing import NDArray

from profiles.advice.selectors import AdviceLine, advice_lines
from profiles.analysis.compare.why import WANTED, CounterChange, Why, counter_changes, why
from profiles.analysis.core.sentences import pct_text, si_text, time_text
from profiles.base.numbers import median
from profiles.base.words import dims_text
from profiles.compare.frame_selectors import steady
from profiles.compare.line_selectors import factor_bars
from profiles.compare.selectors import COUNTERS
from profiles.ingest.naming.capture_names import capture_name
from profiles.models import KernelStat, LaunchCounters, Profile
from profiles.store.counters import metrics_by_name, words_of
from profiles.store.objects import launches_read

SIDES = ("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z")
MOST_SAMPLES = 2000          # of one kernel and shape; of more, as many evenly from first to last


@dataclass(frozen=True)
class KernelLaunches:
    """Launches of one kernel with one grid and block: one problem, as far as a trace tells."""

    name: str                           # short; with a digest where two kernels share it
    grid: str                           # "512×1×1"; "" where the trace does not say
    block: str
    us: NDArray[np.float64]             # in the order launched
    launches: int                       # of which `us` holds MOST_LAUNCHES at most
    total_us: float
    family: str = ""
    registers: int | None = None
    smem_bytes: int | None = None


def launches_by_kernel(profile: Profile) -> list[KernelLaunches]:
    """Return the launches of each kernel and shape, the longest in all first.

    Steps that compile or warm up are left out where the trace marks its steps.
    """
    table = launches_read(profile.pk)
    columns = {name: table[name].to_numpy(zero_copy_only=False) for name in ("dur_ns", "index")}
    is_kept = columns["dur_ns"] > 0
    counting = steady(profile) if profile.kind == Profile.Kind.TRACE else None
    if counting is not None and counting.steps and counting.launches.size:
        is_kept &= counting.launches[np.minimum(columns["index"], counting.launches.size - 1)]
    if not is_kept.any():
        return []
    encoded = table["name"].combine_chunks()
    codes, names = encoded.indices.to_numpy(), encoded.dictionary.to_pylist()
    shape = np.stack([np.nan_to_num(table[side].to_numpy(zero_copy_only=False), nan=-1).astype(np.int64) for side in SIDES], axis=1)
    groups, group = np.unique(np.column_stack([codes, shape])[is_kept], axis=0, return_inverse=True)
    rows, group = np.flatnonzero(is_kept), group.reshape(-1)
    shorts = _names([names[code] for code in dict.fromkeys(groups[:, 0].tolist())])
    families = dict(KernelStat.objects.filter(profile=profile, family__isnull=False).values_list("name", "family__name"))
    kernels = []
    for number, (code, *sides) in enumerate(groups.tolist()):
        mine = rows[group == number]
        mine = mine[np.argsort(columns["index"][mine], kind="stable")]
        us = columns["dur_ns"][mine].astype(np.float64) / 1000
        some = np.unique(np.linspace(0, us.size - 1, MOST_SAMPLES).astype(int)) if us.size > MOST_SAMPLES else slice(None)
        facts = {name: _most(table[column].to_numpy(zero_copy_only=False)[mine]) for name, column in
                 (("registers", "registers_per_thread"), ("smem_bytes", "smem_bytes"))}
        kernels.append(KernelLaunches(shorts[names[code]], _dim3(sides[:3]), _dim3(sides[3:]), us[some], us.size, float(us.sum()),
                              families.get(names[code], ""), **facts))
    return sorted(kernels, key=lambda one: (-one.total_us, one.name, one.grid, one.block))


def _names(full: list[str]) -> dict[str, str]:
    """Short names; two kernels that share one (instances of a template) get a digest of the full name behind it."""
    shorts = {name: capture_name(name)[:120] for name in full}
    shared = Counter(shorts.values())
    return {name: f"{short} #{sha256(name.encode()).hexdigest()[:6]}" if shared[short] > 1 else short
            for name, short in shorts.items()}


def _dim3(sides: list[int]) -> str:
    return dims_text(sides) if min(sides) > 0 else ""


def _most(values: NDArray[np.float64]) -> int | None:
    numbers = values[np.isfinite(values.astype(np.float64))]
    return int(numbers.max()) if numbers.size else None


def counters_by_kernel(profile: Profile, metrics: list[str]) -> dict[tuple[str, str, str], dict[str, float]]:
    """Return the median of each counter over a kernel's launches: (name, grid, block) → counter → median.

    Keys as `launches_by_kernel` names them; of a report, the launches that have the counter.
    """
    table = launches_read(profile.pk)
    indexes = table["index"].to_pylist()
    metrics_by_index = metrics_by_name(profile.pk, metrics, indexes)
    shorts = _names(sorted(set(table["name"].to_pylist())))
    values: dict[tuple[str, str, str], dict[str, list[float]]] = {}
    for row in table.to_pylist():
        sides = [row[side] if row[side] is not None else -1 for side in SIDES]
        key = (shorts[row["name"]], _dim3(sides[:3]), _dim3(sides[3:]))
        for metric, value in metrics_by_index.get(row["index"], {}).items():
            values.setdefault(key, {}).setdefault(metric, []).append(value)
    return {key: {metric: float(np.median(samples)) for metric, samples in by_metric.items()} for key, by_metric in values.items()}


RANGES, JOIN = "nvtx__ranges", " | "                  # as `profiles.ingest.ncu.ncu_child` writes them
MOST_READ = 40                                    # of each side that are read
ADVICE = 3
TENSOR = {
    "sm__inst_executed_pipe_tensor_op_gmma.avg.pct_of_peak_sustained_active": "Tensor cores, warp-group MMA, of peak",
    "sm__inst_executed_pipe_tensor_op_hmma.avg.pct_of_peak_sustained_active": "Tensor cores, warp MMA, of peak",
    "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active": "Tensor pipe active"}
BYTES = {"dram__bytes_read.sum": "DRAM bytes read", "dram__bytes_write.sum": "DRAM bytes written"}
LOCAL = {"derived__local_spilling_requests": "Spill requests"}


@dataclass(frozen=True)
class ReportedKernel:
    """One kernel's launches in one report."""

    profile: Profile
    kernel: KernelStat                       # the GPU kernel that took longest, where a launch of the operator makes several
    indexes: list[int]                       # its launches
    duration_ns: float | None                # median of them, under ncu
    others: int = 0                          # further GPU kernels of the same launch


class CountedJson(TypedDict):
    """A counter of a launch in both builds; null: the report does not hold it."""

    name: str
    unit: str
    baseline: float | None
    build: float | None
    change_pct: float | None


class CountedChange(CounterChange):
    """One counter of both builds, with its change in words. None: the report does not hold it."""

    @property
    def pct(self) -> float | None:
        if self.old is None or self.new is None:
            return None
        if self.old == 0:
            return 0.0 if self.new == 0 else None
        return (self.new / self.old - 1) * 100

    @property
    def same(self) -> bool:
        return self.pct is not None and abs(self.pct) < 0.005

    @property
    def texts(self) -> list[str]:
        """Both sides with their unit, "" where the report says nothing."""
        words = {"%": pct_text, "ns": time_text, "": _count}.get(self.unit) or (lambda value: si_text(value, self.unit))
        return ["" if value is None else words(value) for value in (self.old, self.new)]

    def as_json(self) -> CountedJson:
        return {"name": self.name, "unit": self.unit, "baseline": self.old, "build": self.new, "change_pct": self.pct}


@dataclass(frozen=True)
class CounterComparison:
    old: ReportedKernel | None
    new: ReportedKernel | None
    numbers: list[CountedChange] = field(default_factory=list)
    why: Why | None = None
    advice: list[AdviceLine] = field(default_factory=list)          # on the newer one

    @property
    def says(self) -> str:
        """Return the change of a launch's time under ncu and its largest part, in one sentence.

        "" where counters do not explain it.
        """
        if self.why is None or not self.bars:
            return ""
        first, delta = self.bars[0], self.why.delta_ns
        part = first["factor"].part_ns
        return (f"a launch takes {time_text(abs(delta))} {'longer' if delta > 0 else 'less'} under ncu; the largest part of it: "
                f"{first['factor'].title} {first['old']} → {first['new']}, {'+' if part > 0 else '−'}{time_text(abs(part))}")

    @property
    def bars(self) -> list[dict[str, Any]]:
        """Return what each factor adds to the time of a launch, for a picture."""
        bars = factor_bars(self.why)
        return [{**bar, "x": f"{50 - (0 if bar['worse'] else float(bar['width'])):.2f}"} for bar in bars]


def launches_of(profile: Profile, keys: Sequence[str]) -> dict[str, list[int]]:
    """Return, for each kernel key, the indexes of its launches in the report, in their order."""
    words = words_of(profile.pk, RANGES)
    by_key = {key: [index for index, text in words.items() if key in text.split(JOIN)] for key in keys}
    if len(keys) == 1 and not words:
        rows = LaunchCounters.objects.filter(profile=profile, incomplete="").order_by("index")
        return {keys[0]: list(rows.values_list("index", flat=True))}
    return by_key


def counters_in(profile: Profile, names: Sequence[str], launches: Sequence[int]) -> dict[int, dict[str, float]]:
    """Launch -> counter -> value, of those that the report has."""
    return metrics_by_name(profile.pk, names, launches)


def reported_kernel(profile: Profile, key: str, keys: Sequence[str]) -> ReportedKernel | None:
    """Return the launches of one kernel of those that the capture was of.

    None where the report has none.
    """
    return _longest_reported(profile, Q(index__in=launches_of(profile, keys).get(key, [])))


def reported_kernel_by_name(profile: Profile, name: str, grid: str, block: str) -> ReportedKernel | None:
    """Return the launches of one GPU kernel, named as `launches_by_kernel` does, with one grid and block ("512×1×1"; "": any)."""
    short = name.partition(" #")[0]
    named = profile.kernels.values_list("pk", "name", "short_name")
    condition = Q(kernel__in=[pk for pk, full, label in named if short in (label, capture_name(full))])
    for field_name, size in (("grid", grid), ("block", block)):
        condition &= Q(**{field_name: size.replace("×", " × ")}) if size else Q()
    return _longest_reported(profile, condition)


def _longest_reported(profile: Profile, wanted: Q) -> ReportedKernel | None:
    rows = (LaunchCounters.objects.filter(wanted, profile=profile, incomplete="").select_related("kernel__profile").defer("rules")
            .order_by("index"))
    by_kernel: dict[int, list[LaunchCounters]] = {}
    for row in rows:
        by_kernel.setdefault(row.kernel_id, []).append(row)
    if not by_kernel:
        return None
    longest = max(by_kernel.values(), key=lambda each: sum(row.duration_ns or 0.0 for row in each))
    return ReportedKernel(profile, longest[0].kernel, [row.index for row in longest],
                          median(row.duration_ns for row in longest), len(by_kernel) - 1)


def compare_counters(old: ReportedKernel | None, new: ReportedKernel | None) -> CounterComparison:
    """Return the counters of both builds, and why the kernel changed."""
    facts = [_facts(side) for side in (old, new)]
    raw = [_raw(side) for side in (old, new)]
    numbers = [CountedChange("Time under ncu", "ns", *(side.duration_ns if side else None for side in (old, new)))]
    numbers += [CountedChange(each.name, each.unit, each.old, each.new) for each in counter_changes(facts[0], facts[1], COUNTERS)]
    tensor = [median(sum(values.values()) for launch in side if (values := launch.get("tensor_instructions"))) for side in facts]
    numbers.append(CountedChange("Tensor-core operations", "FLOP", *tensor))
    for unit, named in (("B", BYTES), ("%", TENSOR), ("", LOCAL)):
        numbers += [CountedChange(name, unit, *(median(launch[metric] for launch in side if metric in launch) for side in raw))
                    for metric, name in named.items()]
    told = [change for change in numbers if change.old is not None or change.new is not None]
    return CounterComparison(old, new, told, why(*raw) if old and new else None, advice_lines(new.kernel)[:ADVICE] if new else [])


def _count(value: float) -> str:
    return f"{value:,.0f}" if float(value).is_integer() else si_text(value, "")


def _facts(side: ReportedKernel | None) -> list[Mapping[str, Any]]:
    if side is None:
        return []
    rows = LaunchCounters.objects.filter(profile=side.profile, index__in=side.indexes[:MOST_READ])
    return list(rows.values_list("facts", flat=True))


def _raw(side: ReportedKernel | None) -> list[dict[str, float]]:
    if side is None:
        return []
    return list(metrics_by_name(side.profile.pk, [*WANTED, *BYTES, *TENSOR, *LOCAL], side.indexes[:MOST_READ]).values())
